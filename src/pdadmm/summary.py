"""How a run ended, on what machine, in what time: the content of `summary.json`."""

from __future__ import annotations

import dataclasses
import platform
import resource
from typing import Any

import numpy as np
import torch

from pdadmm.data import Dataset
from pdadmm.engine.launch import restarts
from pdadmm.machine import usable_cores
from pdadmm.notation import format_hidden
from pdadmm.trainer import Result
from pdadmm.version import __version__


def summarise(result: Result, data: Dataset) -> dict[str, Any]:
    """Plain values, ready for JSON."""
    last, history = result.history[-1], result.history
    return {
        "status": result.status,
        "method": result.config.method,
        "advice": result.advice,
        "epochs": last["epoch"],
        "seconds": sum(row["seconds"] for row in history),
        "scores": {name: last[name] for name in last if name.endswith(("_accuracy", "_r2"))},
        "objective": last["objective"],
        "residual": last.get("residual"),
        "uncertified_epochs": [row["epoch"] for row in history if not row.get("certified", True)],
        "data": {
            "name": data.name,
            "train_samples": len(data.train.X),
            "test_samples": len(data.test.X) if data.test else 0,
            "features": data.train.X.shape[1],
        },
        "network": {
            "hidden": format_hidden(result.model.network.hidden),
            "outputs": result.model.preprocessor.num_outputs,
            "activation": result.model.network.activations.name,
        },
        "workers": [
            dataclasses.asdict(usage) | {"compute_seconds": usage.compute_seconds, "idle_share": usage.idle_share}
            for usage in result.usage
        ],
        "restarts": restarts(),
        "resumed_from": result.resumed_from,
        "checkpoints": dataclasses.asdict(result.checkpoints) if result.checkpoints else None,
        "environment": {
            "pdadmm": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "usable_cores": usable_cores(),
            "threads": torch.get_num_threads(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        },
    }
