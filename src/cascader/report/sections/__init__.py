"""Figures, tables and sentences, made from the numbers alone."""

from collections.abc import Callable, Mapping
from typing import Any

from cascader.report.sections.diversity import correlations, distributions
from cascader.report.sections.reliability import reliability
from cascader.report.sections.results import main_table, slices, tiers
from cascader.report.sections.reweighting import margins, reweighting
from cascader.report.sections.section import Cell, Figure, Section, Table
from cascader.report.sections.trade_offs import budgets, coverage, pareto

__all__ = ["Cell", "Figure", "Section", "Table", "sections_of"]

Numbers = Mapping[str, Any]

#: In the order of the page: the analysis, its title, and what makes a section of it.
_SECTIONS: dict[str, tuple[str, Callable[[Numbers], Section]]] = {
    "main_table": ("Results", main_table),
    "pareto": ("What accuracy costs", pareto),
    "budgets": ("The best within a budget", budgets),
    "reweighting": ("With and without reweighting", reweighting),
    "margins": ("Margins and ranks", margins),
    "correlations": ("How alike the tiers are", correlations),
    "distributions": ("How the tiers spread their scores", distributions),
    "coverage": ("What the pruners promise and keep", coverage),
    "reliability": ("Are the probabilities right?", reliability),
    "tiers": ("The tiers", tiers),
    "slices": ("By kinds of queries", slices),
}


def sections_of(analyses: Numbers) -> list[Section]:
    """All sections of the page; of an analysis that was left out, the sentence that says why."""
    return [_section(name, analyses[name]) for name in _SECTIONS if name in analyses]


def _section(name: str, numbers: Numbers) -> Section:
    title, make = _SECTIONS[name]
    if "left_out" in numbers:
        return Section(name, title, [f"Left out: {numbers['left_out']}"])
    made = make(numbers)
    return Section(name, title, made.text, made.figures, made.tables)
