"""Small files in publishers' own formats, and a server on this machine that gives them out in good and bad ways."""

from __future__ import annotations

import gzip
import hashlib
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import savemat

from pdadmm.data.published import COLLECTIONS, Collection, File

Bytes = NDArray[np.uint8]


def pixels(count: int, *shape: int, seed: int = 0) -> Bytes:
    """Images of noise."""
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def idx(array: Bytes) -> bytes:
    """An IDX file, packed."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return gzip.compress(header + array.tobytes(), mtime=0)


def cifar(images: Bytes, *labels: Any) -> bytes:
    """Records of labels and planes."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    columns = [np.asarray(kind, np.uint8).reshape(-1, 1) for kind in labels]
    return np.hstack([*columns, planes]).tobytes()


def write(home: Path, path: str, content: bytes) -> Path:
    """A file of the cache."""
    target = home / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target


def write_idx(home: Path, folder: str, counts: tuple[int, int] = (30, 20)) -> tuple[list[Bytes], list[Bytes]]:
    """Four files as MNIST has them; images and labels, of training and test."""
    images, labels = [], []
    for seed, (part, count) in enumerate(zip(("train", "t10k"), counts, strict=True)):
        images.append(pixels(count, 28, 28, seed=seed))
        labels.append((np.arange(count) % 10).astype(np.uint8))
        write(home, f"{folder}/raw/{part}-images-idx3-ubyte.gz", idx(images[-1]))
        write(home, f"{folder}/raw/{part}-labels-idx1-ubyte.gz", idx(labels[-1]))
    return images, labels


def write_svhn(home: Path, counts: tuple[int, int] = (30, 20)) -> tuple[list[Bytes], list[Bytes]]:
    """Both files, with labels from 1 to 10 as they have them."""
    images, labels = [], []
    (home / "svhn").mkdir(parents=True, exist_ok=True)
    for seed, (part, count) in enumerate(zip(("train", "test"), counts, strict=True)):
        images.append(pixels(count, 32, 32, 3, seed=seed))
        labels.append((np.arange(count) % 10 + 1).astype(np.uint8))
        arrays = {"X": images[-1].transpose(1, 2, 3, 0), "y": labels[-1].reshape(-1, 1)}
        savemat(home / f"svhn/{part}_32x32.mat", arrays, do_compression=True)
    return images, labels


def write_cifar10(home: Path, batches: tuple[int, ...] = (1, 2, 3, 4, 5)) -> tuple[list[Bytes], list[Bytes]]:
    """Batches of 10, and a test batch of 20."""
    images, labels = [], []
    names = [*(f"data_batch_{number}" for number in batches), "test_batch"]
    for seed, name in enumerate(names):
        count = 20 if name == "test_batch" else 10
        images.append(pixels(count, 32, 32, 3, seed=seed))
        labels.append((np.arange(count) % 10).astype(np.uint8))
        write(home, f"cifar-10-batches-bin/{name}.bin", cifar(images[-1], labels[-1]))
    return images, labels


def write_cifar100(home: Path, counts: tuple[int, int] = (60, 40)) -> tuple[list[Bytes], list[Bytes]]:
    """Both files; fine labels from 0 to 19, coarse ones half of that."""
    images, labels = [], []
    for seed, (part, count) in enumerate(zip(("train", "test"), counts, strict=True)):
        images.append(pixels(count, 32, 32, 3, seed=seed))
        labels.append((np.arange(count) % 20).astype(np.uint8))
        write(home, f"cifar-100-binary/{part}.bin", cifar(images[-1], labels[-1] // 2, labels[-1]))
    return images, labels


def described(path: str, content: bytes) -> File:
    """What the table would say of a file."""
    return File(path, len(content), hashlib.sha256(content).hexdigest())


def collection_of(name: str, home: Path, base: str) -> Collection:
    """A collection of the table whose files are those in `home`, to be fetched from `base`."""
    known = COLLECTIONS[name]

    def own(files: tuple[File, ...]) -> tuple[File, ...]:
        return tuple(described(file.path, (home / file.path).read_bytes()) for file in files)

    return replace(known, bases=(base,), train=own(known.train), test=own(known.test))


@dataclass
class Site:
    """What the server has, how it behaves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    """Bytes after which each of the next answers breaks off."""
    statuses: list[int] = field(default_factory=list)
    """Codes of the next answers, instead of what was asked for."""
    redirects: dict[str, str] = field(default_factory=dict)
    length: bool = True
    """Whether it says how long a file is."""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """Paths, with the ranges asked for."""
    before_answer: threading.Event | None = None
    """Answers wait for it."""
    url: str = ""


@contextmanager
def served(site: Site) -> Iterator[Site]:
    """The site on a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            site.asked.append((self.path, self.headers.get("Range")))
            if site.before_answer is not None:
                assert site.before_answer.wait(30)
            self.close_connection = True
            if site.statuses:
                self._answer(site.statuses.pop(0), b"")
            elif self.path in site.redirects:
                self._answer(302, b"", Location=site.redirects[self.path])
            elif self.path not in site.files:
                self._answer(404, b"")
            else:
                self._give(site.files[self.path])

        def _give(self, content: bytes) -> None:
            asked = self.headers.get("Range")
            if site.ranges and asked:
                begin = int(asked.removeprefix("bytes=").rstrip("-"))
                given = f"bytes {begin}-{len(content) - 1}/{len(content)}"
                self._answer(206, content[begin:], Content_Range=given)
            else:
                self._answer(200, content)

        def _answer(self, code: int, body: bytes, **headers: str) -> None:
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            if site.length:
                self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body[: site.cuts.pop(0)] if body and site.cuts else body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}/"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
