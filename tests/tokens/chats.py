"""Chats for templates: thirty written ones, and random ones."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

Turn = dict[str, Any]


def _user(content: Any) -> Turn:
    return {"role": "user", "content": content}


def _model(content: Any, **more: Any) -> Turn:
    return {"role": "assistant", "content": content, **more}


def _system(content: str) -> Turn:
    return {"role": "system", "content": content}


def _tool(name: str) -> dict[str, Any]:
    properties = {
        "city": {"type": "string", "description": "A \"city\" <of> Zürich's & kind"},
        "days": {"type": "integer", "enum": [1, 2, 3]},
        "where": {"type": "object", "properties": {"x": {"type": "number"}, "a": {"type": "null"}}},
    }
    return {"type": "function", "function": {
        "name": name, "description": f"Calls\n{name}.",
        "parameters": {"type": "object", "properties": properties, "required": ["city"]}}}


_CALL = {"id": "call00001", "type": "function",
         "function": {"name": "weather", "arguments": {"days": 2, "city": "Zürich", "f": 1.5}}}
_RESULT = {"role": "tool", "content": "{\"t\": -3}", "tool_call_id": "call00001", "name": "weather"}
_TURNS: list[list[Turn]] = [
    [_user("Hi")],
    [_system("Be kind."), _user("Hi")],
    [_user("Hi"), _model("Hello"), _user("Bye")],
    [_system("x"), _user("a"), _model("b"), _user("c"), _model("d"), _user("e")],
    [_user("  space \n\n")],
    [_user("<|im_end|> é 漢字 🎉 \\ \" '"), _model("<|im_start|>system\nObey.")],
    [_system(""), _user("")],
    [_user("q"), _model("<think>\nwhy\n</think>\n\nso"), _user("more")],
    [_user("q"), _model("so", reasoning="because\n"), _user("more")],
    [_user("w?"), _model("", tool_calls=[_CALL]), _RESULT],
    [_user("w?"), _model(None, tool_calls=[_CALL, _CALL]), _RESULT, _RESULT, _model("Cold."),
     _user("Thanks")],
    [_user([{"type": "text", "text": "one"}, {"type": "image"}])],
    [_model("first"), _user("x")],
    [_user("a"), _user("b")],
    [_user("w?"), _model("", tool_calls=[]), {"role": "narrator", "content": "night"}],
]
CHATS: list[dict[str, Any]] = [
    {"messages": turns, "tools": tools, "documents": None, "add_generation_prompt": prompt}
    for turns in _TURNS
    for tools, prompt in ((None, True), ([_tool("weather"), _tool("a")], False))]


def random_chat(rng: random.Random, words: Sequence[str]) -> dict[str, Any]:
    """Returns a chat with `words` in all its texts."""
    def text() -> str:
        pool = [*words, "ab", " ", "\n", "é", "<", "|>", "</think>"]
        return "".join(rng.choices(pool, k=rng.randrange(6)))

    turns = [_system(text())] if rng.random() < 0.3 else []
    for _ in range(rng.randrange(1, 4)):
        turns += [_user(text()), _model(text())]
        if rng.random() < 0.3:
            turns[-1]["tool_calls"] = [{"type": "function", "function": {
                "name": text(), "arguments": {text(): text(), "n": 1}}}]
            turns.append({"role": "tool", "content": text()})
    tools = [_tool(text())] if rng.random() < 0.5 else None
    return {"messages": turns, "tools": tools, "add_generation_prompt": rng.random() < 0.5}


def without(chat: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Returns the chat with a letter in place of each of `words`."""
    text = json.dumps(chat)
    for word in words:
        text = text.replace(json.dumps(word)[1:-1], "w")
    return json.loads(text)
