"""A node drawn at random: its opset, element types, operands and attributes.

    d = Draw("Softmax", seed=3)
    d.operand(d.array(d.elem("T"), d.shape(1, 4)))
    d.attribute("axis", d.axis(rank))

A draw is the same for the same op and seed. Families (the modules beside this one) say what fits an
op; types come from the op's schema at the opset that was drawn.
"""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

MICROSOFT = "com.microsoft"
OPSETS = (7, 26)  # the newest that ONNX Runtime 1.31 takes
SIZES = (1, 2, 3, 4, 5, 7, 8, 11, 13)
PARTNERS = ("Relu", "Neg", "Tanh", "Sigmoid", "Abs")  # these make no difference larger
MOST = 600  # elements of an operand: the reference evaluator is slow

Elem = TensorProto
FLOATS = (Elem.FLOAT, Elem.DOUBLE, Elem.FLOAT16, Elem.BFLOAT16)
# Inputs of types that numpy lacks are given as f32 and cast inside the model.
NATIVE = (Elem.FLOAT, Elem.DOUBLE, Elem.FLOAT16, Elem.INT8, Elem.INT16, Elem.INT32, Elem.INT64,
          Elem.UINT8, Elem.UINT16, Elem.UINT32, Elem.UINT64, Elem.BOOL)
CODES = (Elem.BFLOAT16, Elem.FLOAT8E4M3FN, Elem.FLOAT8E4M3FNUZ, Elem.FLOAT8E5M2,
         Elem.FLOAT8E5M2FNUZ, Elem.INT4, Elem.UINT4)
SERVED = NATIVE + CODES
PLAIN = (Elem.FLOAT, Elem.INT64, Elem.INT32, Elem.UINT8, Elem.BOOL)


def elem_of(text: str) -> int:
    """Returns the element of a schema's type, "tensor(float16)"; 0 if it is not drawn."""
    if not text.startswith("tensor("):
        return 0
    name = text[len("tensor("):-1].upper()
    number = dict(Elem.DataType.items()).get(name, 0)
    return number if number in SERVED else 0


class Unfit(Exception):
    """The values drawn so far fit no node; another seed may."""


@functools.cache
def _microsoft() -> dict[str, object]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return {s.name: s for s in state.get_all_operator_schema() if s.domain == MICROSOFT}


@functools.cache
def versions_of(op: str) -> tuple[tuple[int, int], ...]:
    """The opsets, first and last, of each version of the op's schema within OPSETS."""
    rows = sorted((s.since_version, s.deprecated) for s in
                  onnx.defs.get_all_schemas_with_history() if s.name == op and s.domain == "")
    ends = [*(since - 1 for since, _ in rows[1:]), *([OPSETS[1]] if rows else [])]
    spans = [(max(since, OPSETS[0]), min(last, OPSETS[1]))
             for (since, deprecated), last in zip(rows, ends, strict=True) if not deprecated]
    return tuple((first, last) for first, last in spans if first <= last)


@dataclasses.dataclass
class Operand:
    """Contents of an operand; `known`: an initialiser, else an input of the graph; `structure`:
    axes, sizes and the like, of which shapes follow."""

    value: np.ndarray
    elem: int
    known: bool
    structure: bool


class Draw:
    """See above. `rtol`, `atol`: of float results; `steps`: of integers, by which they may differ.
    `partner`: an op that takes the first result where that is f32; `dim`: the size that is a dim of
    the model wherever it occurs, 0: none is."""

    def __init__(self, op: str, seed: int, domain: str = "", plain: bool = False) -> None:
        """`plain`: of the types that ONNX Runtime has most ops of."""
        self.op, self.seed, self.domain, self.plain = op, seed, domain, plain
        self.random = np.random.default_rng([zlib.crc32(f"{domain}.{op}".encode()), seed])
        if domain:
            self.opset = self.whole(13, 21)
            self.schema = _microsoft()[op] if domain == MICROSOFT else None
        elif versions_of(op):
            first, last = self.choose(versions_of(op))
            self.opset = self.whole(first, last)
            self.schema = onnx.defs.get_schema(op, self.opset)
        else:  # an op of ONNX Runtime, without a schema of ONNX
            self.opset, self.schema = self.whole(13, 21), None
        self.elems: dict[str, int] = {}
        self.operands: list[Operand | None] = []
        self.attributes: dict[str, object] = {}
        self.results = 1
        self.wanted: list[bool] | None = None
        self.kinds: dict[int, int] = {}  # types of results that ONNX Runtime cannot tell
        self.rtol, self.atol, self.steps = 0.0, 0.0, 0
        self.symbolic = self.coin(0.2)
        self.dim = 0
        # Uses its own random numbers, so that other draws do not depend on it.
        chance = np.random.default_rng([zlib.crc32(f"{domain}.{op}".encode()), seed, 1])
        self.partner = str(chance.choice(PARTNERS)) if chance.random() < 0.3 else ""

    # --- chance

    def coin(self, p: float = 0.5) -> bool:
        """True with probability p."""
        return bool(self.random.random() < p)

    def whole(self, low: int, high: int) -> int:
        """Draws an integer from low to high, both included."""
        return int(self.random.integers(low, high + 1))

    def choose(self, options: Sequence) -> object:
        """Draws one of the options."""
        return options[self.whole(0, len(options) - 1)]

    def real(self, low: float, high: float) -> float:
        """An f32 between."""
        return float(np.float32(self.random.uniform(low, high)))

    def axis(self, rank: int, negative: bool = True) -> int:
        """An axis, often counted from the end where the opset has that."""
        axis = self.whole(0, rank - 1)
        return axis - rank if negative and self.opset >= 11 and self.coin() else axis

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Some axes, each once, in any order."""
        count = self.whole(min(least, rank), rank)
        picked = self.random.permutation(rank)[:count]
        return [int(a) - (rank if self.opset >= 11 and self.coin(0.3) else 0) for a in picked]

    # --- shapes and types

    def shape(self, low: int = 0, high: int = 5, empty: bool = True, most: int = MOST
              ) -> list[int]:
        """A shape of rank low to high; sizes 1, primes, powers of two, rarely 0 if `empty`."""
        sizes = [int(self.choose(SIZES)) for _ in range(self.whole(low, high))]
        if sizes and empty and self.coin(0.05):
            sizes[self.whole(0, len(sizes) - 1)] = 0
        while np.prod(sizes) > most:
            largest = int(np.argmax(sizes))
            sizes[largest] = max(1, sizes[largest] // 2)
        return sizes

    def below(self, shape: Sequence[int]) -> list[int]:
        """Draws a shape that broadcasts to `shape`."""
        part = list(shape[self.whole(0, len(shape)):]) if self.coin(0.4) else list(shape)
        return [1 if self.coin(0.25) else size for size in part]

    def allowed(self, param: str) -> list[int]:
        """Returns the types that the schema allows for a type parameter or an operand."""
        for formal in (*self.schema.inputs, *self.schema.outputs):
            if formal.name == param:
                param = formal.type_str if hasattr(formal, "type_str") else formal.typeStr
                break
        texts = [param]
        for constraint in self.schema.type_constraints:
            if constraint.type_param_str == param:
                texts = list(constraint.allowed_type_strs)
        return sorted(elem for elem in map(elem_of, texts) if elem)

    def elem(self, param: str, among: Sequence[int] | None = None) -> int:
        """The type under that name: f32 often, else any that is allowed; the same when asked again.

        Raises
        ------
        Unfit
            None of `among` is allowed at this opset.
        """
        if param not in self.elems:
            options = [e for e in self.allowed(param) if among is None or e in among]
            if not options:
                raise Unfit
            often = Elem.FLOAT in options and self.coin(0.4)
            if self.plain:
                options = [e for e in options if e in PLAIN] or options
                often = Elem.FLOAT in options and self.coin(0.7)
            self.elems[param] = Elem.FLOAT if often else int(self.choose(options))
        return self.elems[param]

    # --- contents

    def array(self, elem: int, shape: Sequence[int], low: float = -4, high: float = 4,
              special: float = 0) -> np.ndarray:
        """Contents of that type, within what it holds; NaN, infinities and -0 at `special`."""
        dtype = helper.tensor_dtype_to_np_dtype(elem)
        if elem == Elem.BOOL:
            return self.random.integers(0, 2, shape).astype(bool)
        if elem in (Elem.INT4, Elem.UINT4):
            least, most = (-8, 7) if elem == Elem.INT4 else (0, 15)
            low, high = max(low, least), min(high, most)
        elif elem not in FLOATS and np.issubdtype(dtype, np.integer):
            info = np.iinfo(dtype)
            low = min(max(low, info.min), info.max)
            high = max(low, min(high, info.max))
        else:
            values = np.asarray(self.random.uniform(low, high, shape))
            if special and self.coin(special):
                hit = self.random.random(shape) < 0.2
                kinds = self.random.choice([np.nan, np.inf, -np.inf, -0.0], shape)
                values = np.where(hit, kinds, values)
            return values.astype(dtype)
        return self.random.integers(int(low), int(high), shape, endpoint=True).astype(dtype)

    # --- the node

    def operand(self, value: np.ndarray | Sequence[int], elem: int = 0, known: float = 0.3) -> None:
        """The next operand; an initialiser with probability `known`. Lists are of int64; where no
        type is given it is one that shapes follow from."""
        value = np.asarray(value, np.int64) if isinstance(value, list) else np.asarray(value)
        structure = elem == 0
        elem = elem or helper.np_dtype_to_tensor_dtype(value.dtype)
        if self.symbolic and not self.operands and value.ndim:
            self.dim = value.shape[0 if self.coin(0.7) else self.whole(0, value.ndim - 1)]
        # Weights of numbers where inputs have the dim would only be refused.
        fixed = self.coin(known) and (structure or self.dim not in value.shape)
        self.operands.append(Operand(value, elem, fixed, structure))

    def omit(self) -> None:
        """The next operand is left out."""
        self.operands.append(None)

    def attribute(self, name: str, value: object, p: float = 1) -> None:
        """Sets it with probability p; where it is not set the schema's default holds."""
        if self.coin(p):
            self.attributes[name] = value

    def tolerance(self) -> tuple[float, float]:
        """rtol, atol: of the least precise float type among the operands."""
        if self.rtol or self.atol or self.steps:
            return self.rtol, max(self.atol, self.steps)
        elems = {o.elem for o in self.operands if o} | set(self.elems.values())
        if elems & {Elem.BFLOAT16, *CODES}:
            return 2e-2, 2e-2
        if Elem.FLOAT16 in elems:
            return 4e-3, 4e-3
        return (1e-7, 1e-9) if Elem.DOUBLE in elems else (2e-5, 1e-5)
