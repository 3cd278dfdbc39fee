"""All ops that are drawn, by domain and name."""

from __future__ import annotations

from collections.abc import Callable

import attention
import elementwise
import index
import linear
import movement
import quantised
import reduce
import window
from draw import MICROSOFT, Draw

MODULES = (elementwise, movement, index, reduce, window, linear, quantised, attention)
# Ops that the importer takes and nothing draws, and why.
UNDRAWN = {
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike":
        "which numbers are drawn is the implementation's",
    "Compress NonMaxSuppression NonZero Unique": "shapes that are in the data are refused",
    "If Loop Scan": "sub-graphs; handlers_control_test.cc has theirs",
    "CausalConvWithState LinearAttention SwiGLU": "newer than ONNX Runtime takes",
    "FlexAttention": "ONNX Runtime has none of its domain",
    "Constant": "it has no operands; each initialiser is one",
}
OPS: dict[tuple[str, str], Callable[[Draw], None]] = {
    **{("", op): family for module in MODULES for op, family in module.FAMILY.items()},
    **{(MICROSOFT, op): family for module in (quantised, attention)
       for op, family in module.MICROSOFT.items()},
}
