"""Nodes drawn at random against ONNX Runtime, through the importer and the reference evaluator.

    .venv/bin/python tests/onnx/ops/against_ort.py                     # all ops, 40 seeds each
    .venv/bin/python tests/onnx/ops/against_ort.py --only 'Conv*' --seeds 500
    .venv/bin/python tests/onnx/ops/against_ort.py --only Resize --from_seed 17 --seeds 1 --keep DIR

    .venv/bin/python tests/onnx/ops/against_ort.py --server --seeds 5  # by kernels, some minutes

Each seed of an op is one node of its own opset, types, shapes and attributes (`draw.py`). ONNX
Runtime without its graph optimisations gives what is expected, or, where `known.py` says that it is
wrong or that ONNX leaves it open, the voice named there. The report counts draws by what became of
them: right, pinned (right with the contents of inputs given at upload), refused by name, wrong,
error; and, of those that never got so far, what ONNX Runtime did not take and (unheard) where the
voice named in `known.py` fails. Exit status 0: nothing
wrong, no error.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import onnx

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
RUNNER = ROOT / "bazel-bin/tests/conformance/onnx_cases"
sys.path[:0] = [str(HERE), str(HERE.parent)]

import families  # noqa: E402
import known  # noqa: E402
from draw import Draw, Unfit  # noqa: E402
from node import Case, NotTaken, case_of  # noqa: E402

Counts = collections.Counter[str]


def write(folder: pathlib.Path, case: Case) -> str:
    """The case's files as the runner reads them; its line of cases.tsv."""
    target = folder / "random" / case.name
    data = target / "set_0"
    data.mkdir(parents=True)
    (target / "model.onnx").write_bytes(case.model.SerializeToString())
    for what, values in (("input", case.inputs), ("output", case.expected)):
        for i, value in enumerate(values):
            proto = onnx.numpy_helper.from_array(np.asarray(value), "")
            (data / f"{what}_{i}.pb").write_bytes(proto.SerializeToString())
    if case.dims:
        (target / "dims.tsv").write_text("".join(
            f"{dim}\t{low}\t{high}\n" for dim, (low, high) in case.bounds().items()))
    rtol, atol = case.tolerances()
    return f"random\t{case.name}\t{rtol}\t{atol}\t\n"


def drawn(op: str, domain: str, seeds: Sequence[int]) -> Iterator[tuple[str, Case | str]]:
    """("case", it) or what became of the seed and why."""
    for seed in seeds:
        case: Case | None = None
        for plain in (False, True):
            draw = Draw(op, seed, domain, plain)
            try:
                families.OPS[domain, op](draw)
                row = known.row_of(draw)
                if row is not None:
                    draw.partner = ""  # its voice may be a formula for a single node
                case = case_of(draw)
                break
            except Unfit:
                if plain:
                    yield "unfit", ""
            except NotTaken as error:
                if plain or not error.lacking:
                    yield "not taken", f"{draw.op}-{draw.opset} {seed}: {error}"
                    break
        if case is None:
            continue
        if row is not None:
            row.used += 1
            try:
                case.expected = row.expected(case)
            except Exception as error:
                yield "unheard", f"{case.name}: {row.reason}: {error}"
                continue
        yield "case", case


def run(folder: pathlib.Path) -> dict[str, tuple[str, str]]:
    """Word and text by the name of the case."""
    done = subprocess.run([RUNNER, folder], capture_output=True, text=True, check=False)
    found = {}
    for line in done.stdout.splitlines():
        match = re.match(r"(\w+) random/([^:]+)(?:: (.*))?$", line)
        if match:
            found[match[2]] = (match[1], match[3] or "")
    if done.returncode not in (0, 1):
        raise SystemExit(f"{RUNNER} ended with {done.returncode}: {done.stderr[-2000:]}")
    return found


def reference_says(cases: dict[str, Case], folder: pathlib.Path) -> dict[str, str]:
    """Reports whether onnx's own evaluator agrees with Athanor on a wrong case."""
    folder.mkdir()
    said, lines = {}, []
    for name, case in cases.items():
        try:
            case.expected = known.by_reference(case)
            lines.append(write(folder, case))
        except Exception as error:
            said[name] = f"the reference fails: {type(error).__name__}"
    (folder / "cases.tsv").write_text("".join(lines))
    found = run(folder) if lines else {}
    return said | {name: "the reference agrees with us" if word in ("right", "pinned")
                   else "the reference does not agree with us" for name, (word, _) in found.items()}


def compare(only: Sequence[str], seeds: Sequence[int], keep: pathlib.Path | None = None,
            server: bool = False) -> tuple[dict[str, Counts], list[str], Counts]:
    """Counts by op, a line for each that is wrong or an error, and reasons of what is no case."""
    counts: dict[str, Counts] = collections.defaultdict(collections.Counter)
    reasons: Counts = collections.Counter()
    cases: dict[str, Case] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = keep or pathlib.Path(made)
        if keep and keep.exists():
            shutil.rmtree(keep)
        folder.mkdir(exist_ok=True)
        with (folder / "cases.tsv").open("w") as table:
            for domain, op in families.OPS:
                if not any(fnmatch.fnmatch(op, pattern) for pattern in only):
                    continue
                for word, what in drawn(op, domain, seeds):
                    if word == "case":
                        cases[what.name] = what
                        table.write(write(folder, what))
                    else:
                        counts[op][word] += 1
                        if what:
                            reasons[f"{word} {what}"] += 1
        if server:
            import served

            found = served.run(cases)
        else:
            found = run(folder)
        bad = {name: cases[name] for name, (word, _) in found.items() if word in ("wrong", "error")}
        said = reference_says(bad, pathlib.Path(made) / "again") if bad and not server else {}
    lines = []
    for name, case in cases.items():
        word, text = found.get(name, ("error", "the runner did not get to it"))
        counts[case.draw.op][word] += 1
        if word in ("wrong", "error"):
            lines.append(f"{word} {name}: {text}; {said.get(name, '')}; {describe(case)}")
        elif word == "refused":
            reasons[f"refused {name}: {text}"] += 1
    return counts, lines, reasons


def describe(case: Case) -> str:
    """The node in a line."""
    d = case.draw
    operands = [f"{o.value.dtype}{list(o.value.shape)}{'!' if o.known else ''}" if o else "-"
                for o in d.operands]
    return f"{' '.join(operands)} {d.attributes} {d.partner}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", default=["*"], help="ops, as a shell's patterns")
    parser.add_argument("--seeds", type=int, default=40, help="draws an op")
    parser.add_argument("--from_seed", type=int, default=0)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the cases")
    parser.add_argument("--server", action="store_true",
                        help="through a server: its kernels instead of the evaluator")
    parser.add_argument("--report", type=pathlib.Path, help="a file for all refusals by name")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    begin = time.monotonic()
    seeds = range(args.from_seed, args.from_seed + args.seeds)
    counts, lines, reasons = compare(args.only, seeds, args.keep, args.server)
    for op, words in counts.items():
        print(f"{op}: " + ", ".join(f"{n} {word}" for word, n in words.most_common()))
    print("\n".join(lines))
    total = sum(counts.values(), collections.Counter())
    print(", ".join(f"{n} {word}" for word, n in total.most_common()),
          f"in {time.monotonic() - begin:.0f} s")
    idle = [op for op, words in counts.items() if not set(words) & {"right", "pinned"}]
    print("without any right case:", ", ".join(idle) or "none")
    for row in known.ROWS:
        print(f"known, {row.used} times: {row.ops}: {row.reason}")
    if args.report:
        args.report.write_text("\n".join(sorted(reasons)) + "\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
