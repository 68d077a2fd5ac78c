"""Train on your own arrays: real-valued targets, sample weights, and a look at every epoch.

python examples/arrays.py
"""

from __future__ import annotations

import numpy as np

import pdadmm
from pdadmm.history import Row

# A function of two inputs, with noise; some samples were measured twice as well as others.
rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(1200, 2))
y = X[:, 0] * X[:, 1] + rng.normal(scale=0.05, size=1200)
weight = rng.choice([1.0, 2.0], size=1200)

# A data set is a training part, a test part or None, and names for the features.
data = pdadmm.Dataset(
    "saddle",
    pdadmm.Part(X[:1000], y[:1000], weight[:1000]),
    pdadmm.Part(X[1000:], y[1000:]),
    ("east", "north"),
)

# Features and targets are scaled inside; predictions are in the units of y again.
config = pdadmm.Config(hidden=(60,) * 3, loss="huber", epochs=80, threads=1)


def tell(row: Row) -> None:
    """Hear of every twentieth epoch."""
    if row["epoch"] % 20 == 0:
        print(f"epoch {row['epoch']}: R² on test samples {row['test_r2']:.3f}")


result = pdadmm.train(config, data, pdadmm.Observer(on_row=tell, on_note=lambda note: None))

point = np.array([[0.8, 1.0]])
print(f"at (0.8, 1.0): predicted {result.model.predict(point)[0]:.2f}, true 0.80")
