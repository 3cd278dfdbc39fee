"""What searches try and find: candidates a second, the gain, and why they ended.

    .venv/bin/python tests/bench/candidates.py [--model encoder ...] [--budget 30] [--rounds 3]
                                               [--seed 1] [--build bazel-bin ...]

A model is `mlp` or one of the zoo (tests/models/zoo.py). Each round runs `search_plan` of every
build once on every model, on an empty cache, in alternating order. A build is a folder with
`tests/bench/search_plan` and `server/athanor-tuner`, or with both beside each other. Prints a JSON
line per search (`best`: the time of the plan it found over the baseline's) and, at the end, one per
model and build: the median, least and most candidates a second, and the ratio to the first build
round by round. `kernels_per_second` leaves out the time of whole plans and of the machine's limits.
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

import mlp  # noqa: E402
import zoo  # noqa: E402

RATES = ("per_second", "kernels_per_second")


def binary(build: Path, path: str) -> Path:
    """The program of a build, in its place there or in the folder itself."""
    place = build / path
    return place if place.exists() else build / Path(path).name


def write_model(name: str, folder: Path) -> list[str]:
    """Writes a model into a folder; returns what tells `search_plan` of it."""
    if name == "mlp":
        file = folder / "mlp.pb"
        file.write_bytes(mlp.mlp_graph().proto().SerializeToString())
        return ["--graph", str(file)]
    file = folder / f"{name}.onnx"
    if not file.exists():
        zoo.MODELS[name].write(file)
    dims = ",".join(f"{d}:{low}:{high}" for d, (low, high) in zoo.MODELS[name].dims.items())
    return ["--graph", str(file), "--dims", dims]


def search(build: Path, model: list[str], args: argparse.Namespace) -> dict[str, object]:
    """One search on an empty cache: what it tried, and what that took.

    Raises
    ------
    RuntimeError
        The search failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(binary(build, "tests/bench/search_plan")), *model, "--out", folder,
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
    return {"candidates": tried, "seconds": found["seconds"],
            "per_second": round(tried / found["seconds"], 3),
            "kernels_per_second": round(tried / max(trying, 1e-9), 3), "stop": found["stop"],
            "limited_by": progress.get("limited_by", ""), "best": progress.get("best", 1),
            "predicted": progress.get("predicted", 1), "roofline": progress.get("roofline", 0),
            "failed": int(progress.get("candidates_failed", 0)),
            "plans": progress.get("plans_measured", 0), "times": times, "calls": calls}


def main() -> None:
    """Runs the rounds and prints their lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=["mlp", *zoo.MODELS], nargs="+", default=["encoder"])
    parser.add_argument("--budget", type=float, default=30, help="seconds of each search")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="0: one per core")
    parser.add_argument("--build", type=Path, nargs="+", default=[ROOT / "bazel-bin"])
    args = parser.parse_args()
    rows: dict[tuple[str, Path], list[dict[str, object]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(args.rounds):
            for name in args.model:
                model = write_model(name, Path(folder))
                for build in args.build if turn % 2 == 0 else args.build[::-1]:
                    row = search(build, model, args)
                    rows.setdefault((name, build), []).append(row)
                    print(json.dumps({"round": turn, "model": name, "build": str(build), **row}),
                          flush=True)
    for (name, build), of in rows.items():
        for rate in RATES:
            values = [row[rate] for row in of]
            first = [row[rate] for row in rows[name, args.build[0]]]
            ratios = [round(a / b, 3) for a, b in zip(values, first, strict=True)]
            print(json.dumps({
                "model": name, "build": str(build), "of": rate,
                "median": statistics.median(values), "least": min(values), "most": max(values),
                "ratio": round(statistics.median(ratios), 3), "ratios": ratios}), flush=True)


if __name__ == "__main__":
    main()
