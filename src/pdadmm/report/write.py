"""From a folder to `report.html`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pdadmm.errors import UserError
from pdadmm.report.experiments import Experiment, read_experiment
from pdadmm.report.runs import FoundRun, find_folders, read_run
from pdadmm.rundir import REPORT_FILE, make_directory, write_whole


@dataclass(frozen=True)
class Report:
    """What was found and where it was written."""

    path: Path
    runs: list[FoundRun]
    experiments: list[Experiment]

    @property
    def problems(self) -> list[str]:
        """What could not be read."""
        found = [entry.problems for entry in self.runs] + [entry.problems for entry in self.experiments]
        return [problem for problems in found for problem in problems]


def write_report(folder: Path, out: Path | None = None) -> Report:
    """Write `report.html` of all runs and experiments at or below `folder`, into `out` or the folder itself."""
    try:
        from pdadmm.report.page import make_page
    except ImportError:
        raise UserError("a report needs Altair, vl-convert and Jinja2: pip install 'pdadmm[report]'") from None
    if not folder.is_dir():
        raise UserError(f"RUN_OR_FOLDER must be a directory; got {str(folder)!r}")
    runs, experiments = find_folders(folder)
    if not runs and not experiments:
        raise UserError(f"no run is at or below {folder}: none of its directories has a history.jsonl")
    target = out or folder
    make_directory(target)
    report = Report(
        target / REPORT_FILE,
        [read_run(path, folder) for path in runs],
        [read_experiment(path) for path in experiments],
    )
    page = make_page(folder, report.runs, report.experiments, report.problems)
    write_whole(report.path, page.encode("utf-8", "replace"))
    return report
