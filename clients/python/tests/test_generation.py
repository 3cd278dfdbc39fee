"""Generation against a scripted server in this process: blocking, asyncio, endings."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import threading
import time
from collections.abc import Iterator

import athanor
import grpc
import pytest
from athanor import generation
from athanor.protos import generate_pb2
from test_prompts import OPTIONS

Response = generate_pb2.GenerateResponse
USAGE = generate_pb2.Usage(prompt_tokens=3, cached_tokens=1, generated_tokens=4, seed=2**64 - 1,
                           model_version="2", plan_id="p-1")
TIMES = generate_pb2.GenerateTimes(started_us=10, first_token_us=1_000_000,
                                   last_token_us=1_500_000)
STREAM = [
    Response(text="Hé", tokens=[5, 6]),
    Response(tokens=[7]),  # a part of a character: no text yet
    Response(text="llo", tokens=[8]),
    Response(finish=generate_pb2.FINISH_LENGTH, usage=USAGE, times=TIMES),
]


class Scripted(grpc.GenericRpcHandler):
    """Answers Generate by the request's model:

    "answer": STREAM; "endless": pieces until the client leaves; "silent": nothing until then;
    "broken": one piece, then RESOURCE_EXHAUSTED; "unended": one piece, then OK; "echo": the
    request's prompt. Unary calls get `replies`.
    """

    def __init__(self) -> None:
        self.requests: list = []
        self.left = threading.Event()  # a client of "endless" or "silent" has left
        self.replies: dict[str, object] = {}

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = details.method.rpartition("/")[2]
        rpc = generate_pb2.DESCRIPTOR.services_by_name["GenerateService"].methods_by_name[method]
        read = getattr(generate_pb2, rpc.input_type.name).FromString
        if rpc.server_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self.generate, read, lambda message: message.SerializeToString())
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self.requests.append(request) or self.replies[method], read,
            lambda message: message.SerializeToString())

    def generate(self, request: object, context: grpc.ServicerContext) -> Iterator[Response]:
        self.requests.append(request)
        if request.model in ("endless", "silent"):
            context.add_callback(self.left.set)
            while not self.left.is_set():
                time.sleep(0.002)
                if request.model == "endless":
                    yield Response(text="x", tokens=[1])
        elif request.model == "broken":
            yield STREAM[0]
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the client reads nothing")
        elif request.model == "unended":
            yield STREAM[0]
        elif request.model == "echo":
            yield Response(text=request.text, tokens=request.tokens.ids)
            yield Response(text="!", finish=generate_pb2.FINISH_STOP,
                           usage=generate_pb2.Usage(stop_token=0))
        else:
            yield from STREAM


@contextlib.contextmanager
def serving(handler: grpc.GenericRpcHandler) -> Iterator[str]:
    """Yields the address of a server with the handler."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
def address(scripted: Scripted) -> Iterator[str]:
    with serving(scripted) as found:
        yield found


@pytest.fixture
def client(address: str) -> Iterator[athanor.Client]:
    with athanor.Client(address) as made:
        yield made


def model(client: athanor.Client, name: str) -> athanor.Model:
    return athanor.Model(client, name, "2")


def test_pieces_come_and_the_end_is_told(client: athanor.Client) -> None:
    answer = model(client, "answer").generate("Once", max_tokens=4)
    assert next(answer) == athanor.Piece("Hé", (5, 6), ())
    assert answer.finish is None and answer.usage is None and answer.times is None
    assert [piece.tokens for piece in answer] == [(7,), (8,)], "the last message is no piece"
    assert list(answer) == []
    whole = answer.result()
    assert (whole.text, whole.tokens, whole.finish) == ("Héllo", (5, 6, 7, 8), "length")
    assert answer.finish == "length"
    usage = athanor.Usage(3, 1, 4, 2**64 - 1, "2", "p-1", None, None, 0)
    assert answer.usage == whole.usage == usage
    assert answer.times == whole.times == athanor.GenerateTimes(10, 1_000_000, 1_500_000)
    assert whole.tokens_per_second == 6.0, "3 tokens after the first in 0.5 s"


def test_the_call_runs_before_it_is_read(client: athanor.Client, scripted: Scripted) -> None:
    answers = [model(client, "answer").generate([at]) for at in range(8)]
    assert {answer.result().text for answer in answers} == {"Héllo"}
    assert sorted(request.tokens.ids[0] for request in scripted.requests) == list(range(8))


@pytest.mark.parametrize("leave", ["break", "drop", "close", "with"])
def test_leaving_ends_the_call(client: athanor.Client, scripted: Scripted, leave: str) -> None:
    endless = model(client, "endless")
    if leave == "break":
        for piece in endless.generate("x"):
            assert piece.text == "x"
            break
    elif leave == "drop":
        answer = endless.generate("x")
        next(answer)
        del answer
        gc.collect()
    elif leave == "close":
        answer = endless.generate("x")
        next(answer)
        answer.close()
        answer.close()
        assert list(answer) == []
        with pytest.raises(athanor.Cancelled, match="closed before its end"):
            answer.result()
    else:
        with endless.generate("x") as answer:
            next(answer)
        assert list(answer) == []
    assert scripted.left.wait(10)


def test_another_thread_may_close(client: athanor.Client, scripted: Scripted) -> None:
    answer = model(client, "silent").generate("x")
    timer = threading.Timer(0.1, answer.close)
    timer.start()
    assert list(answer) == []
    timer.join()
    assert scripted.left.wait(10)


def test_errors_are_the_servers(client: athanor.Client) -> None:
    answer = model(client, "broken").generate("x")
    assert next(answer).text == "Hé"
    with pytest.raises(athanor.ResourceExhausted, match="the client reads nothing"):
        next(answer)
    with pytest.raises(athanor.DeadlineExceeded):
        model(client, "silent").generate("x", timeout=0.1).result()
    with pytest.raises(athanor.Internal, match="without a reason"):
        model(client, "unended").generate("x").result()
    with athanor.Client("127.0.0.1:1") as nobody, pytest.raises(athanor.Unavailable):
        model(nobody, "m").generate("x").result()


def test_asyncio_streams_at_once(address: str) -> None:
    async def run() -> list[athanor.GenerateResult]:
        async with athanor.AsyncClient(address) as client:
            answer = athanor.AsyncModel(client, "answer").generate("Once")
            assert [piece.text async for piece in answer] == ["Hé", "", "llo"]
            assert answer.finish == "length" and (await answer.result()).text == "Héllo"
            echo = athanor.AsyncModel(client, "echo")
            return await asyncio.gather(*(echo.generate(str(at)).result() for at in range(8)))

    results = asyncio.run(run())
    assert [result.text for result in results] == [f"{at}!" for at in range(8)]
    assert {(result.finish, result.usage.stop_token) for result in results} == {("stop", 0)}


@pytest.mark.parametrize("leave", ["break", "close", "with", "cancel"])
def test_asyncio_leaving_ends_the_call(address: str, scripted: Scripted, leave: str) -> None:
    async def run() -> None:
        async with athanor.AsyncClient(address) as client:
            endless = athanor.AsyncModel(client, "endless")
            if leave == "break":
                async for piece in endless.generate("x"):
                    assert piece.text == "x"
                    break
                gc.collect()
            elif leave == "close":
                silent = athanor.AsyncModel(client, "silent").generate("x")
                asyncio.get_running_loop().call_later(0.1, silent.close)
                assert [piece async for piece in silent] == []
                with pytest.raises(athanor.Cancelled):
                    await silent.result()
            elif leave == "with":
                async with endless.generate("x") as answer:
                    await anext(answer)
                assert [piece async for piece in answer] == []
            else:
                task = asyncio.create_task(endless.generate("x").result())
                await asyncio.sleep(0.1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await asyncio.to_thread(scripted.left.wait, 10)

    asyncio.run(run())


def test_asyncio_a_cancelled_task_ends_though_its_answer_was_closed(address: str) -> None:
    async def run() -> None:
        async with athanor.AsyncClient(address) as client:
            silent = athanor.AsyncModel(client, "silent").generate("x")
            task = asyncio.create_task(anext(silent))
            await asyncio.sleep(0.1)
            silent.close()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())


def test_asyncio_errors_are_the_servers(address: str) -> None:
    async def run() -> None:
        async with athanor.AsyncClient(address) as client:
            answer = athanor.AsyncModel(client, "broken").generate("x")
            assert (await anext(answer)).text == "Hé"
            with pytest.raises(athanor.ResourceExhausted, match="reads nothing"):
                await anext(answer)
            with pytest.raises(athanor.DeadlineExceeded):
                await athanor.AsyncModel(client, "silent").chat("x", timeout=0.1).result()
            with pytest.raises(athanor.Internal, match="without a reason"):
                await athanor.AsyncModel(client, "unended").generate("x").result()

    asyncio.run(run())


def test_an_unknown_option_is_a_type_error(client: athanor.Client) -> None:
    with pytest.raises(TypeError, match="no option 'temprature'; there are max_tokens"):
        model(client, "answer").generate("x", temprature=0)


def test_the_other_calls(client: athanor.Client, scripted: Scripted) -> None:
    scripted.replies = {
        "Tokenize": generate_pb2.TokenizeResponse(ids=[1, 2], texts=[b"\xc3", b"\xa9"]),
        "Detokenize": generate_pb2.DetokenizeResponse(text="é"),
        "RenderChat": generate_pb2.RenderChatResponse(text="<|user|>Hi", ids=[9]),
        "GetEngine": generate_pb2.EngineStatus(
            model="m", version="2", family="llama", vocabulary=48, end_tokens=[2, 3],
            sampling=generate_pb2.Sampling(temperature=0, top_k=40), has_chat=True, free_blocks=5),
    }
    m = model(client, "m")
    assert m.tokenize("é", add_begin=True) == athanor.Tokenized((1, 2), (b"\xc3", b"\xa9"))
    assert m.detokenize([1, 2], special_in_text=True) == "é"
    rendered = m.render_chat("Hi", variables={"x": 1}, continue_last=True)
    assert rendered == athanor.RenderedChat("<|user|>Hi", (9,))
    status = m.engine()
    assert (status.family, status.end_tokens, status.free_blocks) == ("llama", (2, 3), 5)
    assert status.sampling == athanor.Sampling(0.0, 40, None, None, None, None, None)
    sent, scripted.requests = scripted.requests, []
    assert sent[0] == generate_pb2.TokenizeRequest(model="m", version="2", text="é",
                                                   add_begin=True)
    assert sent[1] == generate_pb2.DetokenizeRequest(model="m", version="2", ids=[1, 2],
                                                     special_in_text=True)
    with pytest.raises(athanor.InvalidArgument, match=r"ids\[0\]"):
        m.detokenize(["a"])

    async def run() -> tuple:
        async with athanor.AsyncClient(client.address) as other:
            same = athanor.AsyncModel(other, "m", "2")
            return (await same.tokenize("é", add_begin=True),
                    await same.detokenize([1, 2], special_in_text=True),
                    await same.render_chat("Hi", variables={"x": 1}, continue_last=True),
                    await same.engine())

    assert asyncio.run(run()) == (athanor.Tokenized((1, 2), (b"\xc3", b"\xa9")), "é", rendered,
                                  status)
    assert scripted.requests == sent


def test_both_clients_send_the_same(client: athanor.Client, scripted: Scripted) -> None:
    said = [{"role": "user", "content": "Hi"}]
    blocking = model(client, "answer")
    blocking.generate("Once", add_special=True, **OPTIONS).result()
    blocking.chat(said, variables={"x": 1}, continue_last=True, **OPTIONS).result()
    sent, scripted.requests = scripted.requests, []

    async def run() -> None:
        async with athanor.AsyncClient(client.address) as other:
            same = athanor.AsyncModel(other, "answer", "2")
            await same.generate("Once", add_special=True, **OPTIONS).result()
            await same.chat(said, variables={"x": 1}, continue_last=True, **OPTIONS).result()

    asyncio.run(run())
    assert scripted.requests == sent
    assert sent[0].add_special and sent[1].chat.continue_last and sent[1].sampling.top_k == 40


def test_logprobs_and_stop_texts() -> None:
    def one(token: int) -> generate_pb2.TokenLogprob:
        return generate_pb2.TokenLogprob(token=token, logprob=-token, text=b"t%d" % token)

    got = generation.received(Response(
        text="a", tokens=[1], logprobs=[generate_pb2.Logprobs(chosen=one(2),
                                                              likeliest=[one(1), one(2)])],
        finish=generate_pb2.FINISH_STOP, usage=generate_pb2.Usage(stop_text="\n")))
    first, second = (athanor.TokenLogprob(token, -float(token), b"t%d" % token)
                     for token in (1, 2))
    assert got.piece.logprobs == (athanor.Logprobs(second, (first, second)),)
    assert got.end is not None
    finish, usage, _ = got.end
    assert (finish, usage.stop_token, usage.stop_text) == ("stop", None, "\n")


def test_every_field_of_the_messages_is_told() -> None:
    for kind, made in ((generate_pb2.EngineStatus, athanor.EngineStatus),
                       (generate_pb2.Usage, athanor.Usage),
                       (generate_pb2.GenerateTimes, athanor.GenerateTimes),
                       (generate_pb2.TokenLogprob, athanor.TokenLogprob)):
        assert {field.name for field in kind.DESCRIPTOR.fields} == set(made.__annotations__)
