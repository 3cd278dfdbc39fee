"""Asks a language model a question and prints its answer as it comes.

    .venv/bin/python clients/python/examples/generate.py "What is a furnace?" --model smollm2

With --checkpoint PATH (a .gguf file, or a folder of Hugging Face) it uploads that as the model
first. Exits with 1 if the server refuses.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

import athanor


def upload(client: athanor.Client, path: pathlib.Path, name: str) -> None:
    """Uploads a checkpoint and waits for its first plan."""
    start = time.perf_counter()
    model = client.upload(path, name=name)
    stored = time.perf_counter()
    model.wait("baseline", timeout=600)
    print(f"{name} version {model.version}: stored after {stored - start:.1f} s, ready after "
          f"{time.perf_counter() - start:.1f} s")


def answer(client: athanor.Client, name: str, question: str) -> None:
    """Prints the answer, then what it took."""
    print(f"\n> {question}")
    # As SmolLM2's authors advise; its GGUF file does not say so.
    pieces = client.model(name).chat(question, max_tokens=256, temperature=0.2, top_p=0.9)
    for piece in pieces:
        print(piece.text, end="", flush=True)
    whole = pieces.result()
    print(f"\n\n{whole.usage.generated_tokens} tokens, the first after "
          f"{whole.times.first_token_us / 1e6:.3f} s, then {whole.tokens_per_second:.1f} tokens a "
          f"second (finish: {whole.finish}, seed: {whole.usage.seed})")


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("question", nargs="?", default="What is a furnace?")
    parser.add_argument("--address", metavar="HOST:PORT",
                        help="of the server; else ATHANOR_ADDRESS, else 127.0.0.1:50051")
    parser.add_argument("--model", default="smollm2", metavar="NAME")
    parser.add_argument("--checkpoint", type=pathlib.Path, metavar="PATH")
    args = parser.parse_args()
    try:
        with athanor.Client(args.address) as client:
            if args.checkpoint:
                upload(client, args.checkpoint, args.model)
            answer(client, args.model, args.question)
    except athanor.Error as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
