"""A trained model in a file that other programs run, and the proof that the file says what the model says.

onnx_file    ONNX, preprocessing and class names inside; onnx and onnxruntime behind this door only
pt2_file     the archive of torch.export
check        the formats by name, and the file against the model, on samples
"""
