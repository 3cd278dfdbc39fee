"""Defines each RPC in one place: its request, and the conversion of its reply.

`Client` and `AsyncClient` differ only in how they run a `Call`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import numbers
import operator
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import grpc

from athanor import cache, generation, jobs, prompts, uploads, wire
from athanor.checks import INT32, checked_int, checked_text
from athanor.errors import (
    REFUSALS_ASKED,
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    from_rpc,
)
from athanor.given import Buckets, Given
from athanor.jobs import CompileJob, compile_job
from athanor.protos import Stub, cache_pb2, compile_pb2, generate_pb2, model_pb2
from athanor.protos import open_inference_grpc_pb2 as oip
from athanor.tracing import current_metadata

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Call(Generic[Result]):
    """An RPC that is not sent yet.

    Attributes
    ----------
    method : str
        Stub of `Stubs` and its method: ``"models.GetModel"``.
    request : message, or iterator of messages
        The request to send.
    read : callable
        Converts the reply, or each reply of a stream, to what the caller gets.
    metadata : tuple
        Metadata sent with the request.
    """

    method: str
    request: Any
    read: Callable[[Any], Result]
    metadata: tuple[tuple[str, str], ...] = ()


class Stubs:
    """The services behind a channel, blocking or asyncio."""

    def __init__(self, channel: grpc.Channel | grpc.aio.Channel,
                 metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._metadata = metadata  # of every call
        self._process = os.getpid()
        self.closed = False
        self.models = Stub(channel, model_pb2, "ModelService")
        self.compile = Stub(channel, compile_pb2, "CompileService")
        self.cache = Stub(channel, cache_pb2, "CacheService")
        self.generate = Stub(channel, generate_pb2, "GenerateService")
        self.inference = Stub(channel, oip, "GRPCInferenceService")

    def send(self, call: Call[Any], timeout: float | None = None) -> Any:
        """Sends the call: returns the reply, or an object to await or iterate.

        Raises
        ------
        FailedPrecondition
            If the client is closed; and in a process that was forked since: threads of gRPC do not
            survive that, and the call would hang.
        InvalidArgument
            If `timeout` is no number of seconds.
        """
        _check_timeout(timeout)
        if self.closed:
            raise FailedPrecondition("the client is closed; make another, or call it inside its "
                                     "`with` block")
        if os.getpid() != self._process:
            raise FailedPrecondition(
                "this client was connected before the process was forked, and connections do not "
                'survive that; start processes with multiprocessing.get_context("spawn") and send '
                "them the client or model, which pickle, or fork before the first client is made")
        metadata = call.metadata + self._metadata + current_metadata()
        return operator.attrgetter(call.method)(self)(call.request, timeout=timeout,
                                                      metadata=metadata)


@contextlib.contextmanager
def translated(address: str = "", timeout: float | None = None) -> Iterator[None]:
    """Converts errors of gRPC to errors of this package, which name where and how long it was
    called."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc(error, address, timeout) from None


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(
            timeout, numbers.Real) or not 0 <= timeout < math.inf):
        raise InvalidArgument(f"timeout={timeout!r}: it must be a number of seconds, 0 or more")


def _texts(**given: object) -> None:
    """Refuses arguments that are no text, which protobuf would not name."""
    for name, value in given.items():
        checked_text(name, value)


def ready() -> Call[bool]:
    return Call("inference.ServerReady", oip.ServerReadyRequest(), operator.attrgetter("ready"))


def missing_tensors(source: uploads.Source, nonce: bytes = b"",
                    proofs: Mapping[bytes, bytes] | None = None
                    ) -> Call[tuple[list[bytes], bytes]]:
    """Returns the tensors of a model that must be sent: those that the server lacks, or that
    `proofs` do not prove. Without `nonce`, also returns one to make proofs with.
    """
    return Call("models.MissingTensors",
                model_pb2.MissingTensorsRequest(hashes=list(source.tensors), nonce=nonce,
                                                proofs=uploads.proof_messages(proofs or {})),
                lambda reply: (list(reply.hashes), reply.nonce))


def send_model(source: uploads.Source, make: Callable[[uploads.Division], Call[Result]]
               ) -> Generator[Call[Any], Any, Result]:
    """Yields the calls that send a model; each receives what the one before returned or raised.

    Parameters
    ----------
    make : callable
        Makes `upload` or `check` from a division.
    """
    if not source.tensors:
        alone: Result = yield make(uploads.Division())
        return alone
    missing, nonce = yield missing_tensors(source)
    proofs = {}
    if nonce:  # an empty nonce means that the server wants no proofs
        proofs = uploads.tensor_proofs(source, nonce)
        missing, _ = yield missing_tensors(source, nonce, proofs)
    division = uploads.divide(source, missing, nonce, proofs)
    try:
        result: Result = yield make(division)
        return result
    except FailedPrecondition:
        # A tensor accepted as proved may have gone since; after a restart the nonce has.
        if not division.proofs:
            raise
    again: Result = yield make(uploads.Division(list(source.tensors)))
    return again


def upload(source: uploads.Source, name: str, division: uploads.Division, buckets: Buckets | None,
           budget: str | None, deterministic: bool, disable_rules: Sequence[str] | None,
           approximate: bool, batch_dim: str | None, given: Given | None = None,
           device: str | None = None) -> Call[tuple[str, str]]:
    """Returns name and version of the stored model."""
    _texts(name=name)
    return Call("models.UploadModel",
                uploads.requests(source, name, division, buckets, budget, deterministic,
                                 disable_rules, approximate, batch_dim, given, device=device),
                _name_and_version, (REFUSALS_ASKED,))


def check(source: uploads.Source, division: uploads.Division, buckets: Buckets | None,
          batch_dim: str | None, given: Given) -> Call[wire.ModelInfo]:
    """Returns the model's interface; the server keeps nothing."""
    return Call("models.UploadModel",
                uploads.requests(source, "check", division, buckets, None, batch_dim=batch_dim,
                                 given=given, dry_run=True),
                lambda reply: wire.model_info(reply.model), (REFUSALS_ASKED,))


def get_model(name: str, version: str) -> Call[wire.ModelInfo]:
    return Call("models.GetModel", model_pb2.GetModelRequest(name=name, version=version),
                wire.model_info)


def list_models(name: str) -> Call[list[wire.ModelInfo]]:
    _texts(name=name)
    return Call("models.ListModels", model_pb2.ListModelsRequest(name=name),
                lambda reply: [wire.model_info(message) for message in reply.models])


def list_devices() -> Call[list[wire.Device]]:
    return Call("models.ListDevices", model_pb2.ListDevicesRequest(),
                lambda reply: [wire.device(message) for message in reply.devices])


def delete_model(name: str, version: str) -> Call[list[str]]:
    """Returns the deleted versions."""
    _texts(name=name, version=version)
    return Call("models.DeleteModel", model_pb2.DeleteModelRequest(name=name, version=version),
                lambda reply: list(reply.versions))


def rollback(name: str, version: str) -> Call[tuple[str, str]]:
    """Returns name and version of the model that serves now."""
    _texts(name=name, version=version)
    return Call("models.Rollback", model_pb2.RollbackRequest(name=name, version=version),
                _name_and_version)


def get_egraph(name: str, version: str, region: int) -> Call[str]:
    """Returns the e-graph in Graphviz's DOT language."""
    return Call("models.GetEGraph",
                model_pb2.GetEGraphRequest(name=name, version=version,
                                           region=checked_int("region", region, INT32)),
                lambda reply: reply.dot)


def pin_plan(name: str, version: str, plan_id: str) -> Call[wire.ModelInfo]:
    _texts(plan_id=plan_id)
    return Call("models.PinPlan",
                model_pb2.PinPlanRequest(name=name, version=version, plan_id=plan_id),
                wire.model_info)


def start_compile(name: str, version: str, buckets: Buckets | None, budget: str | None,
                  disable_rules: Sequence[str] | None, approximate: bool, seed: int,
                  use: str | None) -> Call[CompileJob]:
    _texts(name=name, version=version)
    return Call("compile.StartCompile",
                jobs.start_compile(name, version, buckets, budget, disable_rules, approximate,
                                   seed, use), compile_job)


def list_jobs(name: str, only_unfinished: bool) -> Call[list[CompileJob]]:
    _texts(name=name)
    return Call("compile.ListCompileJobs",
                compile_pb2.ListCompileJobsRequest(model=name, only_unfinished=only_unfinished),
                lambda reply: [compile_job(job) for job in reply.jobs])


def get_job(job_id: str) -> Call[CompileJob]:
    _texts(job_id=job_id)
    return Call("compile.GetCompileJob", compile_pb2.GetCompileJobRequest(id=job_id), compile_job)


def cancel_job(job_id: str) -> Call[CompileJob]:
    _texts(job_id=job_id)
    return Call("compile.CancelCompileJob", compile_pb2.CancelCompileJobRequest(id=job_id),
                compile_job)


def watch_job(job_id: str) -> Call[CompileJob]:
    """A stream."""
    _texts(job_id=job_id)
    return Call("compile.WatchCompileJob", compile_pb2.WatchCompileJobRequest(id=job_id),
                compile_job)


def cache_stat() -> Call[cache.CacheStat]:
    return Call("cache.Stat", cache_pb2.CacheStatRequest(), cache.cache_stat)


def cache_explain(name: str, version: str,
                  bucket: cache.Ranges | None) -> Call[list[cache.CacheExplanation]]:
    """By bucket."""
    _texts(name=name, version=version)
    return Call("cache.Explain",
                cache_pb2.ExplainCacheRequest(model=name, version=version,
                                              bucket=cache.dim_ranges(bucket)),
                cache.cache_explanations)


def cache_verify(quarantine: bool) -> Call[cache.CacheVerification]:
    return Call("cache.Verify", cache_pb2.VerifyCacheRequest(quarantine=quarantine),
                cache.cache_verification)


def cache_collect_garbage(limit_bytes: int, failures: bool, quarantine: bool,
                          dry_run: bool) -> Call[cache.CacheGarbage]:
    return Call("cache.CollectGarbage",
                cache_pb2.CollectGarbageRequest(
                    limit_bytes=checked_int("limit_bytes", limit_bytes), failures=failures,
                    quarantine=quarantine, dry_run=dry_run),
                cache.cache_garbage)


def cache_export(name: str, version: str, binaries: bool) -> Call[cache_pb2.CacheBundleChunk]:
    """Returns a stream of the bundle's chunks."""
    _texts(name=name, version=version)
    return Call("cache.Export",
                cache_pb2.ExportCacheRequest(model=name, version=version, binaries=binaries),
                lambda chunk: chunk)


def cache_import(chunks: Iterable[cache_pb2.CacheBundleChunk]) -> Call[cache.CacheImport]:
    return Call("cache.Import", iter(chunks), cache.cache_import)


def infer(name: str, version: str, expected: Sequence[wire.Tensor], inputs: wire.Inputs,
          outputs: Sequence[str] | None, wait: str | None, taps: Sequence[str] | None,
          priority: int | None) -> Call[wire.InferResult]:
    parameters = {"wait": wait, "taps": wire.tap_names(taps), "priority": priority}
    return Call("inference.ModelInfer",
                wire.infer_request(name, version, expected, inputs, outputs, parameters),
                wire.infer_result)


def generate(name: str, version: str, prompt: str | Sequence[int], add_special: bool,
             options: generation.GenerateOptions) -> Call[generation.Received]:
    """A stream."""
    return Call("generate.Generate",
                prompts.generate_request(name, version, prompt, options, add_special),
                generation.received)


def chat(name: str, version: str, messages: generation.Messages,
         variables: Mapping[str, object] | None, continue_last: bool,
         options: generation.GenerateOptions) -> Call[generation.Received]:
    """A stream."""
    prompt = prompts.chat_message(messages, variables, continue_last)
    return Call("generate.Generate",
                prompts.generate_request(name, version, prompt, options), generation.received)


def tokenize(name: str, version: str, text: str, add_begin: bool,
             add_special: bool) -> Call[generation.Tokenized]:
    request = generate_pb2.TokenizeRequest(
        model=name, version=version, text=checked_text("text", text),
        add_begin=add_begin, add_special=add_special)
    return Call("generate.Tokenize", request,
                lambda reply: generation.Tokenized(tuple(reply.ids), tuple(reply.texts)))


def detokenize(name: str, version: str, ids: Sequence[int], special_in_text: bool) -> Call[str]:
    request = generate_pb2.DetokenizeRequest(
        model=name, version=version, ids=prompts.token_ids("ids", ids),
        special_in_text=special_in_text)
    return Call("generate.Detokenize", request, operator.attrgetter("text"))


def render_chat(name: str, version: str, messages: generation.Messages,
                variables: Mapping[str, object] | None,
                continue_last: bool) -> Call[generation.RenderedChat]:
    request = generate_pb2.RenderChatRequest(
        model=name, version=version,
        chat=prompts.chat_message(messages, variables, continue_last))
    return Call("generate.RenderChat", request,
                lambda reply: generation.RenderedChat(reply.text, tuple(reply.ids)))


def get_engine(name: str, version: str) -> Call[generation.EngineStatus]:
    return Call("generate.GetEngine", generate_pb2.GetEngineRequest(model=name, version=version),
                generation.engine_status)


def check_wait(until: str, timeout: float | None) -> None:
    """Raises InvalidArgument unless a client can wait for `until`, and so long."""
    _check_timeout(timeout)
    if until not in ("baseline", "optimised"):
        raise InvalidArgument(f'wait({until!r}): it must be "baseline" or "optimised"')


def not_ready(name: str, timeout: float | None) -> DeadlineExceeded:
    """Makes the error of a wait that took too long."""
    return DeadlineExceeded(f"model {name!r}: not ready after {timeout:g} s")


def check_finished(info: wire.ModelInfo, job: CompileJob | None) -> None:
    """Raises the error that a model and the final state of its job mean for a waiting client;
    returns if the model is ready.
    """
    if info.state == "READY" and (job is None or job.phase == "DONE"):
        return
    what = f"model {info.name!r} version {info.version}"
    if job is not None and job.error is not None:
        raise job.error
    if job is not None and job.phase == "CANCELLED":
        raise Cancelled(f"{what}: compile job {job.id} was cancelled ({job.stop_reason})")
    if job is not None and not job.finished:
        raise DeadlineExceeded(f"{what}: the watch ended in phase {job.phase}")
    raise FailedPrecondition(f"{what} is {info.state}: {info.error or 'no plan serves'}")


def _name_and_version(message: model_pb2.Model | model_pb2.UploadModelResponse) -> tuple[str, str]:
    return message.name, message.version
