"""Measures the effect of a language model's streams on a model of tensors, and the other way round.

    .venv/bin/python tests/bench/beside.py [--streams 8] [--callers 4] [--rounds 8]

One server has both. In turns clients of the one are alone, clients of the other are alone, and both
are there. Prints JSON: times of a call of tensors, times to and between tokens, and the ratios of
each turn together over the turn alone before it. Where each side is given half of the machine, its
times are twice those alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/models")]

import athanor  # noqa: E402
import mlp  # noqa: E402
from callers import Caller, Row, language_server, medians, spread, streams, whole  # noqa: E402

CONFIGS = {"mlp": mlp.DEFAULT, "digits": mlp.DIGITS}
OF_TENSORS = ("p50_e2el_ms", "p95_e2el_ms", "p99_e2el_ms", "request_throughput")
OF_TOKENS = ("p50_itl_ms", "p95_itl_ms", "p99_itl_ms", "p50_tpot_ms", "p50_ttft_ms",
             "output_throughput")


def beside(config: mlp.Config, batch: int, callers: int, out: int, rounds: int, seconds: float,
           flags: list[str]) -> Row:
    """The row."""
    runs: dict[str, list[dict]] = {
        name: [] for name in ("tensors", "tokens", "tensors_beside", "tokens_beside")}
    with language_server(*flags) as (served, _), athanor.Client(served.address) as client:
        client.upload(mlp.mlp_graph(config=config), name=config.name,
                      budget="0").wait("baseline")

        def tensors(turn: int, length: float = seconds) -> Caller:
            return Caller("run", served.address, config.name,
                          f"--shape={config.input}={batch}x{config.widths[0]}",
                          f"--concurrency={callers}", f"--duration={length}s", f"--seed={turn}")

        def tokens(turn: int, length: float = seconds) -> Caller:
            return streams(served.address, f"--concurrency={out}", "--input_tokens=64",
                           "--output_tokens=64", f"--duration={length}s", f"--seed={turn}")

        for turn in range(rounds):
            runs["tensors"].append(whole(tensors(turn).result()))
            runs["tokens"].append(whole(tokens(turn).result()))
            # The longer one is there before and after the other's turn.
            other = tokens(turn + rounds, seconds + 3)
            runs["tensors_beside"].append(whole(tensors(turn).result()))
            other.result()
            other = tensors(turn + rounds, seconds + 3)
            # Other prompts than alone: none may find what an earlier turn has computed.
            runs["tokens_beside"].append(whole(tokens(turn + 2 * rounds).result()))
            other.result()
    row: Row = {"bench": "beside", "model": config.name, "batch": batch, "callers": callers,
                "streams": out, "rounds": rounds, "seconds": seconds}
    for kind, keys in (("tensors", OF_TENSORS), ("tokens", OF_TOKENS)):
        alone, together = runs[kind], runs[f"{kind}_beside"]
        row[kind] = {"alone": medians(alone, keys), "beside": medians(together, keys)}
        for key in keys:
            row[f"{kind}_{key}_beside_over_alone"] = spread(
                [b[key] / a[key] for a, b in zip(alone, together, strict=True)])
    return row


def main() -> int:
    """Prints the row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=CONFIGS, default="mlp")
    parser.add_argument("--batch", type=int, default=16, help="rows of a call of tensors")
    parser.add_argument("--callers", type=int, default=4, help="clients of tensors")
    parser.add_argument("--streams", type=int, default=8, help="streams of tokens")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10, help="of one turn")
    parser.add_argument("--flag", action="append", default=[], metavar="--NAME=VALUE",
                        help="of the server: --flag=--threads=2")
    args = parser.parse_args()
    row = beside(CONFIGS[args.model], args.batch, args.callers, args.streams, args.rounds,
                 args.seconds, args.flag)
    print(json.dumps(row | {"flags": args.flag, "load": os.getloadavg()[0]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
