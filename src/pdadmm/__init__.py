"""Train deep fully connected networks without backpropagation, every layer in parallel.

import pdadmm

data = pdadmm.load_data("digits")
result = pdadmm.train(pdadmm.Config(hidden=(100,) * 9, epochs=30), data)
result.history[-1]["test_accuracy"]
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pdadmm.version import __version__

if TYPE_CHECKING:
    from pdadmm.config import Config
    from pdadmm.data import Dataset, Part, load_data
    from pdadmm.estimator import PdADMMClassifier, PdADMMRegressor
    from pdadmm.model import Model, load_model
    from pdadmm.modules.fit import fit
    from pdadmm.modules.load import from_module, load_module
    from pdadmm.observer import Observer
    from pdadmm.trainer import Result, train

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
_MODULES = {
    "config": ("Config",),
    "data": ("Dataset", "Part", "load_data"),
    "estimator": ("PdADMMClassifier", "PdADMMRegressor"),
    "model": ("Model", "load_model"),
    "modules": ("fit", "from_module", "load_module"),
    "observer": ("Observer",),
    "trainer": ("Result", "train"),
}


def __getattr__(name: str) -> object:
    """Public names are imported when they are first used: torch and scikit-learn take a second each."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"pdadmm.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
