"""The client for asyncio; the same calls as `athanor.client`, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Self, Unpack

import grpc.aio

from athanor import cache, calls, uploads
from athanor.base import ClientBase, ModelBase
from athanor.cache import (
    CacheExplanation,
    CacheExport,
    CacheGarbage,
    CacheImport,
    CacheStat,
    CacheVerification,
)
from athanor.errors import DeadlineExceeded, Error, InvalidArgument
from athanor.generation import (
    EngineStatus,
    GenerateOptions,
    Messages,
    Received,
    RenderedChat,
    Tokenized,
)
from athanor.given import Buckets, Dims, Given, Values
from athanor.jobs import CompileJob
from athanor.streams import AsyncGeneration
from athanor.wire import Device, InferResult, Inputs, ModelInfo


class AsyncClient(ClientBase):
    """A connection to a server for one event loop; see `athanor.Client` for arguments and calls.

    Examples
    --------
    >>> async with athanor.AsyncClient() as client:
    ...     model = await client.upload(graph, name="linear")
    ...     y = (await model.infer({"x": x}))["y"]
    """

    _grpc = grpc.aio

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection."""
        self._stubs.closed = True
        await self._channel.close()

    async def _run(self, call: calls.Call[calls.Result],
                   timeout: float | None = None) -> calls.Result:
        with self._translated(timeout):
            return call.read(await self._stubs.send(call, timeout))

    async def _run_all(self, sent: Generator[calls.Call[Any], Any, calls.Result],
                       timeout: float | None) -> calls.Result:
        """Makes each call that `sent` yields, until it returns."""
        try:
            call = next(sent)
            while True:
                try:
                    received = await self._run(call, timeout)
                except Error as error:
                    call = sent.throw(error)
                else:
                    call = sent.send(received)
        except StopIteration as end:
            result: calls.Result = end.value
            return result

    async def ready(self, timeout: float | None = None) -> bool:
        """Reports whether the server takes requests."""
        return await self._run(calls.ready(), timeout)

    async def upload(self, source: object, name: str, format: str | None = None,
                     buckets: Buckets | None = None, budget: str | None = None,
                     timeout: float | None = None, *, deterministic: bool = False,
                     disable_rules: Sequence[str] | None = None, approximate: bool = False,
                     batch_dim: str | None = None, dims: Dims | None = None,
                     values: Values | None = None, random_seed: int | None = None,
                     device: str | None = None, ignore_keys: Sequence[str] | None = None,
                     decoder: Mapping[str, int] | None = None) -> AsyncModel:
        """Stores a model and starts compiling it; see `athanor.Client.upload`."""
        read = uploads.read_source(source, format)
        given = Given(dims, values, random_seed, ignore_keys, decoder)
        sent = calls.send_model(read, lambda division: calls.upload(
            read, name, division, buckets, budget, deterministic, disable_rules, approximate,
            batch_dim, given, device))
        return AsyncModel(self, *await self._run_all(sent, timeout))

    async def check(self, source: object, format: str | None = None,
                    buckets: Buckets | None = None, timeout: float | None = None, *,
                    batch_dim: str | None = None, dims: Dims | None = None,
                    values: Values | None = None, random_seed: int | None = None,
                    ignore_keys: Sequence[str] | None = None,
                    decoder: Mapping[str, int] | None = None) -> ModelInfo:
        """Checks whether the server would accept a model; see `athanor.Client.check`."""
        read = uploads.read_source(source, format)
        given = Given(dims, values, random_seed, ignore_keys, decoder)
        sent = calls.send_model(read, lambda division: calls.check(
            read, division, buckets, batch_dim, given))
        return await self._run_all(sent, timeout)

    async def model(self, name: str, version: str = "") -> AsyncModel:
        """Returns a stored model; without `version`, the one that serves."""
        model = AsyncModel(self, name, version)
        await model.info()
        return model

    async def models(self, name: str = "") -> list[ModelInfo]:
        """Lists all versions of all models, or of one."""
        return await self._run(calls.list_models(name))

    async def devices(self) -> list[Device]:
        """Lists the devices that execute models, as they are now."""
        return await self._run(calls.list_devices())

    async def delete(self, name: str, version: str = "") -> list[str]:
        """Deletes a model, or one version."""
        return await self._run(calls.delete_model(name, version))

    async def rollback(self, name: str, version: str = "") -> AsyncModel:
        """Makes an earlier version serve."""
        return AsyncModel(self, *await self._run(calls.rollback(name, version)))

    async def compile(self, name: str, version: str = "", buckets: Buckets | None = None,
                      budget: str | None = None, *, disable_rules: Sequence[str] | None = None,
                      approximate: bool = False, seed: int = 0,
                      use: str | None = None) -> CompileJob:
        """Starts compiling a stored version again; see `athanor.Client.compile`."""
        return await self._run(calls.start_compile(name, version, buckets, budget, disable_rules,
                                                   approximate, seed, use))

    async def jobs(self, name: str = "", only_unfinished: bool = False) -> list[CompileJob]:
        """Lists compile jobs, newest first."""
        return await self._run(calls.list_jobs(name, only_unfinished))

    async def job(self, job_id: str) -> CompileJob:
        """Returns one compile job."""
        return await self._run(calls.get_job(job_id))

    async def cancel(self, job_id: str) -> CompileJob:
        """Stops a compile job."""
        return await self._run(calls.cancel_job(job_id))

    async def watch(self, job_id: str,
                    timeout: float | None = None) -> AsyncGenerator[CompileJob, None]:
        """Yields a compile job as it is now, then again after each change, until it has
        finished."""
        call = calls.watch_job(job_id)
        stream = self._stubs.send(call, timeout)
        try:
            with self._translated(timeout):
                async for message in stream:
                    yield call.read(message)
        finally:
            stream.cancel()

    async def cache_stat(self, timeout: float | None = None) -> CacheStat:
        """Returns what the server's cache holds; see `athanor.Client.cache_stat`."""
        return await self._run(calls.cache_stat(), timeout)

    async def cache_explain(self, name: str, version: str = "",
                            bucket: cache.Ranges | None = None) -> list[CacheExplanation]:
        """Explains why plans were found or not; see `athanor.Client.cache_explain`."""
        return await self._run(calls.cache_explain(name, version, bucket))

    async def cache_verify(self, *, quarantine: bool = False,
                           timeout: float | None = None) -> CacheVerification:
        """Checks every row of the cache; see `athanor.Client.cache_verify`."""
        return await self._run(calls.cache_verify(quarantine), timeout)

    async def cache_collect_garbage(self, limit_bytes: int = 0, *, failures: bool = False,
                                    quarantine: bool = False, dry_run: bool = False,
                                    timeout: float | None = None) -> CacheGarbage:
        """Removes the least useful rows; see `athanor.Client.cache_collect_garbage`."""
        return await self._run(
            calls.cache_collect_garbage(limit_bytes, failures, quarantine, dry_run), timeout)

    async def cache_export(self, path: str | os.PathLike[str], name: str = "", version: str = "",
                           *, binaries: bool = False,
                           timeout: float | None = None) -> CacheExport:
        """Writes a bundle; see `athanor.Client.cache_export`."""
        call = calls.cache_export(name, version, binaries)
        with cache.BundleFile(path) as file, self._translated(timeout):
            async for chunk in self._stubs.send(call, timeout):
                file.add(chunk)
        return file.written

    async def cache_import(self, path: str | os.PathLike[str],
                           timeout: float | None = None) -> CacheImport:
        """Imports a bundle; see `athanor.Client.cache_import`."""
        return await self._run(calls.cache_import(list(cache.read_bundle(path))), timeout)


class AsyncModel(ModelBase[AsyncClient]):
    """A model on the server; see `athanor.Model`."""

    async def info(self, timeout: float | None = None) -> ModelInfo:
        """Returns everything the server knows about the model now."""
        info = await self.client._run(calls.get_model(self.name, self.version), timeout)
        self._inputs = info.inputs
        return info

    async def infer(self, inputs: Inputs, outputs: Sequence[str] | None = None,
                    timeout: float | None = None, wait: str | None = None, *,
                    taps: Sequence[str] | None = None, priority: int | None = None) -> InferResult:
        """Runs the model; see `athanor.Model.infer`."""
        known = (await self.info(timeout)).inputs if self._inputs is None else self._inputs
        options = (inputs, outputs, wait, taps, priority)
        try:
            call = calls.infer(self.name, self.version, known, *options)
        except InvalidArgument:
            # Another version may serve than when the types were read.
            if self.version:
                raise
            known = (await self.info(timeout)).inputs
            call = calls.infer(self.name, self.version, known, *options)
        return await self.client._run(call, timeout)

    def generate(self, prompt: str | Sequence[int], *, add_special: bool = False,
                 timeout: float | None = None,
                 **options: Unpack[GenerateOptions]) -> AsyncGeneration:
        """Generates what follows a prompt; see `athanor.Model.generate`. Not awaited itself: its
        pieces are (``async for``), or its `AsyncGeneration.result`."""
        return self._answer(
            calls.generate(self.name, self.version, prompt, add_special, options), timeout)

    def chat(self, messages: Messages, *, variables: Mapping[str, object] | None = None,
             continue_last: bool = False, timeout: float | None = None,
             **options: Unpack[GenerateOptions]) -> AsyncGeneration:
        """Generates the answer to a chat; see `athanor.Model.chat`, and `generate`."""
        return self._answer(
            calls.chat(self.name, self.version, messages, variables, continue_last, options),
            timeout)

    def _answer(self, call: calls.Call[Received], timeout: float | None) -> AsyncGeneration:
        return AsyncGeneration(call, self.client._stubs.send(call, timeout),
                               partial(self.client._translated, timeout))

    async def tokenize(self, text: str, *, add_begin: bool = False, add_special: bool = False,
                       timeout: float | None = None) -> Tokenized:
        """Returns the tokens of a text; see `athanor.Model.tokenize`."""
        call = calls.tokenize(self.name, self.version, text, add_begin, add_special)
        return await self.client._run(call, timeout)

    async def detokenize(self, ids: Sequence[int], *, special_in_text: bool = False,
                         timeout: float | None = None) -> str:
        """Returns the text of tokens; see `athanor.Model.detokenize`."""
        call = calls.detokenize(self.name, self.version, ids, special_in_text)
        return await self.client._run(call, timeout)

    async def render_chat(self, messages: Messages, *,
                          variables: Mapping[str, object] | None = None,
                          continue_last: bool = False,
                          timeout: float | None = None) -> RenderedChat:
        """Returns the prompt that messages become; see `athanor.Model.render_chat`."""
        call = calls.render_chat(self.name, self.version, messages, variables, continue_last)
        return await self.client._run(call, timeout)

    async def engine(self, timeout: float | None = None) -> EngineStatus:
        """Returns what a language model's engine does now; see `athanor.Model.engine`."""
        return await self.client._run(calls.get_engine(self.name, self.version), timeout)

    async def watch(self, timeout: float | None = None) -> AsyncGenerator[CompileJob, None]:
        """Yields the progress of its latest compile job."""
        job_id = (await self.info(timeout)).compile_job_id
        if job_id:
            async with contextlib.aclosing(self.client.watch(job_id, timeout)) as jobs:
                async for job in jobs:
                    yield job

    async def wait(self, until: str = "baseline", timeout: float | None = None) -> Self:
        """Returns when the baseline serves or the search has ended; see `athanor.Model.wait`."""
        calls.check_wait(until, timeout)
        try:
            async with asyncio.timeout(timeout):
                return await self._wait(until)
        except TimeoutError as error:
            if isinstance(error, DeadlineExceeded):
                raise
            raise calls.not_ready(self.name, timeout) from None

    async def _wait(self, until: str) -> Self:
        if until == "baseline" and (await self.info()).state == "READY":
            return self
        last = None
        async with contextlib.aclosing(self.watch()) as jobs:
            async for job in jobs:
                changed, last = last is None or job.phase != last.phase, job
                if until == "baseline" and changed and (await self.info()).state == "READY":
                    return self
        calls.check_finished(await self.info(), last)
        return self

    async def egraph(self, region: int = 0) -> str:
        """Returns the e-graph of a region as a drawing; see `athanor.Model.egraph`."""
        return await self.client._run(calls.get_egraph(self.name, self.version, region))

    async def pin_plan(self, plan_id: str = "") -> ModelInfo:
        """Serves this plan until it is unpinned; see `athanor.Model.pin_plan`."""
        return await self.client._run(calls.pin_plan(self.name, self.version, plan_id))

    async def rollback(self) -> AsyncModel:
        """Makes this version serve requests that name none; without a version, the previous one."""
        return await self.client.rollback(self.name, self.version)

    async def delete(self) -> list[str]:
        """Deletes this version, or all versions if the model names none."""
        return await self.client.delete(self.name, self.version)
