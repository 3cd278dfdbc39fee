"""Layers with weights, by the names and in the layouts of torch.

    from athanor import nn

    model = nn.Sequential(nn.Linear(64, 256), athanor.gelu, nn.LayerNorm(256), nn.Linear(256, 10))
    model.load_state_dict(np.load("model.npz"))  # or safetensors.numpy.load_file(...)

    g = athanor.Graph("classifier", dims={"b": (1, 64)})
    g.output("logits", model(g.input("x", ("b", 64), "f32")))

Layers compute as torch's do after ``eval()``. Weights keep the dtypes of their arrays, which must
be those of the values that layers are called with. Calls raise `athanor.GraphError` that names the
op, its operands and what would be right.
"""

from typing import TYPE_CHECKING

from athanor.nn.activations import (
    ELU,
    GELU,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from athanor.nn.attention import (
    MultiHeadAttention,
    MultiheadAttention,
)
from athanor.nn.containers import (
    MLP,
    ModuleList,
    Sequential,
)
from athanor.nn.layers import (
    AlphaDropout,
    Dropout,
    Dropout1d,
    Dropout2d,
    Dropout3d,
    Embedding,
    EmbeddingBag,
    Flatten,
    Identity,
    Linear,
)
from athanor.nn.module import (
    Module,
    Parameter,
)
from athanor.nn.norms import (
    BatchNorm,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
    RmsNorm,
)
from athanor.nn.recurrent import (
    GRU,
    LSTM,
    RNN,
)
from athanor.nn.transformer import (
    TransformerEncoder,
    TransformerEncoderLayer,
)
from athanor.nn.windows import (
    AdaptiveAvgPool,
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    Conv,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    MaxPool,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    PixelShuffle,
    Upsample,
)
from athanor.numpy_names import nearest_name

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Names the layer that was probably meant."""
        if name == "functional":
            raise AttributeError("module 'athanor.nn' has no attribute 'functional'; the functions "
                                 "are those of athanor: athanor.relu, athanor.softmax, ...")
        meant = nearest_name(name, __all__)
        raise AttributeError(f"module 'athanor.nn' has no attribute {name!r}"
                             + (f"; did you mean {meant!r}?" if meant else ""))


__all__ = [
    "AdaptiveAvgPool", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d",
    "AdaptiveMaxPool", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d",
    "AlphaDropout", "AvgPool", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BatchNorm", "BatchNorm1d",
    "BatchNorm2d", "BatchNorm3d", "Conv", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d",
    "ConvTranspose2d", "ConvTranspose3d", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "ELU",
    "Embedding", "EmbeddingBag", "Flatten", "GELU", "GRU", "GroupNorm", "Hardsigmoid", "Hardswish",
    "Hardtanh", "Identity", "InstanceNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "LSTM", "LayerNorm", "LeakyReLU", "Linear", "LogSoftmax", "MLP", "MaxPool", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "Mish", "Module", "ModuleList", "MultiHeadAttention",
    "MultiheadAttention", "PReLU", "Parameter", "PixelShuffle", "RMSNorm", "RNN", "ReLU", "ReLU6",
    "RmsNorm", "Sequential", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh", "TransformerEncoder",
    "TransformerEncoderLayer", "Upsample",
]
