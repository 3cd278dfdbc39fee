"""Models and tensors as messages: requests built and replies read, without any call."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence

import numpy as np

from athanor.arrays import SupportsDLPack, host_array
from athanor.checks import checked_int, checked_names, checked_text
from athanor.dtypes import (
    BY_DATATYPE,
    ELEMENTS,
    array_bytes,
    carried,
    carried_back,
    dtype_of,
)
from athanor.errors import InvalidArgument
from athanor.notebook import bytes_text, table
from athanor.protos import model_pb2
from athanor.protos import open_inference_grpc_pb2 as oip

Inputs = Mapping[str, object] | np.ndarray | np.generic | SupportsDLPack


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input or output of a model; a shape holds texts such as ``"b"`` or ``"64"``.

    Attributes
    ----------
    element : str
        Meaning of the values of `dtype` if the server has no dtype for it, such as ``"int4"``.
    fixed : bool
        Whether the input takes only one value, given at upload.
    """

    name: str
    dtype: str
    shape: tuple[str, ...]
    element: str = ""
    fixed: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.element or self.dtype}[{', '.join(self.shape)}]"


@dataclasses.dataclass(frozen=True)
class Batching:
    """How requests of a model are batched.

    Attributes
    ----------
    dim : str
        Dim along which they are batched; empty if the upload named none.
    on : bool
    reason : str
        Why batching is off, if a dim was named.
    max_rows : int
        Most rows of one call.
    max_delay_us : int
        Longest time in microseconds that a request waits for others.
    """

    dim: str = ""
    on: bool = False
    reason: str = ""
    max_rows: int = 0
    max_delay_us: int = 0


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A box of a model's sizes, with its plan or the reason why it has none of its own.

    Attributes
    ----------
    ranges : dict
        By dim: smallest and largest size.
    plan_id : str
        Empty if the full-range plan serves it; `reason` says why.
    pinned : bool
        Whether its plan was pinned.
    reason : str
        Empty for a bucket with a plan.
    """

    ranges: dict[str, tuple[int, int]]
    plan_id: str
    pinned: bool
    reason: str

    @property
    def text(self) -> str:
        """As replies name it: ``"b=1..1 s=1..128"``."""
        return " ".join(f"{dim}={low}..{high}" for dim, (low, high) in self.ranges.items())


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """A version of a model as the server knows it."""

    name: str
    version: str
    serving: bool
    state: str  # "UPLOADED", "COMPILING", "READY" or "FAILED"
    error: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    dims: dict[str, tuple[int, int]]
    graph_hash: str
    created: datetime.datetime
    compile_job_id: str
    plan_id: str
    pinned: bool
    plan_ids: tuple[str, ...]
    memory: dict[str, int]  # bytes: parameters, prepared, arenas
    deterministic: bool = False
    batching: Batching = Batching()
    buckets: tuple[Bucket, ...] = ()
    notes: tuple[str, ...] = ()  # decisions made at import
    device: str = ""  # that executes it: "cuda:0"

    def __repr__(self) -> str:
        takes, gives = (", ".join(map(str, tensors)) for tensors in (self.inputs, self.outputs))
        serves = ", serves" if self.serving else ""
        plan = f", plan {self.plan_id}" if self.plan_id else ""
        return (f"<athanor.ModelInfo {self.name!r} {self.version}: {self.state}{serves}, ({takes}) "
                f"-> ({gives}){plan}>")

    def _repr_html_(self) -> str:
        dims = ", ".join(f"{name} {low} to {high}" for name, (low, high) in self.dims.items())
        rows = [("state", f"{self.state} {self.error}"),
                *((f"input {t.name}", str(t)) for t in self.inputs),
                *((f"output {t.name}", str(t)) for t in self.outputs),
                ("dims", dims or "none"), ("device", self.device),
                ("plan", f"{self.plan_id or 'none yet'}{', pinned' if self.pinned else ''}"),
                ("memory", ", ".join(f"{what} {bytes_text(size)}"
                                     for what, size in self.memory.items())),
                *(("note", note) for note in self.notes)]
        serves = " (serves)" if self.serving else ""
        return table(f"Model {self.name!r}, version {self.version}{serves}", rows)


@dataclasses.dataclass(frozen=True)
class Device:
    """A device that executes models."""

    name: str  # as `--device` names it: "cpu", "cuda:0"
    chip: str  # empty: not known yet
    compute_capability: str  # of a GPU: "9.0"
    driver: str  # of a GPU: the newest CUDA that its driver knows
    threads: int  # that run at once
    memory_used: int  # bytes that the server holds there
    memory_limit: int
    memory_bytes: int  # all of the device's
    core_mhz: int  # clocks of a GPU now; 0: not told
    memory_mhz: int
    compiler: str  # "nvrtc 13.0"
    kernels_compiled: int
    lost: str  # error that ended its use until the server restarts; empty: it is usable


def device(m: model_pb2.Device) -> Device:
    """The message as a plain value."""
    return Device(**{field.name: getattr(m, field.name) for field in dataclasses.fields(Device)})


def _tensors(messages: Sequence[model_pb2.ModelTensor]) -> tuple[Tensor, ...]:
    return tuple(Tensor(m.name, m.dtype, tuple(m.shape), m.element, m.fixed) for m in messages)


def model_info(m: model_pb2.Model) -> ModelInfo:
    """The message as a plain value."""
    return ModelInfo(
        name=m.name, version=m.version, serving=m.serving,
        state=model_pb2.Model.State.Name(m.state), error=m.error, inputs=_tensors(m.inputs),
        outputs=_tensors(m.outputs), dims={d.name: (d.min, d.max) for d in m.dims},
        graph_hash=m.graph_hash, created=m.created.ToDatetime(datetime.UTC),
        compile_job_id=m.compile_job_id, plan_id=m.plan_id, pinned=m.pinned,
        plan_ids=tuple(p.plan_id for p in m.plans),
        memory={"parameters": m.memory.parameters, "prepared": m.memory.prepared,
                "arenas": m.memory.arenas},
        deterministic=m.deterministic,
        batching=Batching(m.batching.dim, m.batching.on, m.batching.reason, m.batching.max_rows,
                          m.batching.max_delay_us),
        buckets=tuple(Bucket({r.name: (r.min, r.max) for r in b.bucket}, b.plan_id, b.pinned,
                             b.reason) for b in m.buckets), notes=tuple(m.notes), device=m.device)


class InferResult(dict[str, np.ndarray]):
    """Outputs, then taps, by name, each an array that the caller owns; and the reply's parameters.

    Attributes
    ----------
    plan_id, bucket, compile_state : str
        The plan that served.
    queue_us, exec_us : int
        Microseconds waiting and executing.
    batch_us, batch_rows : int
        For a model whose requests are batched: microseconds that this one waited for others, not
        part of `queue_us`, and the rows of its call.
    """

    plan_id: str = ""
    bucket: str = ""
    compile_state: str = ""
    queue_us: int = 0
    exec_us: int = 0
    batch_us: int = 0
    batch_rows: int = 0


def tap_names(taps: Sequence[str] | None) -> str | None:
    """Formats request parameter ``taps``: names separated by commas; a comma in a name gets a
    backslash.

    Raises
    ------
    InvalidArgument
        If `taps` is a str, or holds anything but names.
    """
    names = [name.replace("\\", "\\\\").replace(",", "\\,")
             for name in checked_names("taps", taps, "the name of a node (Value.name)")]
    return ",".join(names) if names else None


def check_inputs(model: str, expected: Sequence[Tensor],
                 inputs: Inputs) -> dict[str, np.ndarray]:
    """Returns the arrays to send; names and dtypes must be the model's.

    An array alone is the only input of a model that has one.

    Raises
    ------
    InvalidArgument
        Naming the input, both dtypes and the cast that would fix it. Nothing is converted.
    """
    names = [tensor.name for tensor in expected]
    wanted = ", ".join(map(str, expected)) or "no inputs"
    if not isinstance(inputs, Mapping):
        if len(expected) != 1:
            raise InvalidArgument(f"model {model!r} takes {wanted}, so inputs must be a mapping by "
                                  f"name: a {type(inputs).__name__} is given")
        inputs = {names[0]: inputs}
    for name in inputs:
        if name not in names:
            raise InvalidArgument(f"model {model!r} has no input {name!r}; it takes {wanted}")
    arrays = {}
    for tensor in expected:
        if tensor.name not in inputs:
            raise InvalidArgument(f"input {tensor.name!r} of model {model!r} is missing; it takes "
                                  f"{wanted}")
        row = dtype_of(tensor.dtype)
        what = f"input {tensor.name!r} of model {model!r}"
        array = host_array(inputs[tensor.name], what)
        if tensor.element and array.dtype == ELEMENTS.get(tensor.element):
            array = carried(array)
        if array.dtype != row.numpy and tensor.element:
            raise InvalidArgument(f"{what} has dtype {array.dtype}, the model takes "
                                  f"{tensor.element}: pass an array of that dtype of ml_dtypes, or "
                                  f"of numpy's {row.numpy.name}, which carries it")
        if array.dtype != row.numpy:
            raise InvalidArgument(f"{what} has dtype {array.dtype}, the model takes {row.name} "
                                  f"(numpy's {row.numpy.name}): pass the array{row.cast}")
        arrays[tensor.name] = array
    return arrays


def infer_request(model: str, version: str, expected: Sequence[Tensor],
                  inputs: Inputs, outputs: Sequence[str] | None,
                  parameters: Mapping[str, str | int | None]) -> oip.ModelInferRequest:
    """Makes a request with raw contents."""
    request = oip.ModelInferRequest(model_name=model, model_version=version)
    dtypes = {tensor.name: dtype_of(tensor.dtype) for tensor in expected}
    for name, array in check_inputs(model, expected, inputs).items():
        request.inputs.add(name=name, datatype=dtypes[name].datatype, shape=array.shape)
        request.raw_input_contents.append(array_bytes(array))
    for name in checked_names("outputs", outputs, "the name of an output"):
        request.outputs.add(name=name)
    for key, value in parameters.items():
        if key == "priority" and value is not None:
            request.parameters[key].int64_param = checked_int(key, value)
        elif value is not None:
            request.parameters[key].string_param = checked_text(key, value)
    return request


def infer_result(response: oip.ModelInferResponse) -> InferResult:
    """Returns new writable arrays, and the reply's parameters."""
    result = InferResult()
    for tensor, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        row = BY_DATATYPE[tensor.datatype]
        # frombuffer refuses zero bytes.
        flat = np.frombuffer(bytearray(raw), row.numpy) if raw else np.empty(0, row.numpy)
        array = flat.reshape(tuple(tensor.shape))
        element = tensor.parameters["element"].string_param if tensor.parameters else ""
        result[tensor.name] = carried_back(array, element)
    for key, value in response.parameters.items():
        if hasattr(InferResult, key):
            setattr(result, key, getattr(value, value.WhichOneof("parameter_choice")))
    return result
