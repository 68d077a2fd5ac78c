"""Two methods, one network: pdadmm learns fast in its first epochs, Adam takes its weights further.

python examples/hand_over.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pdadmm

data = pdadmm.load_data("digits")
quiet = pdadmm.Observer(on_note=lambda note: None)
hidden = (50,) * 5

first = pdadmm.train(pdadmm.Config(hidden=hidden, epochs=20, threads=1), data, quiet)

with TemporaryDirectory() as folder:
    start = Path(folder) / "model.safetensors"
    first.model.save(start)
    config = pdadmm.Config(hidden=hidden, method="adam", learning_rate=3e-4, epochs=40, init_from=str(start), threads=1)
    second = pdadmm.train(config, data, quiet)

alone = pdadmm.train(pdadmm.Config(hidden=hidden, method="adam", epochs=60, threads=1), data, quiet)

for name, result in (("20 of pdadmm", first), ("then 40 of Adam", second), ("60 of Adam alone", alone)):
    row = result.history[-1]
    print(f"{name:<17} train {row['train_accuracy']:.3f}  test {row['test_accuracy']:.3f}")
