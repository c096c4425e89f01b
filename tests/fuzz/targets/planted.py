"""Cases that do what none may: what the tests of fuzzing plant, to see it found. `make fuzz` leaves this target out."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from tests.fuzz.material import Material


@dataclass(frozen=True)
class Planted:
    """A number: most do nothing, a few do harm."""

    number: int

    def prepare(self, folder: Path) -> None:
        """Write the number down."""
        (folder / "number.txt").write_text(str(self.number))

    def perform(self, folder: Path) -> str:
        """Do what this number does."""
        if self.number > 900:
            raise ZeroDivisionError(f"{self.number} is above 900")
        if self.number == 13:
            time.sleep(60)
        if self.number == 14:
            os.kill(os.getpid(), signal.SIGSEGV)
        return "It is odd." if self.number % 2 else ""


def cases(material: Material) -> st.SearchStrategy[Planted]:
    """Draw numbers; the name of the material says which."""
    low, high = (int(bound) for bound in material.folder.name.split("-"))
    return st.builds(Planted, st.integers(low, high))
