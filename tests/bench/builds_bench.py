"""Compares how long the baselines of two builds take to run, for models of the zoo.

    .venv/bin/python tests/bench/builds_bench.py --build BEFORE --build bazel-bin
        [--only resnet50 vit ...] [--rounds 61] [--threads 2]

A server of each build serves the same file, without boxes and searches. Calls go to both in turn;
each call's time is what the server says its plan ran (`exec_us`), so that the client, gRPC and what
else runs on the machine between two calls do not count. Prints one JSON line per model: medians in
milliseconds, and the second build's time over the first one's, round by round. A build is a folder
with `server/athanord`, or with it and `athanor-tuner` beside each other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/models")]

import athanor  # noqa: E402
import zoo  # noqa: E402
from race import quartiles, ratios  # noqa: E402
from serving import server  # noqa: E402

WAIT_S = 600
CALLS = 3  # a build has in a round: the least counts, since the first finds cold caches


def compare(name: str, args: argparse.Namespace) -> dict[str, object]:
    """Times one model on both builds.

    Raises
    ------
    ValueError
        A build's values are wrong.
    """
    model = zoo.MODELS[name]
    feed = model.inputs(model.typical, 3)
    wanted = model.reference(feed)
    seconds: list[list[float]] = [[], []]
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model.onnx"
        model.write(path)
        sides = []
        for build in args.build:
            running = stack.enter_context(server(f"--threads={args.threads}", build=build))
            client = stack.enter_context(athanor.Client(running.address))
            served = client.upload(path, name, dims=model.dims, buckets={})
            got = served.infer(feed, timeout=WAIT_S)
            for output, value in wanted.items():
                if not (error := zoo.deviation(got[output], value)) <= model.tolerance:
                    raise ValueError(f"{name}: {output} of {build} differs from float64 by "
                                     f"{error:.1e}; at most {model.tolerance} passes")
            sides.append(served)
        for turn in range(args.rounds):
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                seconds[side].append(min(sides[side].infer(feed).exec_us * 1e-6
                                         for _ in range(CALLS)))
    return {"model": name,
            **{str(build): quartiles(times) for build, times in
               zip(args.build, seconds, strict=True)},
            "ratio": {key: round(value, 3) for key, value in
                      ratios(seconds[1], seconds[0]).items()}}


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, action="append", required=True)
    parser.add_argument("--only", nargs="+", choices=zoo.MODELS, default=list(zoo.MODELS),
                        metavar="NAME")
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    if len(args.build) != 2:
        parser.error(f"--build names two builds, not {len(args.build)}")
    return args


def main() -> None:
    """Prints a line per model, and the median and worst ratio last."""
    args = arguments()
    medians = {}
    for name in args.only:
        row = compare(name, args)
        medians[name] = row["ratio"]["median"]
        print(json.dumps(row), flush=True)
    worst = max(medians, key=medians.__getitem__)
    print(json.dumps({"models": len(medians), "median": statistics.median(medians.values()),
                      "worst": medians[worst], "worst_model": worst}))


if __name__ == "__main__":
    main()
