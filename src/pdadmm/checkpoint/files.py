"""Tensors in files that are hashed while they are written, and never trusted when they are read.

The format is safetensors: a length, a JSON header, the bytes of the tensors. We write it ourselves, because then no
array has to be copied first; we read it with the library.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pdadmm.errors import DamageError
from pdadmm.rundir import check_regular

_NAMES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.bfloat16: "BF16",
    torch.int8: "I8",
    torch.uint8: "U8",
}
_PIECE = 8 * 2**20


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> tuple[int, str]:
    """Write a file, flush it to the disk, and return its size and SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb", buffering=0) as file:

        def put(content: memoryview) -> None:
            digest.update(content)
            written = 0
            while written < len(content):  # a raw write may take only a part
                written += file.write(content[written:])

        for content in _contents(tensors):
            for start in range(0, len(content), _PIECE):
                put(content[start : start + _PIECE])
        os.fsync(file.fileno())
        return file.tell(), digest.hexdigest()


def _contents(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """The bytes of a file, part by part."""
    yield memoryview(_header(tensors))
    for tensor in tensors.values():
        yield tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    entries, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of 8
    return len(header).to_bytes(8, "little") + header


def reads_back(path: Path, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the disk has what `write_tensors` wrote: not as the cache remembers it, where the system can be told so.

    Bytes are compared, which takes a fraction of the time that hashing them again would.
    """
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for content in _contents(tensors):
            for start in range(0, len(content), _PIECE):
                piece = content[start : start + _PIECE]
                if not np.array_equal(np.frombuffer(_read(file, len(piece)), np.uint8), np.frombuffer(piece, np.uint8)):
                    return False
        return not file.read(1)


def _read(file: io.FileIO, size: int) -> bytes:
    """So many bytes, or as many as there are: a raw read may give fewer."""
    parts = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def check_file(path: Path, size: int, sha256: str) -> None:
    """Find out whether a file is the one that was written."""
    check_regular(path)
    try:
        if path.stat().st_size != size:
            raise DamageError(f"{path} has {path.stat().st_size} bytes instead of {size}")
        with path.open("rb", buffering=0) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DamageError(f"{path} cannot be read: {error.strerror}") from None
    if found != sha256:
        raise DamageError(f"{path} has been changed: its SHA-256 is {found[:16]}… instead of {sha256[:16]}…")


def read_rows(path: Path, name: str, rows: slice | None) -> Tensor | None:
    """One tensor of a file that has been checked, or these rows of it; None if the file has no such tensor."""
    try:
        with safe_open(path, framework="pt") as file:
            if name not in file.keys():  # noqa: SIM118 - not a mapping
                return None
            tensor: Tensor = file.get_tensor(name) if rows is None else file.get_slice(name)[rows]
            return tensor
    except (SafetensorError, OSError) as error:
        raise DamageError(f"{path} cannot be read: {error}") from None
