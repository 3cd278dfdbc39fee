"""How many candidates a second a search tries, of one build or of several in turn.

    .venv/bin/python tests/bench/candidates.py [--model encoder|mlp] [--budget 30] [--rounds 3]
                                               [--build bazel-bin] [--build OTHER ...]

Each round runs `search_plan` of every build once, on an empty cache, in alternating order. A build
is a folder with `tests/bench/search_plan` and `server/athanor-tuner`, or with both beside each
other. Prints one JSON line per search and, at the end, one per build: the median, least and most
candidates a second, and the ratio to the first build round by round. `kernels_per_second` leaves
out the time of whole plans and of the machine's limits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/models")]

import athanor  # noqa: E402
import encoder  # noqa: E402
import mlp  # noqa: E402

MODELS = {"encoder": lambda: encoder.encoder_graph(True), "mlp": mlp.mlp_graph}


def binary(build: Path, path: str) -> Path:
    """The program of a build, in its place there or in the folder itself."""
    place = build / path
    return place if place.exists() else build / Path(path).name


def search(build: Path, graph: athanor.Graph, args: argparse.Namespace) -> dict[str, object]:
    """One search on an empty cache: what it tried, and what that took.

    Raises
    ------
    RuntimeError
        The search failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.pb"
        file.write_bytes(graph.proto().SerializeToString())
        done = subprocess.run(
            [str(binary(build, "tests/bench/search_plan")), "--graph", str(file), "--out", folder,
             "--tuner", str(binary(build, "server/athanor-tuner")),
             "--cache", f"{folder}/cache.db",
             "--budget", str(args.budget), "--seed", str(args.seed),
             "--threads", str(args.threads)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-800:])
    found = json.loads(done.stdout.splitlines()[-1])
    progress = found["progress"]
    tried = int(progress.get("candidates", 0))
    times = {t["on"]: round(t["seconds"], 2) for t in progress.get("times", [])}
    calls = {t["on"]: int(t["calls"]) for t in progress.get("times", [])}
    trying = sum(times.get(on, 0) for on in ("search", "compile", "measure", "check"))
    return {"build": str(build), "candidates": tried, "seconds": found["seconds"],
            "per_second": round(tried / found["seconds"], 3),
            "kernels_per_second": round(tried / max(trying, 1e-9), 3), "stop": found["stop"],
            "best": progress.get("best", 1), "failed": int(progress.get("candidates_failed", 0)),
            "plans": progress.get("plans_measured", 0), "times": times, "calls": calls}


def main() -> None:
    """Runs the rounds and prints their lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(MODELS), default="encoder")
    parser.add_argument("--budget", type=float, default=30, help="seconds of each search")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="0: one per core")
    parser.add_argument("--build", type=Path, action="append")
    args = parser.parse_args()
    builds = args.build or [ROOT / "bazel-bin"]
    graph = MODELS[args.model]()
    kinds = ("per_second", "kernels_per_second")
    rates: dict[tuple[Path, str], list[float]] = {(b, kind): [] for b in builds for kind in kinds}
    for turn in range(args.rounds):
        for build in builds if turn % 2 == 0 else builds[::-1]:
            row = search(build, graph, args)
            for kind in kinds:
                rates[build, kind].append(row[kind])
            print(json.dumps({"round": turn, **row}), flush=True)
    for (build, kind), values in rates.items():
        ratios = [a / b for a, b in zip(values, rates[builds[0], kind], strict=True)]
        print(json.dumps({
            "build": str(build), "of": kind, "median": statistics.median(values),
            "least": min(values), "most": max(values), "ratio": round(statistics.median(ratios), 3),
            "ratios": [round(r, 3) for r in ratios]}), flush=True)


if __name__ == "__main__":
    main()
