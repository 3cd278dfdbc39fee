"""Finds the files that name an op, so that a test can say what adding one takes."""

from __future__ import annotations

import pathlib
import re

# Sources without tests, testing helpers, benchmarks and golden data.
_FOLDERS = ("compiler", "server", "runtime", "clients/python/athanor")
_SUFFIXES = {".h", ".cc", ".py"}
_TESTING = re.compile(r"_test\.|_testing\.|/testing/|/testing\.|_benchmark\.|/testdata/"
                      r"|limits_graph_cases")
# An op is the business of these: what it means, its rewrites, and what it is imported from.
HOMES = ("compiler/ir/ops/", "compiler/rules/", "compiler/frontend/onnx/ops/",
         "compiler/frontend/checkpoint/")
_ENUMERATOR = re.compile(r"\bOp::k[A-Z]")
_CASE = re.compile(r"\bcase Op::k[A-Z]")


def sources(root: pathlib.Path) -> dict[str, str]:
    """The text of every source without tests, by its path from the root."""
    found = {}
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in _SUFFIXES and path.is_file() and not _TESTING.search(name):
                found[name] = path.read_text()
    return found


def naming(op: str, texts: dict[str, str]) -> list[str]:
    """Files that name the op: as an enumerator, as a row of the op table, or as a string."""
    pattern = re.compile(rf'\bOp::k{op}\b|\bX\({op}\)|\bATHANOR_[A-Z]+\({op}\b|"{op}"'
                         rf"|\bATHANOR_[A-Z]+\(\n\s*{op}\b")
    return [path for path, text in texts.items() if pattern.search(text)]


def naming_any(texts: dict[str, str]) -> list[str]:
    """Files outside the homes of ops that name one."""
    return [path for path, text in texts.items()
            if not path.startswith(HOMES) and _ENUMERATOR.search(text)]


def switching(texts: dict[str, str]) -> list[str]:
    """Files outside the op table that switch over ops."""
    return [path for path, text in texts.items()
            if not path.startswith("compiler/ir/ops/") and _CASE.search(text)]


def differences(op: str, found: list[str], expected: list[str], most: int) -> list[str]:
    """Sentences about each file that is not in the other list, and about a list that is too long.
    """
    wrong = [f"{path} names {op}, which adding it does not take: read a trait of its row instead "
             "(compiler/ir/graph/op_traits.h), or say why in the list of op_files_test.py"
             for path in found if path not in expected]
    wrong += [f"{path} names {op} no more: take it off the list of op_files_test.py"
              for path in expected if path not in found]
    if len(found) > most:
        wrong.append(f"{op} is named in {len(found)} files, {most} are the most")
    return wrong
