"""What this machine and a link can do: measured once, saved, and used by `pdadmm simulate`."""

from pdadmm.calibration.blocks import BlockTimes, measure_block
from pdadmm.calibration.fit import measure_speed
from pdadmm.calibration.link import measure_link, measure_slowdown
from pdadmm.calibration.store import Calibration, default_path, load_calibration, save_calibration

__all__ = [
    "BlockTimes",
    "Calibration",
    "default_path",
    "load_calibration",
    "measure_block",
    "measure_link",
    "measure_slowdown",
    "measure_speed",
    "save_calibration",
]
