"""numpy's names for this package's functions, by which numpy's functions take values.

    np.exp(value)                  # a ufunc: UFUNCS
    np.concatenate([a, b], axis=1) # another function: FUNCTIONS
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

# Ufuncs by numpy's name (`np.ufunc.__name__`).
UFUNCS = {
    "absolute": "absolute", "add": "add", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arcsinh": "asinh", "arctan": "atan", "arctanh": "atanh", "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor", "ceil": "ceil", "cos": "cos",
    "cosh": "cosh", "divide": "divide", "equal": "equal", "exp": "exp", "exp2": "exp2",
    "expm1": "expm1", "fabs": "absolute", "floor": "floor", "floor_divide": "floor_divide",
    "greater": "greater", "greater_equal": "greater_equal", "invert": "invert",
    "isfinite": "isfinite", "isinf": "isinf", "isnan": "isnan", "left_shift": "left_shift",
    "less": "less", "less_equal": "less_equal", "log": "log", "log10": "log10", "log1p": "log1p",
    "log2": "log2", "logical_and": "logical_and", "logical_not": "logical_not",
    "logical_or": "logical_or", "logical_xor": "logical_xor", "matmul": "matmul",
    "maximum": "maximum", "minimum": "minimum", "multiply": "multiply", "negative": "negative",
    "not_equal": "not_equal", "positive": "positive", "power": "power",
    "reciprocal": "reciprocal", "remainder": "mod", "right_shift": "right_shift", "rint": "round",
    "sign": "sign", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "square": "square",
    "subtract": "subtract", "tan": "tan", "tanh": "tanh", "trunc": "trunc",
}
# Methods of ufuncs that have a name here.
_METHODS = {
    ("add", "reduce"): "sum", ("multiply", "reduce"): "prod", ("maximum", "reduce"): "max",
    ("minimum", "reduce"): "min", ("logical_and", "reduce"): "all", ("logical_or", "reduce"): "any",
    ("add", "accumulate"): "cumsum", ("multiply", "accumulate"): "cumprod",
}
# Functions that are not ufuncs.
FUNCTIONS = {
    **{name: name for name in (
        "all", "any", "argmax", "argmin", "argsort", "clip", "concatenate", "cumprod", "cumsum",
        "einsum", "flip", "full_like", "max", "mean", "min", "moveaxis", "ones_like", "pad", "prod",
        "repeat", "reshape", "round", "sort", "split", "squeeze", "stack", "std", "sum", "swapaxes",
        "take_along_axis", "tile", "transpose", "tril", "triu", "var", "where", "zeros_like")},
    "amax": "max", "amin": "min", "broadcast_to": "expand", "expand_dims": "unsqueeze",
}
# Arguments of numpy's functions that have another name here.
_ARGUMENTS = {
    "clip": {"a_min": "min", "a_max": "max"},
    "pad": {"pad_width": "widths", "constant_values": "value"},
    "split": {"indices_or_sections": "sections"},
}
# What to use here for names that users of numpy and torch try first.
HINTS = {
    **{name: f"Graph.{name}" for name in ("arange", "full", "ones", "zeros")},
    **{name: f"athanor.{ours}" for name, ours in UFUNCS.items() if name != ours},
    **{name: f"athanor.{ours}" for name, ours in FUNCTIONS.items() if name != ours},
    "batch_matmul": "athanor.matmul",
    "bmm": "athanor.matmul", "cat": "athanor.concat", "dot": "athanor.matmul",
    "mm": "athanor.matmul", "remainder": "athanor.mod",
    "scaled_dot_product_attention": "athanor.attention", "sub": "athanor.subtract",
    "take": "athanor.gather", "topk": "athanor.top_k", "variance": "athanor.var",
    "linear": "athanor.nn.Linear", "upsample": "athanor.interpolate",
    "chunk": "athanor.split", "div": "athanor.divide", "eq": "athanor.equal",
    "ge": "athanor.greater_equal", "gt": "athanor.greater", "le": "athanor.less_equal",
    "lt": "athanor.less", "masked_fill": "athanor.where", "mul": "athanor.multiply",
    "ne": "athanor.not_equal", "neg": "athanor.negative", "pow": "athanor.power",
    "relu6": "athanor.clip", "rsqrt": "athanor.reciprocal(athanor.sqrt(x))",
    "swish": "athanor.silu", "view": "athanor.reshape",
    **{f"conv{n}d": "athanor.conv" for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": "athanor.conv_transpose" for n in (1, 2, 3)},
    **{f"{kind}_pool{end}": f"athanor.{ours}_pool" for kind, ours in (
        ("avg", "average"), ("max", "max")) for end in ("", "1d", "2d", "3d")
       if (kind, end) != ("max", "")},
    **{f"adaptive_{kind.lower()}_pool{n}d": f"athanor.nn.Adaptive{kind}Pool"
       for kind in ("Avg", "Max") for n in (1, 2, 3)},
    **{name.lower().replace("relu", "_relu"): f"athanor.nn.{name}()" for name in (
        "LeakyReLU", "PReLU")},
    **{name.lower(): f"athanor.nn.{name}()" for name in (
        "Dropout", "ELU", "Hardsigmoid", "Hardswish", "Hardtanh", "Mish", "Softplus")},
    "log_softmax": "athanor.nn.LogSoftmax()", "pixel_shuffle": "athanor.nn.PixelShuffle",
}
# The same for attributes of values.
METHOD_HINTS = {
    **{name: f'.cast("{dtype}")' for name, dtype in (
        ("bool", "bool"), ("double", "f64"), ("float", "f32"), ("half", "f16"), ("int", "i32"),
        ("long", "i64"))},
    "dim": ".ndim", "numel": ".shape", "size": ".shape", "ravel": ".flatten()", "to": ".cast",
    "type": ".cast", "view": ".reshape",
    **dict.fromkeys(("contiguous", "clone", "copy", "detach"), "the value itself"),
    **dict.fromkeys(("cpu", "data", "item", "numpy", "tolist"),
                    "an output of the graph, and infer; a value has no elements yet"),
}


def nearest_name(name: str, names: Iterable[str]) -> str:
    """Returns the name that was probably meant; empty if there is none like it."""
    return next(iter(difflib.get_close_matches(name, list(names), 1, 0.7)), "")


def ufunc_name(ufunc: np.ufunc, method: str, options: Mapping[str, Any]) -> str:
    """Returns the name of this package's function for a ufunc.

    Raises
    ------
    TypeError
        If there is none, or the call has options; it says what to call instead.
    """
    name = UFUNCS.get(ufunc.__name__)
    if method != "__call__":
        other = _METHODS.get((ufunc.__name__, method))
        way = f"use athanor.{other}" if other else "use the functions of athanor"
        raise TypeError(f"numpy.{ufunc.__name__}.{method} does not take a Value; {way}")
    if name is None:
        raise TypeError(f"numpy.{ufunc.__name__} does not take a Value: "
                        + _way(ufunc.__name__, "op"))
    if options:
        raise TypeError(f"numpy.{ufunc.__name__} of a Value takes no {', '.join(sorted(options))}: "
                        f"use athanor.{name}, and .cast(...) for dtypes")
    return name


def function_name(function: Callable[..., Any]) -> str:
    """Returns the name of this package's function for one of numpy's that is no ufunc.

    Raises
    ------
    TypeError
        If there is none.
    """
    name = function.__name__
    if name in FUNCTIONS and getattr(np, name, None) is function:
        return FUNCTIONS[name]
    module = getattr(function, "__module__", "numpy")
    raise TypeError(f"{module}.{name} does not take a Value: {_way(name, 'function')}")


def arguments(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments of one of numpy's functions by their names here."""
    names = _ARGUMENTS.get(function.__name__, {})
    return {names.get(name, name): value for name, value in options.items()}


def _way(name: str, kind: str) -> str:
    """Says what to use for a function of numpy that does not take values."""
    hint = HINTS.get(name)
    return f"use {hint}" if hint else (f"there is no such {kind}; compose it of the functions of "
                                       "athanor")
