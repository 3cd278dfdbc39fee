"""Modules: names of weights, what state dicts must have, and what is refused."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import athanor
import ml_dtypes
import numpy as np
import pytest
from athanor import nn


class Tower(nn.Module):
    """Modules in attributes, in a list and in a tuple, one of them twice."""

    def __init__(self) -> None:
        self.first = nn.Linear(3, 4)
        self.norms = [nn.LayerNorm(4), nn.BatchNorm(4)]
        self.pair = (nn.Linear(4, 4, bias=False), athanor.relu)
        self.again = self.first
        self.scale = nn.Parameter((4,), "ones")
        self.note = "not a weight"


def test_names_are_paths() -> None:
    assert [name for name, _ in Tower().named_parameters()] == [
        "scale", "first.weight", "first.bias", "norms.0.weight", "norms.0.bias", "norms.1.weight",
        "norms.1.bias", "norms.1.running_mean", "norms.1.running_var", "pair.0.weight",
        "again.weight", "again.bias"]
    assert [name for name, _ in nn.MLP([2, 3, 4, 5]).named_parameters()] == [
        "0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"]
    lstm = nn.LSTM(2, 3, num_layers=2, bias=False, bidirectional=True)
    assert [name for name, _ in lstm.named_parameters()] == [
        f"weight_{kind}_l{layer}{end}" for layer in range(2) for end in ("", "_reverse")
        for kind in ("ih", "hh")]


class Ported(nn.Module):
    """As a model for torch is written: super, ModuleList, a dict, forward."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.ReLU(inplace=True)])
        self.blocks.append(nn.Dropout(0.1))
        self.heads = {"left": nn.Linear(3, 2), "right": nn.Linear(3, 1, bias=False)}

    def forward(self, x: athanor.Value, *, head: str) -> athanor.Value:
        for block in self.blocks:
            x = block(x)
        return self.heads[head](x)


def test_a_model_written_for_torch() -> None:
    model = Ported().eval()
    assert [name for name, _ in model.named_parameters()] == [
        "blocks.0.weight", "blocks.0.bias", "heads.left.weight", "heads.left.bias",
        "heads.right.weight"]
    model.initialise()
    assert len(model.blocks) == 3 and isinstance(model.blocks[1], nn.ReLU)
    g = athanor.Graph("g")
    assert model(g.input("x", (2, 3), "f32"), head="right").shape == (2, 1)
    with pytest.raises(TypeError, match="head"):
        model(g.zeros(3))


def test_torch_names_are_the_same_layers() -> None:
    assert nn.RMSNorm is nn.RmsNorm and nn.MultiheadAttention is nn.MultiHeadAttention
    for name in ("BatchNorm", "InstanceNorm", "MaxPool", "AvgPool", "AdaptiveAvgPool", "Dropout"):
        assert all(getattr(nn, f"{name}{axes}d") is getattr(nn, name) for axes in (1, 2, 3))
    for axes in (1, 2, 3):
        conv, back = getattr(nn, f"Conv{axes}d"), getattr(nn, f"ConvTranspose{axes}d")
        assert conv(2, 4, 5).weight.shape == (4, 2, *[5] * axes)
        assert back(2, 4, 5).weight.shape == (2, 4, *[5] * axes)


def test_encoder_layers_are_copies() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 3)
    encoder.initialise()
    weights = [encoder.state_dict()[f"layers.{i}.linear1.weight"] for i in range(3)]
    assert (weights[0] != weights[1]).any() and weights[1].shape == (8, 4)


def test_what_is_printed_is_short() -> None:
    tower = Tower()
    tower.initialise()
    assert repr(tower.first) == "<Linear: 2 weights, 16 elements>"
    assert repr(tower) == "<Tower: 10 weights, 60 elements>"
    assert len(repr(tower.first.weight)) < 120


def state_of(module: nn.Module) -> dict[str, np.ndarray]:
    module.initialise(1)
    return module.state_dict()


def test_a_state_dict_goes_there_and_back() -> None:
    state = state_of(Tower())
    state["norms.1.num_batches_tracked"] = np.asarray(7)
    other = Tower()
    other.load_state_dict(state)
    for name, array in other.state_dict().items():
        assert array is state[name]
    del state["again.weight"], state["again.bias"]  # shared ones may be there once
    other.load_state_dict(state)


@pytest.mark.parametrize(("change", "words"), [
    (lambda s: s.pop("scale"), ["'scale' is missing"]),
    (lambda s: s.clear(), ["4 more are missing"]),
    (lambda s: s.update({f"extra.{i}": s["scale"] for i in range(20)}),
     ["'extra.7' is no weight", "12 more are no weight of this module"]),
    (lambda s: [s.update({f"module.{n}": s.pop(n)}) for n in list(s)],
     ["'scale' is missing", "with 'module.' before their names: take it off"]),
    (lambda s: [s.pop("first.weight"), s.pop("again.weight")],
     ["'first.weight' is missing", "'again.weight' is missing"]),
    (lambda s: s.update(extra=s["scale"]), ["'extra' is no weight"]),
    (lambda s: s.update({"norms.0.num_batches_tracked": s["scale"]}),
     ["'norms.0.num_batches_tracked' is no weight"]),
    (lambda s: s.update(scale=s["scale"][:3]), ["'scale' has shape [3], it must be [4]"]),
    (lambda s: s.update({"first.weight": s["first.weight"].T}), ["[3, 4], it must be [4, 3]"]),
    (lambda s: s.update(scale=[1.0] * 4), ["weight 'scale' is a list"]),
    (lambda s: s.update(scale=np.ones(4, np.complex64)), ["complex64", "the dtypes are"]),
])
def test_wrong_state_dicts_change_nothing(change: Callable, words: list[str]) -> None:
    tower = Tower()
    before = state_of(tower)
    state = {name: array + 1 for name, array in before.items()}
    change(state)
    with pytest.raises(athanor.InvalidArgument) as error:
        tower.load_state_dict(state)
    for word in words:
        assert word in str(error.value), str(error.value)
    assert all(array is before[name] for name, array in tower.state_dict().items())


@pytest.mark.parametrize("wrong", [nn.Linear(2, 2), "model.safetensors", None, [1.0]])
def test_what_is_no_state_dict_is_refused(wrong: object) -> None:
    with pytest.raises(athanor.InvalidArgument, match=f"a {type(wrong).__name__} is given.*load_f"):
        nn.Linear(2, 2).load_state_dict(wrong)


def test_not_strict() -> None:
    layer = nn.Linear(2, 2)
    layer.initialise()
    bias = layer.bias.array
    layer.load_state_dict({"weight": np.ones((2, 2), np.float32), "other": np.ones(1)},
                          strict=False)
    assert (layer.weight.array == 1).all() and layer.bias.array is bias
    with pytest.raises(athanor.InvalidArgument, match=r"'weight' has shape \[1\]"):
        layer.load_state_dict({"weight": np.ones(1)}, strict=False)


def test_initialise_is_seeded() -> None:
    first, second = nn.Linear(50, 40), nn.Linear(50, 40)
    first.initialise(5)
    second.initialise(5, "bf16")
    assert second.weight.array.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(first.weight.array.astype(ml_dtypes.bfloat16),
                                  second.weight.array)
    bound = 1 / np.sqrt(50)
    assert 0.9 * bound < np.abs(first.weight.array).max() <= bound
    second.initialise(6)
    assert (first.weight.array != second.weight.array).any()
    norm = nn.BatchNorm(3)
    norm.initialise()
    assert (norm.running_var.array == 1).all() and (norm.bias.array == 0).all()
    with pytest.raises(athanor.InvalidArgument, match="i32 must be a float"):
        norm.initialise(dtype="i32")


def test_a_weight_is_one_parameter_of_a_graph() -> None:
    layer, other = nn.Linear(3, 3), nn.Linear(3, 3)
    layer.initialise(1)
    other.initialise(2)
    g = athanor.Graph("g")
    x = g.input("x", 3, "f32")
    g.output("y", other(layer(layer(x))))
    names = sorted(n.name for n in g.proto().nodes if n.op == "Parameter")
    assert names == ["bias", "bias_1", "weight", "weight_1"]
    layer.initialise(3)  # other values are another parameter
    g.output("z", layer(x))
    assert len([n for n in g.proto().nodes if n.op == "Parameter"]) == 6
    h = athanor.Graph("h")
    h.output("y", layer(h.input("x", 3, "f32")))
    assert {n.name for n in h.proto().nodes} >= {"weight", "bias"}
    gone = weakref.ref(h)
    del h
    gc.collect()
    assert gone() is None, "a module keeps no graph"


@pytest.mark.parametrize(("make", "words"), [
    (lambda g, x: nn.Linear(3, 2)(x), ["[2, 3] has no values yet", "load_state_dict"]),
    (lambda g, x: ready(nn.Linear(4, 2))(x), ["Linear", "in_features", "3 and 4"]),
    (lambda g, x: ready(nn.Linear(3, 2), "f64")(x), ["Contract", "f32 and f64"]),
    (lambda g, x: ready(nn.Linear(3, 2))(g.zeros(())), ["Linear", "at least 1 axis"]),
    (lambda g, x: ready(nn.LayerNorm((2, 4)))(x), ["LayerNorm", "axis -2", "b and 2"]),
    (lambda g, x: ready(nn.LayerNorm((2, 3)))(x[0]), ["LayerNorm", "at least 2 axes"]),
    (lambda g, x: ready(nn.RmsNorm(3))(x.cast("i32")), ["RmsNorm", "i32", '.cast("f32")']),
    (lambda g, x: ready(nn.BatchNorm(4))(x), ["batch_norm", "channels", "3 and 4"]),
    (lambda g, x: ready(nn.GroupNorm(2, 3))(x), ["group_norm", "groups=2"]),
    (lambda g, x: ready(nn.Embedding(5, 2))(x), ["Gather", "f32", '.cast("i64")']),
    (lambda g, x: ready(nn.Conv(3, 4, 3))(x), ["Conv", "[N, C]"]),
    (lambda g, x: nn.Conv(3, 4, 3, groups=2), ["groups=2 must divide 3 and 4"]),
    (lambda g, x: nn.Conv(3, 3, 3, padding="full"), ['padding=\'full\'', '"same" or "valid"']),
    (lambda g, x: nn.Conv1d(3, 3, 3, padding="same", stride=2), ["Conv1d", "needs stride=1"]),
    (lambda g, x: nn.ConvTranspose2d(3, 4, 3, groups=3),
     ["ConvTranspose2d", "groups=3 must divide 3 and 4"]),
    (lambda g, x: ready(nn.ConvTranspose1d(3, 4, 3))(x), ["conv_transpose", "[N, C]"]),
    (lambda g, x: nn.AdaptiveAvgPool2d(2)(g.zeros((1, 2, 4, 5))), ["AdaptiveAvgPool", "axis 3"]),
    (lambda g, x: nn.AdaptiveMaxPool1d(0)(g.zeros((1, 2, 4))), ["output_size=0"]),
    (lambda g, x: nn.PixelShuffle(2)(g.zeros((1, 6, 2, 2))), ["PixelShuffle", "multiple of 4"]),
    (lambda g, x: nn.PixelShuffle(0), ["upscale_factor=0"]),
    (lambda g, x: nn.Flatten(2)(x), ["Flatten", "axis 2"]),
    (lambda g, x: nn.Flatten(1, 0)(x), ["start_dim=1 is behind end_dim=0"]),
    (lambda g, x: nn.EmbeddingBag(5, 2, "min"), ["EmbeddingBag", "mode='min'"]),
    (lambda g, x: ready(nn.EmbeddingBag(5, 2))(g.zeros(3, "i64")), ["[B, L] without offsets"]),
    (lambda g, x: nn.InstanceNorm1d(3)(x), ["InstanceNorm", "spatial"]),
    (lambda g, x: nn.InstanceNorm2d(3)(g.zeros((1, 4, 2, 2))), ["InstanceNorm", "4 and 3"]),
    (lambda g, x: nn.Sigmoid()(x.cast("i32")), ["Sigmoid", "i32", '.cast("f32")']),
    (lambda g, x: nn.ELU()(x.cast("i32")), ["ELU", "i32"]),
    (lambda g, x: ready(nn.PReLU(4))(x), ["PReLU", "3 and 4"]),
    (lambda g, x: nn.ModuleList()(x), ["ModuleList has neither __call__ nor forward"]),
    (lambda g, x: nn.RNN(3, 2, nonlinearity="gelu"), ["RNN", "nonlinearity='gelu'"]),
    (lambda g, x: nn.GRU(3, 2, 0), ["GRU", "num_layers=0"]),
    (lambda g, x: ready(nn.GRU(3, 2))(g.zeros((4, 1, 3)), g.zeros((2, 1, 2))),
     ["GRU", "[1, N, H]"]),
    (lambda g, x: nn.TransformerEncoderLayer(4, 2, activation="tanh"), ["activation='tanh'"]),
    (lambda g, x: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4), 0), ["num_layers=0"]),
    (lambda g, x: nn.Conv(3, 3, 3, padding="same", stride=2), ["needs stride=1"]),
    (lambda g, x: nn.LayerNorm(()), ["LayerNorm", "normalized_shape"]),
    (lambda g, x: nn.MLP([3]), ["MLP", "at least 2"]),
    (lambda g, x: nn.MultiHeadAttention(8, 3), ["num_heads=3", "embed_dim=8"]),
    (lambda g, x: ready(nn.MultiHeadAttention(4, 2))(g.zeros((2, 2, 2, 4))),
     ["MultiHeadAttention", "[L, N, E]"]),
    (lambda g, x: ready(nn.MultiHeadAttention(4, 2))(g.zeros((5, 2, 4)), g.zeros((6, 2, 4)),
                                                     is_causal=True),
     ["is_causal", "5 and 6"]),
    (lambda g, x: ready(nn.MultiHeadAttention(4, 2))(g.zeros((5, 2, 4)),
                                                     key_padding_mask=g.zeros((2, 5))),
     ["key_padding_mask must be bool"]),
    (lambda g, x: ready(nn.MultiHeadAttention(4, 2))(
        g.zeros((5, 2, 4)), key_padding_mask=g.zeros((3, 5), "bool")), ["N: sizes 2 and 3"]),
    (lambda g, x: ready(nn.MultiHeadAttention(4, 2))(g.zeros((5, 2, 4)), attn_mask=g.zeros(5)),
     ["attn_mask must have the axes"]),
    (lambda g, x: nn.LSTM(3, 0), ["LSTM", "hidden_size=0"]),
    (lambda g, x: ready(nn.LSTM(3, 2))(x[0]), ["LSTM", "[T, N, I]"]),
    (lambda g, x: ready(nn.LSTM(3, 2, 2))(g.zeros((4, 1, 3)), (g.zeros((1, 1, 2)),
                                                              g.zeros((1, 1, 2)))),
     ["LSTM", "[2, N, H]"]),
])
def test_what_does_not_fit_is_named(make: Callable, words: list[str]) -> None:
    g = athanor.Graph("g", dims={"b": (2, 8)})
    x = g.input("x", ("b", 3), "f32")
    with pytest.raises(athanor.InvalidArgument) as error:
        make(g, x)
    for word in words:
        assert word in str(error.value), str(error.value)


def ready(module: nn.Module, dtype: str = "f32") -> nn.Module:
    module.initialise(0, dtype)
    return module
