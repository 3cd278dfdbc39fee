"""Settings of uploads and compilations, checked and as messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from athanor.arrays import host_array
from athanor.checks import (
    UINT64,
    checked_int,
    checked_names,
    is_int,
    optional_text,
)
from athanor.dtypes import array_bytes, carried, dtype_of
from athanor.errors import InvalidArgument
from athanor.protos import graph_pb2, model_pb2

# Bounds (both included; None: 1), a number, or an expression over other dims.
Dims = Mapping[str, "tuple[int | None, int] | int | str"]
Values = Mapping[str, object]
Buckets = Mapping[str, Sequence[tuple[int, int]]]
_FORMATS = {"ignore_keys": ("hf", "gguf"), "decoder": ("hf", "gguf")}  # of others: ONNX
_TAKEN_BY = {("onnx",): "ONNX models", ("hf", "gguf"): "checkpoints of language models"}


@dataclasses.dataclass(frozen=True)
class Given:
    """Settings of an upload that depend on the model's format, as `Client.upload` takes them."""

    dims: Dims | None = None
    values: Values | None = None
    random_seed: int | None = None
    ignore_keys: Sequence[str] | None = None
    decoder: Mapping[str, int] | None = None

    def write(self, header: model_pb2.UploadHeader) -> None:
        """Writes the settings into the header.

        Raises
        ------
        InvalidArgument
            If the header cannot hold a setting, or the model's format does not have it.
        """
        for name, value in vars(self).items():
            formats = _FORMATS.get(name, ("onnx",))
            if value is not None and header.format not in formats:
                raise InvalidArgument(f"{name}: applies to {_TAKEN_BY[formats]} only")
        self._write_decoder(header)
        header.dims.extend(_dim(name, said) for name, said in (self.dims or {}).items())
        header.values.extend(_value(name, said) for name, said in (self.values or {}).items())
        if self.random_seed is not None:
            header.random_seed = checked_int("random_seed", self.random_seed, UINT64)

    def _write_decoder(self, header: model_pb2.UploadHeader) -> None:
        header.ignore_keys.extend(checked_names("ignore_keys", self.ignore_keys,
                                                "the name of a key"))
        limits = list(model_pb2.DecoderLimits.DESCRIPTOR.fields_by_name)
        for name, size in (self.decoder or {}).items():
            if name not in limits or not is_int(size, range(1, 1 << 63)):
                raise InvalidArgument(f"decoder[{name!r}]={size!r}: it must be one of "
                                      f"{', '.join(limits)}, and an int from 1 on")
            setattr(header.decoder, name, size)


def _dim(name: str, said: object) -> model_pb2.DimGiven:
    if is_int(said) or isinstance(said, str):
        return model_pb2.DimGiven(name=name, equals=str(said))
    bounds = list(said) if isinstance(said, tuple | list) else []
    if len(bounds) != 2 or not is_int(bounds[1]) or not (bounds[0] is None or is_int(bounds[0])):
        raise InvalidArgument(f"dims[{name!r}]={said!r}: it must be bounds, as in (1, 64) or "
                              "(None, 64), a number, or an expression over other dims, a str")
    return model_pb2.DimGiven(name=name, min=bounds[0], max=bounds[1])


def _value(name: str, said: object) -> model_pb2.NamedLiteral:
    array = carried(host_array(said, f"values[{name!r}]"))
    literal = graph_pb2.TensorLiteral(dtype=dtype_of(array.dtype).name, shape=array.shape,
                                      data=array_bytes(array))
    return model_pb2.NamedLiteral(name=name, value=literal)


def full_range(dims: Dims | None) -> dict[str, list[tuple[int, int]]]:
    """Returns buckets that stand for the full range alone."""
    for name, said in (dims or {}).items():
        bounds = _dim(name, said)
        if not bounds.equals:
            return {name: [(bounds.min if bounds.HasField("min") else 1, bounds.max)]}
    return {}


def bucket_messages(buckets: Buckets | None) -> list[model_pb2.DimBuckets]:
    """Converts ``{"b": [(1, 1), (2, 64)]}`` to messages.

    Raises
    ------
    InvalidArgument
        If it is anything else.
    """
    given = buckets or {}
    if not isinstance(given, Mapping) or not all(
            isinstance(dim, str) and isinstance(ranges, Sequence) and all(map(_is_range, ranges))
            for dim, ranges in given.items()):
        raise InvalidArgument(f"buckets={buckets!r}: it must be pairs (first, last) of sizes by "
                              'dim, as in {"b": [(1, 1), (2, 64)]}')
    return [
        model_pb2.DimBuckets(dim=dim, ranges=[
            model_pb2.DimBuckets.Range(min=low, max=high) for low, high in ranges])
        for dim, ranges in given.items()
    ]


def _is_range(pair: object) -> bool:
    return isinstance(pair, Sequence) and len(pair) == 2 and all(map(is_int, pair))


def rule_names(disable_rules: Sequence[str] | None) -> list[str]:
    """Returns names of rules or families; raises `InvalidArgument` for anything else."""
    return checked_names("disable_rules", disable_rules, "the name of a rule or of a family")


def budget_text(budget: str | None) -> str:
    """Returns a search budget in the server's form; raises `InvalidArgument` unless it is a str:
    the meaning of a number is not guessed."""
    return optional_text("budget", budget, 'a str such as "30s", "200c", "fast", "exhaust:5m" or '
                         '"0"')
