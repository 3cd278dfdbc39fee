"""Athanor: build model graphs, upload them, call them.

    import athanor, numpy as np

    g = athanor.Graph("linear", dims={"b": (1, 64)})
    x = g.input("x", ("b", 16), "f32")
    w = g.parameter("w", np.ones((16, 4), np.float32))
    g.output("y", athanor.relu(x @ w))

    with athanor.Client("127.0.0.1:50051") as client:
        model = client.upload(g, name="linear")
        y = model.infer({"x": np.ones((2, 16), np.float32)})["y"]
"""

from athanor.aio import AsyncClient, AsyncModel
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
from athanor.elementwise import (
    absolute,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bitcast,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    cast,
    cos,
    cosh,
    divide,
    equal,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    gelu,
    greater,
    greater_equal,
    invert,
    isnan,
    left_shift,
    less,
    less_equal,
    log,
    log1p,
    log2,
    maximum,
    minimum,
    mod,
    multiply,
    negative,
    not_equal,
    plus,
    power,
    recip,
    relu,
    right_shift,
    round,
    sigmoid,
    silu,
    sin,
    sinh,
    sqrt,
    subtract,
    tan,
    tanh,
    trunc_div,
    where,
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
from athanor.movement import (
    concat,
    expand,
    flatten,
    flip,
    gather,
    pad,
    permute,
    reshape,
    scatter,
    squeeze,
    stack,
    transpose,
    unsqueeze,
)
from athanor.reductions import (
    argmax,
    argmin,
    argsort,
    attention,
    contract,
    cumprod,
    cumsum,
    embedding,
    embedding_bag,
    layer_norm,
    matmul,
    max,
    mean,
    min,
    prod,
    rms_norm,
    softmax,
    sum,
    top_k,
    variance,
)
from athanor.streams import AsyncGeneration, Generation
from athanor.value import Value
from athanor.windows import average_pool, conv, max_pool, sum_pool
from athanor.wire import Batching, Bucket, Device, InferResult, ModelInfo, Tensor

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
    "Unimplemented", "Usage", "Value", "absolute", "acos", "acosh", "argmax", "argmin", "argsort",
    "asin", "asinh", "atan", "atanh", "attention", "average_pool", "bitcast", "bitwise_and",
    "bitwise_or", "bitwise_xor", "cast", "concat", "contract", "conv", "cos", "cosh", "cumprod",
    "cumsum", "divide", "embedding", "embedding_bag", "equal", "erf", "exp", "exp2", "expand",
    "expm1", "flatten", "flip", "floor", "floor_divide", "gather", "gelu", "greater",
    "greater_equal", "invert", "isnan", "layer_norm", "left_shift", "less", "less_equal", "log",
    "log1p", "log2", "matmul", "max", "max_pool", "maximum", "maximum_of", "mean", "min", "minimum",
    "minimum_of", "mod", "multiply", "negative", "not_equal", "pad", "permute", "plus", "power",
    "prod", "recip", "relu", "reshape", "right_shift", "rms_norm", "round", "scatter", "sigmoid",
    "silu", "sin", "sinh", "softmax", "sqrt", "squeeze", "stack", "subtract", "sum", "sum_pool",
    "tan", "tanh", "top_k", "transpose", "trunc_div", "unsqueeze", "variance", "where",
]
