"""The short list of architectures: graphs as torch exported them, without their weights.

Weights are large and random; so are those that `read` puts in their places, from a seed, and what
is right then ONNX Runtime says. So a file is a few kB and no test needs torch.
"""

from __future__ import annotations

import gzip
import pathlib
import zlib

import numpy as np
import onnx

FOLDER = pathlib.Path(__file__).with_name("short")
# The rows that demand most of the compiler: windows over tokens over images of any size,
# relative positions, sliding windows, shifted windows, sounds of any length.
NAMES = ("segformer-traced", "segformer-exported", "pvt-v2-exported", "deberta-v2-exported",
         "modernbert-exported", "swin-traced", "wav2vec2-traced", "whisper-exported",
         "convnext-exported")
LEAST_STRIPPED = 64


def dims_of(model: onnx.ModelProto) -> set[str]:
    """Names of the dims of the inputs."""
    return {dim.dim_param for info in model.graph.input
            for dim in info.type.tensor_type.shape.dim if dim.dim_param}


def is_weight(tensor: onnx.TensorProto) -> bool:
    """Reports whether the tensor's contents are left out."""
    return (tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 1
            and int(np.prod(tensor.dims)) >= LEAST_STRIPPED)


def strip(model: onnx.ModelProto) -> bytes:
    """The file without weights, compressed, the same for the same model."""
    for tensor in model.graph.initializer:
        if is_weight(tensor):
            del tensor.float_data[:]
            tensor.raw_data = b""
    for part in (model.graph.value_info, model.metadata_props):
        del part[:]
    return gzip.compress(model.SerializeToString(deterministic=True), 9, mtime=0)


def read(name: str) -> onnx.ModelProto:
    """The model with weights of a seed that follows from the name of each."""
    model = onnx.load_from_string(gzip.decompress((FOLDER / f"{name}.onnx.gz").read_bytes()))
    for tensor in model.graph.initializer:
        if is_weight(tensor):
            random = np.random.default_rng(zlib.crc32(tensor.name.encode()))
            scale = min(0.5, float(np.prod(tensor.dims[1:])) ** -0.5)
            values = scale * random.standard_normal(tuple(tensor.dims), np.float32)
            tensor.raw_data = values.astype("<f4").tobytes()
    return model


def write(files: pathlib.Path) -> None:
    """The list's files, of what was exported to `files`."""
    FOLDER.mkdir(exist_ok=True)
    for name in NAMES:
        model = onnx.load(files / f"{name}.onnx")
        (FOLDER / f"{name}.onnx.gz").write_bytes(strip(model))
