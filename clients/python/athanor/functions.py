"""All functions by their names: what operators, methods and numpy's functions call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from athanor import (
    arithmetic,
    contractions,
    elementwise,
    indexing,
    logic,
    loops,
    movement,
    networks,
    reductions,
    resize,
    windows,
)

MODULES = (arithmetic, logic, elementwise, movement, indexing, reductions, contractions, networks,
           windows, resize, loops)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: function for module in MODULES for name, function in vars(module).items()
    if inspect.isfunction(function) and function.__module__ == module.__name__
    and not name.startswith("_")}
