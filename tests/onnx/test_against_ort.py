"""A few seeds of each op against ONNX Runtime; `ops/against_ort.py` draws as many as one likes."""

from __future__ import annotations

import pathlib
import re
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).with_name("ops")))

import against_ort  # noqa: E402
import families  # noqa: E402
from draw import Draw  # noqa: E402
from node import case_of  # noqa: E402

SEEDS = range(3)
# Draws of them all that ONNX Runtime takes, at least: the number must not fall unseen.
LEAST = 400


@pytest.mark.filterwarnings("ignore")
def test_few_seeds() -> None:
    """No draw may be wrong."""
    counts, lines, _ = against_ort.compare(["*"], SEEDS)
    assert not lines, "\n".join(lines)
    right = sum(words["right"] + words["pinned"] for words in counts.values())
    assert right >= LEAST


def test_every_op_is_drawn() -> None:
    """Every op with a handler is drawn, or listed as not drawn."""
    rows = [re.findall(r'\{(?:""|"com.microsoft"|"ai.onnx.preview"|kDomain), "(\w+)", \d+, (\w+)',
                       path.read_text())
            for path in (ROOT / "compiler/frontend/onnx/ops").glob("**/handlers_*.cc")]
    taken = {op for file in rows for op, handler in file if handler != "nullptr"}
    drawn = {op for _, op in families.OPS}
    undrawn = {op for ops in families.UNDRAWN for op in ops.split()}
    assert len(taken) > 190
    assert taken - drawn - undrawn == set()
    assert drawn & undrawn == set()


def test_draws_are_repeated() -> None:
    """The same op and seed make the same file; another seed another."""
    def made(seed: int) -> bytes:
        draw = Draw("Softmax", seed)
        families.OPS["", "Softmax"](draw)
        return case_of(draw).model.SerializeToString() + draw.operands[0].value.tobytes()

    assert made(1) == made(1)
    assert made(1) != made(2)


def test_a_wrong_value_is_found(tmp_path: pathlib.Path) -> None:
    """An element that is off by a hundredth fails."""
    draw = Draw("Relu", 0, plain=True)
    families.OPS["", "Relu"](draw)
    case = case_of(draw)
    value = np.array(case.expected[0])
    value.flat[0] += 1
    case.expected[0] = value
    (tmp_path / "cases.tsv").write_text(against_ort.write(tmp_path, case))
    assert [word for word, _ in against_ort.run(tmp_path).values()] == ["wrong"]
