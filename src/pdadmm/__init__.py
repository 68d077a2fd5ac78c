"""Train deep fully connected networks without backpropagation, every layer in parallel.

import pdadmm

data = pdadmm.load_data("digits")
result = pdadmm.train(pdadmm.Config(hidden=(100,) * 9, epochs=30), data)
result.history[-1]["test_accuracy"]
"""

from typing import TYPE_CHECKING

from pdadmm.config import Config
from pdadmm.data import Dataset, Part, load_data
from pdadmm.model import Model, load_model
from pdadmm.modules import fit, from_module, load_module
from pdadmm.observer import Observer
from pdadmm.trainer import Result, train
from pdadmm.version import __version__

if TYPE_CHECKING:
    from pdadmm.estimator import PdADMMClassifier, PdADMMRegressor

__all__ = [
    "Config",
    "Dataset",
    "Model",
    "Observer",
    "Part",
    "PdADMMClassifier",
    "PdADMMRegressor",
    "Result",
    "__version__",
    "fit",
    "from_module",
    "load_data",
    "load_model",
    "load_module",
    "train",
]


def __getattr__(name: str) -> object:
    """The estimators, once they are asked for: they bring scikit-learn, which takes a second to import."""
    if name in ("PdADMMClassifier", "PdADMMRegressor"):
        from pdadmm import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
