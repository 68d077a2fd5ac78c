"""`pdadmm data`, and the other commands on a named data set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import Command, assert_refused, strict_json
from pdadmm.data.published import COLLECTIONS, VARIANTS
from publishing import Site, served, write, write_cifar100, write_idx


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache."""
    monkeypatch.setenv("PDADMM_DATA_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PDADMM_DATA_MIRROR", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


@pytest.fixture
def site(home: Path) -> Iterator[Site]:
    with served(Site()) as found:
        yield found


def test_list(pdadmm: Command, home: Path) -> None:
    write_idx(home, "MNIST")
    write_cifar100(home)
    (home / "cifar-100-binary/test.bin").unlink()
    found = pdadmm("data", "list", "--json").json()
    assert found["home"] == str(home)
    sets = {entry["name"]: entry for entry in found["sets"]}
    assert set(sets) == set(VARIANTS)
    assert [sets[name]["cached"] for name in ("mnist-full", "cifar100-coarse", "svhn")] == ["yes", "part", "no"]
    svhn = sets["svhn"]
    numbers = [svhn[key] for key in ("train_samples", "test_samples", "features", "classes")]
    assert numbers == [24446, 9248, 768, 2]
    assert "non-commercial" in svhn["licence"]
    plain = pdadmm("data", "list")
    assert plain.code == 0
    for name, collection in COLLECTIONS.items():
        assert f"\n{name} " in plain.out
        assert collection.licence in plain.out
    assert str(home) in plain.out


def test_verify(pdadmm: Command, home: Path) -> None:
    missing = pdadmm("data", "verify", "cifar100", "--json").json()
    assert [file["state"] for file in missing["files"]] == ["missing", "missing"]
    write_cifar100(home)
    found = pdadmm("data", "verify", "cifar100-full", "mnist", "--json")
    assert found.code == 6
    files = {Path(file["file"]).name: file["state"] for file in strict_json(found.out)["files"]}
    assert files["train.bin"] == files["test.bin"] == "differs"
    assert files["train-images-idx3-ubyte.gz"] == "missing"
    assert "train.bin is not the published file (and 1 more); `pdadmm data fetch cifar100`" in found.err
    assert "differs  " in pdadmm("data", "verify").out


def test_fetch_from_a_mirror(pdadmm: Command, site: Site, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = pdadmm("data", "fetch", "svhn", "--mirror", site.url)
    assert outcome.code == 7
    assert "pdadmm: error: cannot fetch train_32x32.mat" in outcome.err
    assert site.asked == [("/svhn/train_32x32.mat", None)]
    site.files["/cifar-10-binary.tar.gz"] = b"another"
    monkeypatch.setenv("PDADMM_DATA_MIRROR", site.url)
    assert_refused(pdadmm("data", "fetch", "cifar10", "--quiet"), "7 bytes instead of 170052171", code=6)
    assert not [path for path in home.rglob("*") if path.is_file()]
    monkeypatch.setenv("PDADMM_DATA_MIRROR", "http://example.org")
    assert_refused(pdadmm("data", "fetch", "cifar10"), "PDADMM_DATA_MIRROR must be an https:// address")


def test_mistakes(pdadmm: Command, home: Path) -> None:
    assert_refused(pdadmm("data"), "ACTION")
    assert_refused(pdadmm("data", "fetch"), "NAME")
    assert_refused(pdadmm("data", "fetch", "mnits"), "must be one of mnist, ", "'mnits'")
    assert_refused(pdadmm("data", "verify", "digits"), "comes with scikit-learn")
    assert_refused(pdadmm("data", "fetch", "mnist", "--mirror", "http://example.org"), "--mirror must be an https://")


def test_every_command_takes_a_name(pdadmm: Command, train: Command, home: Path) -> None:
    assert_refused(train("--data", "cifar100"), "cifar100 is not in", "`pdadmm data fetch cifar100`")
    write_cifar100(home)
    note = "note: cifar100: 6 training samples where the publisher's files give 1,000\n"
    options = ("--hidden", "2x8", "--epochs", "3", "--threads", "1", "--out", "run")
    trained = pdadmm("train", *options, "--data", "cifar100")
    assert trained.code == 0, trained.err
    assert note in trained.err
    scores = pdadmm("evaluate", "run", "--json").json()
    assert (scores["train_samples"], scores["test_samples"]) == (6, 4)
    named = pdadmm("evaluate", "run", "--data", "cifar100-fine2", "--json")
    assert named.json()["test_accuracy"] == scores["test_accuracy"]
    assert note.replace("cifar100", "cifar100-fine2") in named.err
    predicted = pdadmm("predict", "run", "--data", "cifar100", "--json").json()["predictions"]
    assert len(predicted) == 4
    assert set(predicted) <= {0, 2}
    planned = pdadmm("plan", *options[:4], "--data", "cifar100", "--json").json()
    assert [planned[key] for key in ("samples", "test_samples", "features", "outputs")] == [6, 4, 768, 2]


def test_a_damaged_file(train: Command, home: Path) -> None:
    write_cifar100(home)
    write(home, "cifar-100-binary/train.bin", b"damaged")
    assert_refused(train("--data", "cifar100"), "train.bin must have records of 3074 bytes", "data fetch", code=6)
