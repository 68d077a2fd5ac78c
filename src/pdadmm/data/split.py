"""Hold samples out: the very rows of scikit-learn's `train_test_split`, without importing all of it."""

from __future__ import annotations

import math

import numpy as np

from pdadmm.data.arrays import Array, shorten
from pdadmm.errors import UserError


def split_rows(count: int, test_fraction: float, seed: int, labels: Array | None) -> tuple[Array, Array]:
    """Row numbers of the training and the test part, with the same share of every label where there are labels.

    A class with one sample is refused, because it could only be trained on or tested on.
    """
    random = np.random.RandomState(seed)
    num_test = math.ceil(test_fraction * count)
    num_train = count - num_test
    if labels is None:
        if not num_train:
            raise _too_few(count, test_fraction, 1, "")
        order = random.permutation(count)
        return order[num_test:], order[:num_test]
    classes, indices, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if counts.min() < 2:
        raise UserError(
            f"every class must have at least 2 samples to hold out a test part; "
            f"got 1 of {shorten(classes[counts < 2].tolist())}. Add samples, or use --test-fraction 0"
        )
    if min(num_train, num_test) < len(classes):
        raise _too_few(count, test_fraction, len(classes), ", as many as there are classes")
    for_training = _shares(counts, num_train, random)
    for_test = _shares(counts - for_training, num_test, random)
    train, test = [], []
    members = np.split(np.argsort(indices, kind="stable"), np.cumsum(counts)[:-1])
    for rows, trained, tested in zip(members, for_training, for_test, strict=True):
        drawn = rows[random.permutation(len(rows))]
        train.append(drawn[:trained])
        test.append(drawn[trained : trained + tested])
    return random.permutation(np.concatenate(train)), random.permutation(np.concatenate(test))


def _shares(counts: Array, draws: int, random: np.random.RandomState) -> Array:
    """How many of each class are among so many draws: its part rounded down, and more where most was cut off."""
    exact = counts / counts.sum() * draws
    shares: Array = np.floor(exact)
    rests, missing = exact - shares, draws - int(shares.sum())
    for rest in np.unique(rests)[::-1]:
        if missing <= 0:
            break
        places = np.flatnonzero(rests == rest)
        chosen = random.choice(places, size=min(len(places), missing), replace=False)
        shares[chosen] += 1
        missing -= len(chosen)
    return shares.astype(np.int64)


def _too_few(count: int, test_fraction: float, least: int, reason: str) -> UserError:
    return UserError(
        f"test_fraction must leave both parts at least {least} of the {count} samples{reason}; got {test_fraction}. "
        f"Add samples, or use --test-fraction 0 for no test part"
    )
