"""Building graphs: shapes and dtypes of results, errors that say what would be right, messages."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import athanor
import ml_dtypes
import numpy as np
import pytest
from athanor import bundle
from athanor.errors import GraphError


@pytest.fixture
def g() -> athanor.Graph:
    return athanor.Graph("g", dims={"b": (1, 64), "s": (1, 512)})


def node(graph: athanor.Graph, value: athanor.Value) -> object:
    """The message of a value's node."""
    if all(value is not other for _, other in graph._outputs):
        graph.output(f"out_{len(graph._outputs)}", value)
    return next(n for n in graph.proto().nodes if n.name == value.name)


def test_shapes_of_results(g: athanor.Graph) -> None:
    x = g.input("x", ("b", "s", 12), "f32")
    b, s = athanor.Expr.symbol("b"), athanor.Expr.symbol("s")
    assert x.shape == (b, s, 12) and x.dtype == "f32" and x.ndim == 3
    assert x.sum().shape == () and x.max(1).shape == (b, 12)
    assert x.mean((0, -1), keepdims=True).shape == (1, s, 1)
    assert x.reshape(-1, 12).shape == (b * s, 12)
    assert x.reshape(b, s, 3, -1).shape == (b, s, 3, 4)
    assert x.flatten().shape == (12 * b * s,)
    assert x.T.shape == (12, s, b)
    assert x[:, -1].shape == (b, 12) and x[0, ..., None].shape == (s, 12, 1)
    assert x[:, :, 2:-1:2].shape == (b, s, 5)
    assert athanor.concat([x, x], 1).shape == (b, 2 * s, 12)
    assert athanor.stack([x, x], 0).shape == (2, b, s, 12)
    assert athanor.pad(x, [(1, 2), (0, 0), (0, 0)]).shape == (b + 3, s, 12)
    assert (x @ np.zeros((12, 5), np.float32)).shape == (b, s, 5)
    assert (x < 1).dtype == "bool" and x.cast("bf16").dtype == "bf16"
    assert athanor.argmax(x, -1).dtype == "i64"
    assert athanor.gather(x, np.zeros((2, 2), np.int32), 1).shape == (b, 2, 2, 12)


def test_same_is_no_node(g: athanor.Graph) -> None:
    x = g.input("x", ("b", 3), "f32")
    assert x.reshape("b", 3) is x and x.cast("f32") is x and x[:] is x and x.permute(0, 1) is x
    assert x.sum([]) is x and athanor.concat([x], 0) is x


def test_broadcasts_are_written_out(g: athanor.Graph) -> None:
    x = g.input("x", ("b", 3), "f32")
    y = x + 1
    message = node(g, y)
    assert message.op == "Add" and message.inputs[0] == "x"
    spread = next(n for n in g.proto().nodes if n.name == message.inputs[1])
    assert spread.op == "IndexMap" and not spread.attrs["map"].index_map.coordinates
    # The same number is one constant.
    assert len([n for n in (y * 1 + 1).graph._nodes if n.op == "Constant"]) == 1


def test_reshape_coordinates_are_digits(g: athanor.Graph) -> None:
    x = g.input("x", ("b", "s", 384), "f32")
    heads = node(g, x.reshape("b", "s", 12, 32)).attrs["map"].index_map
    texts = [[(t.coefficient, [f.symbol for f in t.factors]) for t in c.terms]
             for c in heads.coordinates]
    assert texts == [[(1, ["$0"])], [(1, ["$1"])], [(32, ["$2"]), (1, ["$3"])]]
    merged = node(g, x.reshape("b", "s", 12, 32).reshape("b", "s", 384)).attrs["map"].index_map
    assert merged.coordinates[2].terms[0].factors[0].floor_div.b.terms[0].coefficient == 32


@pytest.mark.parametrize(("make", "words"), [
    (lambda x, i: x + i, ["Add(x: f32[b, 3]", "i32", '.cast("f32")']),
    (lambda x, i: x @ x, ["Contract", "letter k", "3", "b"]),
    (lambda x, i: x + x.T, ["Add", "axis", "sizes b and 3"]),
    (lambda x, i: i / 2, ["Div", "i32", '.cast("f32")']),
    (lambda x, i: x // 2, ["FloorDiv", "f32", '.cast("i64")']),
    (lambda x, i: i * 2.5, ["Mul", "2.5", '.cast("f32")']),
    (lambda x, i: i + 2**31, ["2147483648", "i32", "[-2147483648, 2147483647]"]),
    (lambda x, i: x & True, ["And", "True"]),
    (lambda x, i: x.sum(2), ["SumReduce", "axis 2", "[-2, 2)"]),
    (lambda x, i: x.sum((0, -2)), ["SumReduce", "twice"]),
    (lambda x, i: x.reshape(4, -1), ["reshape", "divide by 4"]),
    (lambda x, i: x.reshape("b", 4), ["reshape", "3*b", "4*b"]),
    (lambda x, i: x.reshape("t", 3), ["reshape", "dim t is not declared", "graph.dim"]),
    (lambda x, i: x[:, 3], ["index", "position 3", "size 3"]),
    (lambda x, i: x[5], ["index", "position 5", "size b"]),
    (lambda x, i: x[:7], ["slice", "size b", "bounds"]),
    (lambda x, i: x[0, 0, 0], ["index", "at most 2"]),
    (lambda x, i: x[np.array([1])], ["index", "athanor.gather"]),
    (lambda x, i: athanor.softmax(i, 0), ["Softmax", "i32"]),
    (lambda x, i: athanor.gather(x, x), ["Gather", "f32", '.cast("i64")']),
    (lambda x, i: athanor.where(x, x, x), ["Select", "must be bool"]),
    (lambda x, i: athanor.layer_norm(x, np.ones(4, np.float32), np.ones(4, np.float32)),
     ["LayerNorm", "last axis", "3 and 4"]),
    (lambda x, i: athanor.contract("mk,kn", x, x), ["Contract", "mk,kn->mn"]),
    (lambda x, i: athanor.contract("mkk,kn->mn", x, x), ["Contract", "each letter once"]),
    (lambda x, i: athanor.contract("m,kn->mn", x, x), ["Contract", "one letter per axis"]),
    (lambda x, i: athanor.contract("mk,nk->mz", x, x), ["Contract", "['z']", "no operand"]),
    (lambda x, i: athanor.attention(x, x, x.T), ["Attention", "axis -2 of k and v"]),
    (lambda x, i: athanor.concat([x, x.T], 0), ["concat", "axis 1"]),
    (lambda x, i: athanor.bitcast(x, "u8"), ["Bitcast", "widths", '.cast("u8")']),
    (lambda x, i: x.cast("float31"), ["'float31'", "bf16"]),
    (lambda x, i: x + "1", ["Add", "str"]),
    (lambda x, i: athanor.gelu(x, "exact"), ["Gelu", '"tanh"']),
    (lambda x, i: athanor.scatter(x, i, x, mode="sub"), ["Scatter", '"set"']),
])
def test_errors_name_the_op_and_the_remedy(g: athanor.Graph, make: object,
                                           words: list[str]) -> None:
    x, i = g.input("x", ("b", 3), "f32"), g.input("i", ("b", 3), "i32")
    with pytest.raises(athanor.InvalidArgument) as error:
        make(x, i)
    for word in words:
        assert word in str(error.value), str(error.value)


def test_graphs_do_not_mix(g: athanor.Graph) -> None:
    other = athanor.Graph("other")
    with pytest.raises(GraphError, match="two graphs"):
        g.input("x", 3, "f32") + other.input("x", 3, "f32")
    with pytest.raises(GraphError, match="Value of graph 'g'"):
        g.output("y", other.input("z", 3, "f32"))


def test_names(g: athanor.Graph) -> None:
    x = g.input("x", 3, "f32")
    with pytest.raises(GraphError, match="'x' is taken"):
        g.input("x", 3, "f32")
    y = (x + 1).named("y")
    assert y.name == "y"
    with pytest.raises(GraphError, match="taken"):
        (x + 2).named("y")
    g.output("y", y)
    with pytest.raises(GraphError, match="exists already"):
        g.output("y", x)


def test_dims(g: athanor.Graph) -> None:
    x = g.input("x", ("n", 3), "f32")
    assert g.dims["n"] == athanor.DEFAULT_DIM_BOUNDS == (1, 4096)
    assert x.shape[0] == athanor.Expr.symbol("n")
    with pytest.raises(GraphError, match=r"already declared with bounds \(1, 64\)"):
        g.dim("b", 1, 65)
    for bounds in ((-1, 4), (5, 4)):
        with pytest.raises(GraphError, match="0 <= min <= max"):
            g.dim("z", *bounds)


def test_values_are_not_numbers(g: athanor.Graph) -> None:
    x = g.input("x", 3, "f32")
    for wrong in (bool, len, iter):
        with pytest.raises(TypeError):
            wrong(x)


def test_only_what_is_needed_travels(g: athanor.Graph) -> None:
    x = g.input("x", 3, "f32")
    g.input("unused", 3, "f32")
    unused = g.parameter("w", np.zeros(3, np.float32))
    _ = x * unused
    g.output("y", x + 1)
    names = {n.name for n in g.proto().nodes}
    assert "unused" in names and "w" not in names  # an input belongs to the signature


def test_parameters(g: athanor.Graph) -> None:
    with pytest.raises(athanor.InvalidArgument, match="np.asarray"):
        g.parameter("list", [1.0])
    with pytest.raises(GraphError, match=r"float64, not of f32.*\.astype\(np.float32\)"):
        g.parameter("w", np.zeros(3), "f32")
    bits = g.parameter("bits", np.array([0x3f80], np.uint16), "bf16")
    assert bits.dtype == "bf16"
    same = g.parameter("same", np.array([1], ml_dtypes.bfloat16))
    assert node(g, bits).content_hash == node(g, same).content_hash
    assert len(g.tensors) == 1
    big = g.parameter("big", np.array([1, 2], ">f4"))
    assert g.tensors[node(g, big).content_hash] == np.array([1, 2], "<f4").tobytes()


def test_constants_have_the_dtype_of_their_partner(g: athanor.Graph) -> None:
    for dtype in ("f16", "bf16", "f32", "f64", "u8", "i64"):
        x = g.input(f"x_{dtype}", 3, dtype)
        y = x * 3
        assert y.dtype == dtype
        constant = y.inputs[1].inputs[0]
        assert constant.dtype == dtype
        data = constant.attrs["value"].tensor.data
        assert data == np.asarray(3, athanor.dtypes.DTYPES[dtype].numpy).tobytes()


def test_array_on_the_left(g: athanor.Graph) -> None:
    x = g.input("x", 3, "f32")
    array = np.ones(3, np.float32)
    for value in (array + x, array - x, array * x, array / x, array < x, np.float32(2) * x):
        assert isinstance(value, athanor.Value) and value.shape == (3,)


def test_bundle_round_trip_and_damage(g: athanor.Graph, tmp_path: pathlib.Path) -> None:
    x = g.input("x", ("b", 3), "f32")
    g.output("y", x * g.parameter("w", np.arange(3, dtype=np.float32))
             + g.parameter("z", np.zeros((1, 3), np.float32)))
    path = tmp_path / "g.athanor"
    g.save(path)
    graph, tensors = bundle.load(path)
    assert graph == g.proto().SerializeToString(deterministic=True) and tensors == g.tensors
    data = path.read_bytes()
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        with pytest.raises(athanor.InvalidArgument, match="g.athanor"):
            bundle.load(path)
    path.write_bytes(data[:-1] + b"\xff")
    with pytest.raises(athanor.InvalidArgument, match="SHA-256"):
        bundle.load(path)
    path.write_bytes(data + b"x")
    with pytest.raises(athanor.InvalidArgument, match="after the last"):
        bundle.load(path)


EIGHT, TWO = np.int64(8), np.int32(2)
D = athanor.Expr.symbol("d")


@pytest.mark.parametrize(("make", "shape"), [
    (lambda g, x: g.zeros(EIGHT), (8,)),
    (lambda g, x: g.input("y", EIGHT, "f32"), (8,)),
    (lambda g, x: x.reshape(TWO, -1), (2, 16)),
    (lambda g, x: x[::TWO], (2, 8)),
    (lambda g, x: athanor.moveaxis(x, np.int64(0), np.int64(1)), (8, 4)),
    (lambda g, x: athanor.tile(x, TWO), (4, 16)),
    (lambda g, x: athanor.tril(x, TWO), (4, 8)),
    (lambda g, x: athanor.group_norm(x, TWO), (4, 8)),
    (lambda g, x: athanor.one_hot(x.cast("i32"), EIGHT), (4, 8, 8)),
    (lambda g, x: athanor.max_pool(x.reshape(1, 1, 4, 8), TWO, strides=TWO, padding=TWO),
     (1, 1, 4, 6)),
    (lambda g, x: athanor.conv_transpose(x.reshape(1, 1, 4, 8), np.ones((1, 1, 2, 2), np.float32),
                                         strides=TWO, padding=np.int64(1)), (1, 1, 6, 14)),
    (lambda g, x: g.zeros(g.dim("d", 1, 9) * TWO + EIGHT - TWO), (2 * D + 6,)),
    (lambda g, x: g.zeros(TWO * g.dim("d", 1, 9)), (2 * D,)),
])
def test_integers_of_numpy_are_sizes(make: Callable, shape: tuple) -> None:
    graph = athanor.Graph("g")
    assert make(graph, graph.zeros((4, 8))).shape == shape


def test_a_mask_of_attention_is_any_operand() -> None:
    """An array, or inside a loop a value of the graph around."""
    graph = athanor.Graph("g")
    q = graph.input("q", (3, 2, 4), "f32")
    assert athanor.attention(q, q, q, np.ones((2, 2), bool)).shape == (3, 2, 4)
    mask = graph.input("mask", (2, 2), "bool")
    (last,), _ = athanor.scan(
        lambda states, slices: ([athanor.attention(slices[0], slices[0], slices[0], mask)], []),
        [graph.zeros((2, 4))], [q])
    graph.output("y", last)
    scan = next(node for node in graph.proto().nodes if node.op == "Scan")
    assert "mask" in scan.inputs
    other = athanor.Graph("h").input("mask", (2, 2), "bool")
    with pytest.raises(athanor.GraphError, match="of two graphs"):
        athanor.attention(q, q, q, other)


def test_an_input_has_no_negative_size() -> None:
    with pytest.raises(athanor.GraphError, match="input 'x': size -1 must not be negative"):
        athanor.Graph("g").input("x", (2, -1), "f32")
