"""The comparisons of `deploy/bench`: each row side by side with its peer, in one run.

    deploy/bench [--only NAME ...] [--plan search] [--out FILE]

Results are JSON lines, printed as they are measured, with the machine and the versions; the newest
of record are in tests/bench/results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "bazel-bin"
sys.path[:0] = [str(ROOT / "tests/models"), str(ROOT / "tests/bench"),
                str(ROOT / "clients/python/examples")]

from serving import free_address, server  # noqa: E402

Row = dict[str, object]


class Plan(NamedTuple):
    """The plan to run, "baseline" or "search", and the seconds that a search may take."""

    which: str
    budget: float


Part = Callable[[Plan], Iterable[Row]]


def machine() -> Row:
    """Describes what the figures belong to."""
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                  if line.startswith("model name")), "?")
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=False).stdout.strip()
    return {"bench": "machine", "cpu": model, "cores": os.cpu_count(),
            "kernel": platform.release(), "python": platform.python_version(), "commit": commit,
            "load_before": os.getloadavg()[0], "time": time.strftime("%Y-%m-%dT%H:%M:%S")}


def json_lines(command: list[str], **environment: str) -> Iterator[Row]:
    """The rows a benchmark program prints, each as it comes; its failure is ours."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True,
                                   cwd=ROOT, env=os.environ | environment)
        try:
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
        except BaseException:
            process.kill()
            raise
        finally:
            process.stdout.close()
            code = process.wait()
        if code != 0:
            errors.seek(0)
            raise RuntimeError(f"{command[0]}: exit {code}: {errors.read()[-800:]}")


def contraction(plan: Plan) -> Iterator[Row]:
    """f32 products against OpenBLAS, at its own choice of kernels and, if that is without AVX-512,
    at those with it too."""
    command = [str(BIN / "tests/bench/contraction_bench"), "--json"]
    searched = ["--search", str(plan.budget)] if plan.which == "search" else []
    cores = set()
    for row in json_lines(command + searched):
        cores.add(row["openblas_core"])
        yield row
    if not cores & {"SkylakeX", "Cooperlake", "SapphireRapids"}:
        yield from json_lines(command, OPENBLAS_CORETYPE="SKYLAKEX")


def model(*options: object) -> Part:
    """A row of models_bench.py, for its --plan; options as on its command line."""
    def run(plan: Plan) -> Iterable[Row]:
        return json_lines([sys.executable, "tests/bench/models_bench.py", "--json",
                           "--plan", plan.which, "--search_budget", str(plan.budget),
                           *map(str, options)])

    return run


MODELS: dict[str, list[Part]] = {
    "encoder": [model("--model", "encoder", "--batch", b) for b in (1, 8)],
    "mlp": [model("--model", name, "--batch", b) for name in ("digits", "mlp") for b in (1, 64)],
    "dlrm": [model("--model", name, "--batch", 2048) for name in ("dlrm", "dlrm_mini")],
    # Cost of compiling more equal layers: the row holds kernels and their seconds.
    "layers": [model("--model", "encoder", "--peers", "onnxruntime", "--rounds", 11,
                     "--layers", layers)
               for layers in (6, 24, 48)],
}


def add() -> list[Row]:
    """Adding 16 floats through the server against a bare gRPC echo of the same bytes."""
    with server() as served:
        echo_address = free_address()
        echo = subprocess.Popen([str(BIN / "tests/bench/echo_server"), f"--listen={echo_address}"])
        try:
            time.sleep(0.5)
            return [row | {"bench": "add16"} for row in json_lines(
                [str(BIN / "tests/bench/add_latency"), f"--address={served.address}",
                 f"--echo={echo_address}"])]
        finally:
            echo.terminate()
            echo.wait(10)


def _first_answer(graph, name: str, inputs: dict[str, np.ndarray], weights_first: bool) -> float:
    """Seconds from the upload call to the first answer, nothing compiled before."""
    import athanor

    with server() as served, athanor.Client(served.address) as client:
        if weights_first:
            # A model whose outputs are the weights brings them and compiles no other kernel.
            holder = athanor.Graph("weights")
            message = graph.proto()
            tensors = graph.tensors
            for node in message.nodes:
                if node.op == "Parameter":
                    data = np.frombuffer(tensors[node.content_hash], "f4").reshape(
                        [term.terms[0].coefficient for term in node.shape])
                    holder.output("o." + node.name, holder.parameter(node.name, data))
            client.upload(holder, name="weights").wait("baseline")
        start = time.perf_counter()
        client.upload(graph, name=name).infer(inputs)
        return time.perf_counter() - start


def cold() -> list[Row]:
    """Upload call to first answer with an empty kernel cache."""
    import digits_demo
    import encoder

    digits = digits_demo.digits_graph(dict(np.load(digits_demo.WEIGHTS, allow_pickle=False)))
    ids = np.random.default_rng(3).integers(0, 30_522, (1, 128))
    image = {"image": np.zeros((1, 64), np.float32)}
    rows = []
    for name, build, inputs, first in (
        ("digits", lambda: digits, image, False),
        ("encoder", lambda: encoder.encoder_graph(composite=True), {"ids": ids}, True),
    ):
        times = sorted(_first_answer(build(), name, inputs, first) for _ in range(5))
        rows.append({"bench": "cold_first_answer", "model": name, "weights_there": first,
                     "median_s": times[2], "min_s": times[0], "max_s": times[4]})
    return rows


def neighbour(model: str, aside: int) -> Part:
    """Measures the effect of a search on another model's calls; rows of neighbour.py."""
    return lambda _: json_lines([sys.executable, "tests/bench/neighbour.py", "--model", model,
                                 "--search_cores", str(aside)])


def seeds(*options: object) -> Part:
    """A row of seeds_bench.py: five searches of one model, with the budget of --search_budget."""
    return lambda plan: json_lines([sys.executable, "tests/bench/seeds_bench.py", "--json",
                                    "--search_budget", str(plan.budget), *map(str, options)])


def zoo(name: str) -> Part:
    """A row of zoo_bench.py, for its --plan."""
    return lambda plan: json_lines([sys.executable, "tests/bench/zoo_bench.py", "--json",
                                    "--model", name, "--plan", plan.which,
                                    "--search_budget", str(plan.budget)])


def batching() -> Iterator[Row]:
    """Measures the gain of calls that share runs; rows of batching.py."""
    return json_lines([sys.executable, "tests/bench/batching.py"])


SEEDS = [seeds("--model", name, "--batch", b)
         for name, b in (("digits", 64), ("mlp", 64), ("dlrm", 2048), ("encoder", 1))]


# All models of tests/models/zoo.py.
ZOO = [zoo(name) for name in (
    "encoder", "resnet18", "resnet50", "mobilenet", "unet", "unet_resized", "dlrm_ragged",
    "dlrm_padded", "lstm", "whisper", "vit", "llama", "llama_microsoft", "llama_primitives")]

# Each gives its rows part by part, so that one that fails leaves the others.
BENCHES: dict[str, list[Part]] = {
    "contraction": [contraction], **MODELS, "cold": [lambda _: cold()],
    "add": [lambda _: add()],
    "order": [lambda _: json_lines([sys.executable, "tests/bench/order_bench.py"])],
    "neighbour": [neighbour(name, aside) for aside in (0, 1) for name in ("mlp", "digits")],
    "seeds": SEEDS, "batching": [lambda _: batching()], "zoo": ZOO}


def main() -> int:
    """Runs the chosen benches and prints their rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=sorted(BENCHES), default=list(BENCHES))
    parser.add_argument("--plan", choices=["baseline", "search"], default="baseline",
                        help="what of ours runs; a search takes its budget for each row")
    parser.add_argument("--search_budget", type=float, default=30, metavar="SECONDS")
    parser.add_argument("--out", type=Path, help="also write the rows to this file")
    args = parser.parse_args()
    plan = Plan(args.plan, args.search_budget)
    failed = 0
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(args.out.open("w", encoding="utf-8")) if args.out else None

        def show(row: Row) -> None:
            for file in filter(None, (sys.stdout, out)):
                print(json.dumps(row), file=file, flush=True)

        show(machine())
        for name in args.only:
            for part in BENCHES[name]:
                try:
                    for row in part(plan):
                        show(row)
                except (RuntimeError, OSError) as error:
                    failed += 1
                    show({"bench": name, "error": str(error)})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
