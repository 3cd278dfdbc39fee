"""Bad days of an engine: prompts of ten million characters, clients that leave while their prompt
is computed, and two engines with memory for the blocks of one."""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import athanor
import numpy as np
import pytest
import tiny_decoder
from conftest import Server
from tiny_decoder import LONGEST

GOLDEN = json.loads((tiny_decoder.DATA / "golden.json").read_text())
PROMPT, GREEDY = GOLDEN["ids"], GOLDEN["greedy"]
HUGE_PAGE = 2 << 20
MUCH = 10**7


def _upload(client: athanor.Client, folder: pathlib.Path, name: str) -> athanor.Model:
    folder.mkdir()
    tiny_decoder.write(folder)
    model = client.upload(folder, name=name, budget="0")
    model.wait("baseline", timeout=120)
    return model


def _until(holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def _idle(model: athanor.Model) -> athanor.EngineStatus:
    """Waits until no sequence is left; the engine then."""

    def left() -> int:
        engine = model.engine()
        return engine.running + engine.waiting + engine.paused

    _until(lambda: left() == 0, "sequences stay")
    return model.engine()


@pytest.fixture(scope="module")
def engine_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(
        tmp_path_factory.mktemp("engine") / "state", "--openai_listen=127.0.0.1:0"
    ).start()
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture(scope="module")
def tiny(
    engine_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[athanor.Model]:
    with engine_server.client() as client:
        yield _upload(client, tmp_path_factory.mktemp("tiny") / "checkpoint", "tiny")


def _works(model: athanor.Model) -> None:
    answer = model.generate(PROMPT, max_tokens=16, temperature=0, timeout=120).result()
    assert answer.tokens == tuple(GREEDY[:16])


def test_prompts_of_ten_million_characters_are_refused_with_the_numbers(
    tiny: athanor.Model,
) -> None:
    most = str(LONGEST)
    for refused, said in (
        (tiny.generate("a" * MUCH), most),
        (tiny.generate(" " * MUCH), most),
        (tiny.generate("\U0001f40c" * MUCH), most),
        (tiny.chat([{"role": "user", "content": "a" * MUCH}]), most),
        (tiny.chat([{"role": "user", "content": "a"}] * (MUCH // 100)), "chat"),
        (tiny.generate([3] * MUCH), str(MUCH)),
    ):
        begin = time.monotonic()
        with pytest.raises((athanor.InvalidArgument, athanor.ResourceExhausted), match=said):
            refused.result()
        assert time.monotonic() - begin < 60
    _idle(tiny)
    _works(tiny)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("completions", {"prompt": "a" * MUCH}),
        ("completions", {"prompt": [3] * MUCH}),
        ("completions", {"prompt": ["a" * (MUCH // 100)] * 100}),
        ("chat/completions", {"messages": [{"role": "user", "content": "a" * MUCH}]}),
    ],
    ids=["text", "tokens", "texts", "chat"],
)
def test_openai_refuses_prompts_of_ten_million_characters(
    engine_server: Server, tiny: athanor.Model, path: str, fields: dict
) -> None:
    request = urllib.request.Request(
        f"http://{engine_server.openai_address}/v1/{path}",
        data=json.dumps({"model": "tiny", "max_tokens": 1, **fields}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with (
        pytest.raises(urllib.error.HTTPError) as caught,
        urllib.request.urlopen(request, timeout=120),
    ):
        pass
    assert caught.value.code in (400, 413)
    assert json.loads(caught.value.read())["error"]["message"]
    _idle(tiny)
    _works(tiny)


def test_clients_leave_while_their_prompt_is_computed(tiny: athanor.Model) -> None:
    before = _idle(tiny)
    prompt = [3 + i * i % 40 for i in range(LONGEST - 100)]
    for turn in range(3):
        begun = tiny.engine().prompt_tokens
        with tiny.generate(prompt, max_tokens=10, cache_salt=str(turn), timeout=120):
            _until(lambda begun=begun: tiny.engine().prompt_tokens > begun, "a step of the prompt")
        after = _idle(tiny)
        assert begun < after.prompt_tokens < begun + len(prompt), "it left in the middle"
        assert after.free_blocks == before.free_blocks == after.blocks
    assert tiny.engine().generated_tokens == before.generated_tokens
    _works(tiny)


def _held(server: Server) -> float:
    """Bytes that its ledger holds."""
    with urllib.request.urlopen(f"http://{server.http_address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return sum(
        float(value)
        for value in re.findall(r"^athanor_memory_bytes\{.*\} (\S+)$", text, re.MULTILINE)
    )


def test_two_engines_have_memory_for_the_blocks_of_one(tmp_path: pathlib.Path) -> None:
    """Both go on, whoever is refused comes again, and every answer is the one alone."""
    flags = ("--http_listen=127.0.0.1:0", "--kv_memory=64MiB")
    asked = [([3 + (i * i + at) % 40 for i in range(3000)], at) for at in range(6)]

    def ask(model: athanor.Model, prompt: list[int], seed: int) -> tuple[int, ...]:
        # One that is alone and finds no memory in time is refused, and comes again.
        for left in reversed(range(8)):
            try:
                answer = model.generate(
                    prompt,
                    max_tokens=40,
                    temperature=1,
                    ignore_eos=True,
                    seed=seed,
                    cache_salt=str(seed),
                    timeout=300,
                ).result()
            except athanor.ResourceExhausted:
                if left == 0:
                    raise
            else:
                return answer.tokens
        raise AssertionError("unreachable")

    server = Server(tmp_path / "state", *flags).start()
    try:
        with server.client() as client:
            models = [_upload(client, tmp_path / name, name) for name in ("one", "other")]
            alone = [ask(models[0], *one) for one in asked]
            assert ask(models[1], *asked[0]) == alone[0]
            kv = sum(model.engine().kv_bytes for model in models)
            held = _held(server) - kv
        assert server.stop() == 0
        # Each takes three or four pages for its six sequences.
        limit = int(held) + 5 * HUGE_PAGE
        server = Server(tmp_path / "state", *flags, f"--memory_limit={limit}").start()
        with server.client() as client, concurrent.futures.ThreadPoolExecutor(12) as callers:
            models = [client.model(name) for name in ("one", "other")]
            for model in models:
                model.wait("baseline", timeout=120)
            for _round in range(3):
                answers = [callers.submit(ask, model, *one) for one in asked for model in models]
                assert [answer.result() for answer in answers] == [
                    tokens for tokens in alone for _model in models
                ]
            engines = [_idle(model) for model in models]
            assert sum(engine.preemptions for engine in engines) > 0, "memory was scarce"
            assert all(engine.free_blocks == engine.blocks for engine in engines)
            assert _held(server) <= limit
        assert server.stop() == 0, server.log.read_text()
    finally:
        server.kill()


def test_a_plan_that_can_never_fit_takes_no_kept_block(tmp_path: pathlib.Path) -> None:
    """Its weights fit as they came, and not beside them as its plan wants them."""
    flags = ("--http_listen=127.0.0.1:0", "--kv_memory=64MiB")
    size = 4096
    weight = 4 * size * size
    graph = athanor.Graph("large")
    graph.output(
        "y",
        graph.input("x", (1, size), "f32")
        @ graph.parameter("w", np.ones((size, size), np.float32)),
    )
    prompt = [3 + i * i % 40 for i in range(3000)]
    server = Server(tmp_path / "state", *flags).start()
    try:
        with server.client() as client:
            _works(_upload(client, tmp_path / "checkpoint", "tiny"))
            held = _held(server)
        assert server.stop() == 0
        limit = int(held) + weight + weight // 2
        server = Server(tmp_path / "state", *flags, f"--memory_limit={limit}").start()
        with server.client() as client:
            model = client.model("tiny")
            model.wait("baseline", timeout=120)
            model.generate(prompt, max_tokens=2, temperature=0, timeout=120).result()
            kept = _idle(model).kept_blocks
            assert kept >= len(prompt) // 16
            large = client.upload(graph, name="large")
            with pytest.raises(athanor.ResourceExhausted, match="large.*does not fit"):
                large.wait("baseline", timeout=120)
            _works(model)
            assert model.engine().kept_blocks >= kept
        assert server.stop() == 0, server.log.read_text()
    finally:
        server.kill()
