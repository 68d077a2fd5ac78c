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

from pdadmm.data.download import Part, Transfer, check_address, remove, sha256_of
from pdadmm.data.published import COLLECTIONS, VARIANTS, Collection, File
from pdadmm.errors import DamageError, StorageError, UserError, did_you_mean
from pdadmm.machine import format_bytes
from pdadmm.rundir import storing
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
            _fetch_one(file, members, _addresses(collection, file, mirror), home, transfer)
            after |= dict.fromkeys(members, "fetched")
    return [Checked(collection.name, home / file.path, state) for file, state in after.items()]


def _addresses(collection: Collection, file: File, mirror: str | None) -> list[str]:
    if mirror is not None:
        return [f"{mirror.rstrip('/')}/{file.path}"]
    return [f"{base}{file.name}" for base in collection.bases]


def _fetch_one(file: File, members: tuple[File, ...], urls: list[str], home: Path, transfer: Transfer) -> None:
    with Part(home / file.path, file, transfer) as part:
        if all(_state(member, home) == "ok" for member in members):
            return  # another process has just fetched it
        unpacked = 0 if members == (file,) else sum(member.size for member in members)
        _check_room(home, max(0, file.size - part.size) + unpacked)
        part.fill(urls)
        if members == (file,):
            part.finish()
        else:
            _unpack(part.path, members, home)
            part.discard()


def _state(file: File, home: Path) -> str:
    path = home / file.path
    if not path.exists():
        return "missing"
    same = path.is_file() and path.stat().st_size == file.size and sha256_of(path) == file.sha256
    return "ok" if same else "differs"


def _check_room(home: Path, size: int) -> None:
    free = shutil.disk_usage(home).free
    if size + DISK_SPARE > free:
        raise StorageError(
            f"{home} needs {format_bytes(size)} more, and keeps {format_bytes(DISK_SPARE)} unused, but only "
            f"{format_bytes(free)} are free; free some, or name another folder by {HOME}"
        )


def _unpack(archive: Path, members: tuple[File, ...], home: Path) -> None:
    """Take the members that the table names, and nothing else, to the places that it names."""
    wanted = {member.path: member for member in members}
    written: dict[Path, Path] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for entry in tar:
                member = wanted.pop(entry.name.removeprefix("./"), None)
                if member is None:
                    continue
                content = tar.extractfile(entry) if entry.isreg() and entry.size == member.size else None
                if content is None:
                    raise DamageError(f"{member.path} in {archive} must be a plain file of {member.size} bytes")
                path = home / member.path
                part = path.with_name(f".{path.name}.part")
                written[part] = path
                with storing(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with part.open("wb") as file:
                        shutil.copyfileobj(content, file)
                if sha256_of(part) != member.sha256:
                    raise DamageError(f"{member.path} in {archive} is not what was published")
        if wanted:
            raise DamageError(f"{archive} lacks {next(iter(wanted))}")
        for part, path in written.items():
            with storing(path):
                part.replace(path)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DamageError(f"{archive} is not a whole .tar.gz: {error}") from None
    finally:
        remove(*written)
