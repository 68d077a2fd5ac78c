"""Fetch one file over HTTPS: resumed where it broke off, from the next address where one fails, checked by SHA-256.

What has come so far is in a `.part` file beside the place of the whole one. The process that fetches holds a lock on
it; another one that wants the same file waits, and finds it there. HTTP without TLS is for this machine only.
"""

from __future__ import annotations

import fcntl
import http.client
import ipaddress
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import urlsplit

from pdadmm.data.published import File
from pdadmm.errors import DamageError, NetworkError, UserError
from pdadmm.rundir import sha256_of, storing
from pdadmm.version import __version__

_CHUNK = 2**18
_TRY_AGAIN = (408, 416, 425, 429)  # and every 5xx; other refusals stay refusals


@dataclass(frozen=True)
class Transfer:
    """How hard to try, and who hears of it."""

    timeout: float = 30.0
    """Seconds without a byte after which a server counts as lost."""
    rounds: int = 4
    """Times that each address is tried."""
    pause: float = 2.0
    """Seconds before the second round; each later pause is twice as long."""
    on_progress: Callable[[str, int, int], None] = field(default=lambda name, done, size: None)
    """Told the file's place in the cache, the bytes of it that are here, and how many there will be."""
    on_note: Callable[[str], None] = field(default=lambda note: None)


class _FailedError(Exception):
    """An address did not give the file; `final` where it would not do so next time either."""

    def __init__(self, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class _OtherContentError(_FailedError):
    """All of it came, but it is not the publisher's."""


def check_address(url: str, option: str) -> None:
    """Refuse, as the user's mistake, an address that files cannot be fetched from."""
    if "@" in url.partition("//")[2].partition("/")[0]:
        raise UserError(f"{option} must not hold a user name or password")
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and parts.port != 0 and _is_allowed(url)
    except ValueError:
        valid = False
    if not valid:
        raise UserError(
            f"{option} must be an https:// address such as https://host/folder (http:// only for this machine itself); "
            f"got {url!r}"
        )


def _is_allowed(url: str) -> bool:
    """Whether nobody on the way can read or change what comes from there."""
    parts = urlsplit(url)
    try:
        is_here = ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        is_here = parts.hostname == "localhost"
    return parts.scheme == "https" or (parts.scheme == "http" and is_here)


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows servers to other addresses, but never away from HTTPS."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Refuse what may be read or changed on its way."""
        if not _is_allowed(newurl) or (req.type == "https" and urlsplit(newurl).scheme != "https"):
            raise _FailedError(f"it leads to {newurl}, which is not HTTPS", final=True)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class Part:
    """The unfinished copy of a file; use it as a context manager, which holds it."""

    def __init__(self, target: Path, file: File, transfer: Transfer) -> None:
        self.path = target.with_name(f".{target.name}.part")
        self._target, self._file, self._transfer = target, file, transfer

    def __enter__(self) -> Self:
        with storing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while True:
                self._handle = self.path.open("ab")
                try:
                    fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._transfer.on_note(f"another process is fetching {self._file.name}; waiting for it")
                    fcntl.flock(self._handle, fcntl.LOCK_EX)
                # Whoever held it before may have moved it to its place.
                if self.path.exists() and os.path.samestat(os.fstat(self._handle.fileno()), self.path.stat()):
                    return self
                self._handle.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.path.exists() and not self.path.stat().st_size:
            self.discard()
        self._handle.close()

    @property
    def size(self) -> int:
        """Bytes that have come so far."""
        return os.fstat(self._handle.fileno()).st_size

    def finish(self) -> None:
        """Make it the file."""
        with storing(self._target):
            os.fsync(self._handle.fileno())
            self.path.replace(self._target)

    def discard(self) -> None:
        """Leave nothing."""
        with storing(self.path):
            self.path.unlink(missing_ok=True)

    def fill(self, urls: Sequence[str]) -> None:
        """Get the rest of it from the first address that gives it, and check the whole."""
        if self.size == self._file.size and sha256_of(self.path) == self._file.sha256:
            return  # all of it had come before, but there was no time to use it
        left, reasons, other = list(urls), dict[str, str](), False
        for number in range(self._transfer.rounds):
            if number and left:
                time.sleep(self._transfer.pause * 2 ** (number - 1))
            for url in list(left):
                try:
                    self._fill_from(url)
                except _FailedError as failure:
                    reasons[url], other = str(failure), other or isinstance(failure, _OtherContentError)
                    if failure.final:
                        left.remove(url)
                    self._transfer.on_note(f"{url}: {failure} (try {number + 1} of {self._transfer.rounds})")
                else:
                    return
        told = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
        if other:
            raise DamageError(
                f"cannot fetch {self._file.name}: {told}. Nothing of it is kept; name an address that has the "
                f"publisher's file by --mirror, or try again later"
            )
        raise NetworkError(
            f"cannot fetch {self._file.name}: {told}. Is there a network (and HTTPS_PROXY set, if one is needed)? "
            f"What has come is kept, so the same command goes on; --mirror names another address"
        )

    def _fill_from(self, url: str) -> None:
        if self.size >= self._file.size:
            self._clear()
        resumed = self.size > 0
        self._receive(url)
        if resumed and sha256_of(self.path) != self._file.sha256:  # what came before was of another file
            self._clear()
            self._receive(url)
        if (found := sha256_of(self.path)) != self._file.sha256:
            self._clear()
            raise _OtherContentError(f"its content has SHA-256 {found} instead of {self._file.sha256}", final=True)

    def _receive(self, url: str) -> None:
        """Append what the server gives until it is whole."""
        request = urllib.request.Request(url, headers={"User-Agent": f"pdadmm/{__version__}"})
        if self.size:
            request.add_header("Range", f"bytes={self.size}-")
        opener = urllib.request.build_opener(Redirects())
        try:
            with opener.open(request, timeout=self._transfer.timeout) as response:
                self._append(response)
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                self._clear()
            again = error.code >= 500 or error.code in _TRY_AGAIN
            raise _FailedError(f"the server says {error.code} {error.reason}", final=not again) from None
        except urllib.error.URLError as error:
            raise _FailedError(f"cannot be reached: {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise _FailedError(f"broke off: {error or type(error).__name__}") from None

    def _append(self, response: http.client.HTTPResponse) -> None:
        name, wanted = self._file.path, self._file.size
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            self._clear()  # it begins from the start
            length = response.headers.get("Content-Length", str(wanted))
            if length != str(wanted):
                raise _OtherContentError(f"it has {length} bytes instead of {wanted}", final=True)
        elif (found := response.headers.get("Content-Range")) != f"bytes {self.size}-{wanted - 1}/{wanted}":
            self._clear()
            raise _FailedError(f"it resumes with {found}, not where it broke off")
        done = self.size
        self._transfer.on_progress(name, done, wanted)
        while chunk := response.read(min(_CHUNK, wanted - done + 1)):
            done += len(chunk)
            if done > wanted:
                self._clear()
                raise _OtherContentError(f"it has more than {wanted} bytes", final=True)
            with storing(self.path):
                self._handle.write(chunk)
                self._handle.flush()
            self._transfer.on_progress(name, done, wanted)
        if done < wanted:
            raise _FailedError(f"broke off after {done} of {wanted} bytes")

    def _clear(self) -> None:
        with storing(self.path):
            self._handle.truncate(0)
