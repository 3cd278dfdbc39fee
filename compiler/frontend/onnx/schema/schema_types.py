"""Writes schema_types.inc: the operands and attributes of ONNX's ops, version by version.

    python schema_types.py > schema_types.inc     # in this folder, by the SDK's environment

Takes all schemas of the default domain and of ai.onnx.preview from the `onnx` package, and those of
com.microsoft that exporters and ONNX Runtime's optimiser write from `onnxruntime` (which knows only
their newest version). tests/onnx/test_schema_types.py compares the committed file with the output.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable

import numpy as np
import onnx
import onnx.defs
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

DOMAINS = {"", "ai.onnx.preview"}
# Ops of com.microsoft that the importer reads, or may read. Others are refused as unknown.
MICROSOFT = {
    "Attention", "BiasGelu", "BiasSplitGelu", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul",
    "EmbedLayerNormalization", "FastGelu", "FusedMatMul", "Gelu", "GroupQueryAttention",
    "MatMulIntegerToFloat", "MatMulNBits", "MultiHeadAttention", "QGemm", "QLinearAdd",
    "QLinearAveragePool", "QLinearConcat", "QLinearGlobalAveragePool", "QLinearLeakyRelu",
    "QLinearMul", "QLinearSigmoid", "QLinearSoftmax", "QuickGelu", "RotaryEmbedding",
    "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
}
# Ops in the default domain that only ONNX Runtime defines.
RUNTIME_ONLY = {"SimplifiedLayerNormalization"}

TENSOR_TYPES = {f"tensor({name.lower()})": number
                for name, number in onnx.TensorProto.DataType.items() if number}
KINDS = {name: number for name, number in onnx.AttributeProto.AttributeType.items()}
UNBOUNDED = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Operand:
    """One formal operand or result, as schema.h's SchemaOperand."""

    name: str
    types: int
    same_as: int
    optional: bool
    variadic: bool
    heterogeneous: bool

    def text(self) -> str:
        flags = ", ".join("01"[flag] for flag in (self.optional, self.variadic, self.heterogeneous))
        return f'{{"{self.name}", {self.types:#x}, {self.same_as}, {flags}}}'


@dataclasses.dataclass(frozen=True)
class Attribute:
    """One attribute, as schema.h's SchemaAttr."""

    name: str
    kind: int
    required: bool
    otherwise: str

    def text(self) -> str:
        return f'{{"{self.name}", {self.kind}, {int(self.required)}, "{self.otherwise}"}}'


def type_mask(types: Iterable[str]) -> int:
    """Return a mask in which bit i is set if the tensor type of number i + 1 is accepted."""
    mask = 0
    for name in types:
        if name in TENSOR_TYPES:
            mask |= 1 << (TENSOR_TYPES[name] - 1)
    return mask


def default_text(kind: str, value: object) -> str:
    """Return a default as text; lists are separated by commas."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        value = value.decode()
    if kind == "FLOAT":
        return np.format_float_scientific(np.float32(value), trim="-") if (
            abs(value) >= 1e6 or 0 < abs(value) < 1e-3) else str(np.float32(value))
    if kind in ("INT", "STRING"):
        return str(value)
    if kind in ("INTS", "STRINGS"):
        return ",".join(v.decode() if isinstance(v, bytes) else str(v) for v in value)
    raise ValueError(f"a default of kind {kind}: {value!r}")


def default_of(attribute: object) -> object:
    """Return the default of a schema's attribute, from either package; None if there is none."""
    if hasattr(attribute, "default_value"):
        proto = attribute.default_value
    else:
        proto = onnx.AttributeProto.FromString(attribute._default_value)
    if proto.type == onnx.AttributeProto.UNDEFINED:
        return None
    return onnx.helper.get_attribute_value(proto)


def operands_of(formals: Iterable[object], variables: dict[str, int]) -> tuple[Operand, ...]:
    """Return operands or results; `variables` numbers the schema's type variables so far."""
    operands = []
    for formal in formals:
        type_name = getattr(formal, "type_str", None) or formal.typeStr
        homogeneous = getattr(formal, "is_homogeneous", None)
        homogeneous = formal.isHomogeneous if homogeneous is None else homogeneous
        option = formal.option.name
        variadic = option == "Variadic"
        same_as = -1
        if "(" not in type_name and not (variadic and not homogeneous):
            same_as = variables.setdefault(type_name, len(variables))
        operands.append(Operand(formal.name, type_mask(formal.types), same_as,
                                option == "Optional", variadic, variadic and not homogeneous))
    return tuple(operands)


def attributes_of(schema: object) -> tuple[Attribute, ...]:
    """Return the attributes in order of name."""
    attributes = []
    for name, attribute in sorted(schema.attributes.items()):
        kind = attribute.type.name
        attributes.append(Attribute(name, KINDS[kind], attribute.required,
                                    default_text(kind, default_of(attribute))))
    return tuple(attributes)


class Runs:
    """Writes equal runs of rows, and runs inside longer ones, only once."""

    def __init__(self) -> None:
        self.rows: list[Operand | Attribute] = []
        self.starts: dict[tuple, int] = {}

    def add(self, run: tuple) -> tuple[int, int]:
        if run and run not in self.starts:
            start = len(self.rows)
            self.rows.extend(run)
            for begin in range(len(run)):
                for end in range(begin + 1, len(run) + 1):
                    self.starts.setdefault(run[begin:end], start + begin)
        return self.starts.get(run, 0), len(run)


def schemas() -> list[object]:
    """The schemas, by domain, op and version."""
    taken = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain in DOMAINS]
    for schema in ort_state.get_all_operator_schema():
        if (schema.domain == "com.microsoft" and schema.name in MICROSOFT) or (
                schema.domain == "" and schema.name in RUNTIME_ONLY):
            taken.append(schema)
    return sorted(taken, key=lambda s: (s.domain, s.name, s.since_version))


def wrapped(items: Iterable[str]) -> Iterable[str]:
    """Items as lines of at most 100 columns."""
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            yield line
            line = "   "
        line += f" {item},"
    if line.strip():
        yield line


def generate() -> str:
    """The text of schema_types.inc."""
    operands, attributes, rows = Runs(), Runs(), []
    for schema in schemas():
        variables: dict[str, int] = {}
        inputs = operands.add(operands_of(schema.inputs, variables))
        outputs = operands.add(operands_of(schema.outputs, variables))
        attrs = attributes.add(attributes_of(schema))
        counts = (schema.min_input, schema.max_input, schema.min_output, schema.max_output)
        counts_text = ", ".join("kMany" if n == UNBOUNDED else str(n) for n in counts)
        spans = ", ".join(f"{start}, {size}" for start, size in (inputs, outputs, attrs))
        rows.append(f'    X("{schema.domain}", "{schema.name}", {schema.since_version}, '
                    f"{int(schema.deprecated)}, {counts_text}, {spans})")
    lines = [
        f"// Generated by schema_types.py from onnx {onnx.__version__} and onnxruntime "
        f"{onnxruntime.__version__}; not to be edited.",
        "// name, types, same_as, optional, variadic, heterogeneous",
        "constexpr SchemaOperand kOperands[] = {",
        *wrapped(operand.text() for operand in operands.rows),
        "};",
        "// name, kind, required, default",
        "constexpr SchemaAttr kAttrs[] = {",
        *wrapped(attribute.text() for attribute in attributes.rows),
        "};",
        "// domain, op, since, deprecated, operands and results at least and most,",
        "// operands, results and attributes as start and number in the tables above",
        "constexpr SchemaRow kSchemas[] = {",
        *rows,
        "};",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(generate())
