"""Models and tensors as messages: requests built and replies read, without any call."""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np
from google.protobuf.message import Message

from athanor import bundle, onnx_files
from athanor.arrays import SupportsDLPack, host_array
from athanor.checkpoint_files import checkpoint_files
from athanor.core import content_hash, possession_proof
from athanor.dtypes import (
    BY_DATATYPE,
    ELEMENTS,
    array_bytes,
    carried,
    carried_back,
    dtype_of,
)
from athanor.errors import InvalidArgument
from athanor.given import Given, full_range
from athanor.graph import Graph
from athanor.notebook import bytes_text, table
from athanor.protos import compile_pb2, model_pb2
from athanor.protos import open_inference_grpc_pb2 as oip

# The server counts an upload's progress by whole messages; at the lowest rate it accepts
# (--upload_least_rate, 8 KiB a second) a chunk of this size arrives within --upload_idle.
CHUNK_BYTES = 256 << 10
# Requests and replies may be as large as the server's own limits allow.
CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1),
    # Refusals of a large model come as metadata (errors.py).
    ("grpc.max_metadata_size", 1 << 20), ("grpc.absolute_max_metadata_size", 2 << 20),
]
# Largest model that is sent inside the header; a larger one is sent in chunks.
_HEADER_BYTES = 32 << 20
_CHECKPOINTS = {"hf": "a folder", "gguf": "one file"}
Buckets = Mapping[str, Sequence[tuple[int, int]]]
Inputs = Mapping[str, object] | np.ndarray | np.generic | SupportsDLPack


@dataclasses.dataclass(frozen=True)
class Source:
    """A model in the form that is sent: its format, its bytes, and its tensors by hash or its files
    by name; for ONNX by the location that the model gives (``""`` is the model itself, if `graph`
    is empty).
    """

    format: str
    graph: bytes
    tensors: dict[bytes, bytes]
    files: dict[str, pathlib.Path | bytes] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Division:
    """The tensors of a model to send, and proofs that the client has the others.

    Attributes
    ----------
    sent : sequence of bytes
        By hash.
    nonce : bytes
        The server's nonce for the proofs.
    proofs : dict
        Proofs of the tensors that are not sent, by hash.
    """

    sent: Sequence[bytes] = ()
    nonce: bytes = b""
    proofs: Mapping[bytes, bytes] = dataclasses.field(default_factory=dict)


def divide(source: Source, missing: Sequence[bytes], nonce: bytes,
           proofs: Mapping[bytes, bytes]) -> Division:
    """Divides the tensors by the server's answer `missing`."""
    lacking = set(missing)
    return Division([key for key in source.tensors if key in lacking], nonce,
                    {key: proof for key, proof in proofs.items() if key not in lacking})


def tensor_proofs(source: Source, nonce: bytes) -> dict[bytes, bytes]:
    """Returns proofs of all tensors of a model, by hash."""
    return {key: possession_proof(nonce, key, data) for key, data in source.tensors.items()}


def proof_messages(proofs: Mapping[bytes, bytes]) -> list[model_pb2.TensorProof]:
    """Returns the proofs as messages."""
    return [model_pb2.TensorProof(hash=key, proof=proof) for key, proof in proofs.items()]


def read_source(source: object, format: str | None) -> Source:
    """Converts a `Graph`, a path or bytes to what is uploaded.

    A path that ends in ``.athanor`` is a bundle (`Graph.save`); bytes need `format`, ``"athanor"``
    for a serialised athanor.v1.Graph. ONNX is a path that ends in ``.onnx``, with the files of
    external data that lie beside it; bytes; or an ``onnx.ModelProto``. The checkpoint of a language
    model is a path that ends in ``.gguf``, or a folder with a ``config.json``.
    """
    if isinstance(source, Graph):
        message = source.proto()
        used = {node.content_hash for node in message.nodes if node.content_hash}
        tensors = {key: data for key, data in source.tensors.items() if key in used}
        return Source("athanor", message.SerializeToString(deterministic=True), tensors)
    if isinstance(source, str | os.PathLike):
        suffix = os.path.splitext(os.fspath(source))[1]
        if suffix == ".athanor" and format in (None, "athanor"):
            return Source("athanor", *bundle.load(source))
        checkpoint = "hf" if os.path.isdir(source) else "gguf"
        if format in _CHECKPOINTS and format != checkpoint:
            raise InvalidArgument(f"{os.fspath(source)}: a checkpoint of format {format!r} is "
                                  f"{_CHECKPOINTS[format]}")
        if format == checkpoint or (format is None and (checkpoint == "hf" or suffix == ".gguf")):
            return Source(checkpoint, b"", {}, dict(checkpoint_files(source)))
        if format is None and suffix != ".onnx":
            raise InvalidArgument(f"{os.fspath(source)}: unknown suffix {suffix!r}; it must be "
                                  '.athanor, .onnx or .gguf, or give format="onnx"')
        if format in (None, "onnx"):
            return _read_onnx(pathlib.Path(source))
        with open(source, "rb") as file:
            return Source(format, file.read(), {})
    if type(source).__module__.startswith("onnx.") and type(source).__name__ == "ModelProto":
        return _onnx_bytes(cast(Message, source).SerializeToString())
    if isinstance(source, bytes | bytearray | memoryview):
        if format is None:
            raise InvalidArgument('bytes need their format: format="onnx" or format="athanor"')
        if format in _CHECKPOINTS:
            raise InvalidArgument(f"bytes: a checkpoint of format {format!r} is "
                                  f"{_CHECKPOINTS[format]}; pass its path")
        return _onnx_bytes(bytes(source)) if format == "onnx" else Source(format, bytes(source), {})
    raise InvalidArgument(f"cannot upload an object of type {type(source).__name__}; pass a Graph, "
                          "a path, bytes or an onnx.ModelProto")


def _read_onnx(path: pathlib.Path) -> Source:
    files: dict[str, pathlib.Path | bytes] = {**onnx_files.external_files(path)}
    if path.stat().st_size == 0:
        raise InvalidArgument(f"{path}: the file is empty; it must be an onnx.ModelProto")
    if path.stat().st_size <= _HEADER_BYTES:
        return Source("onnx", path.read_bytes(), {}, files)
    return Source("onnx", b"", {}, {"": path, **files})


def _onnx_bytes(data: bytes) -> Source:
    if not data:
        raise InvalidArgument("the model has no bytes; they must be an onnx.ModelProto")
    if len(data) <= _HEADER_BYTES:
        return Source("onnx", data, {})
    return Source("onnx", b"", {}, {"": data})


def bucket_messages(buckets: Buckets | None) -> list[model_pb2.DimBuckets]:
    """Converts ``{"b": [(1, 1), (2, 64)]}`` to messages.

    Raises
    ------
    InvalidArgument
        If it is anything else.
    """
    for dim, ranges in (buckets or {}).items():
        if not isinstance(dim, str) or not isinstance(ranges, Sequence) or any(
                not isinstance(pair, Sequence) or len(pair) != 2 for pair in ranges):
            raise InvalidArgument(f"buckets={buckets!r}: it must be pairs (first, last) of sizes "
                                  'by dim, as in {"b": [(1, 1), (2, 64)]}')
    return [
        model_pb2.DimBuckets(dim=dim, ranges=[
            model_pb2.DimBuckets.Range(min=low, max=high) for low, high in ranges])
        for dim, ranges in (buckets or {}).items()
    ]


def rule_names(disable_rules: Sequence[str] | None) -> list[str]:
    """Returns names of rules or families.

    Raises
    ------
    InvalidArgument
        If it is a str, or holds anything but names.
    """
    if isinstance(disable_rules, str):
        raise InvalidArgument(f"disable_rules={disable_rules!r}: it must be a sequence of names, "
                              f"as in [{disable_rules!r}]")
    names = list(disable_rules or ())
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgument(f"disable_rules: {name!r} is a {type(name).__name__}; it must be "
                                  "the name of a rule or of a family")
    return names


def budget_text(budget: str | None) -> str:
    """Returns a search budget in the server's form.

    Raises
    ------
    InvalidArgument
        If it is not a str; the meaning of a number is not guessed.
    """
    if budget is not None and not isinstance(budget, str):
        raise InvalidArgument(f"budget={budget!r}: it must be a str such as \"30s\", \"200c\", "
                              "\"fast\", \"exhaust:5m\" or \"0\"")
    return budget or ""


def dim_name(batch_dim: str | None) -> str:
    """Returns the name of a dim.

    Raises
    ------
    InvalidArgument
        If it is not a str.
    """
    if batch_dim is not None and not isinstance(batch_dim, str):
        raise InvalidArgument(f"batch_dim={batch_dim!r}: it must be the name of a dim, a str")
    return batch_dim or ""


def device_name(device: str | None) -> str:
    """Returns the name of a device; empty for the server's first.

    Raises
    ------
    InvalidArgument
        If it is not a str.
    """
    if device is not None and not isinstance(device, str):
        raise InvalidArgument(f'device={device!r}: it must be the name of a device, as "cuda:0"')
    return device or ""


def upload_requests(source: Source, name: str, division: Division, buckets: Buckets | None,
                    budget: str | None, deterministic: bool = False,
                    disable_rules: Sequence[str] | None = None, approximate: bool = False,
                    batch_dim: str | None = None, given: Given | None = None,
                    dry_run: bool = False, device: str | None = None
                    ) -> Iterator[model_pb2.UploadModelRequest]:
    """Yields the header, the chunks of tensors or files to send, and the commit.

    Raises
    ------
    InvalidArgument
        Raised before gRPC iterates, where it would arrive as UNKNOWN.
    """
    given = given or Given()
    if source.format == "onnx" and buckets is not None and not buckets:
        buckets = full_range(given.dims)  # without buckets the server would choose some
    header = model_pb2.UploadHeader(
        name=name, format=source.format, graph=source.graph, dry_run=dry_run,
        graph_sha256=content_hash(source.graph) if source.graph else b"",
        search_budget=budget_text(budget),
        buckets=bucket_messages(buckets), deterministic=deterministic,
        disable_rules=rule_names(disable_rules), approximate=approximate,
        batch_dim=dim_name(batch_dim), device=device_name(device), nonce=division.nonce,
        proofs=proof_messages(division.proofs))
    given.write(header)
    for key in division.sent:
        header.tensors.add(hash=key, bytes=len(source.tensors[key]))
    for path, file in source.files.items():
        size = len(file) if isinstance(file, bytes) else file.stat().st_size
        header.files.add(path=path, bytes=size)
    return _upload_stream(header, {key: source.tensors[key] for key in division.sent},
                          list(source.files.values()))


def _pieces(file: pathlib.Path | bytes) -> Iterator[bytes]:
    if isinstance(file, bytes):
        yield from (file[at:at + CHUNK_BYTES] for at in range(0, len(file), CHUNK_BYTES))
        return
    with open(file, "rb") as opened:
        while piece := opened.read(CHUNK_BYTES):
            yield piece


def _upload_stream(header: model_pb2.UploadHeader, tensors: Mapping[bytes, bytes],
                   files: Sequence[pathlib.Path | bytes]
                   ) -> Iterator[model_pb2.UploadModelRequest]:
    yield model_pb2.UploadModelRequest(header=header)
    for number, file in enumerate(files):
        offset = 0
        for piece in _pieces(file):
            yield model_pb2.UploadModelRequest(file=model_pb2.FileChunk(
                file=number, offset=offset, data=piece))
            offset += len(piece)
    for key, data in tensors.items():
        for offset in range(0, len(data), CHUNK_BYTES):
            yield model_pb2.UploadModelRequest(chunk=model_pb2.TensorChunk(
                hash=key, offset=offset, data=data[offset:offset + CHUNK_BYTES]))
    yield model_pb2.UploadModelRequest(commit=model_pb2.UploadCommit())


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


def start_compile(name: str, version: str, buckets: Buckets | None, budget: str | None,
                  disable_rules: Sequence[str] | None, approximate: bool, seed: int,
                  use: str | None) -> compile_pb2.StartCompileRequest:
    """Makes the request.

    Raises
    ------
    InvalidArgument
        If the request cannot hold `use`, `budget`, `seed` or `disable_rules`.
    """
    uses = {None: 0, "serve": 1, "keep": 2, "compare": 3}
    if use not in uses:
        raise InvalidArgument(f'use={use!r}: it must be "serve", "keep" or "compare"')
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise InvalidArgument(f"seed={seed!r}: it must be an int in [0, 2**64); 0 is the server's")
    return compile_pb2.StartCompileRequest(
        model=name, version=version, search_budget=budget_text(budget),
        buckets=bucket_messages(buckets), disable_rules=rule_names(disable_rules),
        approximate=approximate, search_seed=seed, use=uses[use])


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
    if isinstance(taps, str):
        raise InvalidArgument(f"taps={taps!r}: it must be a sequence of names, as in [{taps!r}]")
    taps = list(taps or ())
    for tap in taps:
        if not isinstance(tap, str):
            raise InvalidArgument(f"taps: {tap!r} is a {type(tap).__name__}; it must be the name "
                                  "of a node (Value.name)")
    names = [name.replace("\\", "\\\\").replace(",", "\\,") for name in taps]
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


_KINDS = {int: "an int", str: "a str"}


def infer_request(model: str, version: str, expected: Sequence[Tensor],
                  inputs: Inputs, outputs: Sequence[str] | None,
                  parameters: Mapping[str, str | int | None]) -> oip.ModelInferRequest:
    """Makes a request with raw contents."""
    request = oip.ModelInferRequest(model_name=model, model_version=version)
    dtypes = {tensor.name: dtype_of(tensor.dtype) for tensor in expected}
    for name, array in check_inputs(model, expected, inputs).items():
        request.inputs.add(name=name, datatype=dtypes[name].datatype, shape=array.shape)
        request.raw_input_contents.append(array_bytes(array))
    if isinstance(outputs, str):
        raise InvalidArgument(f"outputs={outputs!r}: it must be a sequence of names, as in "
                              f"[{outputs!r}]")
    for name in outputs or ():
        request.outputs.add(name=name)
    for key, value in parameters.items():
        kind = int if key == "priority" else str
        if value is None:
            continue
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InvalidArgument(f"{key}={value!r}: it must be {_KINDS[kind]}")
        setattr(request.parameters[key], "int64_param" if kind is int else "string_param", value)
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
