"""Measures the time from an upload to the first right answer on a server that knows nothing yet.

    .venv/bin/python tests/bench/first_answer.py [--only resnet50 vit ...] [--rounds 3]
        [--beside resnet50] [--after resnet50] [--boxes] [--build bazel-bin] [--build OTHER ...]
        [--peers]

Each round starts a server with an empty cache for every model and build, in turn, uploads the model
as a user would (boxes and searches as by default), asks once, and compares the answer with float64.
--beside first uploads another model and waits until it serves, so that its boxes and searches run.
--after uploads another model a second earlier, and does not wait. --boxes searches nothing and
says how long all boxes of the model took after that, on the idle machine. --peers loads the same
file in ONNX Runtime (and in OpenVINO, where it is installed), in a process of its own, and asks
once.
A build is a folder with `server/athanord`, or with it and `athanor-tuner` beside each other.

Prints one JSON line per upload: seconds from `upload` to the answer, and what the server's log says
of its baseline (milliseconds to lower, to compile and to check its kernels, and to load). The last
line of each build has the median and the worst over models of the median over rounds.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/models")]

import athanor  # noqa: E402
import mlp  # noqa: E402
import numpy as np  # noqa: E402
import zoo  # noqa: E402
from serving import BIN, server  # noqa: E402

WAIT_S = 600
PHASES = ("kernels", "lower_ms", "kernels_ms", "check_ms", "load_ms")
# Loads the file in a peer, asks once, and prints the seconds both took; imports are not counted.
PEERS = {
    "onnxruntime": """
import onnxruntime as peer
def ask(path, feed):
    return peer.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feed)[0]
""",
    "openvino": """
import openvino as peer
def ask(path, feed):
    return peer.Core().compile_model(path, "CPU")(feed)[0]
"""}
PEER_MAIN = """
import sys, time, numpy
feed = dict(numpy.load(sys.argv[2]))
begin = time.perf_counter()
ask(sys.argv[1], feed)
print(time.perf_counter() - begin)
"""


def _digits() -> zoo.Model:
    """The smallest model there is; the zoo has none without a folder of its own."""
    return zoo.Model("digits", {"b": (1, 64)}, {"b": 1}, 1e-5,
                     lambda path: mlp.mlp_onnx(path, mlp.DIGITS),
                     lambda sizes, seed: {"image": np.random.default_rng(seed).random(
                         (sizes["b"], 64), np.float32)},
                     lambda feed: {"logits": mlp.mlp_numpy(feed["image"], mlp.DIGITS)})


MODELS = zoo.MODELS | {"digits": _digits()}


class Case:
    """A model as a file, with inputs and the right answer."""

    def __init__(self, name: str, folder: Path) -> None:
        self.model = MODELS[name]
        self.path = folder / name / "model.onnx"
        self.path.parent.mkdir()
        self.model.write(self.path)
        self.feed = self.model.inputs(self.model.typical, 3)
        self.wanted = self.model.reference(self.feed)
        self.saved = folder / name / "feed.npz"
        np.savez(self.saved, **self.feed)

    def upload(self, client: athanor.Client) -> athanor.Model:
        """Stores it under its name."""
        return client.upload(self.path, self.model.name, dims=self.model.dims)

    def ask(self, served: athanor.Model) -> None:
        """Makes one call.

        Raises
        ------
        ValueError
            The answer is wrong.
        """
        got = served.infer(self.feed, timeout=WAIT_S)
        for name, value in self.wanted.items():
            error = zoo.deviation(got[name], value)
            if not error <= self.model.tolerance:
                raise ValueError(f"{self.model.name}: {name} differs from float64 by {error:.1e}")


def phases(log: Path, name: str) -> dict[str, int]:
    """What the log says of the first plan of the model's full range."""
    for line in log.read_text(encoding="utf-8").splitlines():
        if 'msg="plan serves"' in line and f" model={name} " in line:
            return {key: int(found[1]) for key in PHASES
                    if (found := re.search(rf"\b{key}=(\d+)", line))}
    return {}


def ours(case: Case, other: Case | None, build: Path, args: argparse.Namespace) -> dict:
    """One upload to a fresh server."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        flags = [f"--threads={args.threads}"] if args.threads else []
        flags.append(f"--search_budget={0 if args.boxes else args.search_budget}")
        with (server(*flags, build=build, log=log) as running,
              athanor.Client(running.address) as client):
            if other is not None:
                earlier = other.upload(client)
                if args.beside:
                    other.ask(earlier)
                time.sleep(1)
            begin = time.perf_counter()
            served = case.upload(client)
            case.ask(served)
            seconds = time.perf_counter() - begin
            boxes = boxes_of(client, served) if args.boxes else {}
        return {"seconds": round(seconds, 3)} | phases(log, case.model.name) | boxes


def boxes_of(client: athanor.Client, served: athanor.Model) -> dict[str, float]:
    """Waits for the model's boxes; returns the seconds, how many there are and have a plan.

    Raises
    ------
    TimeoutError
        The model's job does not end.
    """
    begin = time.perf_counter()
    while client.jobs(served.name, only_unfinished=True):
        time.sleep(0.05)
        if time.perf_counter() > begin + WAIT_S:
            raise TimeoutError(f"{served.name}: its boxes are not made after {WAIT_S} s")
    boxes = served.info().buckets
    return {"boxes_seconds": round(time.perf_counter() - begin, 2), "boxes": len(boxes),
            "with_plan": sum(bool(box.plan_id) for box in boxes)}


def theirs(case: Case, peer: str) -> dict:
    """Load and first answer of a peer in a process of its own."""
    done = subprocess.run([sys.executable, "-c", PEERS[peer] + PEER_MAIN, case.path, case.saved],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[-1]}
    return {"seconds": round(float(done.stdout.split()[-1]), 3)}


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0: one per core")
    parser.add_argument("--search_budget", default="30s", help="the server's, for all models")
    before = parser.add_mutually_exclusive_group()
    before.add_argument("--beside", choices=MODELS, metavar="NAME")
    before.add_argument("--after", choices=MODELS, metavar="NAME")
    before.add_argument("--boxes", action="store_true", help="instead of any search")
    parser.add_argument("--build", type=Path, action="append")
    parser.add_argument("--peers", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Runs the rounds and prints their lines."""
    args = arguments()
    builds = args.build or [BIN]
    other_name = args.beside or args.after
    sides: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        other = Case(other_name, Path(folder)) if other_name else None
        for name in args.only:
            if name == other_name:
                continue
            case = Case(name, Path(folder))
            for turn in range(args.rounds):
                for build in builds if turn % 2 == 0 else builds[::-1]:
                    row = ours(case, other, build, args)
                    print(json.dumps({"model": name, "round": turn, "build": str(build), **row}),
                          flush=True)
                    sides.setdefault(str(build), {}).setdefault(name, []).append(row["seconds"])
                for peer in PEERS if args.peers else ():
                    row = theirs(case, peer)
                    print(json.dumps({"model": name, "round": turn, "peer": peer, **row}),
                          flush=True)
                    if "seconds" in row:
                        sides.setdefault(peer, {}).setdefault(name, []).append(row["seconds"])
    for side, models in sides.items():
        medians = {name: statistics.median(values) for name, values in models.items()}
        worst = max(medians, key=medians.__getitem__)
        print(json.dumps({"side": side, "models": len(medians),
                          "median": round(statistics.median(medians.values()), 3),
                          "worst": medians[worst], "worst_model": worst, "each": medians}))


if __name__ == "__main__":
    main()
