"""OpenAI's interface as its own client sees it, unmodified, on the tiny decoder whose greedy answer
transformers gave (`tests/tokens/testdata/llama`)."""

from __future__ import annotations

import asyncio
import json
import math
import pathlib
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import athanor
import numpy as np
import openai
import pytest
import tiny_decoder
from conftest import ROOT, Server
from tiny_decoder import CHARACTERS, LONGEST

GOLDEN = json.loads((tiny_decoder.DATA / "golden.json").read_text())
ENCODER = ROOT / "tests/tokens/testdata/bert"
VECTORS = json.loads((ENCODER / "golden.json").read_text())
PROMPT, GREEDY = GOLDEN["ids"], GOLDEN["greedy"]
SAID = "".join(CHARACTERS[token] for token in PROMPT[1:])
MESSAGES = [{"role": "user", "content": SAID}]
TEXT = "".join(CHARACTERS[token] for token in GREEDY)
KEY = "k-0123456789"


@pytest.fixture(scope="module")
def openai_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the model "tiny", its alias "gpt-4o", and a key."""
    folder = tmp_path_factory.mktemp("openai")
    keys = folder / "keys"
    keys.write_text(f"tester {KEY}\n")
    keys.chmod(0o600)
    checkpoint = folder / "tiny"
    checkpoint.mkdir()
    tiny_decoder.write(checkpoint)
    server = Server(folder / "state", "--openai_listen=127.0.0.1:0", f"--openai_keys={keys}",
                    "--openai_aliases=gpt-4o=tiny,text-embedding-3-small=encoder").start()
    with server.client() as client:
        client.upload(checkpoint, name="tiny", budget="0").wait("baseline", timeout=120)
        client.upload(ENCODER, name="encoder", budget="0").wait("baseline", timeout=120)
        yield server
        _idle(client)
    assert server.stop() == 0, server.log.read_text()


def _idle(client: athanor.Client) -> None:
    """Waits until no sequence is left."""
    end = time.monotonic() + 30
    while (engine := client.model("tiny").engine()).running + engine.waiting + engine.paused:
        assert time.monotonic() < end, engine
        time.sleep(0.01)


def _url(server: Server) -> str:
    return f"http://{server.openai_address}/v1"


@pytest.fixture(scope="module")
def tiny(openai_server: Server) -> Iterator[openai.OpenAI]:
    """The client, which sends nothing twice."""
    with openai.OpenAI(base_url=_url(openai_server), api_key=KEY, max_retries=0,
                       timeout=120) as client:
        yield client


def test_models(tiny: openai.OpenAI) -> None:
    listed = list(tiny.models.list())
    assert [model.id for model in listed] == ["encoder", "tiny", "gpt-4o",
                                              "text-embedding-3-small"]
    assert {model.object for model in listed} == {"model"}
    assert listed[1].max_model_len == LONGEST
    assert listed[0].meta["n_embd"] == len(VECTORS["embeddings"][0])
    assert tiny.models.retrieve("gpt-4o").root == "tiny"
    with pytest.raises(openai.NotFoundError) as caught:
        tiny.models.retrieve("absent")
    assert caught.value.code == "model_not_found"


def test_greedy_is_golden(tiny: openai.OpenAI) -> None:
    for prompt in (SAID, PROMPT):
        answer = tiny.completions.create(model="tiny", prompt=prompt, max_tokens=64, temperature=0)
        assert answer.choices[0].text == TEXT
        assert answer.choices[0].finish_reason == "length"
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(PROMPT), 64)
    chat = tiny.chat.completions.create(model="gpt-4o", messages=MESSAGES, max_tokens=64,
                                        temperature=0)
    assert chat.choices[0].message.content == TEXT
    assert chat.choices[0].message.role == "assistant"
    assert chat.model == "gpt-4o"
    assert chat.system_fingerprint == answer.system_fingerprint != ""
    assert chat.usage.prompt_tokens_details.cached_tokens <= len(PROMPT)
    assert chat._request_id


def test_streams_are_the_whole_answer(tiny: openai.OpenAI) -> None:
    chunks = list(tiny.completions.create(model="tiny", prompt=SAID, max_tokens=64, temperature=0,
                                          stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == TEXT
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
    assert all(chunk.usage is None for chunk in chunks)
    chunks = list(tiny.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=64, temperature=0, stream=True,
        stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for chunk in chunks
                   for choice in chunk.choices) == TEXT
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 64
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_stops(tiny: openai.OpenAI) -> None:
    at = 20  # in the answer, where these two characters come for the first time
    stop = TEXT[at:at + 2]
    assert TEXT.index(stop) == at
    for said in (stop, ["never", stop]):
        answer = tiny.completions.create(model="tiny", prompt=SAID, max_tokens=64, temperature=0,
                                         stop=said)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == (TEXT[:at], "stop")
    token = GREEDY[3]
    answer = tiny.completions.create(model="tiny", prompt=SAID, max_tokens=64, temperature=0,
                                     logprobs=1, extra_body={"stop_token_ids": [token]})
    assert answer.choices[0].text == TEXT[:GREEDY.index(token)]
    assert answer.choices[0].finish_reason == "stop"
    assert "".join(answer.choices[0].logprobs.tokens) == answer.choices[0].text


def test_choices_and_prompts(tiny: openai.OpenAI) -> None:
    options = {"model": "tiny", "max_tokens": 16, "temperature": 1.0,
               "extra_body": {"ignore_eos": True, "top_k": -1}}
    alone = [tiny.completions.create(prompt=SAID, seed=seed, **options).choices[0].text
             for seed in (7, 8, 9)]
    assert len(set(alone)) > 1
    together = tiny.completions.create(prompt=[SAID, PROMPT], n=3, seed=7, **options)
    assert [choice.index for choice in together.choices] == list(range(6))
    assert [choice.text for choice in together.choices] == alone * 2
    assert together.usage.prompt_tokens == 2 * len(PROMPT)
    streamed = [""] * 6
    for chunk in tiny.completions.create(prompt=[SAID, PROMPT], n=3, seed=7, stream=True,
                                         **options):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == alone * 2


def test_logprobs(tiny: openai.OpenAI) -> None:
    completion = tiny.completions.create(model="tiny", prompt=SAID, max_tokens=8, temperature=0,
                                         logprobs=3).choices[0]
    logprobs = completion.logprobs
    assert logprobs.tokens == list(completion.text) == list(TEXT[:8])
    assert logprobs.text_offset == list(range(8))
    for token, chosen, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs,
                                  strict=True):
        assert len(top) == 3
        assert top[token] == chosen == max(top.values()) < 0
    chat = tiny.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=8,
                                        temperature=0, logprobs=True, top_logprobs=3).choices[0]
    for entry, chosen, top in zip(chat.logprobs.content, logprobs.token_logprobs,
                                  logprobs.top_logprobs, strict=True):
        assert bytes(entry.bytes).decode() == entry.token
        assert math.isclose(entry.logprob, chosen, rel_tol=1e-5)
        assert [likely.token for likely in entry.top_logprobs] == list(top)
    biased = tiny.completions.create(model="tiny", prompt=SAID, max_tokens=4, temperature=0,
                                     logit_bias={"5": 100})
    assert biased.choices[0].text == CHARACTERS[5] * 4


def test_echo_and_going_on(tiny: openai.OpenAI) -> None:
    echoed = tiny.completions.create(model="tiny", prompt=PROMPT, max_tokens=4, temperature=0,
                                     echo=True)
    assert echoed.choices[0].text == SAID + TEXT[:4]
    whole = tiny.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=16,
                                         temperature=0).choices[0].message
    assert whole.content == TEXT[:16]
    begun = [*MESSAGES, {"role": "assistant", "content": TEXT[:6]}]
    rest = tiny.chat.completions.create(model="tiny", messages=begun, max_tokens=10, temperature=0,
                                        extra_body={"continue_final_message": True})
    assert rest.choices[0].message.content == TEXT[6:16]


@pytest.mark.parametrize(("fields", "param", "message"), [
    ({"temperature": -1}, "temperature", "temperature is -1"),
    ({"n": 0}, "n", "n is 0"),
    ({"max_tokens": 0}, "max_tokens", "max_tokens is 0"),
    ({"logit_bias": {"48": 1}}, "logit_bias", "token 48"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "not supported"),
    ({"response_format": {"type": "json_object"}}, "response_format", "not supported"),
    ({"extra_body": {"temprature": 1}}, None, "supplied: temprature"),
    ({"messages": []}, "messages", "messages is empty"),
    ({"messages": [{"role": "tool", "content": "a", "tool_call_id": "b"}]}, "messages[0].role",
     "tools are not supported"),
])
@pytest.mark.parametrize("stream", [False, True])
def test_refusals_are_named(tiny: openai.OpenAI, fields: dict, param: str | None, message: str,
                            stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        tiny.chat.completions.create(**{"model": "tiny", "messages": MESSAGES, "stream": stream,
                                        **fields})
    assert caught.value.param == param
    assert message in caught.value.body["message"]


def test_long_prompts_have_a_code(tiny: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        tiny.completions.create(model="tiny", prompt="a" * LONGEST)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        tiny.completions.create(model="absent", prompt="a")


def test_keys(openai_server: Server) -> None:
    for key in ("wrong", KEY + "0", KEY[:-1]):
        with openai.OpenAI(base_url=_url(openai_server), api_key=key, max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError):
                client.models.list()
            with pytest.raises(openai.AuthenticationError):
                client.completions.create(model="tiny", prompt="a")
    with urllib.request.urlopen(f"http://{openai_server.openai_address}/health") as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{_url(openai_server)}/models")
    assert caught.value.code == 401
    assert json.loads(caught.value.read())["error"]["code"] == "invalid_api_key"


def test_leaving_ends_sequences(openai_server: Server, tiny: openai.OpenAI) -> None:
    with openai_server.client() as client:
        stream = tiny.completions.create(model="tiny", prompt=SAID, max_tokens=LONGEST, n=4,
                                         stream=True, extra_body={"ignore_eos": True})
        for _, _chunk in zip(range(8), stream, strict=False):
            pass
        engine = client.model("tiny").engine()
        # Sequences pause where the tokens that nobody reads fill the connection.
        assert engine.running + engine.paused == 4
        stream.close()
        _idle(client)


def test_a_model_deleted_in_mid_stream(openai_server: Server, tiny: openai.OpenAI,
                                       tmp_path: pathlib.Path) -> None:
    tiny_decoder.write(tmp_path)
    with openai_server.client() as client:
        client.upload(tmp_path, name="passing", budget="0").wait("baseline", timeout=120)
        stream = tiny.completions.create(model="passing", prompt=SAID, max_tokens=LONGEST,
                                         stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        client.delete("passing")
        with pytest.raises(openai.APIError, match="deleted"):
            for _chunk in stream:
                pass


async def _chat(client: openai.AsyncOpenAI, stream: bool) -> str:
    options = {"model": "tiny", "messages": MESSAGES, "max_tokens": 32, "temperature": 0}
    if not stream:
        whole = await client.chat.completions.create(**options)
        return whole.choices[0].message.content
    text = ""
    async for chunk in await client.chat.completions.create(stream=True, **options):
        text += chunk.choices[0].delta.content or ""
    return text


def test_many_of_asyncio(openai_server: Server) -> None:
    async def run() -> list[str]:
        async with openai.AsyncOpenAI(base_url=_url(openai_server), api_key=KEY,
                                      timeout=120) as client:
            return await asyncio.gather(*(_chat(client, i % 2 == 0) for i in range(32)))

    assert asyncio.run(run()) == [TEXT[:32]] * 32


def _vectors(answer: openai.types.CreateEmbeddingResponse) -> np.ndarray:
    assert [one.index for one in answer.data] == list(range(len(answer.data)))
    return np.array([one.embedding for one in answer.data])


def test_embeddings_are_golden(tiny: openai.OpenAI) -> None:
    answer = tiny.embeddings.create(model="text-embedding-3-small", input=VECTORS["ids"])
    np.testing.assert_allclose(_vectors(answer), VECTORS["embeddings"], atol=1e-5)
    assert answer.model == "text-embedding-3-small"
    tokens = sum(map(len, VECTORS["ids"]))
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (tokens, tokens)
    # The client asks for base64 unless told otherwise.
    floats = tiny.embeddings.create(model="encoder", input=VECTORS["ids"],
                                    encoding_format="float")
    np.testing.assert_array_equal(np.float32(_vectors(floats)), np.float32(_vectors(answer)))
    for index, ids in enumerate(VECTORS["ids"]):
        alone = tiny.embeddings.create(model="encoder", input=ids)
        np.testing.assert_allclose(_vectors(alone)[0], VECTORS["embeddings"][index], atol=1e-5)


def test_embeddings_of_texts(tiny: openai.OpenAI) -> None:
    """A text is [CLS], its letters, [SEP]: pieces 2, 5 for "a" and so on, 3."""
    texts = tiny.embeddings.create(model="encoder", input=["a b", "The."])
    tokens = tiny.embeddings.create(model="encoder", input=[[2, 5, 6, 3], [2, 57, 62, 3]])
    np.testing.assert_array_equal(_vectors(texts), _vectors(tokens))
    assert texts.usage.prompt_tokens == 8


def test_the_most_embeddings_keep_their_order(tiny: openai.OpenAI) -> None:
    inputs = [[2, *[5 + (i + j) % 50 for j in range(i % 29)], 3] for i in range(2048)]
    all_of_them = _vectors(tiny.embeddings.create(model="encoder", input=inputs))
    assert len(all_of_them) == 2048
    for i in (0, 1, 500, 2047):
        alone = _vectors(tiny.embeddings.create(model="encoder", input=inputs[i]))[0]
        np.testing.assert_allclose(all_of_them[i], alone, atol=1e-5)


def test_embeddings_that_are_refused(tiny: openai.OpenAI) -> None:
    for fields, param, text in (
            ({"input": ["a", ""]}, "input[1]", "is empty"),
            ({"input": [[5], [5, 64]]}, "input[1][1]", "the model's tokens are 0 to 63"),
            ({"input": ["a"] * 2049}, "input", "it may have 2048"),
            ({"input": ["a", "a " * 31]}, "input[1]", "the model takes at most 32"),
            ({"input": "a", "dimensions": 8}, "dimensions", "not supported"),
            ({"input": "a", "model": "tiny"}, "model", "is no encoder")):
        with pytest.raises(openai.BadRequestError) as caught:
            tiny.embeddings.create(**{"model": "encoder", **fields})
        assert caught.value.param == param, caught.value
        assert text in caught.value.message
    with pytest.raises(openai.BadRequestError) as caught:
        tiny.completions.create(model="encoder", prompt="a")
    assert "is an encoder" in caught.value.message


def test_embeddings_many_at_once(openai_server: Server) -> None:
    async def ask() -> list[np.ndarray]:
        async with openai.AsyncOpenAI(base_url=_url(openai_server), api_key=KEY, max_retries=0,
                                      timeout=120) as client:
            answers = await asyncio.gather(*(
                client.embeddings.create(model="encoder", input=VECTORS["ids"])
                for _ in range(16)))
        return [_vectors(answer) for answer in answers]

    for vectors in asyncio.run(ask()):
        np.testing.assert_allclose(vectors, VECTORS["embeddings"], atol=1e-5)
