"""The report of a run: numbers first, then one page drawn from the numbers alone."""

from cascader.report.report import analyze, write_report

__all__ = ["analyze", "write_report"]
