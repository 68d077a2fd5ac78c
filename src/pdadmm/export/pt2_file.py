"""`.pt2`: the model as the archive of torch.export, from features as they are to logits or values in the units of y."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import torch

from pdadmm.data.arrays import Array
from pdadmm.errors import UserError
from pdadmm.model import Model
from pdadmm.modules import as_module


def to_pt2(model: Model) -> bytes:
    """The content of the file, in which nothing is pickled."""
    samples = torch.zeros(2, model.preprocessor.num_features, dtype=model.dtype)
    traced = torch.export.export(as_module(model), (samples,), dynamic_shapes=({0: torch.export.Dim("N")},))
    traced.example_inputs = None  # torch would pickle them into the file
    file = io.BytesIO()
    torch.export.save(traced, file, extra_files={"metadata.json": json.dumps(model.names)})
    with zipfile.ZipFile(file) as archive:
        if any(entry.file_size and entry.filename.endswith(".pt") for entry in archive.infolist()):
            raise UserError(f"pt2 needs a PyTorch that writes it without pickle, such as 2.13; got {torch.__version__}")
    return file.getvalue()


def run_pt2(content: bytes, X: Array) -> Array:
    """Logits, or values in the units of y, by torch alone."""
    module = torch.export.load(io.BytesIO(content)).module()
    dtype = next(module.parameters()).dtype
    with torch.no_grad():
        found: Array = module(torch.from_numpy(np.ascontiguousarray(X)).to(dtype)).numpy()
    return found
