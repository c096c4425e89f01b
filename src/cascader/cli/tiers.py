"""Which tiers a command asks for, and with which settings."""

from pathlib import Path
from typing import Any

from cascader.errors import SettingsError
from cascader.graph import KnowledgeGraph

#: An embedding, and one to add to it.
_MOST_MODELS = 2


def kinds_of(tiers: str, model: str, kg: KnowledgeGraph) -> dict[str, str]:
    """Which tiers there will be, and what each is: {"kge": "complex", "dual": "dual"}."""
    from cascader.models.embeddings import EMBEDDINGS
    from cascader.models.text.texts import has_texts
    from cascader.runs import TIERS

    names = [name.strip() for name in model.split(",")]
    for name in names:
        if name not in EMBEDDINGS:
            raise SettingsError(f"there is no model {name!r}. Choose one of: {', '.join(EMBEDDINGS)}.")
    if len(names) > _MOST_MODELS:
        raise SettingsError(f"--model names {len(names)} models, expected one or two.")
    wanted = tier_names(tiers or ("kge,dual,cross" if has_texts(kg) else "kge"))
    kinds = {"kge": names[0], "kge2": names[-1]} if len(names) > 1 and "kge" in wanted else {"kge": names[0]}
    return {tier: kinds.get(tier, tier) for tier in TIERS if tier in {*wanted, *(kinds if "kge" in wanted else ())}}


def tier_names(tiers: str) -> list[str]:
    """Tiers by name, in the order of the cascade."""
    from cascader.runs import TIERS

    asked = [tier.strip() for tier in tiers.split(",")]
    for tier in asked:
        if tier not in TIERS:
            raise SettingsError(f"there is no tier {tier!r}. Choose from: {', '.join(TIERS)}.")
    return [tier for tier in TIERS if tier in asked]


def parsed_settings(settings: list[str], tiers: list[str]) -> dict[str, dict[str, Any]]:
    """Settings of the form name=value, or tier.name=value, by tier; numbers become numbers."""
    parsed: dict[str, dict[str, Any]] = {tier: {} for tier in tiers}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise SettingsError(f"--set {setting!r} has no value. Write it as --set name=value.")
        tier, dot, inner = name.strip().rpartition(".")
        tier = tier if dot else tiers[0]
        if tier not in parsed:
            raise SettingsError(f"--set {setting!r} is for the tier {tier!r}, but --tiers is {','.join(tiers)}.")
        parsed[tier][inner] = _number_or_text(value.strip())
    return parsed


def _number_or_text(value: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def model_of(kind: str, settings: dict[str, Any]) -> Any:  # noqa: ANN401 - any tier's model
    """A model of a kind, not yet trained."""
    from cascader.models.embeddings import EMBEDDINGS
    from cascader.models.text import CrossEncoder, DualEncoder

    kinds: dict[str, Any] = {**EMBEDDINGS, "dual": DualEncoder, "cross": CrossEncoder}
    return kinds[kind](**settings)


def check_same(folder: Path, tier: str, found: Any, wanted: Any) -> None:  # noqa: ANN401 - any tier's models
    """A tier that is there already must be the one that is asked for."""
    settings, asked = found.settings.as_dict(), wanted.settings.as_dict()
    for name in asked:
        if settings.get(name) != asked[name]:
            raise SettingsError(
                f"the tier {tier} of {folder} is finished, with {name} {settings.get(name)!r} and not "
                f"{asked[name]!r}. Name another folder with --out."
            )
