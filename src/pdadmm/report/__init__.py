"""The report: runs and experiments of a folder as one page to look at, which needs nothing else."""

from pdadmm.report.write import Report, write_report

__all__ = ["Report", "write_report"]
