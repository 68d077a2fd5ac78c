"""The manifest of a checkpoint: what it holds, for which run, and how to tell that it is whole.

It is JSON and ends with the SHA-256 of all before it, so an edited manifest is as visible as an edited file. Nothing in
it is believed before that, and no name in it leads out of its directory.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

from pdadmm.checkpoint.files import check_file
from pdadmm.errors import DamageError
from pdadmm.rundir import open_to_read, read_small

FORMAT = "pdadmm-checkpoint"
VERSION = 1
MANIFEST_FILE = "manifest.json"
_LARGEST = 2**26  # bytes of a manifest; thousands of layers and shards need a fraction of it
_FILE_NAME = re.compile(r"layer-\d{3,}-shard-\d{2,}\.safetensors")
_DIRECTORY_NAME = re.compile(r"epoch-(\d{8,})")


@dataclass(frozen=True)
class FileEntry:
    """One layer's variables, of the samples `first_row` to `first_row + rows`."""

    name: str
    layer: int
    first_row: int
    rows: int
    bytes: int
    sha256: str

    @staticmethod
    def file_name(layer: int, shard: int) -> str:
        """The name of a layer's file; both are counted from 0 and named from 1."""
        return f"layer-{layer + 1:03d}-shard-{shard + 1:02d}.safetensors"


@dataclass(frozen=True)
class HistoryMark:
    """How long history.jsonl was, and its SHA-256 up to there."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Progress:
    """Where the schedule and the certificate stand.

    `layers` are those that exist, counted from 0, the output layer last; `stages` the growth to come, as (epoch,
    hidden layers). `least_drop` is None where it is infinite.
    """

    objective: float
    least_drop: float | None
    layers: list[int]
    stages: list[tuple[int, list[int]]]
    fresh_outputs: int
    converged: bool


@dataclass(frozen=True)
class Manifest:
    """Everything of a checkpoint that is not in its tensors."""

    epoch: int
    pdadmm: str
    torch: str
    config: dict[str, Any]
    data: str
    num_samples: int
    progress: Progress
    history: HistoryMark
    files: list[FileEntry]

    @property
    def is_part(self) -> bool:
        """Whether other hosts have samples of some layer."""
        rows = dict.fromkeys(self.progress.layers, 0)
        for entry in self.files:
            rows[entry.layer] = rows.get(entry.layer, 0) + entry.rows
        return min(rows.values(), default=0) < self.num_samples

    @property
    def has_first_rows(self) -> bool:
        """Whether the first samples of the first layer are here, and with them the history."""
        return any(entry.layer == min(self.progress.layers) and entry.first_row == 0 for entry in self.files)

    def to_bytes(self) -> bytes:
        """The file, sealed."""
        values = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        return _text({**values, "sha256": _seal(values)})

    @classmethod
    def from_bytes(cls, content: bytes, path: Path) -> Self:
        """Read back what `to_bytes` made, and nothing else."""
        try:
            values = json.loads(content)
            as_written = _text(values) == content
            if values.pop("sha256") != _seal(values) or not as_written:
                raise DamageError(f"{path} has been changed: it does not match its own SHA-256")
            if (values.pop("format"), values.pop("version")) != (FORMAT, VERSION):
                raise DamageError(f"{path} is of another format or version than {FORMAT} {VERSION}")
            manifest: Self = _built(cls, values)
            if not all(_FILE_NAME.fullmatch(entry.name) for entry in manifest.files):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DamageError(f"{path} is not a manifest: {type(error).__name__}") from None
        return manifest


def _built(kind: Any, value: Any) -> Any:
    """A value of JSON as this type, if it is just that: the seal keeps out accidents, this what others have sealed."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if dataclasses.is_dataclass(kind):
        types = get_type_hints(kind)
        if type(value) is dict and value.keys() == types.keys():
            return origin(**{name: _built(types[name], value[name]) for name in types})
    elif origin is UnionType:
        return None if value is None else _built(inner[0], value)
    elif origin is list and type(value) is list:
        return [_built(inner[0], entry) for entry in value]
    elif origin is tuple and type(value) is list:
        return tuple(_built(each, entry) for each, entry in zip(inner, value, strict=True))
    elif type(value) is origin and not (origin is int and value < 0) and not (origin is float and not isfinite(value)):
        return value
    raise ValueError


def _text(values: dict[str, Any]) -> bytes:
    return json.dumps(values, indent=1).encode() + b"\n"


def _seal(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def directory_name(epoch: int) -> str:
    """`epoch-00000040`."""
    return f"epoch-{epoch:08d}"


def epoch_of(name: str) -> int | None:
    """The epoch in a directory's name, or None if it is not a checkpoint's."""
    match = _DIRECTORY_NAME.fullmatch(name)
    return int(match[1]) if match and directory_name(int(match[1])) == name else None


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a checkpoint whose files are there, in their sizes, and no others; hashes are not compared."""
    path = directory / MANIFEST_FILE
    if not directory.is_dir() or directory.is_symlink():
        raise DamageError(f"{directory} is not a directory")
    manifest = Manifest.from_bytes(read_small(path, _LARGEST), path)
    try:
        found = {entry.name: entry for entry in directory.iterdir()}
    except OSError as error:
        raise DamageError(f"{directory} cannot be read: {error.strerror}") from None
    if directory_name(manifest.epoch) != directory.name:
        raise DamageError(f"{directory} holds the checkpoint of epoch {manifest.epoch}")
    listed = {entry.name: entry for entry in manifest.files}
    foreign = sorted(set(found) - set(listed) - {MANIFEST_FILE})
    if foreign:
        raise DamageError(f"{found[foreign[0]]} does not belong to the checkpoint")
    for name, entry in listed.items():
        with open_to_read(directory / name) as file:
            size = os.fstat(file.fileno()).st_size
        if size != entry.bytes:
            raise DamageError(f"{directory / name} has {size} bytes instead of {entry.bytes}")
    return manifest


def check_files(directory: Path, entries: list[FileEntry]) -> None:
    """Compare the hashes of these files."""
    for entry in entries:
        check_file(directory / entry.name, entry.bytes, entry.sha256)
