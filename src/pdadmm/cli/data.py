"""`pdadmm data`: the named data sets; what there is, fetch it, and whether the files are what was published."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from pdadmm.cli.options import add_json_flag
from pdadmm.cli.progress import FetchProgress
from pdadmm.data.cache import MIRROR, Checked, collections_of, data_home, fetch, presence, verify
from pdadmm.data.download import Transfer, check_address
from pdadmm.data.published import COLLECTIONS, VARIANTS
from pdadmm.errors import DamageError
from pdadmm.shell import say


def add_parser(commands: Any) -> None:
    """Declare the command and those below it."""
    parser = commands.add_parser("data", help="the named data sets: list, fetch, verify")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="all names, what they hold, and whether they are in the cache")
    listing.set_defaults(run=run_list)
    fetching = actions.add_parser("fetch", help="download the files of sets, unless they are there and valid")
    fetching.add_argument("names", nargs="+", metavar="NAME", help="a name of `pdadmm data list`")
    fetching.add_argument(
        "--mirror",
        metavar="URL",
        help=f"an address to fetch from instead of the publishers', with the cache's layout (default: ${MIRROR})",
    )
    fetching.add_argument("--quiet", action="store_true", help="show no progress and no notes")
    fetching.set_defaults(run=run_fetch)
    verifying = actions.add_parser("verify", help="compare files in the cache with the published checksums")
    verifying.add_argument("names", nargs="*", metavar="NAME", help="a name of `pdadmm data list` (default: all)")
    verifying.set_defaults(run=run_verify)
    for action in (listing, fetching, verifying):
        add_json_flag(action)


def run_list(arguments: argparse.Namespace) -> int:
    """Print one line a name, then who published what."""
    home = data_home()
    cached = {name: presence(collection, home) for name, collection in COLLECTIONS.items()}
    if arguments.json:
        sets = [
            {
                "name": variant.name,
                "train_samples": variant.samples[0],
                "test_samples": variant.samples[1],
                "features": variant.features,
                "classes": variant.num_classes,
                "cached": cached[variant.collection.name],
                "differs": variant.differs,
                "publisher": variant.collection.publisher,
                "licence": variant.collection.licence,
                "page": variant.collection.page,
            }
            for variant in VARIANTS.values()
        ]
        print(json.dumps({"home": str(home), "sets": sets}))
        return 0
    say(
        f"{'name':<18} {'train':>6} {'test':>6} {'features':>8} {'classes':>7}  cached  differs from the publisher's by"
    )
    for variant in VARIANTS.values():
        train, test = variant.samples
        numbers = f"{train:>6} {test:>6} {variant.features:>8} {variant.num_classes:>7}"
        say(f"{variant.name:<18} {numbers}  {cached[variant.collection.name]:<6}  {variant.differs}")
    print()
    say(f"files are in {home}; digits comes with scikit-learn")
    print()
    for name, collection in COLLECTIONS.items():
        say(f"{name:<9} {collection.publisher}; {collection.page}; licence: {collection.licence}")
    return 0


def run_fetch(arguments: argparse.Namespace) -> int:
    """Fetch, then print one line a file."""
    mirror = arguments.mirror or os.environ.get(MIRROR) or None
    if mirror is not None:
        check_address(mirror, "--mirror" if arguments.mirror else MIRROR)
    collections, home = collections_of(arguments.names), data_home()
    progress = FetchProgress(arguments.quiet)
    transfer = Transfer(on_progress=progress.show, on_note=progress.note)
    try:
        files = [file for collection in collections for file in fetch(collection, home, mirror, transfer)]
    finally:
        progress.close()
    _print(files, arguments.json)
    return 0


def run_verify(arguments: argparse.Namespace) -> int:
    """Print one line a file; one that differs is an error only after that."""
    home = data_home()
    files = [file for collection in collections_of(arguments.names) for file in verify(collection, home)]
    _print(files, arguments.json)
    differing = [file for file in files if file.state == "differs"]
    if differing:
        first = differing[0]
        more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
        raise DamageError(
            f"{first.path} is not the published file{more}; `pdadmm data fetch {first.collection}` gets it anew"
        )
    return 0


def _print(files: list[Checked], as_json: bool) -> None:
    if as_json:
        entries = [{"set": file.collection, "file": str(file.path), "state": file.state} for file in files]
        print(json.dumps({"home": str(data_home()), "files": entries}))
        return
    for file in files:
        say(f"{file.state:<8} {file.path}")
