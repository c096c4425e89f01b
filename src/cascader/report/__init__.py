"""The report of a run: numbers, then figures and sentences, then one page."""

from cascader.report.analyses import about_tiers, analyse
from cascader.report.page import write_report

__all__ = ["about_tiers", "analyse", "write_report"]
