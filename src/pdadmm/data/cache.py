"""The folder that publishers' files are kept in: what is there, whether it is what was published, and fetching it.

The layout is torchvision's where it has one. An archive is unpacked, file by file as the table names them, and then
removed.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from pdadmm.data.download import Part, Transfer, check_address
from pdadmm.data.published import COLLECTIONS, VARIANTS, Collection, File
from pdadmm.errors import DamageError, StorageError, UserError, did_you_mean
from pdadmm.machine import format_bytes
from pdadmm.rundir import reading, sha256_of, storing
from pdadmm.storage import DISK_SPARE

HOME = "PDADMM_DATA_HOME"
MIRROR = "PDADMM_DATA_MIRROR"


@dataclass(frozen=True)
class Checked:
    """A file of the cache."""

    collection: str
    path: Path
    state: str
    """ok, differs or missing; after fetching, fetched or present."""


def data_home() -> Path:
    """PDADMM_DATA_HOME, else pdadmm in the user's cache folder."""
    if named := os.environ.get(HOME):
        return Path(named).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        # A relative path is to be ignored, by the standard that defines the variable.
        return (cache if cache.is_absolute() else Path.home() / ".cache") / "pdadmm"
    except RuntimeError:
        raise UserError(f"there is no home folder to keep data in; name one by {HOME}") from None


def fetch_command(collection: Collection) -> str:
    """What to type to get its files."""
    return f"`pdadmm data fetch {collection.name}`"


def collections_of(names: list[str]) -> list[Collection]:
    """The collections behind names of sets, each once; all of them if there are no names."""
    for name in names:
        if name == "digits":
            raise UserError("digits comes with scikit-learn, so it has no files in the cache")
        if name not in VARIANTS:
            meant = did_you_mean(name, VARIANTS)
            raise UserError(f"a set to fetch or verify must be one of {', '.join(VARIANTS)}; got {name!r}{meant}")
    wanted = {VARIANTS[name].collection.name for name in names}
    return [collection for collection in COLLECTIONS.values() if not names or collection.name in wanted]


def presence(collection: Collection, home: Path) -> str:
    """yes, part or no: how many of the files are there, whatever is in them."""
    there = sum((home / file.path).exists() for file in collection.files)
    return {0: "no", len(collection.files): "yes"}.get(there, "part")


def verify(collection: Collection, home: Path) -> list[Checked]:
    """Compare every file with what was published."""
    return [Checked(collection.name, home / file.path, _state(file, home)) for file in collection.files]


def fetch(
    collection: Collection, home: Path, mirror: str | None = None, transfer: Transfer | None = None
) -> list[Checked]:
    """Fetch what is missing or differs; `mirror` is an address that takes the place of the publisher's.

    Below a mirror, files are where they are in the cache; archives are at its top.
    """
    transfer = transfer or Transfer()
    if mirror is not None:
        check_address(mirror, "--mirror")
    before = {file: _state(file, home) for file in collection.files}
    after = dict.fromkeys(collection.files, "present")
    for file in collection.downloads:
        members = collection.files if collection.archive else (file,)
        if any(before[member] != "ok" for member in members):
            urls = [f"{base}{file.name}" for base in collection.bases]
            if mirror is not None:
                urls = [f"{mirror.rstrip('/')}/{file.path}"]
            _fetch_one(file, members, urls, home, transfer)
            after |= dict.fromkeys(members, "fetched")
    return [Checked(collection.name, home / file.path, state) for file, state in after.items()]


def _fetch_one(file: File, members: tuple[File, ...], urls: list[str], home: Path, transfer: Transfer) -> None:
    with Part(home / file.path, file, transfer) as part:
        if all(_state(member, home) == "ok" for member in members):
            return  # another process has just fetched it
        is_archive = members != (file,)
        needed = max(0, file.size - part.size) + (sum(member.size for member in members) if is_archive else 0)
        free = shutil.disk_usage(home).free
        if needed + DISK_SPARE > free:
            raise StorageError(
                f"{home} needs {format_bytes(needed)} more, and keeps {format_bytes(DISK_SPARE)} unused, but only "
                f"{format_bytes(free)} are free; free some, or name another folder by {HOME}"
            )
        part.fill(urls)
        if is_archive:
            _unpack(part.path, members, home)
            part.discard()
        else:
            part.finish()


def _state(file: File, home: Path) -> str:
    path = home / file.path
    if not path.exists():
        return "missing"
    with reading(path):
        same = path.is_file() and path.stat().st_size == file.size and sha256_of(path) == file.sha256
    return "ok" if same else "differs"


def _unpack(archive: Path, members: tuple[File, ...], home: Path) -> None:
    """Take the members that the table names, and nothing else, to the places that it names."""
    folder, paths = archive.with_suffix(".unpacked"), {member.path for member in members}
    try:
        with storing(folder), tarfile.open(archive, "r:gz") as tar:
            for entry in tar:
                path = folder / entry.name
                content = tar.extractfile(entry) if entry.isreg() and entry.name.removeprefix("./") in paths else None
                if content is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("wb") as file:
                        shutil.copyfileobj(content, file)
        for member in members:
            if _state(member, folder) != "ok":
                raise DamageError(f"{member.path} in {archive} is missing or not what was published")
        for member in members:
            with storing(home / member.path):
                (home / member.path).parent.mkdir(parents=True, exist_ok=True)
                (folder / member.path).replace(home / member.path)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DamageError(f"{archive} is not a whole .tar.gz: {error}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
