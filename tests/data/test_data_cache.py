"""The folder of publishers' files: where it is, what `fetch` brings and replaces, what `verify` finds."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pdadmm.data.cache import Checked, collections_of, data_home, fetch, presence, verify
from pdadmm.data.download import Transfer
from pdadmm.data.named import load_named
from pdadmm.data.published import COLLECTIONS, VARIANTS, Collection, File
from pdadmm.errors import DamageError, NetworkError, StorageError, UserError
from publishing import Site, collection_of, described, served, write, write_cifar10, write_idx

ONCE = Transfer(timeout=10, rounds=1, pause=0)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    with served(Site()) as found:
        yield found


@pytest.fixture
def mnist(site: Site, tmp_path: Path) -> Collection:
    """Small files of MNIST's, which the site has."""
    write_idx(tmp_path / "source", "MNIST")
    collection = collection_of("mnist", tmp_path / "source", site.url)
    site.files = {f"/{file.name}": (tmp_path / "source" / file.path).read_bytes() for file in collection.files}
    return collection


def packed(*entries: tuple[str, bytes | str]) -> bytes:
    """A .tar.gz of files, or of links to where a text says."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def archived(site: Site, collection: Collection, content: bytes) -> Collection:
    """The collection as an archive of this content, which the site has."""
    site.files["/cifar-10-binary.tar.gz"] = content
    return replace(collection, archive=described("cifar-10-binary.tar.gz", content))


@pytest.fixture
def cifar10(site: Site, tmp_path: Path) -> Collection:
    """Small batches, without an archive yet."""
    write_cifar10(tmp_path / "source")
    return collection_of("cifar10", tmp_path / "source", site.url)


def members(collection: Collection, source: Path) -> list[tuple[str, bytes | str]]:
    return [(file.path, (source / file.path).read_bytes()) for file in collection.files]


def states(found: list[Checked]) -> list[str]:
    return [file.state for file in found]


def test_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PDADMM_DATA_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert data_home() == tmp_path / ".cache/pdadmm"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert data_home() == tmp_path / ".cache/pdadmm"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_home() == tmp_path / "cache/pdadmm"
    monkeypatch.setenv("PDADMM_DATA_HOME", "~/mine")
    assert data_home() == tmp_path / "mine"


def test_fetch_brings_what_is_missing_or_differs(mnist: Collection, site: Site, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert presence(mnist, home) == "no"
    assert states(fetch(mnist, home, transfer=ONCE)) == ["fetched"] * 4
    assert presence(mnist, home) == "yes"
    assert states(verify(mnist, home)) == ["ok"] * 4
    (home / mnist.files[0].path).unlink()
    write(home, mnist.files[2].path, b"damaged")
    assert states(verify(mnist, home)) == ["missing", "ok", "differs", "ok"]
    assert presence(mnist, home) == "part"
    site.asked.clear()
    assert states(fetch(mnist, home, transfer=ONCE)) == ["fetched", "present", "fetched", "present"]
    assert [path for path, _ in site.asked] == [f"/{mnist.files[number].name}" for number in (0, 2)]
    data = load_named(replace(VARIANTS["mnist"], collection=mnist), home)
    assert data.test is not None
    assert (len(data.train.X), len(data.test.X)) == (30, 20)


def test_a_change_of_one_bit_is_found(mnist: Collection, tmp_path: Path) -> None:
    path = tmp_path / "source" / mnist.files[0].path
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert states(verify(mnist, tmp_path / "source")) == ["differs", "ok", "ok", "ok"]


def test_a_mirror_has_the_layout_of_the_cache(mnist: Collection, site: Site, tmp_path: Path) -> None:
    site.files = {f"/data/{file.path}": site.files[f"/{file.name}"] for file in mnist.files}
    unreachable = replace(mnist, bases=("https://127.0.0.1:1/",))
    for mirror, home in ((f"{site.url}data", "one"), (f"{site.url}data/", "two")):
        fetch(unreachable, tmp_path / home, mirror, ONCE)
        assert states(verify(mnist, tmp_path / home)) == ["ok"] * 4
    with pytest.raises(NetworkError, match="404"):
        fetch(mnist, tmp_path / "three", f"{site.url}elsewhere", ONCE)
    with pytest.raises(UserError, match="--mirror must be an https:// address"):
        fetch(mnist, tmp_path / "three", "http://example.org", ONCE)


def test_an_archive_is_unpacked_and_removed(cifar10: Collection, site: Site, tmp_path: Path) -> None:
    others: list[tuple[str, bytes | str]] = [
        ("../../evil.bin", b"evil"),
        ("/tmp/evil.bin", b"evil"),
        ("cifar-10-batches-bin/readme.html", b"text"),
        ("cifar-10-batches-bin/link.bin", "/etc/passwd"),
    ]
    source, home = tmp_path / "source", tmp_path / "below/home"
    collection = archived(site, cifar10, packed(*others, *members(cifar10, source), *others))
    assert states(fetch(collection, home, transfer=ONCE)) == ["fetched"] * 6
    assert states(verify(collection, home)) == ["ok"] * 6
    found = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "below").rglob("*") if path.is_file())
    assert found == sorted(f"below/home/{file.path}" for file in collection.files)
    assert states(fetch(collection, home, transfer=ONCE)) == ["present"] * 6
    (home / collection.files[1].path).unlink()
    assert states(fetch(collection, home, transfer=ONCE)) == ["fetched"] * 6
    assert len(site.asked) == 2


@pytest.mark.parametrize("case", ["link", "lacking", "other size", "other content", "no archive", "cut archive"])
def test_archives_that_are_refused(case: str, cifar10: Collection, site: Site, tmp_path: Path) -> None:
    source, home = tmp_path / "source", tmp_path / "home"
    entries = members(cifar10, source)
    name, content = entries[2]
    assert isinstance(content, bytes)
    bads: dict[str, bytes | str] = {"link": "/etc/passwd", "other size": b"short"}
    bad = bads.get(case, bytes(len(content)))
    entries[2] = ("elsewhere/data_batch_3.bin" if case == "lacking" else name, bad)
    whole = packed(*entries)
    archive = {"no archive": b"<html>", "cut archive": whole[: len(whole) // 2]}.get(case, whole)
    with pytest.raises(DamageError):
        fetch(archived(site, cifar10, archive), home, transfer=ONCE)
    assert not [path for path in home.rglob("*.bin") if path.is_file()]
    assert not list(home.rglob("*.bin.part"))


def test_no_room(mnist: Collection, site: Site, tmp_path: Path) -> None:
    large = File(mnist.train[0].path, 2**60, mnist.train[0].sha256)
    collection = replace(mnist, train=(large, *mnist.train[1:]))
    with pytest.raises(
        StorageError, match=r"needs 1\S* \S+ more, and keeps 64.0 MiB unused, but only .* are free.*PDADMM_DATA_HOME"
    ):
        fetch(collection, tmp_path / "home", transfer=ONCE)
    assert site.asked == []


def test_a_folder_that_cannot_be_made(mnist: Collection, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(StorageError, match="cannot write"):
        fetch(mnist, tmp_path / "home", transfer=ONCE)


def test_names_stand_for_collections() -> None:
    names = ["svhn-corrected", "mnist-full", "svhn"]
    assert [collection.name for collection in collections_of(names)] == ["mnist", "svhn"]
    assert collections_of([]) == list(COLLECTIONS.values())
    with pytest.raises(UserError, match=r"must be one of mnist, .*; got 'mnits'"):
        collections_of(["mnits"])
    with pytest.raises(UserError, match="digits comes with scikit-learn"):
        collections_of(["digits"])
