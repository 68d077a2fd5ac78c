"""Tensors in files that are hashed while they are written, and never trusted when they are read.

The format is safetensors: a length, a JSON header, the bytes of the tensors. We write it ourselves, because then no
array has to be copied first; we read it with the library.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
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
_BLOCK = 4096  # past the cache, a file is written and read in whole blocks
_DIRECT = getattr(os, "O_DIRECT", 0)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> tuple[int, str]:
    """Write a file, flush it to the disk, and return its size and SHA-256."""
    if _DIRECT:
        try:
            return _write(path, tensors, _DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:  # this file system has only the way through the cache
                raise
    return _write(path, tensors, 0)


def _write(path: Path, tensors: Mapping[str, Tensor], direct: int) -> tuple[int, str]:
    """Past the cache where that can be done: filling it takes the processor longer than the hash does."""
    digest, buffer, size = hashlib.sha256(), _buffer(tensors), 0
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | direct, 0o666)
    try:
        for count in _pieces(tensors, buffer):
            with memoryview(buffer) as view:
                digest.update(view[:count])
                _write_all(file, view[: count + (-count % _BLOCK if direct else 0)])
            size += count
        os.ftruncate(file, size)  # the last block was filled up
        os.fsync(file)
    finally:
        os.close(file)
    return size, digest.hexdigest()


def _write_all(file: int, content: memoryview) -> None:
    """A single write may take only a part."""
    while content:
        content = content[os.write(file, content) :]


def reads_back(path: Path, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the disk has what `write_tensors` wrote: not as the cache remembers it, where the system can be told so.

    Bytes are compared, which takes a fraction of the time that hashing them again would.
    """
    file = _open_past_cache(path)
    try:
        expected, found = _buffer(tensors), _buffer(tensors)
        for count in _pieces(tensors, expected):
            if _read_into(file, found) != count:
                return False
            if not np.array_equal(np.frombuffer(expected, np.uint8, count), np.frombuffer(found, np.uint8, count)):
                return False
        return count < len(found) or _read_into(file, found) == 0
    finally:
        os.close(file)


def _open_past_cache(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | _DIRECT)
    except OSError:
        file = os.open(path, os.O_RDONLY)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return file


def _read_into(file: int, buffer: mmap.mmap) -> int:
    """Fill the buffer, or as much of it as the file has left."""
    filled = 0
    with memoryview(buffer) as view:
        while filled < len(view) and (count := os.readv(file, [view[filled:]])):
            filled += count
            if filled % _BLOCK:  # only at its end
                break
    return filled


def _buffer(tensors: Mapping[str, Tensor]) -> mmap.mmap:
    """Memory that begins with a block; no more of it than a small file needs."""
    size = sum(len(content) for content in contents(tensors))
    return mmap.mmap(-1, min(_PIECE, size + -size % _BLOCK))


def _pieces(tensors: Mapping[str, Tensor], buffer: mmap.mmap) -> Iterator[int]:
    """The file in pieces that fill the buffer, but for the last; how many bytes each has."""
    filled = 0
    with memoryview(buffer) as view:
        for content in contents(tensors):
            start = 0
            while start < len(content):
                count = min(len(view) - filled, len(content) - start)
                view[filled : filled + count] = content[start : start + count]
                start, filled = start + count, filled + count
                if filled == len(view):
                    yield filled
                    filled = 0
        if filled:
            yield filled


def contents(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Iterator[memoryview]:
    """The bytes of a safetensors file, part by part; equal tensors, in the same order, give equal files."""
    yield memoryview(_header(tensors, metadata))
    for tensor in tensors.values():
        yield tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> bytes:
    entries: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        entries[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(entries, sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of 8
    return len(header).to_bytes(8, "little") + header


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
