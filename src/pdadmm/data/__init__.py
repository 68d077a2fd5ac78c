"""Everything between a user's numbers and the arrays that training sees.

A source (a registered name or a file) becomes a checked `Dataset`; a `Preprocessor`, stored with the model,
turns its parts into scaled features and targets, and predictions back into the user's labels and units.
"""

from pdadmm.data.checks import check_dataset, check_features, check_part
from pdadmm.data.dataset import Dataset, Part
from pdadmm.data.formats import EXTENSIONS, read_tables, stream_features
from pdadmm.data.labels import as_labels, balanced_weights
from pdadmm.data.sources import SOURCES, load_data, stream_samples
from pdadmm.data.tables import Stream, Table
from pdadmm.data.transforms import SCALINGS, Preprocessor

__all__ = [
    "EXTENSIONS",
    "SCALINGS",
    "SOURCES",
    "Dataset",
    "Part",
    "Preprocessor",
    "Stream",
    "Table",
    "as_labels",
    "balanced_weights",
    "check_dataset",
    "check_features",
    "check_part",
    "load_data",
    "read_tables",
    "stream_features",
    "stream_samples",
]
