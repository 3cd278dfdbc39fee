"""Arguments of users: each function returns the argument, or raises `InvalidArgument` naming it.

    checked_int("seed", -1, UINT64)      # seed=-1: it must be an int in [0, 18446744073709551616)
    checked_text("name", None)           # name=None: it must be a str
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from athanor.errors import InvalidArgument

# Ranges that fields of messages hold.
INT32 = range(-(1 << 31), 1 << 31)
INT64 = range(-(1 << 63), 1 << 63)
UINT64 = range(1 << 64)


def is_int(value: object, allowed: range = INT64) -> TypeGuard[int]:
    """Reports whether a value is an integer, of Python or numpy, in a range."""
    return (isinstance(value, numbers.Integral) and not isinstance(value, bool)
            and int(value) in allowed)


def checked_int(name: str, value: object, allowed: range = INT64) -> int:
    """Returns an integer in a range."""
    if is_int(value, allowed):
        return int(value)
    raise InvalidArgument(f"{name}={value!r}: it must be an int in "
                          f"[{allowed.start}, {allowed.stop})")


def checked_float(name: str, value: object) -> float:
    """Returns a number."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    raise InvalidArgument(f"{name}={value!r}: it must be a number")


def checked_text(name: str, value: object, what: str = "a str") -> str:
    """Returns a text that a message can hold; `what` says in an error what it must be."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name}={value!r}: it must be {what}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{name}: character {error.start} is a lone surrogate, "
                              f"{value[error.start]!r}; it must be a character") from None
    return value


def optional_text(name: str, value: object, what: str) -> str:
    """Returns a text; empty for None."""
    return "" if value is None else checked_text(name, value, what)


def checked_items(name: str, values: object, what: str) -> Iterable[Any]:
    """Returns a sequence whose items are not checked; a text or a mapping is none."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidArgument(f"{name}={values!r}: it must be a sequence of {what}")
    return values


def checked_names(name: str, values: object, what: str) -> list[str]:
    """Returns a sequence of names, each of which is `what`; empty for None."""
    if values is None:
        return []
    example = f", as in [{values!r}]" if isinstance(values, str) else ""
    return [checked_text(f"{name}[{at}]", value, what)
            for at, value in enumerate(checked_items(name, values, f"names{example}"))]
