"""Measures the effect of a client with many streams on a client with one, of the same model.

    .venv/bin/python tests/bench/greedy_tokens.py [--greedy 64] [--rounds 8] [--backend grpc]

In turns a modest client, which has one stream at a time, is alone and beside a greedy one that
always has `--greedy` streams out. With the openai backend each has a key, so that the server knows
them for two; with grpc each has a connection. Prints JSON: the modest one's refusals and times, and
the ratios of each turn beside over the turn alone before it. Fair shares let the time to the first
token and the time of a token be twice those alone: half of the machine is the other's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from callers import Caller, Row, language_server, medians, spread, streams, whole
from serving import free_address

KEYS = ("p50_ttft_ms", "p95_ttft_ms", "p50_tpot_ms", "p95_tpot_ms", "p95_itl_ms")
CLIENTS = ("modest", "greedy")


def greedy_tokens(backend: str, greedy: int, prompt: int, output: int, target_ms: float,
                  rounds: int, seconds: float, flags: list[str]) -> Row:
    """The row."""
    alone, beside, greed = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys"
        keys.write_text("".join(f"{name} key-of-{name}\n" for name in CLIENTS))
        keys.chmod(0o600)
        http = free_address()
        with language_server(f"--itl_target={target_ms}ms", f"--openai_listen={http}",
                             f"--openai_keys={keys}", *flags) as (served, engine):
            address = http if backend == "openai" else served.address

            def caller(name: str, length: float, *how: str) -> Caller:
                return streams(address, f"--backend={backend}",
                               f"--vocabulary={engine.vocabulary}",
                               f"--max_model_len={engine.max_model_len}",
                               f"--input_tokens={prompt}", f"--output_tokens={output}",
                               f"--duration={length}s", *how,
                               environment={"OPENAI_API_KEY": f"key-of-{name}"})

            for turn in range(rounds):
                # Other prompts in each turn: none may find what an earlier one has computed.
                alone.append(whole(caller("modest", seconds, f"--seed={2 * turn}").result()))
                # It is there before and after the other's turn; its streams are out at once.
                other = caller("greedy", seconds + 5, f"--seed={turn + 1_000_000}",
                               f"--concurrency={greedy}", "--warmup=1")
                beside.append(caller("modest", seconds, f"--seed={2 * turn + 1}",
                                     "--warmup=4").result())
                greed.append(other.result())
    row: Row = {"bench": "greedy_tokens", "backend": backend, "greedy": greedy, "prompt": prompt,
                "output": output, "itl_target_ms": target_ms, "rounds": rounds, "seconds": seconds,
                "calls": sum(turn["completed"] for turn in beside),
                "refused_beside": sum(turn["failed"] for turn in beside),
                "errors": [turn["errors"] for turn in beside if turn["failed"]],
                "greedy_answered": sum(turn["completed"] for turn in greed),
                "greedy_refused": sum(turn["failed"] for turn in greed),
                "greedy_tokens_per_s": medians(greed, ("output_throughput",)),
                "alone": medians(alone, KEYS), "beside": medians(beside, KEYS)}
    for key in KEYS:
        row[f"{key}_beside_over_alone"] = spread(
            [b[key] / a[key] for a, b in zip(alone, beside, strict=True)])
    return row


def main() -> int:
    """Prints the row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backend", choices=("openai", "grpc"), default="openai")
    parser.add_argument("--greedy", type=int, default=64, help="streams that are always out")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of each prompt")
    parser.add_argument("--output", type=int, default=64, help="tokens of each answer")
    parser.add_argument("--itl_target", type=float, default=35, help="of the server, milliseconds")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20, help="of one turn")
    parser.add_argument("--flag", action="append", default=[], metavar="--NAME=VALUE",
                        help="of the server: --flag=--max_sequences=64")
    args = parser.parse_args()
    row = greedy_tokens(args.backend, args.greedy, args.prompt, args.output, args.itl_target,
                        args.rounds, args.seconds, args.flag)
    print(json.dumps(row | {"flags": args.flag, "load": os.getloadavg()[0]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
