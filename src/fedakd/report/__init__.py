"""The report of a run or a comparison: one page that needs nothing else, or its tables in other forms."""

from __future__ import annotations

from fedakd.report.forms import csv, latex, markdown
from fedakd.report.page import html
from fedakd.report.published import printed

__all__ = ["csv", "html", "latex", "markdown", "printed"]
