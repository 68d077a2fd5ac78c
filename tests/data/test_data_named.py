"""The paper's data sets come out of publishers' files as the paper prepared them; damaged files are named."""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat
from scipy.ndimage import zoom

from pdadmm.data import Part, load_data, stream_samples
from pdadmm.data.arrays import CHUNK_ELEMENTS
from pdadmm.data.named import load_named
from pdadmm.data.published import COLLECTIONS, VARIANTS, Variant
from pdadmm.data.sources import SOURCES
from pdadmm.errors import DamageError, StorageError, UserError
from publishing import Bytes, cifar, idx, pixels, write, write_cifar10, write_cifar100, write_idx, write_svhn

FOLDERS = {"mnist": "MNIST", "fashion": "FashionMNIST", "kmnist": "KMNIST"}


def halved(images: Bytes) -> Any:
    """As the paper made them, one image at a time."""
    factors = (0.5, 0.5, 1)[: images.ndim - 1]
    return np.stack([zoom(image / 255, factors, order=1).ravel() for image in images]).astype(np.float32)


def parts(variant: Variant, home: Path) -> tuple[Part, Part]:
    data = load_named(variant, home)
    assert data.test is not None
    return data.train, data.test


def kept(images: Bytes, labels: Bytes, *classes: int) -> tuple[Bytes, list[int]]:
    rows = np.isin(labels, classes)
    return images[rows], labels[rows].tolist()


@pytest.mark.parametrize("name", FOLDERS)
def test_grey_images(name: str, tmp_path: Path) -> None:
    images, labels = write_idx(tmp_path, FOLDERS[name])
    for table, part, known in zip(parts(VARIANTS[name], tmp_path), images, labels, strict=True):
        assert table.X.dtype == np.float32
        assert np.array_equal(table.X, halved(part))
        assert table.y.tolist() == known.tolist()
    names = load_named(VARIANTS[name], tmp_path).feature_names
    assert (names[0], names[-1], len(names)) == ("pixel_0_0", "pixel_13_13", 196)
    full = load_named(VARIANTS[f"{name}-full"], tmp_path)
    assert np.array_equal(full.train.X, (images[0] / 255).astype(np.float32).reshape(30, 784))
    assert full.feature_names[-1] == "pixel_27_27"


def test_images_are_the_same_in_several_chunks(tmp_path: Path) -> None:
    count = CHUNK_ELEMENTS // 196 + 100
    images, _ = write_idx(tmp_path, "MNIST", (count, 10))
    train, _ = parts(VARIANTS["mnist"], tmp_path)
    assert np.array_equal(train.X, halved(images[0]))


def test_only_the_first_images_are_kept(tmp_path: Path) -> None:
    images, labels = write_idx(tmp_path, "MNIST")
    assert VARIANTS["mnist"].first == 55000
    train, test = parts(replace(VARIANTS["mnist"], first=25), tmp_path)
    assert np.array_equal(train.X, halved(images[0][:25]))
    assert train.y.tolist() == labels[0][:25].tolist()
    assert len(test.X) == 20


def test_a_limit_goes_over_several_files(tmp_path: Path) -> None:
    images, _ = write_cifar10(tmp_path)
    train, _ = parts(replace(VARIANTS["cifar10-full"], first=13), tmp_path)
    expected = np.concatenate(images[:2])[:13] / 255
    assert np.array_equal(train.X, expected.astype(np.float32).reshape(13, -1))


def test_svhn_calls_zero_ten(tmp_path: Path) -> None:
    images, labels = write_svhn(tmp_path)
    for part in (0, 1):
        published = parts(VARIANTS["svhn"], tmp_path)[part]
        corrected = parts(VARIANTS["svhn-corrected"], tmp_path)[part]
        full = parts(VARIANTS["svhn-full"], tmp_path)[part]
        wanted, known = kept(images[part], labels[part], 1, 2)
        assert np.array_equal(published.X, halved(wanted))
        assert published.y.tolist() == known
        wanted, known = kept(images[part], labels[part], 10, 1, 2)
        assert np.array_equal(corrected.X, halved(wanted))
        assert corrected.y.tolist() == [label % 10 for label in known]
        assert full.y.tolist() == (labels[part] % 10).tolist()
        assert full.X.shape[1] == 3072
    names = load_named(VARIANTS["svhn"], tmp_path).feature_names
    assert names[:4] == ("pixel_0_0_red", "pixel_0_0_green", "pixel_0_0_blue", "pixel_0_1_red")


def test_cifar10(tmp_path: Path) -> None:
    images, labels = write_cifar10(tmp_path)
    train, test = parts(VARIANTS["cifar10"], tmp_path)
    wanted, known = kept(np.concatenate(images[:-1]), np.concatenate(labels[:-1]), 0, 6)
    assert np.array_equal(train.X, halved(wanted))
    assert train.y.tolist() == known
    assert test.X.shape == (4, 768)
    full, _ = parts(VARIANTS["cifar10-full"], tmp_path)
    assert full.X.shape == (50, 3072)


@pytest.mark.parametrize(
    ("name", "classes", "kind"),
    [
        ("cifar100", (0, 2), "fine"),
        ("cifar100-corrected", (0, 2), "fine"),
        ("cifar100-fine2", (0, 2), "fine"),
        ("cifar100-fine10", tuple(range(10)), "fine"),
        ("cifar100-coarse", tuple(range(20)), "coarse"),
    ],
)
def test_cifar100(name: str, classes: tuple[int, ...], kind: str, tmp_path: Path) -> None:
    images, fine = write_cifar100(tmp_path)
    for table, part, labels in zip(parts(VARIANTS[name], tmp_path), images, fine, strict=True):
        wanted, known = kept(part, labels, *classes)
        assert np.array_equal(table.X, halved(wanted))
        assert table.y.tolist() == (known if kind == "fine" else (labels // 2).tolist())


@pytest.mark.parametrize("name", COLLECTIONS)
def test_every_set_has_its_variants(name: str) -> None:
    published, corrected, full = (VARIANTS[name + suffix] for suffix in ("", "-corrected", "-full"))
    assert {name, corrected.name, full.name} <= set(SOURCES)
    same = replace(corrected, name=name, differs=published.differs) == published
    assert same == (name != "svhn")
    assert full.shape == COLLECTIONS[name].shape
    assert (full.classes, full.first) == (None, None)
    assert published.features == (196 if len(full.shape) == 2 else 768)


def test_the_table_knows_what_the_files_are() -> None:
    for collection in COLLECTIONS.values():
        files = (*collection.files, *collection.downloads)
        assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in files)
        assert len({file.sha256 for file in files}) == len(set(files))
        assert all(base.startswith("https://") and base.endswith("/") for base in collection.bases)
    assert VARIANTS["svhn"].samples == (24446, 9248)
    record = 1 + 32 * 32 * 3
    assert sum(file.size for file in COLLECTIONS["cifar10"].train) == VARIANTS["cifar10-full"].samples[0] * record
    assert COLLECTIONS["cifar100"].train[0].size == VARIANTS["cifar100-full"].samples[0] * (record + 1)


# --- by name


def test_loading_by_name_notes_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDADMM_DATA_HOME", str(tmp_path))
    write_cifar10(tmp_path, batches=(1, 4))
    data = load_data("cifar10")
    assert data.test is not None
    assert (data.train.X.shape, data.test.X.shape) == ((4, 768), (4, 768))
    assert data.train.y.tolist() == [0, 6, 0, 6]
    assert data.notes == (
        "cifar10: the cache lacks data_batch_2.bin, data_batch_3.bin, data_batch_5.bin; "
        "the samples of the other files are used",
        "cifar10: 4 training samples where the publisher's files give 10,000",
        "cifar10: 4 test samples where the publisher's files give 2,000",
    )


def test_a_whole_set_has_no_notes(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    assert load_named(replace(VARIANTS["cifar10"], samples=(10, 4)), tmp_path).notes == ()


def test_samples_to_predict_for_are_the_test_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDADMM_DATA_HOME", str(tmp_path))
    write_cifar100(tmp_path)
    data = load_data("cifar100")
    assert data.test is not None
    for names, columns in ((data.feature_names, slice(None)), (data.feature_names[5:2:-1], slice(5, 2, -1))):
        assert np.array_equal(np.concatenate(list(stream_samples("cifar100", names).blocks)), data.test.X[:, columns])
    assert next(stream_samples("digits", tuple(f"x{index}" for index in range(64))).blocks).shape == (1797, 64)
    with pytest.raises(UserError, match=r"cifar100 must have the 1 features of the model; it lacks 'a'"):
        stream_samples("cifar100", ("a",))


# --- what may be wrong


def test_what_is_not_in_the_cache(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_named(VARIANTS["svhn-full"], tmp_path)
    for fragment in (f"svhn-full is not in {tmp_path}", "svhn/train_32x32.mat", "`pdadmm data fetch svhn`"):
        assert fragment in str(caught.value)
    write_cifar10(tmp_path, batches=())
    with pytest.raises(UserError, match=r"lacks cifar-10-batches-bin/data_batch_1.bin"):
        load_named(VARIANTS["cifar10"], tmp_path)
    write_cifar10(tmp_path, batches=(3,))
    (tmp_path / "cifar-10-batches-bin/test_batch.bin").unlink()
    with pytest.raises(UserError, match=r"lacks cifar-10-batches-bin/test_batch.bin"):
        load_named(VARIANTS["cifar10"], tmp_path)


def test_files_without_the_classes(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    write(tmp_path, "cifar-100-binary/train.bin", cifar(pixels(3, 32, 32, 3), [0, 0, 0], [1, 1, 1]))
    with pytest.raises(UserError, match=r"training files of cifar100 in .* have none of its samples"):
        load_named(VARIANTS["cifar100"], tmp_path)


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    (tmp_path / "svhn/test_32x32.mat").unlink()
    (tmp_path / "svhn/test_32x32.mat").mkdir()
    with pytest.raises(StorageError, match=r"cannot read .*test_32x32.mat: Is a directory"):
        load_named(VARIANTS["svhn"], tmp_path)


IMAGES, LABELS = "MNIST/raw/train-images-idx3-ubyte.gz", "MNIST/raw/t10k-labels-idx1-ubyte.gz"
BATCH, TRAIN = "cifar-10-batches-bin/data_batch_2.bin", "cifar-100-binary/train.bin"
MAT = "svhn/train_32x32.mat"
GOOD = idx(pixels(30, 28, 28))
CASES: dict[str, tuple[str, str, bytes, str]] = {
    "no gzip": ("mnist", IMAGES, b"<html>", "not a whole .gz file: Not a gzipped file"),
    "cut gzip": ("mnist", IMAGES, GOOD[:-100], "not a whole .gz file"),
    "changed gzip": ("mnist", IMAGES, GOOD[:500] + b"?" + GOOD[501:], "not a whole .gz file"),
    "empty": ("mnist", IMAGES, b"", "must begin with 00000803, as IDX does; got nothing"),
    "empty gzip": ("mnist", IMAGES, gzip.compress(b""), "must begin with 00000803"),
    "labels for images": ("mnist", IMAGES, idx(np.zeros(30, np.uint8)), "must begin with 00000803"),
    "images for labels": ("mnist", LABELS, GOOD, "must begin with 00000801"),
    "cut header": ("mnist", IMAGES, gzip.compress(b"\0\0\x08\x03\0\0"), "must begin with 00000803"),
    "cut content": ("mnist", IMAGES, gzip.compress(gzip.decompress(GOOD)[:-1]), "30 by 28 by 28 bytes, as it says"),
    "impossible header": (
        "mnist",
        IMAGES,
        gzip.compress(struct.pack(">BBBB3I", 0, 0, 8, 3, *[2**32 - 1] * 3)),
        "bytes, as it says; got 0",
    ),
    "other images": ("mnist", IMAGES, idx(pixels(30, 32, 32)), "images of 28 by 28; got 32 by 32"),
    "fewer labels": ("mnist", LABELS, idx(np.zeros(19, np.uint8)), "got 20 for 19"),
    "large label": ("mnist", LABELS, idx(np.full(20, 10, np.uint8)), "labels below 10; got 10"),
    "no images": ("mnist", IMAGES, idx(pixels(0, 28, 28)), "got 0 for 30"),
    "cut record": (
        "cifar10",
        BATCH,
        cifar(pixels(2, 32, 32, 3), [0, 6])[:-1],
        "records of 3073 bytes; its size is 6145",
    ),
    "empty records": ("cifar10", BATCH, b"", "records of 3073 bytes; its size is 0"),
    "large class": ("cifar10", BATCH, cifar(pixels(1, 32, 32, 3), [10]), "labels below 10; got 10"),
    "large fine label": ("cifar100", TRAIN, cifar(pixels(1, 32, 32, 3), [0], [100]), "labels below 100; got 100"),
    "large coarse label": ("cifar100", TRAIN, cifar(pixels(1, 32, 32, 3), [20], [0]), "labels below 20; got 20"),
    "no mat": ("svhn", MAT, b"<html>" * 100, "not a MATLAB file of version 5"),
    "empty mat": ("svhn", MAT, b"", "not a MATLAB file of version 5"),
}


def refused(variant: Variant, home: Path, path: str, fragment: str) -> None:
    with pytest.raises(DamageError) as caught:
        load_named(variant, home)
    assert str(home / path) in str(caught.value)
    assert fragment in str(caught.value)
    assert str(caught.value).endswith(f"`pdadmm data fetch {variant.collection.name}` gets it anew")


WRITERS: dict[str, Callable[[Path], object]] = {
    "mnist": lambda home: write_idx(home, "MNIST"),
    "svhn": write_svhn,
    "cifar10": write_cifar10,
    "cifar100": write_cifar100,
}


@pytest.mark.parametrize("case", CASES)
def test_damaged_files(case: str, tmp_path: Path) -> None:
    name, path, content, fragment = CASES[case]
    WRITERS[name](tmp_path)
    write(tmp_path, path, content)
    refused(VARIANTS[name], tmp_path, path, fragment)


X = pixels(4, 32, 32, 3).transpose(1, 2, 3, 0)
Y = np.array([[1], [2], [1], [2]], np.uint8)


@pytest.mark.parametrize(
    ("arrays", "fragment"),
    [
        ({"X": X}, "must have X and y; it lacks y"),
        ({"y": Y}, "must have X and y; it lacks X"),
        ({"X": X[:16], "y": Y}, "must be 32 by 32 by 3 by N bytes; got 16 by 32 by 3 by 4"),
        ({"X": X.astype(float), "y": Y}, "got 32 by 32 by 3 by 4 of float64"),
        ({"X": X, "y": Y[:3]}, "must be 4 by 1 whole numbers; got 3 by 1"),
        ({"X": X, "y": Y / 2}, "got 4 by 1 of float64"),
        ({"X": X, "y": Y * 0}, "labels from 1 to 10; got 0 to 0"),
        ({"X": X, "y": Y + 9}, "labels from 1 to 10; got 10 to 11"),
        ({"X": X, "y": Y.astype(object)}, "whole numbers; got 4 by 1 of object"),
    ],
)
def test_mat_files_with_other_content(arrays: dict[str, Any], fragment: str, tmp_path: Path) -> None:
    write_svhn(tmp_path)
    savemat(tmp_path / MAT, arrays)
    refused(VARIANTS["svhn"], tmp_path, MAT, fragment)


def test_a_mat_file_that_is_cut_short(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    content = (tmp_path / MAT).read_bytes()
    for length in (100, 200, len(content) // 2, len(content) - 1):
        write(tmp_path, MAT, content[:length])
        with pytest.raises(DamageError, match=r"train_32x32.mat"):
            load_named(VARIANTS["svhn"], tmp_path)
