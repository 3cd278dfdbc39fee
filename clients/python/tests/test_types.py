"""Types of the SDK: it, its examples and a user's code pass mypy --strict; the docstrings."""

from __future__ import annotations

import ast
import inspect
import pathlib
import re
import subprocess
import sys
import typing
from collections.abc import Iterator

import athanor
import athanor.protos
import pytest
from athanor.functions import FUNCTIONS

HOME = pathlib.Path(__file__).resolve().parents[1]
WRONG = """
import athanor
g = athanor.Graph("g")
x = g.input("x", 3, "f32")
athanor.relu(3)
x.sum(axes=0)
x + "1"
athanor.Client().upload(g)
"""


def mypy(*paths: str, cache: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs mypy as the SDK's pyproject.toml says: strictly."""
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(HOME / "pyproject.toml"),
         "--cache-dir", str(cache), *paths], cwd=HOME, check=False, capture_output=True, text=True)


def test_types_are_strict(tmp_path: pathlib.Path) -> None:
    done = mypy("athanor", "examples", "tests/typed_use.py", cache=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    # And a user's mistakes are found.
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    done = mypy("athanor", str(file), cache=tmp_path)
    lines = {int(line) for line in re.findall(r"wrong\.py:(\d+): error", done.stdout)}
    assert lines == {5, 6, 7, 8}, done.stdout + done.stderr


def test_the_stub_has_every_namespace() -> None:
    """protos.pyi stands for protos.py, whose messages are made while it is imported."""
    tree = ast.parse((HOME / "athanor/protos.pyi").read_text())
    names = {alias.asname or alias.name for node in tree.body
             if isinstance(node, ast.ImportFrom) and node.module == "athanor"
             for alias in node.names}
    made = {name for name in vars(athanor.protos) if name.endswith("_pb2")} - {"descriptor_pb2"}
    assert names == made


def test_functions_return_values() -> None:
    """Their annotations resolve, and say so."""
    parts = (athanor.Value, list[athanor.Value], tuple[athanor.Value, athanor.Value],
             tuple[athanor.Value, tuple[athanor.Value, athanor.Value]],
             tuple[tuple[athanor.Value, ...], tuple[athanor.Value, ...]])
    for name in sorted(set(athanor.__all__) & set(FUNCTIONS)):
        assert typing.get_type_hints(FUNCTIONS[name])["return"] in parts, name


def members() -> Iterator[tuple[str, object]]:
    """Yields every public name, and the public methods and properties of public classes, also
    those that they inherit of the package's own."""
    for module in (athanor, athanor.nn):
        for name in module.__all__:
            value = getattr(module, name)
            yield f"{module.__name__}.{name}", value
            if inspect.isclass(value):
                own = [base for base in value.__mro__ if base.__module__.startswith("athanor")]
                for part, one in (item for base in own for item in vars(base).items()):
                    got = one.fget if isinstance(one, property) else one
                    if not part.startswith("_") and (inspect.isfunction(got) or isinstance(
                            one, staticmethod | classmethod)):
                        yield f"{module.__name__}.{name}.{part}", got


def test_every_public_name_has_a_docstring() -> None:
    without = []
    for name, value in members():
        if not (inspect.isclass(value) or callable(value)):
            continue
        text = (value.__dict__.get("__doc__") if inspect.isclass(value) else
                inspect.getdoc(value)) or ""
        if not text.strip() or (inspect.isclass(value) and text.startswith(f"{value.__name__}(")):
            without.append(name)  # that of a dataclass is its signature
    assert not without


@pytest.mark.parametrize("name", sorted(set(athanor.__all__) & set(FUNCTIONS)))
def test_docstrings_say_shapes_dtypes_and_errors(name: str) -> None:
    function = FUNCTIONS[name]
    text = inspect.getdoc(function) or ""
    family = sys.modules[function.__module__].__doc__ or ""
    assert re.search(r"float|integer|bool|dtype|numeric", text, re.IGNORECASE), "dtypes"
    elementwise = "element by element" in family
    assert elementwise or re.search(r"\bax[ei]s\b|shape|\[", text), "shapes"
    assert "GraphError" in text + family, "errors"
