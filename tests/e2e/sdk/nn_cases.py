"""Cases of `athanor.nn`: modules, what they are called with, and torch's modules to compare with.

`testdata/make_nn.py` runs torch's and keeps weights, inputs and outputs in `testdata/nn.npz`, from
which `test_nn.py` reads them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import athanor
from athanor import nn


@dataclasses.dataclass(frozen=True)
class Case:
    """One module and one call.

    Attributes
    ----------
    make : callable
        Makes the module of `athanor.nn`.
    theirs : str
        The expression that makes torch's, over torch.nn as ``nn``.
    inputs : dict of str to (shape, kind)
        By argument; positional ones first. A shape has sizes and one dim ``("b", size)``; a kind is
        "f32", "bool", or "ids<N>" for i64 below N.
    options : dict
        Further arguments of both calls.
    their_options : dict
        Arguments of torch's call only.
    """

    make: Callable[[], Any]
    theirs: str
    inputs: dict[str, tuple[tuple[Any, ...], str]]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    their_options: dict[str, Any] = dataclasses.field(default_factory=dict)


B, T = ("b", 3), ("b", 5)
X = {"x": ((B, 6), "f32")}
IMAGE = {"x": ((B, 4, 7, 5), "f32")}
QKV = {"query": ((T, 3, 8), "f32"), "key": ((6, 3, 8), "f32"), "value": ((6, 3, 8), "f32")}
ATTENTION = {"their_options": {"need_weights": False}}


def attention(**options: Any) -> Callable[[], nn.MultiHeadAttention]:
    return lambda: nn.MultiHeadAttention(8, 2, **options)


CASES = {
    "linear": Case(lambda: nn.Linear(6, 4), "nn.Linear(6, 4)", X),
    "linear_no_bias": Case(lambda: nn.Linear(6, 4, bias=False), "nn.Linear(6, 4, bias=False)", X),
    "linear_vector": Case(lambda: nn.Linear(6, 4), "nn.Linear(6, 4)", {"x": ((6,), "f32")}),
    "linear_deep": Case(lambda: nn.Linear(6, 4), "nn.Linear(6, 4)", {"x": ((B, 2, 5, 6), "f32")}),
    "layer_norm": Case(lambda: nn.LayerNorm(6), "nn.LayerNorm(6)", X),
    "layer_norm_axes": Case(lambda: nn.LayerNorm((7, 5), eps=1e-3), "nn.LayerNorm((7, 5), 1e-3)",
                            IMAGE),
    "layer_norm_bare": Case(lambda: nn.LayerNorm(6, elementwise_affine=False),
                            "nn.LayerNorm(6, elementwise_affine=False)", X),
    "layer_norm_no_bias": Case(lambda: nn.LayerNorm(6, bias=False), "nn.LayerNorm(6, bias=False)",
                               X),
    "rms_norm": Case(lambda: nn.RmsNorm(6), "nn.RMSNorm(6)", X),
    "rms_norm_axes": Case(lambda: nn.RmsNorm((7, 5), 1e-4), "nn.RMSNorm((7, 5), 1e-4)", IMAGE),
    "batch_norm": Case(lambda: nn.BatchNorm(4), "nn.BatchNorm2d(4)", IMAGE),
    "batch_norm_1d": Case(lambda: nn.BatchNorm(6, eps=1e-2), "nn.BatchNorm1d(6, eps=1e-2)", X),
    "batch_norm_bare": Case(lambda: nn.BatchNorm(4, affine=False),
                            "nn.BatchNorm2d(4, affine=False)", IMAGE),
    "group_norm": Case(lambda: nn.GroupNorm(2, 4), "nn.GroupNorm(2, 4)", IMAGE),
    "group_norm_bare": Case(lambda: nn.GroupNorm(4, 4, affine=False),
                            "nn.GroupNorm(4, 4, affine=False)", IMAGE),
    "embedding": Case(lambda: nn.Embedding(11, 4), "nn.Embedding(11, 4)",
                      {"ids": ((B, 5), "ids11")}),
    "conv": Case(lambda: nn.Conv(4, 6, 3), "nn.Conv2d(4, 6, 3)", IMAGE),
    "conv_steps": Case(
        lambda: nn.Conv(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        "nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 2), (1, 2), 2)", IMAGE),
    "conv_same": Case(lambda: nn.Conv(4, 4, (2, 3), padding="same", dilation=(3, 1), bias=False),
                      "nn.Conv2d(4, 4, (2, 3), padding='same', dilation=(3, 1), bias=False)",
                      IMAGE),
    "conv_1d": Case(lambda: nn.Conv(4, 3, (3,), padding=1), "nn.Conv1d(4, 3, 3, padding=1)",
                    {"x": ((B, 4, 9), "f32")}),
    "conv_3d": Case(lambda: nn.Conv(2, 3, (1, 2, 2)), "nn.Conv3d(2, 3, (1, 2, 2))",
                    {"x": ((B, 2, 3, 4, 4), "f32")}),
    "mlp": Case(lambda: nn.MLP([6, 9, 4], athanor.gelu),
                "nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 4))", X),
    "sequential": Case(lambda: nn.Sequential(nn.Linear(6, 5), athanor.relu, nn.LayerNorm(5)),
                       "nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.LayerNorm(5))", X),
    "attention": Case(attention(), "nn.MultiheadAttention(8, 2)", QKV, **ATTENTION),
    "attention_no_bias": Case(attention(bias=False), "nn.MultiheadAttention(8, 2, bias=False)",
                              QKV, **ATTENTION),
    "attention_batch_first": Case(
        attention(batch_first=True), "nn.MultiheadAttention(8, 2, batch_first=True)",
        {"query": ((B, 5, 8), "f32"), "key": ((B, 6, 8), "f32"), "value": ((B, 6, 8), "f32"),
         "key_padding_mask": ((B, 6), "bool")}, **ATTENTION),
    "attention_alone": Case(
        attention(), "nn.MultiheadAttention(8, 2)",
        {"query": ((T, 8), "f32"), "key": ((6, 8), "f32"), "value": ((6, 8), "f32")}, **ATTENTION),
    "attention_dims": Case(
        attention(kdim=5, vdim=7), "nn.MultiheadAttention(8, 2, kdim=5, vdim=7)",
        {"query": ((T, 3, 8), "f32"), "key": ((6, 3, 5), "f32"), "value": ((6, 3, 7), "f32")},
        **ATTENTION),
    "attention_masks": Case(
        attention(), "nn.MultiheadAttention(8, 2)",
        {**QKV, "key_padding_mask": ((3, 6), "bool"), "attn_mask": ((T, 6), "bool")}, **ATTENTION),
    "attention_float_mask": Case(
        attention(), "nn.MultiheadAttention(8, 2)", {**QKV, "attn_mask": ((6, T, 6), "f32")},
        **ATTENTION),
    "embedding_bag": Case(lambda: nn.EmbeddingBag(11, 4), "nn.EmbeddingBag(11, 4)",
                          {"ids": ((B, 5), "ids11")}),
    "embedding_bag_offsets": Case(
        lambda: nn.EmbeddingBag(11, 4, mode="max"), "nn.EmbeddingBag(11, 4, mode='max')",
        {"ids": ((B,), "ids11"), "offsets": ((1,), "ids1")}),
    "flatten": Case(lambda: nn.Flatten(1, 2), "nn.Flatten(1, 2)", IMAGE),
    "dropout": Case(lambda: nn.Sequential(nn.Dropout(0.5), nn.Identity(), nn.Dropout2d(0.1)),
                    "nn.Sequential(nn.Dropout(0.5), nn.Identity(), nn.Dropout2d(0.1))", IMAGE),
    "instance_norm": Case(lambda: nn.InstanceNorm2d(4, affine=True),
                          "nn.InstanceNorm2d(4, affine=True)", IMAGE),
    "instance_norm_bare": Case(lambda: nn.InstanceNorm1d(4, 1e-3), "nn.InstanceNorm1d(4, 1e-3)",
                               {"x": ((B, 4, 9), "f32")}),
    "conv_transpose": Case(lambda: nn.ConvTranspose2d(4, 6, 3), "nn.ConvTranspose2d(4, 6, 3)",
                           IMAGE),
    "conv_transpose_steps": Case(
        lambda: nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), (1, 2), 2, False),
        "nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), (1, 2), 2, False)", IMAGE),
    "conv_transpose_dilated": Case(
        lambda: nn.ConvTranspose2d(4, 2, 3, 2, padding=2, output_padding=1, dilation=(2, 1)),
        "nn.ConvTranspose2d(4, 2, 3, 2, padding=2, output_padding=1, dilation=(2, 1))", IMAGE),
    "conv_transpose_1d": Case(
        lambda: nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1),
        "nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1)", {"x": ((B, 4, 9), "f32")}),
    "conv_transpose_3d": Case(
        lambda: nn.ConvTranspose3d(2, 3, 2, stride=(1, 2, 2)),
        "nn.ConvTranspose3d(2, 3, 2, stride=(1, 2, 2))", {"x": ((B, 2, 3, 4, 4), "f32")}),
    "conv1d": Case(lambda: nn.Conv1d(4, 3, 3, padding="valid"),
                   "nn.Conv1d(4, 3, 3, padding='valid')", {"x": ((B, 4, 9), "f32")}),
    "conv3d": Case(lambda: nn.Conv3d(2, 3, 2, padding="same"), "nn.Conv3d(2, 3, 2, padding='same')",
                   {"x": ((B, 2, 3, 4, 4), "f32")}),
    "max_pool": Case(lambda: nn.MaxPool2d(3, 2, padding=1), "nn.MaxPool2d(3, 2, padding=1)", IMAGE),
    "avg_pool": Case(lambda: nn.AvgPool2d((3, 2), padding=1), "nn.AvgPool2d((3, 2), padding=1)",
                     IMAGE),
    "avg_pool_inside": Case(
        lambda: nn.AvgPool1d(3, 1, 1, count_include_pad=False),
        "nn.AvgPool1d(3, 1, 1, count_include_pad=False)", {"x": ((B, 4, 9), "f32")}),
    "adaptive_avg_pool": Case(lambda: nn.AdaptiveAvgPool2d(1), "nn.AdaptiveAvgPool2d(1)", IMAGE),
    "adaptive_max_pool": Case(lambda: nn.AdaptiveMaxPool2d((2, 3)),
                              "nn.AdaptiveMaxPool2d((2, 3))", {"x": ((B, 4, 8, 9), "f32")}),
    "upsample": Case(lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
                     "nn.Upsample(scale_factor=2, mode='bilinear')", IMAGE),
    "pixel_shuffle": Case(lambda: nn.PixelShuffle(2), "nn.PixelShuffle(2)", IMAGE),
    **{name.lower(): Case(eval(f"lambda: nn.{name}", {"nn": nn}), f"nn.{name}", X) for name in (
        "ReLU()", "ReLU6()", "Hardtanh(-0.5, 0.7)", "LeakyReLU(0.2)", "ELU(1.3)", "GELU()",
        "GELU(approximate='tanh')", "SiLU()", "Mish()", "Sigmoid()", "Tanh()", "Softplus(2.0, 1.5)",
        "Hardsigmoid()", "Hardswish()", "Softmax(dim=0)", "LogSoftmax(dim=-1)", "PReLU()",
        "PReLU(6)")},
    "transformer": Case(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(
            8, 2, 16, activation="gelu", batch_first=True), 2, nn.LayerNorm(8)),
        "nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, activation='gelu', "
        "batch_first=True), 2, nn.LayerNorm(8), enable_nested_tensor=False)",
        {"x": ((B, 5, 8), "f32"), "src_key_padding_mask": ((B, 5), "bool")}),
    "transformer_norm_first": Case(
        lambda: nn.TransformerEncoderLayer(8, 2, 16, norm_first=True, bias=False),
        "nn.TransformerEncoderLayer(8, 2, 16, norm_first=True, bias=False)",
        {"x": ((5, B, 8), "f32"), "src_mask": ((5, 5), "bool")}),
    "gru": Case(lambda: nn.GRU(6, 4), "nn.GRU(6, 4)", {"x": ((T, 3, 6), "f32")}),
    "gru_deep": Case(
        lambda: nn.GRU(6, 4, 2, True, True, 0.1, True), "nn.GRU(6, 4, 2, True, True, 0.1, True)",
        {"x": ((B, 5, 6), "f32")}),
    "gru_state": Case(lambda: nn.GRU(6, 4, 2, bias=False), "nn.GRU(6, 4, 2, bias=False)",
                      {"x": ((T, 3, 6), "f32"), "h": ((2, 3, 4), "f32")}),
    "gru_alone": Case(lambda: nn.GRU(6, 4), "nn.GRU(6, 4)",
                      {"x": ((T, 6), "f32"), "h": ((1, 4), "f32")}),
    "rnn": Case(lambda: nn.RNN(6, 4, bidirectional=True), "nn.RNN(6, 4, bidirectional=True)",
                {"x": ((T, 3, 6), "f32")}),
    "rnn_relu": Case(lambda: nn.RNN(6, 4, nonlinearity="relu"),
                     "nn.RNN(6, 4, nonlinearity='relu')", {"x": ((T, 3, 6), "f32")}),
    "lstm": Case(lambda: nn.LSTM(6, 4), "nn.LSTM(6, 4)", {"x": ((T, 3, 6), "f32")}),
    "lstm_deep": Case(
        lambda: nn.LSTM(6, 4, num_layers=2, bidirectional=True, batch_first=True),
        "nn.LSTM(6, 4, num_layers=2, bidirectional=True, batch_first=True)",
        {"x": ((B, 5, 6), "f32")}),
    "lstm_no_bias": Case(lambda: nn.LSTM(6, 4, bias=False), "nn.LSTM(6, 4, bias=False)",
                         {"x": ((T, 3, 6), "f32")}),
    "lstm_alone": Case(lambda: nn.LSTM(6, 4), "nn.LSTM(6, 4)", {"x": ((T, 6), "f32")}),
    "lstm_state": Case(
        lambda: nn.LSTM(6, 4, num_layers=2), "nn.LSTM(6, 4, num_layers=2)",
        {"x": ((T, 3, 6), "f32"), "h": ((2, 3, 4), "f32"), "c": ((2, 3, 4), "f32")}),
}


def called(case: Case, module: Any, values: dict[str, Any],
           options: dict[str, Any]) -> list[Any]:
    """Calls a module of either package with values by argument; returns its results, flat."""
    positional = [name for name in values if name in ("x", "ids", "query", "key", "value",
                                                      "offsets")]
    arguments = [values[name] for name in positional]
    if "h" in values:
        arguments.append((values["h"], values["c"]) if "c" in values else values["h"])
    others = {name: value for name, value in values.items()
              if name not in (*positional, "h", "c")}
    result = module(*arguments, **others, **case.options, **options)
    if "MultiheadAttention" in case.theirs and isinstance(result, tuple):
        return [result[0]]  # torch also gives weights, which are None
    if isinstance(result, tuple):
        return [result[0], *(result[1] if isinstance(result[1], tuple) else result[1:])]
    return [result]
