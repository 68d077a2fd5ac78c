"""Load a named data set from the cache, as the paper prepared it: some classes, half the resolution, values to 1.

Half the resolution is `scipy.ndimage.zoom(x / 255, 0.5, order=1)` of every image: corners stay, pixels in between are
interpolated, nothing is averaged. Images are converted in chunks straight into the float32 features.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from pdadmm.data.arrays import Array, row_chunks
from pdadmm.data.cache import data_home, fetch_command
from pdadmm.data.dataset import Dataset, Part
from pdadmm.data.images import Images
from pdadmm.data.published import File, Variant
from pdadmm.errors import DamageError, UserError

COLOURS = ("red", "green", "blue")


def load_named(variant: Variant, home: Path | None = None) -> Dataset:
    """The training and the test part; what the cache lacks, and can be done without, is noted."""
    home = data_home() if home is None else home
    collection = variant.collection
    _check_present(variant, home)
    parts, notes = list[Part](), list[str]()
    for part, files, limit, wanted in (
        ("training", collection.train, variant.first, variant.samples[0]),
        ("test", collection.test, None, variant.samples[1]),
    ):
        present = [home / file.path for file in files if (home / file.path).exists()]
        try:
            images = collection.read(present, collection.shape, collection.classes)
        except DamageError as error:
            raise DamageError(f"{error}; {fetch_command(collection)} gets it anew") from None
        X, y = _samples(variant, images, limit)
        if not len(X):
            raise UserError(f"the {part} files of {variant.name} in {home} have none of its samples")
        if missing := [file.name for file in files if home / file.path not in present]:
            notes.append(
                f"{variant.name}: the cache lacks {', '.join(missing)}; the samples of the other files are used"
            )
        if len(X) != wanted:
            notes.append(f"{variant.name}: {len(X):,} {part} samples where the publisher's files give {wanted:,}")
        parts.append(Part(X, y))
    return Dataset(variant.name, parts[0], parts[1], _feature_names(variant.shape), tuple(notes))


def _feature_names(shape: tuple[int, ...]) -> tuple[str, ...]:
    """pixel_ROW_COLUMN, followed by the colour where there is one."""
    places = [f"pixel_{row}_{column}" for row, column in itertools.product(range(shape[0]), range(shape[1]))]
    return tuple(places) if len(shape) == 2 else tuple(f"{place}_{colour}" for place in places for colour in COLOURS)


def _check_present(variant: Variant, home: Path) -> None:
    collection = variant.collection

    def lacks(files: tuple[File, ...]) -> list[str]:
        return [file.path for file in files if not (home / file.path).exists()]

    missing = lacks(collection.train)
    if collection.may_lack and len(missing) < len(collection.train):
        missing = []
    missing += lacks(collection.test)
    if missing:
        raise UserError(
            f"{variant.name} is not in {home}, which lacks {missing[0]}; {fetch_command(collection)} fetches it, and "
            f"PDADMM_DATA_HOME names another folder"
        )


def _samples(variant: Variant, images: list[Images], limit: int | None) -> tuple[Array, Array]:
    """Features and labels of those that the variant keeps."""
    rows: list[Array] = []
    for found in images:
        labels = found.labels[:, variant.kind]
        kept = np.arange(len(labels)) if variant.classes is None else np.flatnonzero(np.isin(labels, variant.classes))
        rows.append(kept if limit is None else kept[: limit - sum(map(len, rows))])
    y = np.concatenate([found.labels[kept, variant.kind] for found, kept in zip(images, rows, strict=True)])
    X = np.empty((len(y), variant.features), np.float32)
    begin = 0
    for found, kept in zip(images, rows, strict=True):
        part = X[begin : begin + len(kept)]
        for some in row_chunks(part):
            values = found.pixels[kept[some]] / 255
            part[some] = (_halved(values) if variant.halved else values).reshape(len(values), -1)
        begin += len(kept)
    return X, y


def _halved(values: Array) -> Array:
    from scipy.ndimage import zoom

    halved: Array = zoom(values, (1, 0.5, 0.5, 1)[: values.ndim], order=1)
    return halved
