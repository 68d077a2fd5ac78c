"""Tensors, arrays, a Dataset or a DataLoader as the arrays of a `Part`.

The method visits all samples in every epoch, so a loader is read to its end, once, and kept: what it would draw anew
each time, such as random crops, is drawn once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from pdadmm.data import Part
from pdadmm.data.arrays import Array, as_float
from pdadmm.errors import UserError

_ROWS = 256  # of a Dataset, which is asked for samples one by one anyway


def collect(X: Any, y: Any, sample_weight: Any, name: str, flattens: bool) -> Part:
    """Rows of features with their targets; `name` is how a mistake calls the argument."""
    if isinstance(X, DataLoader | TorchDataset):
        if y is not None:
            raise UserError(f"y must not be given where {name} is a {type(X).__name__}, which brings its own")
        X, y = _all_of(X, name)
    elif y is None:
        raise UserError(f"y must be given where {name} is no Dataset or DataLoader; got {type(X).__name__}")
    features, targets = _array(X, name), _array(y, "y")
    if features.ndim > 2:
        if not flattens:
            raise UserError(f"{name} must be 2-D unless the module begins with nn.Flatten; got shape {features.shape}")
        features = features.reshape(len(features), -1)
    weight = None if sample_weight is None else _array(sample_weight, "sample_weight")
    return Part(as_float(features), targets, weight)


def _all_of(source: Any, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    loader = source if isinstance(source, DataLoader) else DataLoader(source, batch_size=_ROWS)
    inputs, targets = [], []
    for batch in loader:
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise UserError(f"{name} must give pairs of inputs and targets; got {type(batch).__name__}")
        inputs.append(torch.as_tensor(batch[0]).detach().cpu())
        targets.append(torch.as_tensor(batch[1]).detach().cpu())
    if not inputs:
        raise UserError(f"{name} must have samples; got none")
    return torch.cat(inputs), torch.cat(targets)


def _array(values: Any, name: str) -> Array:
    if isinstance(values, torch.Tensor):
        # numpy has no bfloat16
        values = values.detach().cpu()
        found: Array = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
        return found
    array = np.asarray(values)
    if array.ndim == 0:
        raise UserError(f"{name} must be a tensor or an array; got {type(values).__name__}")
    return array
