"""A page with pictures and tables of what was predicted and measured.

Records become findings, one for each device; findings become pictures and tables, chapter by chapter, and these the
page.
"""

from gemmsim.report.page import write_report

__all__ = ["write_report"]
