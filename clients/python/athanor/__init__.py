"""Athanor: build model graphs, upload them, call them.

    import athanor, numpy as np

    g = athanor.Graph("linear", dims={"b": (1, 64)})
    x = g.input("x", ("b", 16), "f32")
    w = g.parameter("w", np.ones((16, 4), np.float32))
    g.output("y", athanor.relu(x @ w))

    with athanor.Client() as client:
        model = client.upload(g, name="linear")
        y = model.infer(np.ones((2, 16), np.float32))["y"]
"""

from typing import TYPE_CHECKING

from athanor import nn
from athanor.aio import AsyncClient, AsyncModel
from athanor.arithmetic import (
    abs,
    absolute,
    add,
    bitcast,
    cast,
    clip,
    divide,
    floor_divide,
    maximum,
    minimum,
    mod,
    multiply,
    negative,
    positive,
    power,
    reciprocal,
    square,
    subtract,
    trunc_div,
)
from athanor.cache import (
    BadRow,
    CacheDifference,
    CacheExplanation,
    CacheExport,
    CacheGarbage,
    CacheImport,
    CacheLease,
    CacheStat,
    CacheTier,
    CacheVerification,
)
from athanor.client import Client, Model
from athanor.contractions import (
    contract,
    einsum,
    matmul,
)
from athanor.elementwise import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    ceil,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    gelu,
    log,
    log1p,
    log2,
    log10,
    relu,
    round,
    sigmoid,
    sign,
    silu,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)
from athanor.errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    GraphError,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    Refusal,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from athanor.expr import Expr, maximum_of, minimum_of
from athanor.generation import (
    EngineStatus,
    GenerateOptions,
    GenerateResult,
    GenerateTimes,
    Logprobs,
    Piece,
    RenderedChat,
    Sampling,
    Tokenized,
    TokenLogprob,
    Usage,
)
from athanor.graph import DEFAULT_DIM_BOUNDS, Graph
from athanor.indexing import (
    flip,
    gather,
    scatter,
    split,
    take_along_axis,
)
from athanor.jobs import (
    CompileJob,
    PlanComparison,
    SearchFailure,
    SearchOptions,
    SearchProgress,
    SearchRegion,
    SearchRule,
    SearchTask,
)
from athanor.logic import (
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    equal,
    greater,
    greater_equal,
    invert,
    isfinite,
    isinf,
    isnan,
    left_shift,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
    right_shift,
    where,
)
from athanor.loops import (
    gru,
    lstm,
    rnn,
    scan,
)
from athanor.movement import (
    concat,
    concatenate,
    expand,
    flatten,
    full_like,
    moveaxis,
    ones_like,
    pad,
    permute,
    repeat,
    reshape,
    squeeze,
    stack,
    swapaxes,
    tile,
    transpose,
    tril,
    triu,
    unsqueeze,
    zeros_like,
)
from athanor.networks import (
    attention,
    batch_norm,
    embedding,
    embedding_bag,
    group_norm,
    layer_norm,
    one_hot,
    rms_norm,
    rotary,
    softmax,
)
from athanor.numpy_names import HINTS, nearest_name
from athanor.reductions import (
    all,
    any,
    argmax,
    argmin,
    argsort,
    cumprod,
    cumsum,
    logsumexp,
    max,
    mean,
    min,
    prod,
    sort,
    std,
    sum,
    top_k,
    var,
)
from athanor.resize import (
    interpolate,
)
from athanor.streams import AsyncGeneration, Generation
from athanor.value import Value
from athanor.windows import (
    average_pool,
    conv,
    conv_transpose,
    max_pool,
    sum_pool,
)
from athanor.wire import Batching, Bucket, Device, InferResult, ModelInfo, Tensor

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Names the way for functions that numpy or torch call otherwise."""
        meant = HINTS.get(name) or nearest_name(name, __all__)
        hint = f"; use {HINTS[name]}" if name in HINTS else f"; did you mean {meant!r}?"
        raise AttributeError(f"module 'athanor' has no attribute {name!r}{hint if meant else ''}")


__version__ = "0.1.0"
__all__ = [
    "Aborted", "AlreadyExists", "AsyncClient", "AsyncGeneration", "AsyncModel", "BadRow",
    "Batching", "Bucket", "CacheDifference", "CacheExplanation", "CacheExport", "CacheGarbage",
    "CacheImport", "CacheLease", "CacheStat", "CacheTier", "CacheVerification", "Cancelled",
    "Client", "CompileJob", "DEFAULT_DIM_BOUNDS", "DataLoss", "DeadlineExceeded", "Device",
    "EngineStatus", "Error", "Expr", "FailedPrecondition", "GenerateOptions", "GenerateResult",
    "GenerateTimes", "Generation", "Graph", "GraphError", "InferResult", "Internal",
    "InvalidArgument", "Logprobs", "Model", "ModelInfo", "NotFound", "OutOfRange",
    "PermissionDenied", "Piece", "PlanComparison", "Refusal", "RenderedChat", "ResourceExhausted",
    "Sampling", "SearchFailure", "SearchOptions", "SearchProgress", "SearchRegion", "SearchRule",
    "SearchTask", "Tensor", "TokenLogprob", "Tokenized", "Unauthenticated", "Unavailable",
    "Unimplemented", "Usage", "Value", "abs", "absolute", "acos", "acosh", "add", "all", "any",
    "argmax", "argmin", "argsort", "asin", "asinh", "atan", "atanh", "attention", "average_pool",
    "batch_norm", "bitcast", "bitwise_and", "bitwise_or", "bitwise_xor", "cast", "ceil", "clip",
    "concat", "concatenate", "contract", "conv", "conv_transpose", "cos", "cosh", "cumprod",
    "cumsum", "divide", "einsum", "embedding", "embedding_bag", "equal", "erf", "exp", "exp2",
    "expand", "expm1", "flatten", "flip", "floor", "floor_divide", "full_like", "gather", "gelu",
    "greater", "greater_equal", "group_norm", "gru", "interpolate", "invert", "isfinite", "isinf",
    "isnan", "layer_norm", "left_shift", "less", "less_equal", "log", "log10", "log1p", "log2",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp", "lstm", "matmul", "max",
    "max_pool", "maximum", "maximum_of", "mean", "min", "minimum", "minimum_of", "mod", "moveaxis",
    "multiply", "negative", "nn", "not_equal", "one_hot", "ones_like", "pad", "permute", "positive",
    "power", "prod", "reciprocal", "relu", "repeat", "reshape", "right_shift", "rms_norm", "rnn",
    "rotary", "round", "scan", "scatter", "sigmoid", "sign", "silu", "sin", "sinh", "softmax",
    "sort", "split", "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum", "sum_pool",
    "swapaxes", "take_along_axis", "tan", "tanh", "tile", "top_k", "transpose", "tril", "triu",
    "trunc", "trunc_div", "unsqueeze", "var", "where", "zeros_like",
]
