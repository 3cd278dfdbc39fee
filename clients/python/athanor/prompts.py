"""Requests for text as messages: prompts, chats and options, checked.

    generate_request("m", "", "Once upon", {"max_tokens": 8, "temperature": 0})
    generate_request("m", "", chat_message("Hi", None, False), {})
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from athanor.checks import INT32, UINT64, checked_float, checked_int, checked_items, checked_text
from athanor.errors import InvalidArgument
from athanor.generation import GenerateOptions, Messages
from athanor.protos import generate_pb2

# The numbers that a request can hold, by option; the server knows which of them make sense.
_INTS = {"max_tokens": range(1 << 63), "min_tokens": range(1 << 63), "top_k": range(1 << 63),
         "seed": UINT64, "logprobs": range(1 << 31), "priority": range(1 << 63)}
_FLOATS = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty",
           "frequency_penalty")
_FLAGS = ("ignore_eos", "special_in_text")
_OF_REQUEST = ("max_tokens", "min_tokens", "priority")  # beside options of its sampling


def token_ids(name: str, values: object) -> list[int]:
    """Returns the ids in an argument called `name`; raises `InvalidArgument` if it holds others."""
    return [checked_int(f"{name}[{at}]", value, INT32)
            for at, value in enumerate(checked_items(name, values, "token ids, as in [1, 7]"))]


def chat_message(messages: Messages, variables: Mapping[str, object] | None,
                 continue_last: bool) -> generate_pb2.Chat:
    """Makes the message of a chat.

    Raises
    ------
    InvalidArgument
        Naming the message, or the variable, that a chat cannot hold.
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    chat = generate_pb2.Chat(continue_last=continue_last)
    what = 'messages, as in [{"role": "user", "content": "Hello"}]'
    for at, message in enumerate(checked_items("messages", messages, what)):
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            raise InvalidArgument(f"messages[{at}]={message!r}: it must have role and content, as "
                                  'in {"role": "user", "content": "Hello"}')
        chat.messages.add(role=checked_text(f"messages[{at}].role", message["role"]),
                          content=checked_text(f"messages[{at}].content", message["content"]))
    if variables is not None:
        if not isinstance(variables, Mapping):
            raise InvalidArgument(f"variables={variables!r}: they must be a dict, as in "
                                  '{"enable_thinking": False}')
        try:
            chat.variables_json = json.dumps(dict(variables), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"variables={variables!r}: JSON has no such value: {error}"
                                  ) from None
    return chat


def generate_request(name: str, version: str, prompt: str | Iterable[int] | generate_pb2.Chat,
                     options: GenerateOptions,
                     add_special: bool = False) -> generate_pb2.GenerateRequest:
    """Makes the request.

    Raises
    ------
    TypeError
        For an option that there is none of.
    InvalidArgument
        Naming the option that a request cannot hold, and what it can.
    """
    request = generate_pb2.GenerateRequest(model=name, version=version, add_special=add_special)
    if isinstance(prompt, generate_pb2.Chat):
        request.chat.CopyFrom(prompt)
    elif isinstance(prompt, str):
        request.text = checked_text("prompt", prompt)
    else:
        request.tokens.CopyFrom(generate_pb2.Tokens(ids=token_ids("prompt", prompt)))
    unknown = sorted(set(options) - set(GenerateOptions.__annotations__))
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}; there are "
                        f"{', '.join(GenerateOptions.__annotations__)}")
    for option, value in options.items():
        if value is not None:
            _set(request, option, value)
    return request


def _set(request: generate_pb2.GenerateRequest, option: str, value: Any) -> None:
    """Sets the request's field of an option."""
    if option in _FLAGS:
        if not isinstance(value, bool):
            raise InvalidArgument(f"{option}={value!r}: it must be True or False")
        setattr(request, option, value)
    elif option == "stop":
        texts = [value] if isinstance(value, str) else checked_items(
            "stop", value, 'texts, as in ["\\n\\n"]')
        request.stop.extend(checked_text(f"stop[{at}]", text) for at, text in enumerate(texts))
    elif option == "cache_salt":
        request.cache_salt = checked_text("cache_salt", value)
    elif option == "stop_tokens":
        request.stop_tokens.extend(token_ids("stop_tokens", value))
    elif option == "bias":
        if not isinstance(value, Mapping):
            raise InvalidArgument(f"bias={value!r}: it must be a dict of token ids, as in "
                                  "{7: -1.5}")
        for token, added in value.items():
            key = checked_int("bias: token", token, INT32)
            request.sampling.bias[key] = checked_float(f"bias[{token}]", added)
    else:
        holder = request if option in _OF_REQUEST else request.sampling
        setattr(holder, option, checked_float(option, value) if option in _FLOATS
                else checked_int(option, value, _INTS[option]))
