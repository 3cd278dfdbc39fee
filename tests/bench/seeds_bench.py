"""Measures how alike the plans are that searches of one budget find with different seeds.

Searches a model once for each seed, then times the plans in turn in this process.

    .venv/bin/python tests/bench/seeds_bench.py --model mlp --batch 64 [--seeds 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent)]

import models_bench  # noqa: E402
from inprocess import InProcess  # noqa: E402
from race import Elsewhere, quartiles, race, ratios  # noqa: E402


def search_all(case: models_bench.Case, args: argparse.Namespace) -> tuple[dict, list[dict]]:
    """Our side once per seed, and what each search said; the baseline comes first."""
    sides = {"baseline": InProcess(case.graph, args.threads)}
    found = []
    for seed in range(1, args.seeds + 1):
        args.search_seed = seed
        with tempfile.TemporaryDirectory() as folder:
            found.append(models_bench.search(case.graph, args, Path(folder)))
            sides[f"seed {seed}"] = InProcess(case.graph, args.threads, Path(folder))
    return sides, found


def compare(case: models_bench.Case, args: argparse.Namespace) -> dict[str, object]:
    """The row.

    Raises
    ------
    ValueError
        A plan's values are wrong.
    """
    sides, found = search_all(case, args)
    results = {name: np.empty(case.reference.shape, np.float32) for name in sides}
    calls = {name: side.bind(case.feed, case.dims, {case.output: results[name]})
             for name, side in sides.items()}
    for name, call in calls.items():
        call()
        error = float(np.abs(results[name] - case.reference).max())
        if not error <= case.tolerance:
            raise ValueError(f"{args.model}, {name}: differs from float64 by {error:.1e}")
    with Elsewhere() as other:
        times = race(calls, args.rounds)
    medians = {name: quartiles(times[name])["median_ms"] for name in sides if name != "baseline"}
    best, worst = min(medians, key=medians.get), max(medians, key=medians.get)
    return {"bench": "seeds", "model": args.model, **case.dims, "threads": args.threads,
            "search_budget_s": args.search_budget, "rounds": args.rounds,
            "busy_elsewhere_percent": other.percent,
            "baseline": quartiles(times["baseline"]),
            "seeds": [quartiles(times[f"seed {i + 1}"])
                      | {"share_of_baseline": ratios(times[f"seed {i + 1}"], times["baseline"])}
                      | {key: search[key] for key in ("plan_id", "plan_kind", "stop", "seconds")}
                      | {key: search["progress"].get(key, 0)
                         for key in ("candidates", "forms_tried", "forms_taken", "plans_taken")}
                      for i, search in enumerate(found)],
            "worst_over_best": ratios(times[worst], times[best])}


def text(row: dict[str, object]) -> str:
    """The row for people."""
    lines = [f"{row['model']}, {row['search_budget_s']:.0f} s each: worst over best "
             f"{row['worst_over_best']['median']:.3f} [{row['worst_over_best']['q1']:.3f}, "
             f"{row['worst_over_best']['q3']:.3f}]"]
    for i, seed in enumerate(row["seeds"]):
        lines.append(f"  seed {i + 1}: {seed['median_ms']:.4f} ms, "
                     f"{seed['share_of_baseline']['median']:.3f} of the baseline; "
                     f"{seed['candidates']} candidates, {seed['stop']}")
    return "\n".join(lines)


def main() -> int:
    """Prints one row as text or JSON; 1 if a value is wrong or a search fails."""
    parser = models_bench.parser(__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    args = models_bench.finish(parser.parse_args())
    try:
        row = compare(models_bench.CASES[args.model](args), args)
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(row) if args.json else text(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
