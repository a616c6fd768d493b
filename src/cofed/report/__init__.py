"""One page of HTML for any set of runs, which opens from disk without a network: `cofed report DIR`."""

from cofed.report.page import Report, write_report

__all__ = ["Report", "write_report"]
