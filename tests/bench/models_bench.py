"""A model of tests/models in this process against ONNX Runtime and torch.compile.

The same weights, inputs and threads; values checked against float64 first; interleaved.

    .venv/bin/python tests/bench/models_bench.py --model dlrm --batch 2048 [--plan FOLDER] [--json]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
# Fact about these models' weights that the search may use: none is beyond 2^20.
WEIGHTS_WITHIN = 20
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/models")]

import athanor  # noqa: E402
import dlrm  # noqa: E402
import encoder  # noqa: E402
import mlp  # noqa: E402
import peers  # noqa: E402
from inprocess import InProcess  # noqa: E402
from race import Elsewhere, quartiles, race, ratios  # noqa: E402

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class Case:
    """A model at one size: what each side is made from, and the values all have to give."""

    graph: athanor.Graph
    feed: dict[str, np.ndarray]
    dims: dict[str, int]
    output: str
    reference: np.ndarray  # float64
    tolerance: float  # largest absolute difference from it
    onnx: Callable[[str], None]
    torch: Callable[[], torch.nn.Module]


def encoder_case(args: argparse.Namespace) -> Case:
    """The encoder, of as many layers as asked for."""
    config = dataclasses.replace(encoder.DEFAULT, layers=args.layers)
    ids = np.random.default_rng(3).integers(0, config.vocabulary, (args.batch, args.length))
    return Case(encoder.encoder_graph(args.form != "primitives", config), {"ids": ids},
                {"b": args.batch, "s": args.length}, "hidden",
                encoder.encoder_numpy(ids, config), 1e-4,
                lambda path: encoder.encoder_onnx(path, config),
                lambda: encoder.encoder_torch(config))


def mlp_case(args: argparse.Namespace, config: mlp.Config) -> Case:
    """Linear layers."""
    random = np.random.default_rng(3)
    shape = (args.batch, config.widths[0])
    x = (random.integers(0, 17, shape).astype(np.float32) if config is mlp.DIGITS
         else random.standard_normal(shape, np.float32))
    return Case(mlp.mlp_graph(args.form == "composites", config), {config.input: x},
                {"b": args.batch}, config.output, mlp.mlp_numpy(x, config), 1e-4,
                lambda path: mlp.mlp_onnx(path, config), lambda: mlp.mlp_torch(config))


def dlrm_case(args: argparse.Namespace, config: dlrm.Config) -> Case:
    """The recommendation model."""
    feed = dlrm.dlrm_inputs(args.batch, config)
    return Case(dlrm.dlrm_graph(args.form == "composites", config), feed, {"b": args.batch},
                "click", dlrm.dlrm_numpy(feed, config), 1e-5,
                lambda path: dlrm.dlrm_onnx(path, config), lambda: dlrm.dlrm_torch(config))


CASES: dict[str, Callable[[argparse.Namespace], Case]] = {
    "encoder": encoder_case,
    "digits": lambda args: mlp_case(args, mlp.DIGITS),
    "mlp": lambda args: mlp_case(args, mlp.DEFAULT),
    "dlrm": lambda args: dlrm_case(args, dlrm.DEFAULT),
    "dlrm_mini": lambda args: dlrm_case(args, dlrm.MINI),
}


def peer_sides(case: Case, names: list[str], threads: int) -> tuple[dict, dict]:
    """The peers that are there, by name, and the row's entries of those that are not."""
    makers = {"onnxruntime": lambda: peers.onnxruntime_side(case.onnx, case.feed, threads),
              "torch": lambda: peers.torch_side(case.torch, case.feed, threads)}
    sides, missing = {}, {}
    for name in names:
        try:
            sides[name] = makers[name]()
        except peers.NotInstalled:
            missing[name] = "not installed"
    return sides, missing


def compare(case: Case, ours: InProcess, args: argparse.Namespace) -> dict[str, object]:
    """Checks values, then times all sides; the row.

    Raises
    ------
    ValueError
        A side's values are wrong.
    """
    result = np.empty(case.reference.shape, np.float32)
    sides, missing = peer_sides(case, args.peers, args.threads)
    calls = {"ours": ours.bind(case.feed, case.dims, {case.output: result})}
    calls |= {name: side.call for name, side in sides.items()}
    outputs = {"ours": lambda: result} | {name: side.output for name, side in sides.items()}
    errors = {}
    for name, call in calls.items():
        call()
        errors[name] = float(np.abs(outputs[name]() - case.reference).max())
        if not errors[name] <= case.tolerance:
            raise ValueError(f"{args.model}: {name} differs from float64 by {errors[name]:.1e}; at "
                             f"most {case.tolerance} passes")
    load = os.getloadavg()[0]
    with Elsewhere() as other:
        times = race(calls, args.rounds)
    row = {"bench": "model", "model": args.model, **case.dims, "form": args.form,
           "threads": args.threads, "rounds": args.rounds, **ours.plan, "load": load,
           "busy_elsewhere_percent": other.percent}
    if args.model == "encoder":
        row["layers"] = args.layers
    row["ours"] = quartiles(times["ours"]) | {"error": errors["ours"]}
    for name, side in sides.items():
        row[name] = quartiles(times[name]) | {
            "error": errors[name], "version": side.version,
            "ratio": ratios(times["ours"], times[name])}
    row |= missing
    if sides:
        row["better_peer"] = min(sides, key=lambda name: row[name]["median_ms"])
    return row


def search(graph: athanor.Graph, args: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Has the search's best plan written to `folder`; what tests/bench/search_plan.cc says of it.

    Raises
    ------
    RuntimeError
        The search failed.
    """
    (folder / "graph.pb").write_bytes(graph.proto().SerializeToString())
    options = {"graph": folder / "graph.pb", "out": folder, "threads": args.threads,
               "budget": args.search_budget, "seed": args.search_seed,
               "disable_rules": ",".join(args.disable_rules), "magnitude": WEIGHTS_WITHIN,
               "tuner": ROOT / "bazel-bin/server/athanor-tuner"}
    command = [str(ROOT / "bazel-bin/tests/bench/search_plan")]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-800:])
    return json.loads(done.stdout.splitlines()[-1])


def load(graph: athanor.Graph, args: argparse.Namespace) -> tuple[InProcess, dict[str, object]]:
    """Our side with the plan asked for, and what the row says of a search for it."""
    if args.plan == "baseline":
        return InProcess(graph, args.threads), {}
    if args.plan != "search":
        return InProcess(graph, args.threads, Path(args.plan)), {}
    with tempfile.TemporaryDirectory() as folder:
        found = search(graph, args, Path(folder))
        return InProcess(graph, args.threads, Path(folder)), {"search": found}


def text(row: dict[str, object]) -> str:
    """The row for people."""
    sizes = " ".join(f"{key}{row[key]}" for key in ("b", "s", "layers") if key in row)
    lines = [f"{row['model']} {sizes} in {row['form']}, threads {row['threads']}, "
             f"{row['plan_kind']} plan {row['plan_id']}: {row['kernels']} kernels, {row['steps']} "
             f"steps; plan {row['plan_s']:.2f} s, kernels {row['compile_s']:.2f} s, load "
             f"{row['load_s']:.2f} s; others had {row['busy_elsewhere_percent']:.0f} % of the "
             "machine"]
    if "search" in row:
        found = row["search"]
        progress = found["progress"]
        lines.append(f"  search       {found['stop']} after {found['seconds']} s, "
                     f"{progress.get('candidates', 0)} candidates, {progress.get('best', 1):.4f} "
                     f"of the baseline, rules: {' '.join(progress.get('rules', [])) or 'none'}")
    for name in ("ours", "onnxruntime", "torch"):
        side = row.get(name)
        if isinstance(side, dict):
            line = (f"  {name:<12} {side['median_ms']:9.4f} ms [{side['q1_ms']:.4f}, "
                    f"{side['q3_ms']:.4f}], error {side['error']:.1e}")
            if (ratio := side.get("ratio")) is not None:
                line += (f", time ratio {ratio['median']:.3f} [{ratio['q1']:.3f}, "
                         f"{ratio['q3']:.3f}], p10 {ratio['p10']:.3f}, p90 {ratio['p90']:.3f}")
            lines.append(line)
        elif side is not None:
            lines.append(f"  {name:<12} {side}")
    return "\n".join(lines)


def print_profile(case: Case, ours: InProcess) -> None:
    """The median time of each step over twenty runs."""
    result = {case.output: np.empty(case.reference.shape, np.float32)}
    profiles = [ours.profile(case.feed, case.dims, result) for _ in range(20)]
    total = 0.0
    for i, (label, _) in enumerate(profiles[0]):
        ns = float(np.median([p[i][1] for p in profiles]))
        total += ns
        print(f"{ns / 1e3:9.1f} us  {label}")
    print(f"{total / 1e3:9.1f} us  sum")


def parser(description: str) -> argparse.ArgumentParser:
    """Makes the parser of any bench of these models; `finish` completes what it parses."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", choices=CASES, required=True)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=128, help="of the encoder's sequences")
    parser.add_argument("--layers", type=int, default=6, help="of the encoder")
    parser.add_argument("--form", choices=["composites", "primitives"],
                        help="of the graph; by default composites for the encoder")
    parser.add_argument("--plan", default="baseline", metavar="baseline|search|FOLDER",
                        help="what of ours runs: the baseline plan, made here; what a search finds "
                        "first; or the plan in a folder (plan.pb and SOURCE_HASH.so for each "
                        "kernel; one without is compiled)")
    parser.add_argument("--search_budget", type=float, default=30, metavar="SECONDS")
    parser.add_argument("--search_seed", type=int, default=1)
    parser.add_argument("--disable_rules", nargs="*", default=[], metavar="RULE|FAMILY")
    parser.add_argument("--save_plan", type=Path, metavar="FOLDER", help="write what ran there")
    parser.add_argument("--peers", nargs="*", choices=["onnxruntime", "torch"],
                        default=["onnxruntime", "torch"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--profile", action="store_true", help="also print the time of each step")
    parser.add_argument("--json", action="store_true")
    return parser


def finish(args: argparse.Namespace) -> argparse.Namespace:
    """Defaults that depend on other arguments."""
    args.form = args.form or ("composites" if args.model == "encoder" else "primitives")
    return args


def main() -> int:
    """Prints one row as text or JSON; 1 if a value is wrong or the plan does not load."""
    args = finish(parser(__doc__.split("\n")[0]).parse_args())
    case = CASES[args.model](args)
    try:
        ours, found = load(case.graph, args)
        row = compare(case, ours, args) | found
        print(json.dumps(row) if args.json else text(row))
        if args.profile:
            print_profile(case, ours)
        if args.save_plan:
            ours.save(args.save_plan)
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    ours.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
