"""What both clients share: requests built and replies read, without any call."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from athanor import bundle
from athanor._proto.proto.athanor.v1 import compile_pb2, model_pb2, search_pb2
from athanor._proto.proto.inference import open_inference_grpc_pb2 as oip
from athanor.core import content_hash
from athanor.dtypes import BY_DATATYPE, array_bytes, dtype_of, host_array
from athanor.errors import Error, InvalidArgument, from_number
from athanor.graph import Graph

CHUNK_BYTES = 1 << 20
# Requests and replies may be as large as the server's own limits allow.
CHANNEL_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
Buckets = Mapping[str, Sequence[tuple[int, int]]]


@dataclasses.dataclass(frozen=True)
class Source:
    """A model as it travels: its format, its bytes, and its tensors by hash."""

    format: str
    graph: bytes
    tensors: dict[bytes, bytes]


def read_source(source: object, format: str | None) -> Source:
    """A `Graph`, a path or bytes as what is uploaded.

    A path that ends in ``.athanor`` is a bundle (`Graph.save`); bytes need `format`, ``"athanor"``
    for a serialised athanor.v1.Graph. ONNX (``.onnx``, ``"onnx"``) is sent as it is, and refused by
    servers that do not read it: none does yet.
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
        if format is None and suffix != ".onnx":
            raise InvalidArgument(f"{os.fspath(source)}: unknown suffix {suffix!r}; it must be "
                                  '.athanor or .onnx, or give format="onnx"')
        with open(source, "rb") as file:
            return Source(format or "onnx", file.read(), {})
    if isinstance(source, bytes | bytearray | memoryview):
        if format is None:
            raise InvalidArgument('bytes need their format: format="onnx" or format="athanor"')
        return Source(format, bytes(source), {})
    raise InvalidArgument(f"cannot upload a {type(source).__name__}; pass a Graph, a path or bytes")


def bucket_messages(buckets: Buckets | None) -> list[model_pb2.DimBuckets]:
    """``{"b": [(1, 1), (2, 64)]}`` as messages."""
    return [
        model_pb2.DimBuckets(dim=dim, ranges=[
            model_pb2.DimBuckets.Range(min=low, max=high) for low, high in ranges])
        for dim, ranges in (buckets or {}).items()
    ]


def rule_names(disable_rules: Sequence[str] | None) -> list[str]:
    """Names of rules or families.

    Raises
    ------
    InvalidArgument
        If it is one str, or holds something else than names.
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
    """A search budget as the server reads it.

    Raises
    ------
    InvalidArgument
        If it is no str: what number would mean is not guessed.
    """
    if budget is not None and not isinstance(budget, str):
        raise InvalidArgument(f"budget={budget!r}: it must be a str such as \"30s\", \"200c\", "
                              "\"fast\", \"exhaust:5m\" or \"0\"")
    return budget or ""


def upload_requests(source: Source, name: str, missing: Sequence[bytes], buckets: Buckets | None,
                    budget: str | None, deterministic: bool = False,
                    disable_rules: Sequence[str] | None = None,
                    approximate: bool = False) -> Iterator[model_pb2.UploadModelRequest]:
    """Header, chunks of the tensors that the server lacks, commit."""
    header = model_pb2.UploadHeader(
        name=name, format=source.format, graph=source.graph,
        graph_sha256=content_hash(source.graph), search_budget=budget_text(budget),
        buckets=bucket_messages(buckets), deterministic=deterministic,
        disable_rules=rule_names(disable_rules), approximate=approximate)
    for key in missing:
        header.tensors.add(hash=key, bytes=len(source.tensors[key]))
    yield model_pb2.UploadModelRequest(header=header)
    for key in missing:
        data = source.tensors[key]
        for offset in range(0, len(data), CHUNK_BYTES):
            yield model_pb2.UploadModelRequest(chunk=model_pb2.TensorChunk(
                hash=key, offset=offset, data=data[offset:offset + CHUNK_BYTES]))
    yield model_pb2.UploadModelRequest(commit=model_pb2.UploadCommit())


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input or output of a model; a shape holds texts such as ``"b"`` or ``"64"``."""

    name: str
    dtype: str
    shape: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(self.shape)}]"


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """One version of a model as the server knows it."""

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


def _tensors(messages: Sequence[model_pb2.ModelTensor]) -> tuple[Tensor, ...]:
    return tuple(Tensor(m.name, m.dtype, tuple(m.shape)) for m in messages)


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
        deterministic=m.deterministic)


@dataclasses.dataclass(frozen=True)
class SearchTask:
    """One kernel of the best plan that a search knows of.

    Attributes
    ----------
    about : str
        What it computes: ``"Mul over Contract"``.
    calls : int
        How often one run of the plan calls it.
    schedule : str
        The fastest found; empty until one was measured.
    measured, failed : int
        Schedules of it that were measured, and how many of them were put aside.
    seconds, first_seconds, roofline_seconds : tuple of float
        Of one call at each of `SearchProgress.sizes`: with `schedule`, with the schedule it started
        with, and the least that the machine's limits allow. Empty while not known.
    """

    about: str
    calls: int
    schedule: str
    measured: int
    failed: int
    seconds: tuple[float, ...]
    first_seconds: tuple[float, ...]
    roofline_seconds: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class SearchFailure:
    """A candidate that was put aside: which kernel, and the error it met."""

    kernel: str  # hash of its source
    about: str
    error: Error


@dataclasses.dataclass(frozen=True)
class SearchRegion:
    """What the rules made of one distinct region of the graph.

    Attributes
    ----------
    instances, nodes : int
        Places of the graph that it stands for, and nodes of the graph in one of them.
    e_nodes, e_classes, iterations, peak_bytes : int
        Of its e-graph.
    milliseconds : float
        How long it was grown.
    stop : str
        Why that ended: ``"saturated"``, or the limit met.
    fired : dict of str to int
        How often each rule was applied.
    """

    instances: int
    nodes: int
    e_nodes: int
    e_classes: int
    iterations: int
    milliseconds: float
    peak_bytes: int
    stop: str
    fired: dict[str, int]


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """What a compile job searches with.

    Attributes
    ----------
    budget : str
        As `Client.upload` takes it.
    seed : int
        Of the search's random choices.
    disabled_rules : tuple of str
        Rules or families that are not used.
    approximate : bool
        Whether rules may be used that change results beyond rounding.
    use : {"SERVE", "KEEP", "COMPARE"}
        What becomes of a faster plan: swapped in; kept, to be pinned; timed beside what serves and
        dropped.
    """

    budget: str
    seed: int
    disabled_rules: tuple[str, ...]
    approximate: bool
    use: str


@dataclasses.dataclass(frozen=True)
class PlanComparison:
    """Two plans timed whole and in turn, as a geometric mean over the search's sizes.

    Attributes
    ----------
    plan_id, against : str
        What the search came to, and what served.
    ratio, low, high : float
        Time of the first by that of the second, and the same by the quartiles of both.
    """

    plan_id: str
    against: str
    ratio: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class SearchProgress:
    """How far the search for a faster plan has come, and what it found.

    Attributes
    ----------
    candidates, candidates_failed : int
        Kernels measured, failed ones included; those that did not lower, compile, check or run.
    genomes_tried, genomes_taken : int
        Changes of what is fused: looked at, and better than the one before.
    plans_measured, plans_taken : int
        Whole plans measured, and those that were faster and came to serve or are kept.
    best : float
        Of the best plan, measured whole: its time as a share of the baseline's.
    predicted : float
        The same of the best genome, as the sum of its kernels.
    roofline : float
        The least share that the machine's limits allow.
    seconds : float
        Used of the search's budget.
    sizes : tuple of str
        What everything is measured at: ``("b=1 s=64", "b=8 s=64")``.
    tasks : tuple of SearchTask
        Kernels of the best genome, longest first.
    failures : tuple of SearchFailure
        The last few, newest first.
    regions : tuple of SearchRegion
        Distinct regions of the graph, as the rules saturated them.
    forms_tried, forms_taken : int
        Graphs that the rules made: compared by their kernels, and better.
    rules : tuple of str
        That led from the baseline's graph to that of the best genome.
    mode : str
        ``"SEARCH_FAST"``, ``"SEARCH_BUDGET"`` or ``"SEARCH_EXHAUST"``.
    forms_error : str
        Why the rules made no other graphs, where that is an error.
    """

    candidates: int
    candidates_failed: int
    genomes_tried: int
    genomes_taken: int
    plans_measured: int
    plans_taken: int
    best: float
    predicted: float
    roofline: float
    seconds: float
    sizes: tuple[str, ...]
    tasks: tuple[SearchTask, ...]
    failures: tuple[SearchFailure, ...]
    regions: tuple[SearchRegion, ...] = ()
    forms_tried: int = 0
    forms_taken: int = 0
    rules: tuple[str, ...] = ()
    mode: str = "SEARCH_BUDGET"
    forms_error: str = ""

    def __str__(self) -> str:
        return (f"{self.seconds:.1f} s, {self.candidates} candidates ({self.candidates_failed} "
                f"failed), {self.plans_taken} of {self.plans_measured} plans taken, "
                f"{100 * self.best:.1f} % of the baseline's time")


def search_progress(m: search_pb2.SearchProgress) -> SearchProgress:
    """The message as a plain value."""
    tasks = tuple(
        SearchTask(about=t.about, calls=t.calls, schedule=t.schedule, measured=t.measured,
                   failed=t.failed, seconds=tuple(t.seconds),
                   first_seconds=tuple(t.first_seconds),
                   roofline_seconds=tuple(t.roofline_seconds))
        for t in m.tasks)
    failures = tuple(SearchFailure(f.kernel, f.about, from_number(f.code, f.message))
                     for f in m.failures)
    return SearchProgress(
        candidates=m.candidates, candidates_failed=m.candidates_failed,
        genomes_tried=m.genomes_tried, genomes_taken=m.genomes_taken,
        plans_measured=m.plans_measured, plans_taken=m.plans_taken, best=m.best,
        predicted=m.predicted, roofline=m.roofline, seconds=m.seconds, sizes=tuple(m.sizes),
        tasks=tasks, failures=failures,
        regions=tuple(_region(r) for r in m.regions), forms_tried=m.forms_tried,
        forms_taken=m.forms_taken, rules=tuple(m.rules), mode=search_pb2.SearchMode.Name(m.mode),
        forms_error=m.forms_error)


def _region(m: search_pb2.SearchRegion) -> SearchRegion:
    return SearchRegion(
        instances=m.instances, nodes=m.nodes, e_nodes=m.e_nodes, e_classes=m.e_classes,
        iterations=m.iterations, milliseconds=m.milliseconds, peak_bytes=m.peak_bytes, stop=m.stop,
        fired={f.rule: f.applied for f in m.fired})


def _search_options(m: search_pb2.SearchOptions) -> SearchOptions:
    return SearchOptions(budget=m.budget, seed=m.seed, disabled_rules=tuple(m.disabled_rules),
                         approximate=m.approximate, use=search_pb2.SearchOptions.Use.Name(m.use))


def start_compile(name: str, version: str, buckets: Buckets | None, budget: str | None,
                  disable_rules: Sequence[str] | None, approximate: bool, seed: int,
                  use: str | None) -> compile_pb2.StartCompileRequest:
    """The request.

    Raises
    ------
    InvalidArgument
        If `use`, `budget`, `seed` or `disable_rules` cannot be said in it.
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


@dataclasses.dataclass(frozen=True)
class CompileJob:
    """How far a compile job is; as text, one line.

    `stop_reason` says why it ended: of a search one of ``"STOP_ROOFLINE"`` (near what the machine
    allows), ``"STOP_STAGNATION"`` (nothing left promises a gain), ``"STOP_EXHAUSTED"`` (everything
    was measured), ``"STOP_BUDGET"`` and ``"STOP_SEARCH_FAILED"``; after each of them the job is
    DONE and the best plan serves.
    """

    id: str
    model: str
    version: str
    phase: str  # "QUEUED", ..., "SEARCHING", and at last "DONE", "FAILED" or "CANCELLED"
    kernels_total: int
    kernels_done: int
    kernels_from_cache: int
    percent: float
    message: str
    stop_reason: str
    error: Error | None
    taps: tuple[str, ...] = ()  # inner values that its plan returns too; none: the plan that serves
    search: SearchProgress | None = None  # None before SEARCHING, and where nothing is searched
    search_options: SearchOptions | None = None  # None of plans with taps
    comparison: PlanComparison | None = None  # at the end, where a search's plan does not serve

    @property
    def finished(self) -> bool:
        """Whether it has stopped, in whatever way."""
        return self.phase in ("DONE", "FAILED", "CANCELLED")

    def __str__(self) -> str:
        text = f"job {self.id} {self.model}/{self.version}: {self.phase}, {self.percent:.0f} %"
        if self.search is not None:
            return f"{text}, {self.search}{f', {self.stop_reason}' if self.finished else ''}"
        return f"{text}, {self.error or self.message}"


def compile_job(m: compile_pb2.CompileJob) -> CompileJob:
    """The message as a plain value."""
    kind = compile_pb2.CompileJob
    return CompileJob(
        id=m.id, model=m.model, version=m.version, phase=kind.Phase.Name(m.phase),
        kernels_total=m.kernels_total, kernels_done=m.kernels_done,
        kernels_from_cache=m.kernels_from_cache, percent=m.percent, message=m.message,
        stop_reason=kind.StopReason.Name(m.stop_reason),
        error=from_number(m.error_code, m.error) if m.phase == kind.FAILED else None,
        taps=tuple(m.taps),
        search=search_progress(m.search) if m.HasField("search") else None,
        search_options=_search_options(m.search_options) if m.HasField("search_options") else None,
        comparison=PlanComparison(m.comparison.plan_id, m.comparison.against, m.comparison.ratio,
                                  m.comparison.low, m.comparison.high)
        if m.HasField("comparison") else None)


class InferResult(dict):
    """Outputs, then taps, by name, each an array of the caller's own; and what the reply says about
    the call.

    Attributes
    ----------
    plan_id, bucket, compile_state : str
        The plan that served.
    queue_us, exec_us : int
        Microseconds waiting and executing.
    """

    plan_id: str = ""
    bucket: str = ""
    compile_state: str = ""
    queue_us: int = 0
    exec_us: int = 0


def tap_names(taps: Sequence[str] | None) -> str | None:
    """Request parameter ``taps``: names between commas; commas inside names get a backslash.

    Raises
    ------
    InvalidArgument
        If `taps` is one str, or holds something else than names.
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
                 inputs: Mapping[str, object]) -> dict[str, np.ndarray]:
    """The arrays to send; names and dtypes must be the model's.

    Raises
    ------
    InvalidArgument
        Naming the input, both dtypes and the cast that would fix it. Nothing is converted.
    """
    names = [tensor.name for tensor in expected]
    wanted = ", ".join(map(str, expected)) or "no inputs"
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
        if array.dtype != row.numpy:
            raise InvalidArgument(f"{what} has dtype {array.dtype}, the model takes {row.name} "
                                  f"(numpy's {row.numpy.name}): pass the array{row.cast}")
        arrays[tensor.name] = array
    return arrays


_KINDS = {int: "an int", str: "a str"}


def infer_request(model: str, version: str, expected: Sequence[Tensor],
                  inputs: Mapping[str, object], outputs: Sequence[str] | None,
                  parameters: Mapping[str, str | int | None]) -> oip.ModelInferRequest:
    """A request with raw contents."""
    request = oip.ModelInferRequest(model_name=model, model_version=version)
    dtypes = {tensor.name: dtype_of(tensor.dtype) for tensor in expected}
    for name, array in check_inputs(model, expected, inputs).items():
        request.inputs.add(name=name, datatype=dtypes[name].datatype, shape=array.shape)
        request.raw_input_contents.append(array_bytes(array))
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
    """Writable arrays of their own, and the reply's parameters."""
    result = InferResult()
    for tensor, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        row = BY_DATATYPE[tensor.datatype]
        # frombuffer refuses zero bytes.
        flat = np.frombuffer(bytearray(raw), row.numpy) if raw else np.empty(0, row.numpy)
        result[tensor.name] = flat.reshape(tuple(tensor.shape))
    for key, value in response.parameters.items():
        if hasattr(InferResult, key):
            setattr(result, key, getattr(value, value.WhichOneof("parameter_choice")))
    return result
