"""Location and spread of every column, in float64, without a temporary of the array's size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pdadmm.data.arrays import Array, row_chunks


@dataclass(frozen=True, eq=False)
class ColumnStatistics:
    """Per column; `deviation` is the square root of the mean squared distance from the mean."""

    minimum: Array
    maximum: Array
    mean: Array
    deviation: Array


def column_statistics(X: Array) -> ColumnStatistics:
    """Two passes: first the mean, then the squares around it.

    Both are sums of differences (from the first row, then from the mean), so a large common offset cancels
    before it can swallow the digits that differ; E[x²] - E[x]² would subtract two large, almost equal numbers.
    """
    count, width = X.shape
    origin = X[0].astype(np.float64)
    minimum, maximum = origin.copy(), origin.copy()
    total = np.zeros(width)
    # Overflow becomes an infinite statistic, which the caller reports with the feature's name.
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in row_chunks(X):
            block = X[rows].astype(np.float64)
            np.minimum(minimum, block.min(axis=0), out=minimum)
            np.maximum(maximum, block.max(axis=0), out=maximum)
            block -= origin
            total += block.sum(axis=0)
        mean = origin + total / count
        squares, residue = np.zeros(width), np.zeros(width)
        for rows in row_chunks(X):
            block = X[rows] - mean
            residue += block.sum(axis=0)
            np.square(block, out=block)
            squares += block.sum(axis=0)
        # The residue would be 0 but for rounding of the mean; taking it off repairs the variance.
        variance = np.maximum(squares - residue**2 / count, 0.0) / count
    return ColumnStatistics(minimum, maximum, mean, np.sqrt(variance))
