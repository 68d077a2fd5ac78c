"""ONNX: the model as a graph of standard operators, from features as they are to labels, probabilities and logits.

The graph is written in ONNX's own text, so that nothing is traced and no operator comes in that is not needed.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from pdadmm.data import Preprocessor
from pdadmm.data.arrays import Array
from pdadmm.errors import UserError
from pdadmm.math.activations import LeakyReLU
from pdadmm.model import Model
from pdadmm.version import __version__

OPSET, IR_VERSION = 17, 8  # of 2022: old enough for any runtime in use
LARGEST = 2**31 - 2**20  # protobuf ends at 2 GiB
RUN_ROWS = 4096

_FLOATS = {torch.float32: ("float", 1), torch.float64: ("double", 11)}
"""What ONNX calls them in its text, and their number there."""
_LABELS = {"U": "string", "b": "bool", "i": "int64"}
_ACTIVATIONS = {
    "relu": "{h} = Relu ({z})",
    "leaky_relu": "{h}_low = Mul ({z}, slope)  {h} = Max ({z}, {h}_low)",  # LeakyRelu is not everywhere in float64
    "hardtanh": "{h} = Clip ({z}, low, high)",
    "identity": "{h} = Identity ({z})",
    "tanh": "{h} = Tanh ({z})",
    "sigmoid": "{h} = Sigmoid ({z})",
}
_LIMITS = {"leaky_relu": {"slope": LeakyReLU.negative_slope}, "hardtanh": {"low": -1.0, "high": 1.0}}


def check_installed() -> None:
    """Refuse before anything is read or written where the extra is missing."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise UserError(
            f"ONNX needs onnx and onnxruntime, and {error.name} is not installed: pip install 'pdadmm[onnx]'"
        ) from None
    del onnx, onnxruntime


def to_onnx(model: Model) -> bytes:
    """The content of the file."""
    check_installed()
    import onnx
    import onnx.parser

    size = sum(tensor.nbytes for tensor in (*model.network.weights, *model.network.biases))
    if size > LARGEST:
        raise UserError(f"a model of at most {LARGEST} bytes fits in an ONNX file; got {size}")
    text, constants = _graph(model)
    graph = onnx.parser.parse_graph(text)
    for name, array in constants.items():
        graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
    opset = [onnx.helper.make_opsetid("", OPSET)]
    proto = onnx.helper.make_model(
        graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="pdadmm", producer_version=__version__
    )
    onnx.helper.set_model_props(proto, {kind: json.dumps(names) for kind, names in model.names.items()})
    onnx.checker.check_model(proto)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _graph(model: Model) -> tuple[str, dict[str, Array]]:
    """The text of the graph, and the constants that it names."""
    preprocessor, network, (kind, number) = model.preprocessor, model.network, _FLOATS[model.dtype]
    constants: dict[str, Array] = {"shift": preprocessor.shift, "scale": preprocessor.scale}
    # Features are scaled in float64, as the model was given them.
    nodes = ["x = Cast <to = 11> (X)", "centred = Sub (x, shift)", "scaled = Div (centred, scale)"]
    nodes.append(f"h0 = Cast <to = {number}> (scaled)")
    for layer, (W, b) in enumerate(zip(network.weights, network.biases, strict=True), 1):
        constants |= {f"W{layer}": W.cpu().numpy(), f"b{layer}": b.cpu().numpy()}
        nodes.append(f"z{layer} = Gemm <transB = 1> (h{layer - 1}, W{layer}, b{layer})")
        if layer < len(network.weights):
            name = network.activations[layer - 1].name
            if name not in _ACTIVATIONS:
                raise UserError(f"activation must be one that ONNX has, {', '.join(_ACTIVATIONS)}; got {name}")
            nodes.append(_ACTIVATIONS[name].format(h=f"h{layer}", z=f"z{layer}"))
            limits = _LIMITS.get(name, {})
            constants |= {limit: torch.tensor(value, dtype=model.dtype).numpy() for limit, value in limits.items()}
    ending = _values if preprocessor.regression else _classes
    last_nodes, last_constants, outputs = ending(preprocessor, f"z{len(network.weights)}", kind, number)
    inputs = f"{kind}[N, {preprocessor.num_features}] X"
    text = "\n".join([f"pdadmm ({inputs}) => ({outputs}) {{", *nodes, *last_nodes, "}"])
    return text, constants | last_constants


def _classes(preprocessor: Preprocessor, z: str, kind: str, number: int) -> tuple[list[str], dict[str, Array], str]:
    """From the last layer to names of classes and their probabilities, in float64 as `Model.predict_proba`."""
    classes = preprocessor.classes
    assert classes is not None
    nodes = [
        f"logits = Identity ({z})",
        f"wide = Cast <to = 11> ({z})",
        "shares = Softmax <axis = 1> (wide)",
        f"probabilities = Cast <to = {number}> (shares)",
        f"index = ArgMax <axis = 1, keepdims = 0> ({z})",
        "label = Gather <axis = 0> (classes, index)",
    ]
    names = classes.astype(object) if classes.dtype.kind == "U" else classes
    each = f"{kind}[N, {len(classes)}]"
    outputs = f"{_LABELS[classes.dtype.kind]}[N] label, {each} probabilities, {each} logits"
    return nodes, {"classes": names}, outputs


def _values(preprocessor: Preprocessor, z: str, kind: str, number: int) -> tuple[list[str], dict[str, Array], str]:
    """From the last layer to values in the units of y."""
    scale, shift = preprocessor.target_scale, preprocessor.target_shift
    assert scale is not None
    assert shift is not None
    nodes = [f"wide = Cast <to = 11> ({z})", "spread = Mul (wide, target_scale)", "values = Add (spread, target_shift)"]
    constants = {"target_scale": scale, "target_shift": shift}
    if not preprocessor.target_is_1d:
        nodes.append(f"prediction = Cast <to = {number}> (values)")
        return nodes, constants, f"{kind}[N, {preprocessor.num_outputs}] prediction"
    nodes += ["column = Squeeze (values, axes)", f"prediction = Cast <to = {number}> (column)"]
    return nodes, {**constants, "axes": np.array([1])}, f"{kind}[N] prediction"


def run_onnx(content: bytes, X: Array) -> Array:
    """Logits, or values in the units of y, by onnxruntime."""
    outputs = run_all_onnx(content, X)
    return outputs["logits"] if "logits" in outputs else outputs["prediction"]


def run_all_onnx(content: bytes, X: Array) -> dict[str, Array]:
    """Every output by its name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session: Any = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    dtype = {"tensor(float)": np.float32, "tensor(double)": np.float64}[session.get_inputs()[0].type]
    parts = [
        session.run(names, {"X": np.ascontiguousarray(X[start : start + RUN_ROWS], dtype=dtype)})
        for start in range(0, len(X), RUN_ROWS)
    ]
    return {name: np.concatenate([part[index] for part in parts]) for index, name in enumerate(names)}
