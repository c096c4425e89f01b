"""The sections of a report; each is a `Part`, which computes its numbers and writes it from them alone.

A new section is a new part and one entry in `_PARTS`.
"""

from typing import Any

from cascader.report.inputs import ReportInputs
from cascader.report.section import Numbers, Part, Section
from cascader.report.sections.costs import BUDGETS, PARETO
from cascader.report.sections.diversity import CORRELATIONS, DISTRIBUTIONS
from cascader.report.sections.reliability import COVERAGE, RELIABILITY
from cascader.report.sections.results import MAIN_TABLE, SLICES, TIERS
from cascader.report.sections.weights import MARGINS, WEIGHTS

__all__ = ["SECTIONS", "compute_sections", "write_sections"]

#: In the order of the page.
_PARTS = (
    MAIN_TABLE,
    PARETO,
    BUDGETS,
    WEIGHTS,
    MARGINS,
    CORRELATIONS,
    DISTRIBUTIONS,
    COVERAGE,
    RELIABILITY,
    TIERS,
    SLICES,
)
SECTIONS: dict[str, Part] = {part.key: part for part in _PARTS}


def compute_sections(inputs: ReportInputs) -> dict[str, dict[str, Any]]:
    """The numbers of every section, by key."""
    return {key: part.numbers(inputs) for key, part in SECTIONS.items()}


def write_sections(numbers: Numbers) -> dict[str, Section]:
    """Every section that there are numbers for, by key."""
    return {key: part.write(numbers[key]) for key, part in SECTIONS.items() if key in numbers}
