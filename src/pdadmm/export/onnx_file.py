"""ONNX: the model as a graph of standard operators, from features as they are to labels, probabilities and logits.

The graph is written node by node, so that nothing is traced and no operator comes in that is not needed:

    Cast  Sub  Div  Cast        features, scaled in float64 as the model was given them
    Gemm, activation            a hidden layer
    Gemm                        the outputs, `logits`
    Softmax                     `probabilities`
    ArgMax  Gather              `label`, by the names of the classes
    Cast  Mul  Add  (Squeeze)   in regression instead: `prediction`, in the units of y
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from pdadmm.data.arrays import Array
from pdadmm.errors import UserError
from pdadmm.math.activations import LeakyReLU
from pdadmm.model import Model
from pdadmm.version import __version__

OPSET, IR_VERSION = 17, 8  # of 2022: old enough for any runtime in use
LARGEST = 2**31 - 2**20  # protobuf ends at 2 GiB
RUN_ROWS = 4096

_OPERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": LeakyReLU.negative_slope}),
    "tanh": ("Tanh", {}),
    "sigmoid": ("Sigmoid", {}),
    "identity": ("Identity", {}),
}


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
    size = sum(tensor.nbytes for tensor in (*model.network.weights, *model.network.biases))
    if size > LARGEST:
        raise UserError(f"a model of at most {LARGEST} bytes fits in an ONNX file; got {size}")
    content: bytes = _Graph(model).proto().SerializeToString(deterministic=True)
    return content


def run_onnx(content: bytes, X: Array) -> Array:
    """Logits, or values in the units of y, by onnxruntime."""
    outputs = run_all_onnx(content, X)
    return outputs["logits"] if "logits" in outputs else outputs["prediction"]


def run_all_onnx(content: bytes, X: Array) -> dict[str, Array]:
    """Every output by its name."""
    check_installed()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    dtype = {"tensor(float)": np.float32, "tensor(double)": np.float64}[session.get_inputs()[0].type]
    parts = [
        session.run(names, {"X": np.ascontiguousarray(X[start : start + RUN_ROWS], dtype=dtype)})
        for start in range(0, len(X), RUN_ROWS)
    ]
    return {name: np.concatenate([part[index] for part in parts]) for index, name in enumerate(names)}


class _Graph:
    """A graph under construction; `h` is the name of what the last node gave."""

    def __init__(self, model: Model) -> None:
        import onnx

        self._onnx, self._model = onnx, model
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._outputs: list[Any] = []
        self._float = onnx.TensorProto.FLOAT if model.dtype == torch.float32 else onnx.TensorProto.DOUBLE
        self.h = "X"

    def proto(self) -> Any:
        """The model, checked by the library."""
        onnx, preprocessor = self._onnx, self._model.preprocessor
        self._scale()
        self._layers()
        if preprocessor.regression:
            self._values()
        else:
            self._classes()
        features = onnx.helper.make_tensor_value_info("X", self._float, ["N", preprocessor.num_features])
        graph = onnx.helper.make_graph(self._nodes, "pdadmm", [features], self._outputs, self._constants)
        opset = [onnx.helper.make_opsetid("", OPSET)]
        proto = onnx.helper.make_model(
            graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="pdadmm", producer_version=__version__
        )
        onnx.helper.set_model_props(proto, {kind: json.dumps(names) for kind, names in self._model.names.items()})
        onnx.checker.check_model(proto)
        return proto

    def _add(self, operator: str, *more: str, out: str | None = None, **attributes: Any) -> str:
        """A node on `h` and these constants; what it gives becomes `h`."""
        name = out or f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, [self.h, *more], [name], **attributes))
        self.h = name
        return name

    def _constant(self, name: str, array: Array) -> str:
        self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _cast(self, to: int, out: str | None = None) -> str:
        return self._add("Cast", to=to, out=out)

    def _output(self, name: str, kind: int, shape: list[Any]) -> None:
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, kind, shape))

    def _scale(self) -> None:
        preprocessor = self._model.preprocessor
        self._cast(self._onnx.TensorProto.DOUBLE)
        self._add("Sub", self._constant("shift", preprocessor.shift))
        self._add("Div", self._constant("scale", preprocessor.scale))
        self._cast(self._float)

    def _layers(self) -> None:
        network = self._model.network
        last = len(network.weights) - 1
        for index, (W, b) in enumerate(zip(network.weights, network.biases, strict=True)):
            weight = self._constant(f"layers.{index}.weight", W.cpu().numpy())
            bias = self._constant(f"layers.{index}.bias", b.cpu().numpy())
            name = "logits" if index == last and not self._model.preprocessor.regression else None
            self._add("Gemm", weight, bias, transB=1, out=name)
            if index < last:
                self._activate(network.activations[index].name)

    def _activate(self, name: str) -> None:
        if name == "hardtanh":
            ends = [self._limit(f"{word}_{len(self._nodes)}", value) for word, value in (("low", -1), ("high", 1))]
            self._add("Clip", *ends)
            return
        if name == "leaky_relu" and self._model.dtype == torch.float64:  # LeakyRelu is not everywhere in float64
            z, slope = self.h, self._limit(f"slope_{len(self._nodes)}", LeakyReLU.negative_slope)
            self._add("Mul", slope)
            self._add("Max", z)
            return
        if name not in _OPERATORS:
            raise UserError(f"activation must be one that ONNX has, {', '.join(_OPERATORS)} or hardtanh; got {name}")
        operator, attributes = _OPERATORS[name]
        self._add(operator, **attributes)

    def _limit(self, name: str, value: float) -> str:
        return self._constant(name, np.array(value, dtype=str(self._model.dtype).removeprefix("torch.")))

    def _classes(self) -> None:
        proto, classes = self._onnx.TensorProto, self._model.preprocessor.classes
        assert classes is not None
        logits, count = self.h, len(classes)
        self._cast(proto.DOUBLE)  # as `Model.predict_proba`
        self._add("Softmax", axis=1)
        self._cast(self._float, out="probabilities")
        self.h = logits
        self._add("ArgMax", axis=1, keepdims=0)
        index = self.h
        kinds = {"U": proto.STRING, "b": proto.BOOL, "i": proto.INT64}
        names = classes.astype(object) if classes.dtype.kind == "U" else classes
        self.h = self._constant("classes", names)
        self._add("Gather", index, axis=0, out="label")
        self._output("label", kinds[classes.dtype.kind], ["N"])
        self._output("probabilities", self._float, ["N", count])
        self._output("logits", self._float, ["N", count])

    def _values(self) -> None:
        preprocessor = self._model.preprocessor
        assert preprocessor.target_shift is not None
        assert preprocessor.target_scale is not None
        self._cast(self._onnx.TensorProto.DOUBLE)
        self._add("Mul", self._constant("target_scale", preprocessor.target_scale))
        self._add("Add", self._constant("target_shift", preprocessor.target_shift))
        if preprocessor.target_is_1d:
            self._add("Squeeze", self._constant("columns", np.array([1], dtype=np.int64)))
        self._cast(self._float, out="prediction")
        shape = ["N"] if preprocessor.target_is_1d else ["N", preprocessor.num_outputs]
        self._output("prediction", self._float, shape)
