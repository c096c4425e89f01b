"""The settings of plausibility: which of its parts speak."""

from dataclasses import dataclass
from typing import TypedDict

from cascader.models.settings import Settings


@dataclass(frozen=True)
class PlausibilitySettings(Settings):
    """The parts of plausibility, each of which can be switched off."""

    completeness: bool = True  #: how many facts of the asked relation a candidate already has on the asked side
    anchor: bool = True  #: whether the candidate is the entity that the question is about
    signature: bool = True  #: which other relations the candidate takes part in, on which side, and how often
    linked: bool = True  #: by which relations the candidate is already linked to the anchor


class PlausibilityOptions(TypedDict, total=False):
    """The same settings as keywords, for type checkers and editors."""

    completeness: bool
    anchor: bool
    signature: bool
    linked: bool
