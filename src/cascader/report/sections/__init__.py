"""The sections of a report, one module each: `numbers` computes, `section` writes, and `TITLE` heads it.

A new section is a new module and one entry in `SECTIONS`; its module's name is its key in `report.json`.
"""

from typing import Any, Protocol

from cascader.report.inputs import ReportInputs
from cascader.report.section import Numbers, Section
from cascader.report.sections import (
    budgets,
    correlations,
    coverage,
    distributions,
    main_table,
    margins,
    pareto,
    reliability,
    slices,
    tiers,
    weights,
)

__all__ = ["SECTIONS", "compute_sections", "write_sections"]


class SectionModule(Protocol):
    """What a module of this package offers."""

    __name__: str
    TITLE: str

    def numbers(self, inputs: ReportInputs) -> dict[str, Any]:
        """What the section shows, or `skipped(reason)`."""
        ...

    def section(self, numbers: Numbers) -> Section:
        """The section, made from its numbers alone."""
        ...


#: In the order of the page.
_MODULES: tuple[SectionModule, ...] = (
    main_table,
    pareto,
    budgets,
    weights,
    margins,
    correlations,
    distributions,
    coverage,
    reliability,
    tiers,
    slices,
)
SECTIONS: dict[str, SectionModule] = {module.__name__.rpartition(".")[2]: module for module in _MODULES}


def compute_sections(inputs: ReportInputs) -> dict[str, dict[str, Any]]:
    """The numbers of every section, by key."""
    return {key: module.numbers(inputs) for key, module in SECTIONS.items()}


def write_sections(numbers: Numbers) -> dict[str, Section]:
    """Every section that there are numbers for, by key."""
    return {key: _written(module, numbers[key]) for key, module in SECTIONS.items() if key in numbers}


def _written(module: SectionModule, numbers: Numbers) -> Section:
    if "skipped" in numbers:
        return Section(module.TITLE, [f"Skipped: {numbers['skipped']}"])
    return module.section(numbers)
