"""The client for asyncio; the same calls as `athanor.client`, awaited."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import grpc

from athanor import wire
from athanor._proto.proto.athanor.v1 import (
    compile_pb2,
    compile_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
)
from athanor._proto.proto.inference import open_inference_grpc_pb2 as oip
from athanor._proto.proto.inference import open_inference_grpc_pb2_grpc as oip_grpc
from athanor.errors import (
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    from_rpc,
)
from athanor.wire import CompileJob, InferResult, ModelInfo


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc(error) from None


class AsyncClient:
    """A connection to a server for one event loop; see `athanor.Client` for the calls.

    Examples
    --------
    >>> async with athanor.AsyncClient("127.0.0.1:50051") as client:
    ...     model = await client.upload(graph, name="linear")
    ...     y = (await model.infer({"x": x}))["y"]
    """

    def __init__(self, address: str, *, root_certificates: bytes | None = None) -> None:
        self.address = address
        if root_certificates is None:
            self._channel = grpc.aio.insecure_channel(address, wire.CHANNEL_OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(root_certificates or None)
            self._channel = grpc.aio.secure_channel(address, credentials, wire.CHANNEL_OPTIONS)
        self._models = model_pb2_grpc.ModelServiceStub(self._channel)
        self._compile = compile_pb2_grpc.CompileServiceStub(self._channel)
        self._inference = oip_grpc.GRPCInferenceServiceStub(self._channel)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close()

    async def ready(self, timeout: float | None = None) -> bool:
        """Whether the server takes requests."""
        with _translated():
            reply = await self._inference.ServerReady(oip.ServerReadyRequest(), timeout=timeout)
        return reply.ready

    async def upload(self, source: object, name: str, format: str | None = None,
                     buckets: wire.Buckets | None = None, budget: str | None = None,
                     timeout: float | None = None, *, deterministic: bool = False,
                     disable_rules: Sequence[str] | None = None,
                     approximate: bool = False) -> AsyncModel:
        """Stores a model and starts compiling it; see `athanor.Client.upload`."""
        with _translated():
            read = wire.read_source(source, format)
            hashes = list(read.tensors)
            missing: list[bytes] = []
            if hashes:
                reply = await self._models.MissingTensors(
                    model_pb2.MissingTensorsRequest(hashes=hashes), timeout=timeout)
                missing = list(reply.hashes)
            requests = wire.upload_requests(read, name, missing, buckets, budget, deterministic,
                                            disable_rules, approximate)
            reply = await self._models.UploadModel(requests, timeout=timeout)
        return AsyncModel(self, reply.name, reply.version)

    async def model(self, name: str, version: str = "") -> AsyncModel:
        """A stored model; without `version` whichever serves."""
        model = AsyncModel(self, name, version)
        await model.info()
        return model

    async def models(self, name: str = "") -> list[ModelInfo]:
        """All versions of all models, or of one."""
        with _translated():
            reply = await self._models.ListModels(model_pb2.ListModelsRequest(name=name))
        return [wire.model_info(message) for message in reply.models]

    async def delete(self, name: str, version: str = "") -> list[str]:
        """Deletes a model, or one version."""
        with _translated():
            request = model_pb2.DeleteModelRequest(name=name, version=version)
            return list((await self._models.DeleteModel(request)).versions)

    async def rollback(self, name: str, version: str = "") -> AsyncModel:
        """Makes an earlier version serve."""
        with _translated():
            reply = await self._models.Rollback(
                model_pb2.RollbackRequest(name=name, version=version))
        return AsyncModel(self, reply.name, reply.version)

    async def compile(self, name: str, version: str = "", buckets: wire.Buckets | None = None,
                      budget: str | None = None, *, disable_rules: Sequence[str] | None = None,
                approximate: bool = False, seed: int = 0, use: str | None = None) -> CompileJob:
        """Starts compiling a stored version again.

        A version has one job at a time: another waits until it has ended.

        Parameters
        ----------
        budget, disable_rules, approximate
            As in `upload`; without `budget` the version's own. Rules that the version or the server
            disables stay so.
        seed : int
            Of the search's random choices; 0: the server's.
        use : {"serve", "keep", "compare"}, optional
            What becomes of a faster plan: it is swapped in (the default); kept, to be pinned (the
            default and the only one of the two for deterministic versions); or timed beside what
            serves (`CompileJob.comparison`) and dropped, after a search from the baseline.
        """
        request = wire.start_compile(name, version, buckets, budget, disable_rules, approximate,
                                     seed, use)
        with _translated():
            return wire.compile_job(await self._compile.StartCompile(request))

    async def jobs(self, name: str = "", only_unfinished: bool = False) -> list[CompileJob]:
        """Compile jobs, newest first."""
        request = compile_pb2.ListCompileJobsRequest(model=name, only_unfinished=only_unfinished)
        with _translated():
            reply = await self._compile.ListCompileJobs(request)
        return [wire.compile_job(job) for job in reply.jobs]

    async def job(self, job_id: str) -> CompileJob:
        """One compile job."""
        with _translated():
            request = compile_pb2.GetCompileJobRequest(id=job_id)
            return wire.compile_job(await self._compile.GetCompileJob(request))

    async def cancel(self, job_id: str) -> CompileJob:
        """Stops a compile job."""
        with _translated():
            request = compile_pb2.CancelCompileJobRequest(id=job_id)
            return wire.compile_job(await self._compile.CancelCompileJob(request))

    async def watch(self, job_id: str, timeout: float | None = None) -> AsyncIterator[CompileJob]:
        """A compile job as it is, then again after each change, until it has finished."""
        request = compile_pb2.WatchCompileJobRequest(id=job_id)
        stream = self._compile.WatchCompileJob(request, timeout=timeout)
        try:
            with _translated():
                async for message in stream:
                    yield wire.compile_job(message)
        finally:
            stream.cancel()


class AsyncModel:
    """A model on the server; see `athanor.Model`."""

    def __init__(self, client: AsyncClient, name: str, version: str = "") -> None:
        self.client = client
        self.name = name
        self.version = version
        self._inputs: tuple[wire.Tensor, ...] | None = None

    def __repr__(self) -> str:
        return f"<athanor.AsyncModel {self.name!r} {self.version or 'serving version'}>"

    async def info(self, timeout: float | None = None) -> ModelInfo:
        """Everything the server knows about it, now."""
        request = model_pb2.GetModelRequest(name=self.name, version=self.version)
        with _translated():
            info = wire.model_info(await self.client._models.GetModel(request, timeout=timeout))
        self._inputs = info.inputs
        return info

    async def infer(self, inputs: Mapping[str, object], outputs: Sequence[str] | None = None,
                    timeout: float | None = None, wait: str | None = None, *,
                    taps: Sequence[str] | None = None, priority: int | None = None) -> InferResult:
        """Runs the model; see `athanor.Model.infer`."""
        known = self._inputs
        if known is None:
            known = (await self.info()).inputs
        parameters = {"wait": wait, "taps": wire.tap_names(taps), "priority": priority}
        try:
            request = wire.infer_request(self.name, self.version, known, inputs, outputs,
                                         parameters)
        except InvalidArgument:
            # Another version may serve since the types were read.
            if self.version:
                raise
            known = (await self.info()).inputs
            request = wire.infer_request(self.name, self.version, known, inputs, outputs,
                                         parameters)
        with _translated():
            return wire.infer_result(
                await self.client._inference.ModelInfer(request, timeout=timeout))

    async def watch(self, timeout: float | None = None) -> AsyncIterator[CompileJob]:
        """The progress of its latest compile job."""
        job_id = (await self.info()).compile_job_id
        if job_id:
            async with contextlib.aclosing(self.client.watch(job_id, timeout)) as jobs:
                async for job in jobs:
                    yield job

    async def wait(self, until: str = "baseline", timeout: float | None = None) -> AsyncModel:
        """Returns when the baseline serves or the search has ended; see `athanor.Model.wait`."""
        if until not in ("baseline", "optimised"):
            raise InvalidArgument(f'wait({until!r}): it must be "baseline" or "optimised"')
        try:
            async with asyncio.timeout(timeout):
                return await self._wait(until)
        except TimeoutError as error:
            if isinstance(error, DeadlineExceeded):
                raise
            raise DeadlineExceeded(f"model {self.name!r}: not ready after {timeout} s") from None

    async def _wait(self, until: str) -> AsyncModel:
        if until == "baseline" and (await self.info()).state == "READY":
            return self
        last = None
        async with contextlib.aclosing(self.watch()) as jobs:
            async for job in jobs:
                changed, last = last is None or job.phase != last.phase, job
                if until == "baseline" and changed and (await self.info()).state == "READY":
                    return self
        info = await self.info()
        if info.state == "READY" and (last is None or last.phase == "DONE"):
            return self
        if last is not None and last.error is not None:
            raise last.error
        what = f"model {self.name!r} version {info.version}"
        if last is not None and last.phase == "CANCELLED":
            raise Cancelled(f"{what}: compile job {last.id} was cancelled ({last.stop_reason})")
        raise FailedPrecondition(f"{what} is {info.state}: {info.error or 'no plan serves'}")

    async def pin_plan(self, plan_id: str = "") -> ModelInfo:
        """Serves this plan until it is unpinned; see `athanor.Model.pin_plan`."""
        request = model_pb2.PinPlanRequest(name=self.name, version=self.version, plan_id=plan_id)
        with _translated():
            return wire.model_info(await self.client._models.PinPlan(request))

    async def rollback(self) -> AsyncModel:
        """Makes this version serve requests that name none; without a version, the one before."""
        return await self.client.rollback(self.name, self.version)

    async def delete(self) -> list[str]:
        """Deletes this version, or all where none was named."""
        return await self.client.delete(self.name, self.version)
