"""Requests for text: what reaches them, and what they cannot hold."""

from __future__ import annotations

import athanor
import numpy as np
import pytest
from athanor import calls
from athanor.protos import generate_pb2

OPTIONS = {"max_tokens": 9, "min_tokens": 2, "temperature": np.float32(0.5), "top_k": np.int64(40),
           "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1, "presence_penalty": -1,
           "frequency_penalty": 0.25, "seed": 2**64 - 1, "stop": ["\n\n", "é"],
           "stop_tokens": np.array([3, 4]), "ignore_eos": True, "logprobs": 0,
           "bias": {7: -1.5, np.int32(8): 2}, "special_in_text": True, "priority": 7,
           "cache_salt": "mine"}
SAID = generate_pb2.GenerateRequest(
    model="m", version="2", max_tokens=9, min_tokens=2, ignore_eos=True, stop=["\n\n", "é"],
    stop_tokens=[3, 4], special_in_text=True, priority=7, cache_salt="mine",
    sampling=generate_pb2.Sampling(
        temperature=0.5, top_k=40, top_p=0.9, min_p=0.1, repetition_penalty=1.1,
        presence_penalty=-1, frequency_penalty=0.25, seed=2**64 - 1, logprobs=0,
        bias={7: -1.5, 8: 2}))


def test_every_option_reaches_the_request() -> None:
    assert set(OPTIONS) == set(athanor.GenerateOptions.__annotations__)
    expected = generate_pb2.GenerateRequest(text="Once", add_special=True)
    expected.MergeFrom(SAID)
    assert calls.generate("m", "2", "Once", True, OPTIONS).request == expected
    expected = generate_pb2.GenerateRequest(tokens=generate_pb2.Tokens(ids=[1, 7]))
    expected.MergeFrom(SAID)
    assert calls.generate("m", "2", np.array([1, 7]), False, OPTIONS).request == expected
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": "Hi"}]
    chat = generate_pb2.Chat(messages=[generate_pb2.ChatMessage(role="system"),
                                       generate_pb2.ChatMessage(role="user", content="Hi")],
                             variables_json='{"deep": [1, null]}', continue_last=True)
    expected = generate_pb2.GenerateRequest(chat=chat)
    expected.MergeFrom(SAID)
    made = calls.chat("m", "2", messages, {"deep": [1, None]}, True, OPTIONS)
    assert made.request == expected
    assert calls.render_chat("m", "2", messages, {"deep": [1, None]}, True).request == (
        generate_pb2.RenderChatRequest(model="m", version="2", chat=chat))
    assert calls.chat("m", "", "Hi", None, False, {}).request.chat == generate_pb2.Chat(
        messages=[generate_pb2.ChatMessage(role="user", content="Hi")])


def test_silence_is_not_zero() -> None:
    silent = calls.generate("m", "", "", False, dict.fromkeys(OPTIONS)).request
    assert silent == generate_pb2.GenerateRequest(model="m", text="")
    assert silent.WhichOneof("prompt") == "text" and not silent.HasField("max_tokens")
    none = calls.generate("m", "", [], False, {"temperature": 0, "logprobs": 0, "max_tokens": 0})
    assert none.request.WhichOneof("prompt") == "tokens", "the server refuses an empty prompt"
    for holder, field in ((none.request.sampling, "temperature"), (none.request, "max_tokens"),
                          (none.request.sampling, "logprobs")):
        assert holder.HasField(field)
    assert not none.request.sampling.HasField("seed")


@pytest.mark.parametrize(("wrong", "text"), [
    ({"prompt": 5}, "prompt=5: it must be a sequence of token ids"),
    ({"prompt": b"x"}, "prompt=b'x': it must be a sequence of token ids"),
    ({"prompt": [1, "2"]}, r"prompt\[1\]='2': it must be an int in"),
    ({"prompt": [2**31]}, r"prompt\[0\]=2147483648: it must be an int in"),
    ({"prompt": "a\ud800"}, "prompt: character 1 is a lone surrogate"),
    ({"max_tokens": -1}, r"max_tokens=-1: it must be an int in \[0,"),
    ({"max_tokens": True}, "max_tokens=True: it must be an int"),
    ({"top_k": 1.5}, "top_k=1.5: it must be an int"),
    ({"seed": 2**64}, "it must be an int in"),
    ({"temperature": "0"}, "temperature='0': it must be a number"),
    ({"ignore_eos": 1}, "ignore_eos=1: it must be True or False"),
    ({"stop": b"\n"}, "it must be a sequence of texts"),
    ({"stop": [1]}, r"stop\[0\]=1: it must be a str"),
    ({"stop_tokens": 2}, "stop_tokens=2: it must be a sequence of token ids"),
    ({"bias": [1.0]}, "it must be a dict of token ids"),
    ({"bias": {"7": 1}}, "bias: token='7': it must be an int"),
    ({"bias": {7: "1"}}, r"bias\[7\]='1': it must be a number"),
])
def test_what_a_request_cannot_hold_is_refused(wrong: dict, text: str) -> None:
    options = {key: value for key, value in wrong.items() if key != "prompt"}
    with pytest.raises(athanor.InvalidArgument, match=text):
        calls.generate("m", "", wrong.get("prompt", "x"), False, options)


@pytest.mark.parametrize(("wrong", "text"), [
    ({"messages": [{"role": "user"}]}, r"messages\[0\].* must have role and content"),
    ({"messages": [{"role": "user", "content": "", "name": "x"}]}, "must have role and content"),
    ({"messages": ["Hi"]}, r"messages\[0\]='Hi': it must have role and content"),
    ({"messages": {"role": "user", "content": ""}}, "it must be a sequence of messages"),
    ({"messages": [{"role": "user", "content": None}]},
     r"messages\[0\].content=None: it must be a str"),
    ({"variables": "{}"}, "must be a dict"),
    ({"variables": {"x": object()}}, "JSON has no such value"),
    ({"variables": {"x": float("nan")}}, "JSON has no such value"),
])
def test_what_a_chat_cannot_hold_is_refused(wrong: dict, text: str) -> None:
    said = {"messages": "Hi", "variables": None, **wrong}
    with pytest.raises(athanor.InvalidArgument, match=text):
        calls.chat("m", "", said["messages"], said["variables"], False, {})
