"""One file over HTTP: resumed, checked, refused, and never half in its place. The server is on this machine."""

from __future__ import annotations

import errno
import os
import resource
import socket
import threading
import urllib.request
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from pdadmm.data.download import Part, Redirects, Transfer, _FailedError, check_address
from pdadmm.data.published import File
from pdadmm.errors import DamageError, NetworkError, PdadmmError, StorageError, UserError
from publishing import Site, described, served

CONTENT = os.urandom(300_000)
FILE = described("folder/file.bin", CONTENT)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server that has the file."""
    monkeypatch.setenv("no_proxy", "*")
    with served(Site({"/file.bin": CONTENT})) as found:
        yield found


class Fetching:
    """Fetches FILE into a folder and remembers what it was told."""

    def __init__(self, home: Path) -> None:
        self.target = home / FILE.path
        self.notes: list[str] = []
        self.shown: list[tuple[str, int, int]] = []

    def __call__(self, *urls: str, file: File = FILE, rounds: int = 3) -> None:
        transfer = Transfer(
            timeout=10,
            rounds=rounds,
            pause=0,
            on_progress=lambda *shown: self.shown.append(shown),
            on_note=self.notes.append,
        )
        with Part(self.target, file, transfer) as part:
            part.fill(urls)
            part.finish()

    def left(self) -> list[str]:
        """Files in the folder."""
        return sorted(path.name for path in self.target.parent.iterdir()) if self.target.parent.exists() else []


@pytest.fixture
def fetching(tmp_path: Path) -> Fetching:
    return Fetching(tmp_path)


def test_a_file_comes_whole(site: Site, fetching: Fetching) -> None:
    fetching(f"{site.url}file.bin")
    assert fetching.target.read_bytes() == CONTENT
    assert fetching.left() == ["file.bin"]
    assert fetching.shown[0] == ("folder/file.bin", 0, len(CONTENT))
    assert fetching.shown[-1] == ("folder/file.bin", len(CONTENT), len(CONTENT))
    assert fetching.notes == []


def test_what_breaks_off_is_resumed(site: Site, fetching: Fetching) -> None:
    site.cuts = [100_000, 50_000]
    fetching(f"{site.url}file.bin")
    assert fetching.target.read_bytes() == CONTENT
    assert [asked for _, asked in site.asked] == [None, "bytes=100000-", "bytes=150000-"]
    assert "broke off after 100000 of 300000 bytes" in fetching.notes[0]


def test_the_next_command_resumes(site: Site, fetching: Fetching) -> None:
    site.cuts = [100_000]
    with pytest.raises(NetworkError, match="so the same command goes on"):
        fetching(f"{site.url}file.bin", rounds=1)
    assert fetching.left() == [".file.bin.part"]
    fetching(f"{site.url}file.bin", rounds=1)
    assert fetching.target.read_bytes() == CONTENT
    assert site.asked[-1][1] == "bytes=100000-"
    assert fetching.left() == ["file.bin"]


def test_what_came_before_needs_no_server(fetching: Fetching) -> None:
    fetching.target.parent.mkdir()
    (fetching.target.parent / ".file.bin.part").write_bytes(CONTENT)
    fetching()
    assert fetching.target.read_bytes() == CONTENT
    assert fetching.left() == ["file.bin"]


def test_a_server_without_ranges_starts_again(site: Site, fetching: Fetching) -> None:
    site.cuts, site.ranges = [100_000], False
    fetching(f"{site.url}file.bin")
    assert fetching.target.read_bytes() == CONTENT
    assert len(site.asked) == 2


def test_a_file_that_has_changed_starts_again(site: Site, fetching: Fetching) -> None:
    site.files["/file.bin"], site.cuts = bytes(len(CONTENT)), [100_000]
    with pytest.raises(NetworkError):
        fetching(f"{site.url}file.bin", rounds=1)
    site.files["/file.bin"] = CONTENT
    fetching(f"{site.url}file.bin", rounds=1)
    assert fetching.target.read_bytes() == CONTENT
    assert [asked for _, asked in site.asked] == [None, "bytes=100000-", None]


def test_a_length_that_is_not_told(site: Site, fetching: Fetching) -> None:
    site.length, site.cuts = False, [100_000]
    fetching(f"{site.url}file.bin")
    assert fetching.target.read_bytes() == CONTENT


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("content", [CONTENT + b"!", bytes(len(CONTENT)), b"<html>"], ids=["more", "other", "less"])
def test_another_content_is_refused(site: Site, fetching: Fetching, content: bytes, told: bool) -> None:
    site.files["/file.bin"], site.length = content, told
    kind = NetworkError if content == b"<html>" and not told else DamageError
    with pytest.raises(kind, match=r"cannot fetch file.bin: http://.*--mirror") as caught:
        fetching(f"{site.url}file.bin")
    assert "file.bin" not in fetching.left()
    if kind is DamageError:
        assert caught.value.exit_code == 6
        assert fetching.left() == []
        assert len(site.asked) == 1


def test_another_address_takes_over(site: Site, fetching: Fetching) -> None:
    site.files["/other"] = bytes(len(CONTENT))
    fetching(f"{site.url}none", f"{site.url}other", f"{site.url}file.bin")
    assert fetching.target.read_bytes() == CONTENT
    assert "404 Not Found" in fetching.notes[0]
    assert "its content has SHA-256" in fetching.notes[1]


def test_not_found(site: Site, fetching: Fetching) -> None:
    with pytest.raises(NetworkError, match="the server says 404 Not Found") as caught:
        fetching(f"{site.url}none")
    assert caught.value.exit_code == 7
    assert fetching.left() == []
    assert len(site.asked) == 1


@pytest.mark.parametrize("status", [408, 416, 429, 500, 503])
def test_a_server_in_trouble_is_asked_again(site: Site, fetching: Fetching, status: int) -> None:
    site.statuses = [status, status]
    fetching(f"{site.url}file.bin")
    assert fetching.target.read_bytes() == CONTENT
    assert len(site.asked) == 3


def test_nobody_there(fetching: Fetching, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        with pytest.raises(NetworkError, match=r"cannot be reached: .*refused.*Is there a network"):
            fetching(f"http://127.0.0.1:{unheard.getsockname()[1]}/file.bin")
    assert len(fetching.notes) == 3


def test_redirects_are_followed(site: Site, fetching: Fetching) -> None:
    site.redirects["/old"] = f"{site.url}file.bin"
    site.cuts = [100_000]
    fetching(f"{site.url}old")
    assert fetching.target.read_bytes() == CONTENT
    assert site.asked[-1] == ("/file.bin", "bytes=100000-")


@pytest.mark.parametrize("address", ["http://example.org/file.bin", "ftp://127.0.0.1/file.bin", "file:///etc/passwd"])
def test_redirects_away_from_https_are_refused(site: Site, fetching: Fetching, address: str) -> None:
    site.redirects["/old"] = address
    with pytest.raises(PdadmmError) as caught:
        fetching(f"{site.url}old")
    assert isinstance(caught.value, NetworkError)
    assert fetching.left() == []


def test_https_never_becomes_http() -> None:
    secure = urllib.request.Request("https://127.0.0.1/old")
    with pytest.raises(_FailedError, match="not HTTPS"):
        Redirects().redirect_request(secure, BytesIO(), 302, "Found", {}, "http://127.0.0.1/new")
    followed = Redirects().redirect_request(secure, BytesIO(), 302, "Found", {}, "https://example.org/new")
    assert followed is not None
    assert followed.full_url == "https://example.org/new"


@pytest.mark.parametrize("url", ["https://host/x", "https://host:8443", "http://localhost/x", "http://[::1]:80/x"])
def test_addresses(url: str) -> None:
    check_address(url, "--mirror")


@pytest.mark.parametrize(
    "url", ["http://host/x", "ftp://host/x", "host/x", "", "https://", "https://h:99999/", "https://[x"]
)
def test_addresses_that_are_refused(url: str) -> None:
    with pytest.raises(UserError, match="--mirror must be an"):
        check_address(url, "--mirror")


def test_passwords_are_not_repeated() -> None:
    with pytest.raises(UserError) as caught:
        check_address("https://me:secret@host/x", "--mirror")
    assert "secret" not in str(caught.value)


def test_a_full_disk(site: Site, fetching: Fetching) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StorageError, match=os.strerror(errno.EFBIG)) as caught:
            fetching(f"{site.url}file.bin")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.exit_code == 4
    assert "file.bin" not in fetching.left()
    fetching(f"{site.url}file.bin")
    assert fetching.target.read_bytes() == CONTENT


def test_of_two_at_once_the_second_waits(site: Site, tmp_path: Path) -> None:
    first, second = Fetching(tmp_path), Fetching(tmp_path)
    site.before_answer = answer = threading.Event()
    begun = threading.Thread(target=first, args=(f"{site.url}file.bin",))
    begun.start()
    while not site.asked:
        begun.join(0.01)

    def note(text: str) -> None:
        second.notes.append(text)
        answer.set()

    transfer = Transfer(on_note=note)
    with Part(second.target, FILE, transfer) as part:
        assert second.target.read_bytes() == CONTENT
        assert part.size == 0
    begun.join()
    assert second.notes == ["another process is fetching file.bin; waiting for it"]
    assert second.left() == ["file.bin"]
    assert len(site.asked) == 1
