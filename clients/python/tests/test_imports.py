"""Imports between the package's modules: they run one way, in whatever block they stand."""

from __future__ import annotations

import ast
import graphlib
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "athanor"


def module_name(path: pathlib.Path) -> str:
    """Returns the name by which a file is imported."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


SOURCES = {module_name(path): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}


def imported(source: str, modules: set[str]) -> set[str]:
    """Returns which of `modules` a module's source imports, at its top or in any block of it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(part for part in ("athanor" * node.level, node.module) if part)
            names = [f"{base}.{alias.name}" for alias in node.names]
            found.update(name if name in modules else base for name in names)
    return found & modules


def find_circle(sources: dict[str, str]) -> list[str]:
    """Returns modules each of which imports the next, the first also at the end; empty: none do."""
    graph = {name: imported(source, set(sources)) for name, source in sources.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1][::-1]
    return []


def test_imports_run_one_way() -> None:
    assert {"athanor", "athanor.core", "athanor.nn", "athanor.nn.layers"} <= SOURCES.keys()
    circle = find_circle(SOURCES)
    assert not circle, " imports ".join(circle)


@pytest.mark.parametrize("back", [
    "import athanor.graph",
    "from athanor import graph",
    "from athanor.graph import Graph",
    "from . import graph",
    "from .graph import Graph",
    "if TYPE_CHECKING:\n    from athanor.graph import Graph",
    "def late():\n    from athanor.graph import Graph",
    "from athanor import Graph",  # by way of the package itself
])
def test_a_circle_is_found_however_it_is_written(back: str) -> None:
    circle = find_circle({**SOURCES, "athanor.core": f"{SOURCES['athanor.core']}\n{back}\n"})
    assert "athanor.core" in circle and circle[0] == circle[-1]
