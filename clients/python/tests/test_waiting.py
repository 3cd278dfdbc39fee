"""How long models are waited for: a timeout bounds every call that is made for it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Iterator

import athanor
import grpc
import numpy as np
import pytest
from athanor.protos import compile_pb2, model_pb2

X = np.ones(2, np.float32)


class Compiling(grpc.GenericRpcHandler):
    """Has one model that compiles: job "j" says nothing more. Of "silent" it says nothing at
    all, of "late" that its job has failed by a deadline of its own."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method.endswith("/GetModel"):
            return grpc.unary_unary_rpc_method_handler(
                self.model, model_pb2.GetModelRequest.FromString,
                lambda message: message.SerializeToString())
        return grpc.unary_stream_rpc_method_handler(
            self.watch, compile_pb2.WatchCompileJobRequest.FromString,
            lambda message: message.SerializeToString())

    def model(self, request: object, context: grpc.ServicerContext) -> object:
        if request.name == "silent":
            self.ended.wait()
        return model_pb2.Model(name=request.name, version="1", state=model_pb2.Model.COMPILING,
                               compile_job_id="j" if request.name == "m" else "late")

    def watch(self, request: object, context: grpc.ServicerContext) -> Iterator[object]:
        if request.id == "late":
            kind = compile_pb2.CompileJob
            yield kind(id="late", phase=kind.FAILED, error="the lowering took too long",
                       error_code=grpc.StatusCode.DEADLINE_EXCEEDED.value[0])
            return
        yield compile_pb2.CompileJob(id="j", phase=compile_pb2.CompileJob.QUEUED)
        self.ended.wait()


@pytest.fixture
def address() -> Iterator[str]:
    handler = Compiling()
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        server = grpc.server(threads, [handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        handler.ended.set()
        server.stop(None).wait()


CALLS = {
    "wait": ("m", lambda model: model.wait("optimised", 0.3), "model 'm': not ready after 0.3 s"),
    "wait for one that is silent": ("silent", lambda model: model.wait(timeout=0.3),
                                    "model 'silent': not ready after 0.3 s"),
    "a deadline of the job": ("late", lambda model: model.wait(timeout=60),
                              "the lowering took too long"),
    "infer": ("silent", lambda model: model.infer(X, timeout=0.3), "within timeout=0.3 s"),
    "watch": ("silent", lambda model: model.watch(0.3), "within timeout=0.3 s"),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_timeout_ends_the_call(address: str, case: str) -> None:
    name, call, words = CALLS[case]
    with athanor.Client(address) as client:
        with pytest.raises(athanor.DeadlineExceeded, match=words):
            call(athanor.Model(client, name))


@pytest.mark.parametrize("case", CALLS)
def test_asyncio_a_timeout_ends_the_call(address: str, case: str) -> None:
    name, call, words = CALLS[case]

    async def run() -> None:
        async with athanor.AsyncClient(address) as client:
            made = call(athanor.AsyncModel(client, name))
            if case == "watch":
                async for _ in made:
                    pass
            else:
                await made

    with pytest.raises(athanor.DeadlineExceeded, match=words):
        asyncio.run(run())


@pytest.mark.parametrize("wrong", ["1", -1, True, float("nan")])
def test_what_is_no_timeout_is_refused(address: str, wrong: object) -> None:
    def refused(call: Callable[[], object]) -> None:
        with pytest.raises(athanor.InvalidArgument, match="number of seconds, 0 or more"):
            call()

    with athanor.Client(address) as client:
        refused(lambda: athanor.Model(client, "m").wait(timeout=wrong))

    async def wait() -> None:
        async with athanor.AsyncClient(address) as client:
            await athanor.AsyncModel(client, "m").wait(timeout=wrong)

    refused(lambda: asyncio.run(wait()))
