"""A page with pictures and tables of what was predicted and measured.

Records become chapters, one for each device; a chapter becomes pictures, tables and its part of the page.
"""

from gemmsim.report.page import write_report

__all__ = ["write_report"]
