"""Small problems that tests share."""

from __future__ import annotations

import torch

from pdadmm.config import Config
from pdadmm.engine.core import Engine
from pdadmm.engine.problem import Problem
from pdadmm.math.losses import is_regression

ALL_SOLVERS = [
    {"solver": "exact"},
    {"solver": "linearized"},
    {"solver": "linearized", "step_size": "one"},
    {"solver": "backtracking"},
]


def solver_id(options: dict[str, str]) -> str:
    return "-".join(options.values())


def make_problem(config: Config, samples: int = 600, features: int = 7, outputs: int = 3, seed: int = 0) -> Problem:
    """Three noisy blobs, or three smooth functions; some samples weigh more than others."""
    generator = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, config.dtype)
    x = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    mixing = torch.randn(features, outputs, generator=generator, dtype=torch.float64)
    score = torch.tanh(x) @ mixing
    weight = 0.5 + torch.rand(samples, generator=generator, dtype=torch.float64)
    y = score.to(dtype) if is_regression(config) else score.argmax(1)
    return Problem.whole(x.to(dtype), y, weight.to(dtype), outputs)


def make_engine(config: Config, problem: Problem) -> Engine:
    """An engine with all layers from the start."""
    engine = Engine(config, problem, range(len(config.hidden)))
    engine.build()
    return engine
