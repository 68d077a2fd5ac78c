"""Train deep fully connected networks without backpropagation, every layer in parallel.

import pdadmm

data = pdadmm.load_data("digits")
result = pdadmm.train(pdadmm.Config(hidden=(100,) * 9, epochs=30), data)
result.history[-1]["test_accuracy"]
"""

from pdadmm.config import Config
from pdadmm.data import Dataset, Part, load_data
from pdadmm.model import Model, load_model
from pdadmm.modules import fit, from_module, load_module
from pdadmm.observer import Observer
from pdadmm.trainer import Result, train
from pdadmm.version import __version__

__all__ = [
    "Config",
    "Dataset",
    "Model",
    "Observer",
    "Part",
    "Result",
    "__version__",
    "fit",
    "from_module",
    "load_data",
    "load_model",
    "load_module",
    "train",
]
