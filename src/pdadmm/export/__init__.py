"""A trained model in a file that other programs run, and the proof that the file says what the model says.

formats      which there are: how each is written, and how it is read back and run
onnx_file    ONNX, preprocessing and class names inside; onnx and onnxruntime behind this door only
check        the file against the model, on samples
"""

from pdadmm.export.check import Check, check_file, random_features
from pdadmm.export.formats import FORMATS, Format

__all__ = ["FORMATS", "Check", "Format", "check_file", "random_features"]
