"""Everything between a user's numbers and the arrays that training sees.

A source (a registered name or a file) becomes a checked `Dataset`; a `Preprocessor`, stored with the model,
turns its parts into scaled features and targets, and predictions back into the user's labels and units.
"""

from pdadmm.data.checks import check_dataset
from pdadmm.data.dataset import Dataset, Part
from pdadmm.data.labels import as_labels, balanced_weights
from pdadmm.data.sources import load_data, stream_samples
from pdadmm.data.tables import Stream
from pdadmm.data.transforms import Preprocessor

__all__ = [
    "Dataset",
    "Part",
    "Preprocessor",
    "Stream",
    "as_labels",
    "balanced_weights",
    "check_dataset",
    "load_data",
    "stream_samples",
]
