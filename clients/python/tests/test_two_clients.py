"""The asyncio client has what the blocking one has: names, arguments, defaults, results."""

from __future__ import annotations

import inspect
import re

import athanor
import pytest

PAIRS = [(athanor.Client, athanor.AsyncClient), (athanor.Model, athanor.AsyncModel)]
# A property cannot be awaited: (await model.info()).plan_id.
ONLY_BLOCKING = {"plan_id"}
# What awaiting, or iterating with async for, turns a type into.
SAME = [(r"\bAsync(Client|Model|Generation)\b", r"\1"),
        (r"\bAsyncGenerator\[(\w+), None\]", r"Iterator[\1]")]


def members(kind: type) -> dict[str, object]:
    """Returns the public methods and properties of a class."""
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def returned(method: object) -> str:
    text = str(inspect.signature(method).return_annotation)
    for asynchronous, blocking in SAME:
        text = re.sub(asynchronous, blocking, text)
    return text


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_both_have_the_same_calls(blocking: type, asynchronous: type) -> None:
    ours, theirs = members(blocking), members(asynchronous)
    assert set(ours) - ONLY_BLOCKING == set(theirs)
    assert len(theirs) > 10
    for name, method in theirs.items():
        if isinstance(method, property):
            assert isinstance(ours[name], property), name
            continue
        given = inspect.signature(ours[name]).parameters
        assert given == inspect.signature(method).parameters, f"{blocking.__name__}.{name}"
        assert returned(ours[name]) == returned(method), f"{blocking.__name__}.{name}"


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_both_are_made_alike(blocking: type, asynchronous: type) -> None:
    given = dict(inspect.signature(blocking).parameters)
    others = dict(inspect.signature(asynchronous).parameters)
    assert list(given) == list(others) and len(given) >= 2
    for name, parameter in given.items():
        assert (parameter.kind, parameter.default) == (others[name].kind, others[name].default)
