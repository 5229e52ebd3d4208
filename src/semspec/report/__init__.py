"""The report: tables, figures and one self-contained page from what the stages wrote."""

from semspec.report.page import build
from semspec.report.tables import render_table

__all__ = ["build", "render_table"]
