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

from athanor.nn.attention import MultiHeadAttention
from athanor.nn.layers import (
    MLP,
    BatchNorm,
    Conv,
    Embedding,
    GroupNorm,
    LayerNorm,
    Linear,
    RmsNorm,
    Sequential,
)
from athanor.nn.module import Module, Parameter
from athanor.nn.recurrent import LSTM

__all__ = [
    "LSTM", "MLP", "BatchNorm", "Conv", "Embedding", "GroupNorm", "LayerNorm", "Linear", "Module",
    "MultiHeadAttention", "Parameter", "RmsNorm", "Sequential",
]
