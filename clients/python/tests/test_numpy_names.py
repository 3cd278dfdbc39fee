"""numpy's names: which of its functions take values, and what the others say."""

from __future__ import annotations

from collections.abc import Callable

import athanor
import numpy as np
import pytest
from athanor import numpy_names
from athanor.functions import FUNCTIONS


@pytest.fixture
def x() -> athanor.Value:
    return athanor.Graph("g", dims={"b": (1, 64)}).input("x", ("b", 4), "f32")


def test_every_name_is_a_function() -> None:
    for table in (numpy_names.UFUNCS, numpy_names.FUNCTIONS):
        for theirs, ours in table.items():
            assert callable(getattr(np, theirs)), theirs
            assert ours in FUNCTIONS, ours
    for hint in numpy_names.HINTS.values():
        module, _, name = hint.rpartition(".")
        if module == "Graph":
            assert hasattr(athanor.Graph, name)
        elif module == "athanor":
            assert hasattr(athanor, name), hint


def test_every_public_function_is_in_the_table() -> None:
    public = {name for name in athanor.__all__
              if callable(getattr(athanor, name)) and name in FUNCTIONS}
    inner = {"index", "iota_like", "take_rows", "widened"}  # of operators, and of other functions
    assert public | inner == set(FUNCTIONS), set(FUNCTIONS) ^ (public | inner)


@pytest.mark.parametrize("name", sorted(numpy_names.UFUNCS))
def test_each_ufunc_makes_a_value(x: athanor.Value, name: str) -> None:
    ufunc = getattr(np, name)
    whole = name in ("bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift",
                     "right_shift", "floor_divide")
    value = x.cast("i32") if whole else x
    second = np.ones((4, 4) if name == "matmul" else 4, np.int32 if whole else np.float32)
    result = ufunc(value) if ufunc.nin == 1 else ufunc(value, second)
    assert isinstance(result, athanor.Value) and result.graph is x.graph
    if ufunc.nin == 2 and name != "matmul":
        assert isinstance(ufunc(second, value), athanor.Value)


@pytest.mark.parametrize(("call", "words"), [
    (lambda x: np.spacing(x), ["numpy.spacing", "no such op"]),
    (lambda x: np.dot(x, x.T), ["numpy.dot does not take a Value: use athanor.matmul"]),
    (lambda x: np.take(x, np.array([0])), ["numpy.take", "use athanor.gather"]),
    (lambda x: np.pad(x, 1, mode="reflect"), ["pad", "mode"]),
    (lambda x: np.heaviside(x, x), ["numpy.heaviside"]),
    (lambda x: np.add.reduce(x), ["numpy.add.reduce", "athanor.sum"]),
    (lambda x: np.subtract.outer(x, x), ["numpy.subtract.outer", "athanor"]),
    (lambda x: np.exp(x, dtype=np.float64), ["numpy.exp", "dtype", ".cast"]),
    (lambda x: np.add(x, 1, out=np.zeros(4)), ["numpy.add", "out"]),
    (lambda x: np.median(x), ["numpy.median", "no such function"]),
    (lambda x: np.linalg.inv(x), ["inv", "no such function"]),
    (lambda x: np.sum(x, dtype=np.float64), ["sum", "dtype"]),
    (lambda x: np.asarray(x), ["no elements while the graph is built", "output"]),
    (lambda x: np.array([x, x]), ["no elements while the graph is built"]),
    (lambda x: np.float32(x), ["no elements"]),
])
def test_what_numpy_cannot_do_is_named(x: athanor.Value, call: Callable,
                                       words: list[str]) -> None:
    with pytest.raises(TypeError) as error:
        call(x)
    for word in words:
        assert word in str(error.value), str(error.value)


def test_arguments_have_numpys_names_too(x: athanor.Value) -> None:
    """As numpy itself names them; positional ones are the same."""
    for theirs, ours in ((np.clip(x, a_min=0, a_max=1), athanor.clip(x, 0, 1)),
                         (np.clip(x, a_min=0, a_max=None), athanor.clip(x, min=0))):
        assert (theirs.op, theirs.shape) == (ours.op, ours.shape)
    assert len(np.split(x, indices_or_sections=2, axis=1)) == 2
    padded = np.pad(x, pad_width=((1, 0), (0, 2)), constant_values=3)
    assert padded.shape == (athanor.Expr.symbol("b") + 1, 6)
    assert np.frombuffer(padded.attrs["fill"].tensor.data, np.float32) == 3


@pytest.mark.parametrize("widths", [2, (1, 2), ((1, 2),), ((0, 3), (1, 0)), [[1], [2]],
                                    np.array([[0, 3], [1, 0]])])
def test_widths_of_pad_are_numpys(x: athanor.Value, widths: object) -> None:
    expected = np.pad(np.zeros((5, 4)), widths)
    assert athanor.pad(x.graph.zeros((5, 4)), widths).shape == expected.shape


def test_widths_and_axes_may_be_iterators(x: athanor.Value) -> None:
    assert athanor.pad(x, iter([(1, 3), (2, 4)])).shape == athanor.pad(x, ((1, 3), (2, 4))).shape
    assert athanor.moveaxis(x, range(2), reversed(range(2))).shape == x.shape[::-1]


@pytest.mark.parametrize("widths", ["junk", [(1, 2, 3)], -1, 1.5])
def test_wrong_widths_of_pad_are_refused_for_scalars_too(x: athanor.Value,
                                                         widths: object) -> None:
    with pytest.raises(athanor.GraphError, match="widths"):
        athanor.pad(x.graph.zeros(()), widths)


@pytest.mark.parametrize("wrong", [2.5, "5"])
def test_expressions_are_of_integers(wrong: object) -> None:
    with pytest.raises(TypeError):
        athanor.Expr(wrong)


def test_an_array_is_not_changed_in_place(x: athanor.Value) -> None:
    array = np.ones(4, np.float32)
    with pytest.raises(TypeError, match="out"):
        array += x
    assert (array == 1).all()


def test_names_of_others_are_told() -> None:
    for name, way in {"arcsin": "athanor.asin", "cat": "athanor.concat", "zeros": "Graph.zeros",
                      "expand_dims": "athanor.unsqueeze", "variance": "athanor.var"}.items():
        with pytest.raises(AttributeError, match=f"{name}.*use {way}"):
            getattr(athanor, name)
    with pytest.raises(AttributeError, match="no attribute 'furnace'$"):
        _ = athanor.furnace


@pytest.mark.parametrize(("make", "words"), [
    (lambda g, x: athanor.clip(x, "a"), ["Max", "str"]),
    (lambda g, x: athanor.split(x, 3, 1), ["split", "size 4", "3 equal parts"]),
    (lambda g, x: athanor.split(x, 2, 0), ["split", "size b", "2 equal parts"]),
    (lambda g, x: athanor.split(x, 0, 1), ["split", "0 equal"]),
    (lambda g, x: athanor.tile(x, -1), ["tile", "negative"]),
    *((lambda g, x, widths=widths: athanor.pad(x, widths),
       ["pad", f"widths={widths!r} must be 2 pairs of sizes, none negative"])
      for widths in (-1, (1, -1), 0.5, ((1, 2), (3,)), [(1, 2)] * 3, "1", None)),
    (lambda g, x: athanor.repeat(x, -1, 0), ["repeat", "negative"]),
    (lambda g, x: athanor.tril(x[0]), ["tril", "2 axes"]),
    (lambda g, x: athanor.triu(x, 0.5), ["triu", "k=0.5"]),
    (lambda g, x: athanor.full_like(x, True), ["full_like", "True beside f32"]),
    (lambda g, x: g.full(2, 2.5, "i32"), ["full", "2.5", "i32"]),
    (lambda g, x: g.full(2, 300, "u8"), ["full", "300", "[0, 255]"]),
    (lambda g, x: g.zeros((2, -1)), ["full", "-1", "negative"]),
    (lambda g, x: g.arange(0, 1, 0.1), ["arange", 'dtype="f32"']),
    (lambda g, x: g.arange(0, 5, 0), ["arange", "step=0"]),
    (lambda g, x: g.arange(athanor.Expr.symbol("b"), 5), ["arange", "negative length"]),
    (lambda g, x: g.arange(3, dtype="bool"), ["arange", "bool"]),
    (lambda g, x: x.var(ddof=float("nan")), ["var", "ddof=nan"]),
    (lambda g, x: x.cast("i32").std(), ["std", "i32", '.cast("f32")']),
    (lambda g, x: athanor.einsum("ij,jk->ik", x), ["einsum", "names 2 operands, not 1"]),
    (lambda g, x: athanor.einsum("ijk->i", x), ["einsum", "one letter per axis, 2"]),
    (lambda g, x: athanor.einsum("ij->ik", x), ["einsum", "letter"]),
    (lambda g, x: athanor.einsum("ij->ii", x), ["einsum", "once"]),
    (lambda g, x: athanor.einsum("i1->i", x), ["einsum", "letters"]),
    (lambda g, x: athanor.einsum("ij,ij->i", x, np.ones((4, 3), np.float32)),
     ["einsum", "letter"]),
    (lambda g, x: athanor.take_along_axis(x, np.zeros(3, np.int64), 1),
     ["take_along_axis", "2 axes"]),
    (lambda g, x: athanor.moveaxis(x, (0, 0), (0, 1)), ["moveaxis", "each once"]),
    (lambda g, x: athanor.one_hot(x, 3), ["one_hot", "f32", '.cast("i64")']),
    (lambda g, x: athanor.batch_norm(x, np.ones(3, np.float32), np.ones(4, np.float32)),
     ["batch_norm", "channels", "4 and 3"]),
    (lambda g, x: athanor.group_norm(x, 3), ["group_norm", "groups=3", "4 channels"]),
    (lambda g, x: athanor.interpolate(x, 3), ["interpolate", "[N, C]"]),
    (lambda g, x: athanor.interpolate(x[:, None], 3, mode="bilinear"),
     ["interpolate", '"nearest" or "linear"', "1 spatial axes"]),
    (lambda g, x: athanor.interpolate(x[:, None]), ["either size or scale_factor"]),
    (lambda g, x: athanor.interpolate(x[:, None], scale_factor=0), ["scale_factor=0"]),
    (lambda g, x: athanor.interpolate(x[:, None], 3, align_corners=True),
     ["align_corners", "linear"]),
    (lambda g, x: athanor.rotary(x, np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)),
     ["Rotary", "sizes b and 2"]),
    (lambda g, x: athanor.rotary(x[:2], np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)),
     ["Rotary", "3 angles"]),
])
def test_what_does_not_fit_is_named(x: athanor.Value, make: Callable, words: list[str]) -> None:
    x.graph.dims["b"] = (2, 64)
    with pytest.raises(athanor.InvalidArgument) as error:
        make(x.graph, x)
    for word in words:
        assert word in str(error.value), str(error.value)


@pytest.mark.parametrize(("make", "words"), [
    (lambda x: athanor.matmull, ["'matmull'", "did you mean 'matmul'?"]),
    (lambda x: athanor.conv2d, ["use athanor.conv"]),
    (lambda x: athanor.leaky_relu, ["use athanor.nn.LeakyReLU()"]),
    (lambda x: athanor.xyzzy, ["'athanor' has no attribute 'xyzzy'"]),
    (lambda x: athanor.nn.Conv4d, ["did you mean 'Conv3d'?"]),
    (lambda x: athanor.nn.functional, ["athanor.relu"]),
    (lambda x: x.view(2, 2), ["a Value has no attribute 'view'", "use .reshape"]),
    (lambda x: x.relu(), ["use athanor.relu(x)"]),
    (lambda x: x.float(), ['use .cast("f32")']),
    (lambda x: x.numpy(), ["an output of the graph"]),
    (lambda x: x.mul(x), ["use athanor.multiply"]),
    (lambda x: x.xyzzy, ["a Value has no attribute 'xyzzy'"]),
    (lambda x: float(x), ["has no value while the graph is built", "infer"]),
    (lambda x: int(x), ["no value", ".shape"]),
    (lambda x: x[x > 0], ["a bool mask", "athanor.where"]),
    (lambda x: x[np.ones(2, bool)], ["a bool mask", "athanor.where"]),
    (lambda x: x * np.ones(4), ["constant", "f64[4]", "array.astype(np.float32)"]),
])
def test_what_users_of_numpy_and_torch_try_is_answered(x: athanor.Value, make: Callable,
                                                       words: list[str]) -> None:
    with pytest.raises((AttributeError, TypeError, athanor.GraphError)) as error:
        make(x)
    for word in words:
        assert word in str(error.value), str(error.value)


def test_every_hint_leads_somewhere() -> None:
    for name, way in numpy_names.HINTS.items():
        assert not hasattr(athanor, name), name
        path = way.removeprefix("athanor.").partition("(")[0]
        value: object = athanor
        for part in path.split("."):
            value = getattr(value, part)
