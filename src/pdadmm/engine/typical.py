"""A core of a present server, as `pdadmm simulate --calibrate` measured one (AMD EPYC, AVX-512), at 80 Gflop/s."""

from __future__ import annotations

from pdadmm.engine.cost import Layer, Phase, Speed, Work

_SECONDS: dict[tuple[str, Layer, Phase], Work] = {
    ("exact", "hidden", "m"): Work(outputs=6.31e-10, tiles=2.67e-05),
    ("exact", "first", "p"): Work(products=1.18e-11, inputs=7.93e-10, outputs=1.07e-09, tiles=4.07e-05, steps=6.08e-05),
    ("exact", "first", "W"): Work(cubes=4.17e-12, systems=2.5e-11, weights=1.34e-08, steps=0.000411),
    ("exact", "first", "z"): Work(products=1.27e-11, inputs=6.94e-10, outputs=5.75e-09, tiles=0.000245, steps=2.31e-05),
    ("exact", "hidden", "p"): Work(
        products=1.23e-11,
        cubes=1.78e-11,
        systems=1.15e-11,
        inputs=5.41e-09,
        outputs=5.33e-11,
        rows=7.8e-07,
        weights=9.07e-09,
        steps=0.000163,
    ),
    ("exact", "hidden", "W"): Work(systems=3.89e-11, weights=1.32e-08, steps=0.000347),
    ("exact", "hidden", "z"): Work(products=1.38e-11, inputs=1.01e-11, outputs=3.85e-09, rows=6.38e-07, tiles=0.000132),
    ("exact", "output", "p"): Work(
        products=1.34e-11,
        cubes=1.52e-11,
        systems=5.57e-11,
        inputs=2.46e-09,
        outputs=5.83e-11,
        rows=6.84e-07,
        tiles=9.78e-05,
        weights=1.19e-08,
        steps=0.000218,
    ),
    ("exact", "output", "W"): Work(systems=3.34e-11, weights=1.38e-08, steps=0.000404),
    ("exact", "output", "z"): Work(products=6.63e-11, inputs=6.84e-10, rows=1.73e-06, tiles=0.000806, steps=0.00114),
    ("linearized", "hidden", "m"): Work(outputs=6.78e-10, tiles=2.68e-05),
    ("linearized", "first", "p"): Work(
        products=1.26e-11, inputs=9.16e-10, outputs=1.49e-09, tiles=5.01e-05, steps=0.000101
    ),
    ("linearized", "first", "W"): Work(
        products=1.45e-11, inputs=5.57e-10, outputs=1.66e-10, tiles=5.28e-05, weights=2.75e-10, steps=0.000205
    ),
    ("linearized", "first", "z"): Work(outputs=6.27e-09, tiles=0.000242, steps=0.000153),
    ("linearized", "hidden", "p"): Work(
        products=1.33e-11, inputs=3.05e-09, outputs=2.41e-09, rows=2.87e-09, tiles=0.000203, steps=0.000358
    ),
    ("linearized", "hidden", "W"): Work(
        products=1.48e-11, inputs=1.67e-10, outputs=3.12e-10, rows=2.19e-07, weights=2.1e-09, steps=0.000173
    ),
    ("linearized", "hidden", "z"): Work(outputs=6.47e-09, tiles=0.000218, steps=0.000263),
    ("linearized", "output", "p"): Work(
        products=1.51e-11, inputs=2.37e-09, outputs=7.1e-11, tiles=0.000239, steps=0.000321
    ),
    ("linearized", "output", "W"): Work(
        products=1.33e-11, inputs=6.56e-10, tiles=3.29e-05, weights=1.8e-08, steps=0.000232
    ),
    ("linearized", "output", "z"): Work(inputs=8.7e-10, outputs=2.11e-08, rows=1.58e-06, tiles=0.00094, steps=0.000145),
    ("backtracking", "hidden", "m"): Work(outputs=6.95e-10, tiles=3.15e-05),
    ("backtracking", "first", "p"): Work(
        products=1.66e-11, inputs=2.85e-10, outputs=1.03e-09, tiles=5.35e-05, steps=0.0006
    ),
    ("backtracking", "first", "W"): Work(
        products=1.63e-11, inputs=7.42e-10, outputs=7.8e-10, rows=9.86e-08, steps=0.000646
    ),
    ("backtracking", "first", "z"): Work(outputs=7.06e-09, tiles=0.000216, steps=0.000736),
    ("backtracking", "hidden", "p"): Work(
        products=1.51e-11, inputs=1.18e-09, outputs=1.7e-09, tiles=0.000327, steps=0.00107
    ),
    ("backtracking", "hidden", "W"): Work(
        products=1.54e-11, outputs=6.96e-11, rows=1.85e-07, tiles=9.32e-06, weights=3.56e-09, steps=0.000407
    ),
    ("backtracking", "hidden", "z"): Work(outputs=6.48e-09, tiles=0.000252, steps=0.000368),
    ("backtracking", "output", "p"): Work(products=1.71e-11, inputs=2.61e-09, tiles=0.000337, steps=0.000608),
    ("backtracking", "output", "W"): Work(
        products=1.87e-11, inputs=5.55e-10, tiles=3.81e-05, weights=6.84e-09, steps=0.000325
    ),
    ("backtracking", "output", "z"): Work(
        inputs=1.52e-10, outputs=2.51e-08, rows=1.58e-06, tiles=0.00056, steps=0.00134
    ),
}

TYPICAL = Speed(80.0, _SECONDS)
"""Placement needs only the proportions."""
