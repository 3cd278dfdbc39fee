"""Measures what a language model's sequences cost each other, and what they spare each other.

    .venv/bin/python tests/bench/tokens_many.py [--only prefix] [--rounds 8]

prefix: the time to the first token of prompts whose first `--prefix` tokens were computed for
others before, over that of prompts as long of which nothing was, in turns A B B A.
prompt: the times between the tokens of eight streams while another client has one prompt of
`--prompt` tokens after the other computed, over those of the streams alone, turn by turn; and the
share of `--itl_target` that they take. Prints a JSON line each.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from callers import Row, language_server, medians, spread, streams, whole

STREAMS = 8
ITL = ("p50_itl_ms", "p95_itl_ms", "p99_itl_ms", "p50_tpot_ms")


def prefix(tokens: int, own: int, calls: int, rounds: int, flags: list[str]) -> Row:
    """The row of prompts that share their first `tokens`, before `own` of their own."""
    unknown, known = [], []
    with language_server(*flags) as (served, engine):
        def ask(seed: int, *how: str) -> dict:
            return whole(streams(served.address, f"--num_prompts={calls}", "--output_tokens=2",
                                 f"--seed={seed}", *how).result())

        for turn in range(rounds):
            sides = [(unknown, [f"--input_tokens={tokens + own}"]),
                     (known, [f"--input_tokens={own}", f"--shared_prefix={tokens}"])]
            for results, how in sides if turn % 2 == 0 else sides[::-1]:
                results.append(ask(turn, *how))
    keys = ("p50_ttft_ms", "p99_ttft_ms", "total_input_tokens", "total_cached_tokens")
    row: Row = {"bench": "tokens_many", "what": "prefix", "prefix": tokens, "own": own,
                "calls": calls, "rounds": rounds, "block_tokens": engine.block_tokens,
                "unknown": medians(unknown, keys), "known": medians(known, keys)}
    for key in ("p50_ttft_ms", "p99_ttft_ms"):
        row[f"{key}_known_over_unknown"] = spread(
            [b[key] / a[key] for a, b in zip(unknown, known, strict=True)])
    return row


def prompt(tokens: int, target_ms: float, rounds: int, seconds: float, flags: list[str]) -> Row:
    """The row of eight streams beside prompts of `tokens`."""
    alone, beside, prompts = [], [], []
    with language_server(f"--itl_target={target_ms}ms", *flags) as (served, engine):
        def measured(turn: int) -> dict:
            # Their own prompts are a token long, and their outputs as long as a turn takes.
            return whole(streams(served.address, f"--concurrency={STREAMS}", "--input_tokens=1",
                                 "--output_tokens=256", "--warmup=0", f"--duration={seconds}s",
                                 f"--seed={turn}").result())

        measured(rounds)
        for turn in range(rounds):
            alone.append(measured(turn))
            # It is there before the streams begin, and a prompt of it when they end.
            other = streams(served.address, f"--input_tokens={tokens}", "--output_tokens=1",
                            "--warmup=0", f"--duration={seconds + 2}s", f"--seed={turn}")
            beside.append(measured(turn))
            prompts.append(whole(other.result()))
    row: Row = {"bench": "tokens_many", "what": "prompt", "prompt": tokens, "streams": STREAMS,
                "itl_target_ms": target_ms, "rounds": rounds, "seconds": seconds,
                "max_batched_tokens": engine.max_batched_tokens,
                "alone": medians(alone, ITL), "beside": medians(beside, ITL),
                "prompts": medians(prompts, ("completed", "p50_ttft_ms"))}
    for key in ITL:
        row[f"{key}_beside_over_alone"] = spread(
            [b[key] / a[key] for a, b in zip(alone, beside, strict=True)])
    for key in ("p95_itl_ms", "p99_itl_ms"):
        row[f"{key}_beside_over_target"] = spread([b[key] / target_ms for b in beside])
    return row


def main() -> int:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=("prefix", "prompt"),
                        default=["prefix", "prompt"])
    parser.add_argument("--prefix", type=int, default=1000, help="tokens that prompts share")
    parser.add_argument("--own", type=int, default=24, help="tokens of each one's own behind them")
    parser.add_argument("--calls", type=int, default=8, help="of a turn, one after the other")
    parser.add_argument("--prompt", type=int, default=4096, help="tokens of the long prompts")
    parser.add_argument("--itl_target", type=float, default=50, help="of the server, milliseconds")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=15, help="of one turn of streams")
    parser.add_argument("--flag", action="append", default=[], metavar="--NAME=VALUE",
                        help="of the server: --flag=--threads=2")
    args = parser.parse_args()
    for what in args.only:
        if what == "prefix":
            row = prefix(args.prefix, args.own, args.calls, args.rounds, args.flag)
        else:
            row = prompt(args.prompt, args.itl_target, args.rounds, args.seconds, args.flag)
        print(json.dumps(row | {"flags": args.flag, "load": os.getloadavg()[0]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
