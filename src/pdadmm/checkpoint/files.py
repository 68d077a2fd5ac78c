"""Tensors in files that are hashed while they are written, and never trusted when they are read.

The format is safetensors: a length, a JSON header, the bytes of the tensors. We write it ourselves, because then no
array has to be copied first; we read it with the library.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from mmap import mmap
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pdadmm.errors import DamageError
from pdadmm.rundir import open_to_read

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.int8: "I8",
    torch.uint8: "U8",
}
_PIECE = 8 * 2**20
_BLOCK = 4096  # past the cache, a file is written and read in whole blocks
_DIRECT = getattr(os, "O_DIRECT", 0)


def contents(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Iterator[memoryview]:
    """A safetensors file part by part: no tensor is copied, and equal tensors make equal files."""
    entries: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    offset = 0
    for name, tensor in ordered:
        end = offset + tensor.nbytes
        entries[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(entries, sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of 8
    yield memoryview(len(header).to_bytes(8, "little") + header)
    for _, tensor in ordered:
        yield tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _pieces(tensors: Mapping[str, Tensor], buffer: memoryview) -> Iterator[int]:
    """Fill the buffer with the file piece by piece; how many bytes each has. Only the last does not fill it."""
    filled = 0
    for part in contents(tensors):
        while part:
            count = min(len(part), _PIECE - filled)
            buffer[filled : filled + count] = part[:count]
            part, filled = part[count:], filled + count
            if filled == _PIECE:
                yield filled
                filled = 0
    yield filled


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> tuple[int, str]:
    """Write a file, flush it to the disk, and return its size and SHA-256.

    It goes past the system's cache where that can be done: filling that takes the processor longer than the hash does.
    """
    try:
        return _write(path, tensors, _DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:  # this file system has only the way through the cache
            raise
    return _write(path, tensors, 0)


def _write(path: Path, tensors: Mapping[str, Tensor], direct: int) -> tuple[int, str]:
    digest, size, buffer = hashlib.sha256(), 0, memoryview(mmap(-1, _PIECE))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | direct, 0o666)
    with os.fdopen(handle, "wb", buffering=0) as file:
        for count in _pieces(tensors, buffer):
            digest.update(buffer[:count])
            size += count
            rest = buffer[: count + -count % _BLOCK]
            while rest:
                rest = rest[file.write(rest) :]
        file.truncate(size)  # the last block was filled up
        os.fsync(handle)
    return size, digest.hexdigest()


def reads_back(path: Path, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the disk has what `write_tensors` wrote: not as the cache remembers it, where the system can be told so.

    Comparing takes a fraction of the time that hashing it again would.
    """
    expected, found = memoryview(mmap(-1, _PIECE)), memoryview(mmap(-1, _PIECE))
    try:
        handle = os.open(path, os.O_RDONLY | _DIRECT)
    except OSError:
        handle = os.open(path, os.O_RDONLY)
    with os.fdopen(handle, "rb", buffering=0) as file:
        return all(
            file.readinto(found) == count and np.array_equal(np.asarray(found[:count]), np.asarray(expected[:count]))
            for count in _pieces(tensors, expected)
        )


def check_file(path: Path, size: int, sha256: str) -> None:
    """Find out whether a file is the one that was written."""
    with open_to_read(path) as file:
        if (bytes_found := os.fstat(file.fileno()).st_size) != size:
            raise DamageError(f"{path} has {bytes_found} bytes instead of {size}")
        found = hashlib.file_digest(file, "sha256").hexdigest()
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
