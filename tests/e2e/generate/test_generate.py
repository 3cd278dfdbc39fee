"""Text generation as users see it: SDK, asyncio and command line, on a tiny decoder of random
weights whose greedy answer transformers gave (`tests/tokens/testdata/llama`)."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator

import athanor
import pytest
import tiny_decoder
from conftest import CLI, Server, built
from tiny_decoder import CHARACTERS, LONGEST

GOLDEN = json.loads((tiny_decoder.DATA / "golden.json").read_text())
PROMPT, GREEDY = GOLDEN["ids"], GOLDEN["greedy"]
MESSAGES = [{"role": "user", "content": "".join(CHARACTERS[token] for token in PROMPT[1:])}]
TEXT = "".join(CHARACTERS[token] for token in GREEDY)


@pytest.fixture(scope="module")
def tiny(client: athanor.Client, tmp_path_factory: pytest.TempPathFactory
         ) -> Iterator[athanor.Model]:
    """The decoder with a tokenizer and a chat template."""
    folder = tmp_path_factory.mktemp("tiny-chat")
    tiny_decoder.write(folder)
    model = client.upload(folder, name="tiny-chat", budget="0")
    model.wait("baseline", timeout=120)
    yield model
    client.delete("tiny-chat")


def _idle(model: athanor.Model) -> athanor.EngineStatus:
    """Waits until no sequence is left; the engine then."""
    end = time.monotonic() + 30
    while (engine := model.engine()).running + engine.waiting + engine.paused:
        assert time.monotonic() < end, engine
        time.sleep(0.01)
    return engine


def test_greedy_is_golden(tiny: athanor.Model) -> None:
    answer = tiny.generate(PROMPT, max_tokens=64, temperature=0, timeout=120)
    pieces = list(answer)
    assert [token for piece in pieces for token in piece.tokens] == GREEDY
    assert "".join(piece.text for piece in pieces) == TEXT
    whole = answer.result()
    assert (whole.finish, whole.usage.stop_token) == ("length", None)
    assert (whole.usage.prompt_tokens, whole.usage.generated_tokens) == (len(PROMPT), 64)
    assert whole.usage.model_version == tiny.version and whole.usage.plan_id
    times = whole.times
    assert 0 <= times.started_us <= times.first_token_us <= times.last_token_us
    assert whole.tokens_per_second > 0


def test_text_and_chat_are_the_same_prompt(tiny: athanor.Model) -> None:
    said = MESSAGES[0]["content"]
    assert tiny.tokenize(said, add_begin=True).ids == tuple(PROMPT)
    assert tiny.tokenize(said) == athanor.Tokenized(
        tuple(PROMPT[1:]), tuple(character.encode() for character in said))
    assert tiny.detokenize(PROMPT[1:]) == said
    rendered = tiny.render_chat(MESSAGES)
    assert rendered == athanor.RenderedChat(f"<s>{said}", tuple(PROMPT))
    for answer in (tiny.generate(said, max_tokens=8, temperature=0),
                   tiny.chat(MESSAGES, max_tokens=8, temperature=0)):
        assert answer.result().tokens == tuple(GREEDY[:8])


def test_stop_texts_and_tokens(tiny: athanor.Model) -> None:
    at = 20  # in the answer, where these two characters come for the first time
    stop = TEXT[at:at + 2]
    assert TEXT.index(stop) == at
    stopped = tiny.generate(PROMPT, max_tokens=64, temperature=0,
                            stop=["never", stop]).result()
    assert (stopped.text, stopped.finish, stopped.usage.stop_text) == (TEXT[:at], "stop", stop)
    token = GREEDY[3]
    stopped = tiny.generate(PROMPT, max_tokens=64, temperature=0, stop_tokens=[token]).result()
    assert (stopped.finish, stopped.usage.stop_token) == ("stop", token)
    assert stopped.text == TEXT[:GREEDY.index(token)]
    later = tiny.generate(PROMPT, max_tokens=64, temperature=0, stop_tokens=[token],
                          min_tokens=30).result()
    assert later.usage.generated_tokens >= 30


def test_logprobs_and_bias(tiny: athanor.Model) -> None:
    answer = tiny.generate(PROMPT, max_tokens=4, temperature=0, logprobs=3,
                           bias={5: 100}).result()
    assert answer.tokens == (5,) * 4
    assert len(answer.logprobs) == 4
    first = answer.logprobs[0]
    assert (first.chosen.token, first.chosen.text) == (5, CHARACTERS[5].encode())
    assert first.likeliest[0].token == GREEDY[0], "logits before any setting"
    assert first.likeliest[0].logprob > first.likeliest[1].logprob >= first.likeliest[2].logprob
    gap = first.likeliest[0].logprob - first.likeliest[1].logprob
    assert abs(gap - GOLDEN["gaps"][0]) < 1e-3
    assert not tiny.generate(PROMPT, max_tokens=1).result().logprobs


def _drawn(model: athanor.Model, seed: int | None) -> athanor.GenerateResult:
    return model.generate(PROMPT, max_tokens=32, temperature=1, ignore_eos=True,
                          seed=seed).result()


def test_seeds(tiny: athanor.Model) -> None:
    seven, again, eight = (_drawn(tiny, seed) for seed in (7, 7, 8))
    assert seven.tokens == again.tokens != eight.tokens
    assert seven.usage.seed == 7
    unsaid, other = _drawn(tiny, None), _drawn(tiny, None)
    assert unsaid.usage.seed != other.usage.seed
    assert _drawn(tiny, unsaid.usage.seed).tokens == unsaid.tokens


def test_leaving_the_loop_ends_the_sequence(tiny: athanor.Model) -> None:
    before = _idle(tiny)
    for _ in tiny.generate(PROMPT, max_tokens=60_000, ignore_eos=True):
        break
    after = _idle(tiny)
    assert after.free_blocks == before.free_blocks
    assert after.generated_tokens - before.generated_tokens < 60_000
    assert tiny.generate(PROMPT, max_tokens=4, temperature=0).result().tokens == tuple(GREEDY[:4])


def test_asyncio_streams_at_once(server: Server, tiny: athanor.Model) -> None:
    alone = [_drawn(tiny, seed).tokens for seed in range(8)]

    async def run() -> list[athanor.GenerateResult]:
        async with athanor.AsyncClient(server.address) as client:
            model = await client.model("tiny-chat")
            assert (await model.tokenize("ab")).ids == (3, 4)
            async for piece in model.chat(MESSAGES, max_tokens=60_000, temperature=0):
                assert piece.tokens[0] == GREEDY[0]
                break
            return await asyncio.gather(*(
                model.generate(PROMPT, max_tokens=32, temperature=1, ignore_eos=True,
                               seed=seed).result() for seed in range(8)))

    assert [result.tokens for result in asyncio.run(run())] == alone, "whatever the batch"
    assert len(set(alone)) == 8
    _idle(tiny)


def test_refusals_name_what_is_wrong(client: athanor.Client, tiny: athanor.Model) -> None:
    for refused, text in (
            (tiny.generate([]), "prompt"), (tiny.generate([48]), "48"),
            (tiny.generate(PROMPT, temperature=-1), "temperature"),
            (tiny.generate(PROMPT, temperature=float("nan")), "temperature"),
            (tiny.generate(PROMPT, top_p=0), "top_p"), (tiny.generate(PROMPT, logprobs=21), "20"),
            (tiny.generate([1] * LONGEST), str(LONGEST)), (tiny.generate(PROMPT, stop=""), "stop")):
        with pytest.raises(athanor.InvalidArgument, match=text):
            refused.result()
    with pytest.raises(athanor.NotFound, match="nobody"):
        athanor.Model(client, "nobody").generate("x").result()
    with pytest.raises(athanor.DeadlineExceeded):
        tiny.generate(PROMPT, max_tokens=60_000, ignore_eos=True, timeout=0.01).result()
    _idle(tiny)


def _cli(server: Server, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([built(CLI), "--address", server.address, *arguments], input=said,
                          capture_output=True, text=True, timeout=120, check=False)


GREEDY_OPTIONS = ("--max_tokens", "16", "--temperature", "0")


def test_command_line(server: Server, tiny: athanor.Model) -> None:
    said = MESSAGES[0]["content"]
    for arguments, given in (((said,), ""), (("-",), said), (("--chat", said), "")):
        done = _cli(server, "generate", "tiny-chat", *arguments, *GREEDY_OPTIONS, said=given)
        assert done.stdout == TEXT[:16] + "\n", done
        assert "16 tokens behind 12 of the prompt" in done.stderr
        assert "tokens a second" in done.stderr and "max_tokens" in done.stderr
    ids = ",".join(map(str, PROMPT))
    done = _cli(server, "generate", "tiny-chat", "--tokens", ids, *GREEDY_OPTIONS)
    assert done.stdout == " ".join(map(str, GREEDY[:16])) + "\n"
    done = _cli(server, "--json", "generate", "tiny-chat", "--tokens", ids, "--logprobs=2",
                "--stop", TEXT[6:8], *GREEDY_OPTIONS)
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert "".join(piece["text"] for piece in objects) == TEXT[:6]
    assert objects[0]["logprobs"][0]["chosen"]["token"] == GREEDY[0]
    assert (objects[-1]["finish"], objects[-1]["usage"]["stop_text"]) == ("stop", TEXT[6:8])
    for arguments, status, text in (
            ((), 2, "there is no PROMPT"), (("--tokens", "1,x"), 2, '"x" must be a token'),
            (("x", "--system", "y"), 2, "--chat"), (("x", "--top_p", "2"), 1, "top_p")):
        done = _cli(server, "generate", "tiny-chat", *arguments)
        assert done.returncode == status and text in done.stderr, (arguments, done)


def test_a_conversation_through_a_pipe(server: Server, tiny: athanor.Model) -> None:
    said = MESSAGES[0]["content"]
    done = _cli(server, "generate", "tiny-chat", "--chat", *GREEDY_OPTIONS, said=f"{said}\n\nab")
    assert done.returncode == 0, done.stderr
    first, second, end = done.stdout.split("\n")
    assert (first, end) == (TEXT[:16], "")
    history = [*MESSAGES, {"role": "assistant", "content": first},
               {"role": "user", "content": "ab"}]
    assert second == tiny.chat(history, max_tokens=16, temperature=0).result().text


def _read_until(terminal: int, wanted: bytes) -> bytes:
    shown = b""
    while wanted not in shown:
        piece = os.read(terminal, 4096)
        assert piece, shown
        shown += piece
    return shown


def test_a_conversation_on_a_terminal(server: Server, tiny: athanor.Model) -> None:
    """Ctrl-C stops an answer, not the program; Ctrl-D ends it."""
    terminal, inner = pty.openpty()
    command = [built(CLI), "--address", server.address, "generate", "tiny-chat", "--chat",
               "--ignore_eos", "--temperature=0", "--max_tokens=60000"]
    with subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner) as process:
        os.close(inner)
        _read_until(terminal, b"> ")
        os.write(terminal, MESSAGES[0]["content"].encode() + b"\n")
        _read_until(terminal, TEXT[:4].encode())
        process.send_signal(signal.SIGINT)
        _read_until(terminal, b"> ")
        process.send_signal(signal.SIGINT)
        _read_until(terminal, b"Ctrl-D ends the conversation")
        os.write(terminal, b"\x04")
        assert process.wait(60) == 0
    os.close(terminal)
    _idle(tiny)
