"""The six data sets of the paper as a table: what publishers give, and what each of our names makes of it.

Checksums are those of TensorFlow Datasets (files and archives; torchvision has the same files by MD5) and, for the
members of CIFAR's archives, those of torchvision's port to Ruby.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from pdadmm.data.images import Images, read_cifar, read_idx, read_svhn

Reader = Callable[[Sequence[Path], tuple[int, ...], tuple[int, ...]], list[Images]]


@dataclass(frozen=True)
class File:
    """A file as its publisher gives it."""

    path: str
    """Below the cache folder; the last part is the publisher's name."""
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """Without the folder."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class Collection:
    """What one publisher gives, and how to read it."""

    name: str
    publisher: str
    licence: str
    page: str
    bases: tuple[str, ...]
    """Addresses that have the files, in the order to be tried."""
    train: tuple[File, ...]
    test: tuple[File, ...]
    read: Reader
    shape: tuple[int, ...]
    classes: tuple[int, ...]
    """How many there are, for each kind of label."""
    archive: File | None = None
    """What to fetch, where the files are its members."""
    may_lack: bool = False
    """Whether some of the training files are enough to train on."""

    @property
    def files(self) -> tuple[File, ...]:
        """All that is kept in the cache."""
        return self.train + self.test

    @property
    def downloads(self) -> tuple[File, ...]:
        """All that is fetched."""
        return (self.archive,) if self.archive else self.files


@dataclass(frozen=True)
class Variant:
    """A name of ours: which samples of a collection, at which resolution, with which labels."""

    name: str
    collection: Collection
    samples: tuple[int, int]
    """Training and test samples that the whole collection gives."""
    differs: str
    """From what the publisher gives; for people."""
    classes: tuple[int, ...] | None = None
    """The labels to keep, or None for all."""
    first: int | None = None
    """How many training images to keep, from the first on."""
    halved: bool = True
    kind: int = -1
    """Which of the collection's kinds of label."""

    @property
    def num_classes(self) -> int:
        """Of the whole collection."""
        return len(self.classes) if self.classes else self.collection.classes[self.kind]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an image: rows, columns and perhaps colours."""
        rows, columns, *colours = self.collection.shape
        return (rows // 2, columns // 2, *colours) if self.halved else self.collection.shape

    @property
    def features(self) -> int:
        """Numbers a sample."""
        return math.prod(self.shape)


def _idx_files(folder: str, *known: tuple[str, int, str]) -> tuple[File, ...]:
    return tuple(File(f"{folder}/{name}-ubyte.gz", size, sha256) for name, size, sha256 in known)


MNIST = Collection(
    name="mnist",
    publisher="Y. LeCun, C. Cortes, C. J. C. Burges",
    licence="none stated by the publishers; CC BY-SA 3.0 by Keras's documentation",
    page="http://yann.lecun.com/exdb/mnist/",
    bases=("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/"),
    train=_idx_files(
        "MNIST/raw",
        ("train-images-idx3", 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1", 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    ),
    test=_idx_files(
        "MNIST/raw",
        ("t10k-images-idx3", 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1", 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
    read=read_idx,
    shape=(28, 28),
    classes=(10,),
)

FASHION = Collection(
    name="fashion",
    publisher="Zalando SE",
    licence="MIT",
    page="https://github.com/zalandoresearch/fashion-mnist",
    bases=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    train=_idx_files(
        "FashionMNIST/raw",
        ("train-images-idx3", 26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        ("train-labels-idx1", 29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    ),
    test=_idx_files(
        "FashionMNIST/raw",
        ("t10k-images-idx3", 4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        ("t10k-labels-idx1", 5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ),
    read=read_idx,
    shape=(28, 28),
    classes=(10,),
)

KMNIST = Collection(
    name="kmnist",
    publisher="ROIS-DS Center for Open Data in the Humanities (KMNIST Dataset, created by CODH)",
    licence="CC BY-SA 4.0",
    page="https://codh.rois.ac.jp/kmnist/",
    bases=("https://codh.rois.ac.jp/kmnist/dataset/kmnist/",),
    train=_idx_files(
        "KMNIST/raw",
        ("train-images-idx3", 18165135, "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4"),
        ("train-labels-idx1", 29497, "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17"),
    ),
    test=_idx_files(
        "KMNIST/raw",
        ("t10k-images-idx3", 3041136, "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5"),
        ("t10k-labels-idx1", 5120, "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c"),
    ),
    read=read_idx,
    shape=(28, 28),
    classes=(10,),
)

SVHN = Collection(
    name="svhn",
    publisher="Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu, A. Y. Ng",
    licence="for non-commercial use only",
    page="http://ufldl.stanford.edu/housenumbers/",
    bases=("https://ufldl.stanford.edu/housenumbers/",),
    train=(
        File("svhn/train_32x32.mat", 182040794, "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
    ),
    test=(File("svhn/test_32x32.mat", 64275384, "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),),
    read=read_svhn,
    shape=(32, 32, 3),
    classes=(10,),
)

_CIFAR10_BATCHES = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
)

CIFAR10 = Collection(
    name="cifar10",
    publisher="A. Krizhevsky, V. Nair, G. Hinton",
    licence="none stated by the publishers, who ask to be cited",
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
    bases=("https://www.cs.toronto.edu/~kriz/",),
    train=tuple(
        File(f"cifar-10-batches-bin/data_batch_{number}.bin", 30730000, sha256)
        for number, sha256 in enumerate(_CIFAR10_BATCHES, start=1)
    ),
    test=(
        File(
            "cifar-10-batches-bin/test_batch.bin",
            30730000,
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ),
    ),
    read=read_cifar,
    shape=(32, 32, 3),
    classes=(10,),
    archive=File(
        "cifar-10-binary.tar.gz", 170052171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
    ),
    may_lack=True,
)

CIFAR100 = Collection(
    name="cifar100",
    publisher="A. Krizhevsky, V. Nair, G. Hinton",
    licence="none stated by the publishers, who ask to be cited",
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
    bases=("https://www.cs.toronto.edu/~kriz/",),
    train=(
        File(
            "cifar-100-binary/train.bin", 153700000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"
        ),
    ),
    test=(
        File("cifar-100-binary/test.bin", 30740000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
    ),
    read=read_cifar,
    shape=(32, 32, 3),
    classes=(20, 100),
    archive=File(
        "cifar-100-binary.tar.gz", 168513733, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"
    ),
)

COLLECTIONS = {collection.name: collection for collection in (MNIST, FASHION, KMNIST, SVHN, CIFAR10, CIFAR100)}
"""By name."""


def _published(variant: Variant) -> tuple[Variant, Variant]:
    """A set that needs no correction, under both its names."""
    return variant, replace(
        variant, name=f"{variant.name}-corrected", differs=f"{variant.differs}; same as {variant.name}"
    )


def _full(collection: Collection, samples: tuple[int, int], differs: str = "nothing") -> Variant:
    return Variant(f"{collection.name}-full", collection, samples, differs, halved=False)


_HALF = "14 × 14 pixels"
_HALF_COLOURED = "16 × 16 pixels"
_TWO_FINE = Variant(
    "cifar100", CIFAR100, (1000, 200), f"fine labels 0 and 2, {_HALF_COLOURED}; the paper says 5,000/1,000", (0, 2)
)

VARIANTS = {
    variant.name: variant
    for variant in (
        *_published(Variant("mnist", MNIST, (55000, 10000), f"first 55,000 for training, {_HALF}", first=55000)),
        _full(MNIST, (60000, 10000)),
        *_published(Variant("fashion", FASHION, (60000, 10000), _HALF)),
        _full(FASHION, (60000, 10000)),
        *_published(Variant("kmnist", KMNIST, (60000, 10000), _HALF)),
        _full(KMNIST, (60000, 10000)),
        Variant("svhn", SVHN, (24446, 9248), f"digits 1 and 2, {_HALF_COLOURED}; the paper says 0, 1 and 2", (1, 2)),
        Variant(
            "svhn-corrected", SVHN, (29394, 10992), f"digits 0, 1 and 2, {_HALF_COLOURED}; 0 is 0, not 10", (0, 1, 2)
        ),
        _full(SVHN, (73257, 26032), "label 0 is 0, not 10"),
        *_published(
            Variant(
                "cifar10", CIFAR10, (10000, 2000), f"classes 0 and 6, {_HALF_COLOURED}; the paper says 12,000", (0, 6)
            )
        ),
        _full(CIFAR10, (50000, 10000)),
        *_published(_TWO_FINE),
        replace(_TWO_FINE, name="cifar100-fine2", differs=f"{_TWO_FINE.differs}; same as cifar100"),
        Variant("cifar100-fine10", CIFAR100, (5000, 1000), f"fine labels 0 to 9, {_HALF_COLOURED}", tuple(range(10))),
        Variant("cifar100-coarse", CIFAR100, (50000, 10000), f"coarse labels, {_HALF_COLOURED}", kind=0),
        _full(CIFAR100, (50000, 10000), "fine labels only"),
    )
}
"""By name."""
