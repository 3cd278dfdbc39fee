"""Checks every #include of a source tree against the table of layers.bzl."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

SOURCE_SUFFIXES = {".h", ".cc", ".inc", ".cu", ".mm"}
# Everyone may include these; they include nothing of ours.
OPEN = "deploy/bazel/libs"
_CPP_INCLUDE = re.compile(r'^\s*#\s*(?:include|import)\s*(["<])([^">]+)[">]')
_PROTO_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?(")([^"]+)"')


class Table:
    """The rows of layers.bzl and the questions asked of them."""

    def __init__(self, layers: dict[str, list[str]], test_extra: list[str],
                 external: dict[str, list[str]],
                 rooms: dict[str, list[str]] | None = None) -> None:
        self.layers = layers
        self.test_extra = test_extra
        self.external = external
        self.rooms = rooms or {}
        self.parted = {self.layer_of(room + "/") for room in self.rooms}
        self.tops = {layer.split("/")[0] for layer in layers} | {"deploy"}

    @classmethod
    def load(cls, path: pathlib.Path) -> Table:
        """Reads the four literals; a .bzl of literals is also Python."""
        values = {}
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign):
                values[node.targets[0].id] = ast.literal_eval(node.value)
        return cls(values["LAYERS"], values["TEST_EXTRA"], values["EXTERNAL"],
                   values["ROOMS"])

    def layer_of(self, path: str) -> str | None:
        """The longest layer name that `path` (from the root) falls under."""
        fitting = [
            layer for layer in self.layers
            if path.startswith(layer[:-1] if layer.endswith("*") else layer + "/")
        ]
        return max(fitting, key=len, default=None)

    def problems(self) -> list[str]:
        """Rows that name an unknown layer, and cycles among the rows."""
        found = []
        for layer, allowed in self.layers.items():
            for other in allowed:
                if other not in self.layers:
                    found.append(f"{layer}: no such layer as {other}")
        for room, allowed in self.rooms.items():
            for other in allowed:
                if other not in self.rooms:
                    found.append(f"{room}: no such room as {other}")
                elif self.layer_of(other + "/") != self.layer_of(room + "/"):
                    found.append(f"{room}: {other} is a room of another layer")
        return found + _cycles(self.layers) + _cycles(self.rooms)


def _cycles(rows: dict[str, list[str]]) -> list[str]:
    """The cycles among rows of `name: names`."""
    found: list[str] = []
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            found.append("cycle: " + " -> ".join(path + [name]))
        elif name not in done:
            for other in rows.get(name, []):
                visit(other, path + [name])
            done.add(name)

    for name in rows:
        visit(name, [])
    return found


def sources(root: pathlib.Path) -> Iterator[str]:
    """C++ and proto files of the tree, by path from its root."""
    suffixes = SOURCE_SUFFIXES | {".proto"}
    for top in sorted(root.iterdir()):
        # Bazel's links and hidden folders (.git, .venv) hold no source of ours.
        if not top.is_dir() or top.is_symlink() or top.name.startswith("."):
            continue
        for path in sorted(top.rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path.relative_to(root).as_posix()


def check_file(table: Table, root: pathlib.Path, path: str) -> list[str]:
    """One line per include of `path` that the table does not allow."""
    layer = table.layer_of(path)
    if layer is None:
        if path.startswith(OPEN + "/"):
            return []
        return [f"{path}: its folder has no row in layers.bzl"]
    if layer in table.parted and path.rpartition("/")[0] not in table.rooms:
        return [f"{path}: its folder has no row among the ROOMS of layers.bzl"]
    stem = path.rsplit(".", 1)[0]
    extra = table.test_extra if stem.endswith(("_test", "_benchmark")) else []
    own = {layer, *extra}
    pattern = _PROTO_IMPORT if path.endswith(".proto") else _CPP_INCLUDE
    found = []
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        match = pattern.match(line)
        if not match:
            continue
        reason = _external_refusal(table, own, match[2])
        if reason is None and match[1] == '"':
            folder = root / pathlib.PurePosixPath(path).parent
            reason = (_refusal(table, own, match[2], folder)
                      or _room_refusal(table, layer, path, match[2]))
        if reason:
            found.append(f"{path}:{number}: {layer}: {reason}")
    return found


def _external_refusal(table: Table, own: set[str], target: str) -> str | None:
    """Why a file of the layers `own` may not include a header from outside."""
    for prefix, users in table.external.items():
        if target.startswith(prefix) and not own & {"tests", *users}:
            return f"may not include {target}; {', '.join(users)} may"
    return None


def _refusal(table: Table, own: set[str], target: str,
             folder: pathlib.Path) -> str | None:
    """Why a file in `folder`, of the layers `own`, may not include `target`."""
    if target.startswith(OPEN + "/"):
        return None
    if target.split("/")[0] not in table.tops:
        relative = target.startswith(".") or "/" not in target
        if relative or (folder / target).exists():
            return f'"{target}" is not a path from the repository root'
        return None
    other = table.layer_of(target)
    if other is None:
        return f"{target} is in no layer of layers.bzl"
    if not any(other == layer or other in table.layers[layer] for layer in own):
        return f"may not include {other} ({target})"
    return None


def _room_refusal(table: Table, layer: str, path: str, target: str) -> str | None:
    """Why a file that is no test's may not include `target` of its own layer."""
    stem = path.rsplit(".", 1)[0]
    if stem.endswith(("_test", "_benchmark", "_testing")) or table.layer_of(target) != layer:
        return None
    here, there = path.rpartition("/")[0], target.rpartition("/")[0]
    if layer not in table.parted or there == here or there in table.rooms[here]:
        return None
    return f"{here} may not include {there} ({target})"


def check_tree(table: Table, root: pathlib.Path) -> tuple[list[str], int]:
    """All refused includes under `root`, and how many files were read."""
    found, count = [], 0
    for path in sources(root):
        count += 1
        found += check_file(table, root, path)
    return found, count
