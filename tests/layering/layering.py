"""Checks every #include of a source tree against the table of layers.bzl, and that documents name
files that exist."""

from __future__ import annotations

import ast
import fnmatch
import os
import pathlib
import re
from collections.abc import Iterator

TABLE_PATH = "deploy/bazel/visibility/layers.bzl"
SOURCE_SUFFIXES = {".h", ".cc", ".inc", ".cu", ".mm"}
# Pages, and files that each of them has to list.
LISTS = (
    ("deploy/README.md", "deploy/*/README.md"),
    ("docs/README.md", "docs/*.md"),
    ("docs/README.md", "docs/internals/*.md"),
    ("server/README.md", "server/*/README.md"),
    ("tests/README.md", "tests/*/README.md"),
    ("tests/e2e/README.md", "tests/e2e/*/test_*.py"),
)
# Everyone may include these; they include nothing of ours.
OPEN = "deploy/bazel/libs"
_CPP_INCLUDE = re.compile(r'^\s*#\s*(?:include|import)\s*(["<])([^">]+)[">]')
_PROTO_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?(")([^"]+)"')
_LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")
_QUOTED_PATH = re.compile(r"`([\w./*-]+\.(?:bzl|cc|h|kir|md|proto|py))`")
# Names that stand for any file of their kind, files of other projects, and one that is planned.
_PLACEHOLDER = re.compile(
    r"(?:.*/)?(?:x\.|x_|_test|command_x\.)|onnx/backend/|generate\.proto$")


def repository_root() -> pathlib.Path:
    """The source tree: runfiles are links into it."""
    return pathlib.Path(os.path.realpath(TABLE_PATH)).parents[3]


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
    """Returns one line per include of `path` that the table does not allow."""
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
    """Returns all refused includes under `root`, and the number of files read."""
    found, count = [], 0
    for path in sources(root):
        count += 1
        found += check_file(table, root, path)
    return found, count


def document_problems(root: pathlib.Path) -> tuple[list[str], int]:
    """Returns missing targets of references in Markdown files under `root`, and the number of
    files.

    A link has to lead from its document to a file, and its fragment to a heading there. A quoted
    path has to be the end of some file's path: documents name files from their own folder, from a
    layer or from the root. CHANGELOG.md tells of files that were.
    """
    files = [path for top in sorted(root.iterdir())
             if not top.name.startswith(".") and not top.is_symlink()
             for path in ([top] if top.is_file() else sorted(top.rglob("*"))) if path.is_file()]
    ends = {"/".join(parts[i:]) for parts in (path.relative_to(root).parts for path in files)
            for i in range(len(parts))}
    documents = [path for path in files if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    found = []
    for path in documents:
        place, fenced = path.relative_to(root).as_posix(), False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            fenced ^= line.startswith("```")
            if fenced:
                continue
            for match in _LINK.finditer(line):
                if reason := _link_problem(path, match[1], match[2]):
                    found.append(f"{place}:{number}: {reason}")
            for match in _QUOTED_PATH.finditer(line):
                if not (_PLACEHOLDER.match(match[1]) or _ends_a_path(match[1], ends)):
                    found.append(f"{place}:{number}: there is no file {match[1]}")
    return found, len(documents)


def missing_rows(root: pathlib.Path) -> list[str]:
    """Returns what the pages of LISTS leave out under `root`: a file is named there in backquotes
    or by a link, a folder by its README."""
    found = []
    for page, pattern in LISTS:
        text = (root / page).read_text(encoding="utf-8")
        for path in sorted(set(root.glob(pattern)) - {root / page}):
            name = f"{path.parent.name}/" if path.name == "README.md" else path.name
            link = path.relative_to((root / page).parent).as_posix()
            if f"`{name}`" not in text and f"]({link})" not in text:
                found.append(f"{page}: no row for {path.relative_to(root).as_posix()}")
    return found


def _ends_a_path(name: str, ends: set[str]) -> bool:
    """Reports whether `name`, which may be a pattern, is the end of a path."""
    name = re.sub(r"^(\.\.?/)+", "", name)
    return bool(fnmatch.filter(ends, name)) if "*" in name else name in ends


def _link_problem(document: pathlib.Path, target: str, fragment: str | None) -> str | None:
    """Why a link of `document` leads nowhere."""
    if "://" in target or target.startswith("mailto:"):
        return None
    path = document.parent / target if target else document
    if not path.exists():
        return f"the link to {target} leads nowhere"
    if fragment and path.suffix == ".md":
        headings = re.findall(r"^#+ (.*)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if fragment[1:] not in {_slug(heading) for heading in headings}:
            return f"{path.name} has no heading for {fragment}"
    return None


def _slug(heading: str) -> str:
    """A heading's fragment, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
