"""The six data sets of the paper, as published.toml has them: what publishers give, what our names make of it."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from pdadmm.data.images import Images, read_cifar, read_idx, read_svhn

Reader = Callable[[Sequence[Path], tuple[int, ...], tuple[int, ...]], list[Images]]


@dataclass(frozen=True)
class File:
    """A file as its publisher gives it."""

    path: str
    """Below the cache folder; the last part is the publisher's name."""
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """Without the folder."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class Collection:
    """What one publisher gives, and how to read it."""

    name: str
    publisher: str
    licence: str
    page: str
    bases: tuple[str, ...]
    """Addresses that have the files, in the order to be tried."""
    train: tuple[File, ...]
    test: tuple[File, ...]
    read: Reader
    shape: tuple[int, ...]
    classes: tuple[int, ...]
    """How many there are, for each kind of label."""
    archive: File | None = None
    """What to fetch, where the files are its members."""
    may_lack: bool = False
    """Whether some of the training files are enough to train on."""

    @property
    def files(self) -> tuple[File, ...]:
        """All that is kept in the cache."""
        return self.train + self.test

    @property
    def downloads(self) -> tuple[File, ...]:
        """All that is fetched."""
        return (self.archive,) if self.archive else self.files


@dataclass(frozen=True)
class Variant:
    """A name of ours: which samples of a collection, at which resolution, with which labels."""

    name: str
    collection: Collection
    samples: tuple[int, int]
    """Training and test samples that the whole collection gives."""
    differs: str
    """From what the publisher gives; for people."""
    classes: tuple[int, ...] | None = None
    """The labels to keep, or None for all."""
    first: int | None = None
    """How many training images to keep, from the first on."""
    halved: bool = True
    kind: int = -1
    """Which of the collection's kinds of label."""

    @property
    def num_classes(self) -> int:
        """Of the whole collection."""
        return len(self.classes) if self.classes else self.collection.classes[self.kind]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an image: rows, columns and perhaps colours."""
        rows, columns, *colours = self.collection.shape
        return (rows // 2, columns // 2, *colours) if self.halved else self.collection.shape

    @property
    def features(self) -> int:
        """Numbers a sample."""
        return math.prod(self.shape)


def _made(kind: Any, table: dict[str, Any]) -> Any:
    """An object from its table, with tuples for lists."""
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in table.items()})


def _collection(name: str, table: dict[str, Any]) -> Collection:
    parts = {part: [_made(File, file) for file in table[part]] for part in ("train", "test")}
    archive = _made(File, table["archive"]) if "archive" in table else None
    found: Collection = _made(
        Collection, {**table, **parts, "name": name, "archive": archive, "read": _READERS[table["read"]]}
    )
    return found


def _variant(name: str, table: dict[str, Any]) -> Variant:
    if "same_as" in table:
        same = _TABLES["variants"][table["same_as"]]
        table = {**same, "differs": f"{same['differs']}; same as {table['same_as']}"}
    found: Variant = _made(Variant, {**table, "name": name, "collection": COLLECTIONS[name.partition("-")[0]]})
    return found


_READERS: dict[str, Reader] = {"idx": read_idx, "svhn": read_svhn, "cifar": read_cifar}
_TABLES = tomllib.loads((files("pdadmm.data") / "published.toml").read_text(encoding="utf-8"))
COLLECTIONS: dict[str, Collection] = {name: _collection(name, table) for name, table in _TABLES["collections"].items()}
"""By name."""
VARIANTS: dict[str, Variant] = {name: _variant(name, table) for name, table in _TABLES["variants"].items()}
"""By name."""
