"""ONNX's backend test suite through the server: upload, infer, compare as the package itself does.

    .venv/bin/python tests/onnx/suite.py                  # all that count, some minutes
    .venv/bin/python tests/onnx/suite.py --share 8        # an eighth of the cases
    .venv/bin/python tests/onnx/suite.py --only 'node/test_softmax*'
    .venv/bin/python tests/onnx/suite.py --write_expected # what expected.json is made by

A case is *right* (its outputs pass `Runner.assert_similar_outputs` and have the dtypes that the
model declares), *pinned* (right, with contents of inputs given at upload because the refusal asked
for exactly those), *refused* (before it is stored, with a node's or input's name), *drawn* (values
that ONNX leaves to the implementation: dtype, shape and range are right), *wrong* or *error*.
expected.json lists the cases that may be refused, drawn or, with the reason, wrong; any other that
is not right fails, and so does a listed one that is right, so that the list can only change
knowingly. Exit status 0: as expected.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import hashlib
import json
import pathlib
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import athanor
import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPECTED = pathlib.Path(__file__).with_name("expected.json")
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/onnx")]

import cases  # noqa: E402
from server_process import Server  # noqa: E402

# The shape of their results is in their data: with that given at upload nothing of them would be
# left to compute, so they count as refused.
DATA_DEPENDENT = {"Compress", "NonMaxSuppression", "NonZero", "Unique"}
DRAWING = {"Bernoulli", "RandomUniformLike"}
WAIT_S = 300
ROUNDS = 8  # uploads of a case: what is given may show what else is needed

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Case:
    """A case that counts."""

    name: str  # "node/test_add"
    model: onnx.ModelProto
    data_sets: Sequence[cases.DataSet]
    rtol: float
    atol: float
    dims: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)  # bounds

    @property
    def ops(self) -> set[str]:
        """Returns the ops of the graph and all graphs inside it, and of the model's functions."""
        nodes = [node for graph in cases.graphs_of(self.model.graph) for node in graph.node]
        nodes += [node for function in self.model.functions for node in function.node]
        return {node.op_type for node in nodes}

    @property
    def inputs(self) -> list[str]:
        """Returns the inputs without an initialiser."""
        weights = {tensor.name for tensor in self.model.graph.initializer}
        return [info.name for info in self.model.graph.input if info.name not in weights]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a case."""

    kind: str  # "right", "pinned", "refused", "drawn", "wrong" or "error"
    why: str = ""
    ops: tuple[str, ...] = ()  # ops that were refused
    wanted: int = 0  # by which of a data set's lists of results, the highest of all sets


def share_of(name: str) -> int:
    """A number that stays with the name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def load(only: str, share: int) -> Iterator[Case]:
    """The cases that count, whose name matches and whose share it is."""
    for kind in cases.KINDS:
        for case in sorted(load_model_tests(kind=kind), key=lambda case: case.name):
            name = f"{kind}/{case.name}"
            if not fnmatch.fnmatch(name, only) or share_of(name) % share:
                continue
            model, data_sets = cases.load(case)
            if not cases.not_counted(model):
                yield Case(name, model, data_sets, case.rtol, case.atol)


def array(value: object) -> np.ndarray:
    """Reads an entry of a data set."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value)


def compare(case: Case, wanted: Sequence[np.ndarray], got: Mapping[str, np.ndarray]) -> str:
    """Describes what is wrong with the outputs; empty if nothing is."""
    names = [info.name for info in case.model.graph.output]
    for info in case.model.graph.output:
        declared = info.type.tensor_type.elem_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(declared) if declared else None
        if dtype is not None and got[info.name].dtype != dtype:
            return f"output {info.name!r} is {got[info.name].dtype}, declared {dtype}"
    if case.ops & DRAWING:
        # All of them are Bernoulli's.
        fits = all(got[name].shape == value.shape
                   and np.isin(got[name].astype(np.float64), (0, 1)).all()
                   for name, value in zip(names, wanted, strict=True))
        return "" if fits else "drawn values of another shape or range"
    try:
        Runner.assert_similar_outputs(wanted, [got[name] for name in names], case.rtol, case.atol)
    except AssertionError as error:
        return " ".join(str(error).split())[:300]
    return ""


def inputs_of(case: Case, data_set: cases.DataSet) -> Arrays:
    """By name."""
    return dict(zip(case.inputs, map(array, data_set[0]), strict=False))


def needed(error: athanor.Error, case: Case) -> set[str]:
    """The inputs whose contents a refusal asks for, if that is all it asks for."""
    asked = error.refusals
    settled = asked and all(refusal.inputs for refusal in asked)
    if not settled or case.ops & DATA_DEPENDENT:
        return set()
    return {name for refusal in asked for name in refusal.inputs}


def upload(client: athanor.Client, case: Case, name: str,
           given: Arrays) -> tuple[athanor.Model, set[str]]:
    """The model, and which inputs' contents it had to be given."""
    pinned: set[str] = set()
    for round in range(ROUNDS):
        try:
            values = {key: given[key] for key in pinned}
            return client.upload(case.model, name, "onnx", budget="0", values=values,
                                 dims=case.dims or None), pinned
        except (athanor.Unimplemented, athanor.InvalidArgument) as error:
            more = needed(error, case) - pinned
            if not more or not more <= set(given) or round == ROUNDS - 1:
                raise
            pinned |= more
    raise AssertionError("unreachable")


def run(client: athanor.Client, case: Case) -> Outcome:
    """Runs each data set, in a version of the model that fits it.

    A set of several lists of results is right by the first that matches.
    """
    name = case.name
    kind, wanted = "right", 0
    try:
        model, pinned, fixed = None, set(), {}
        for data_set in case.data_sets:
            given = inputs_of(case, data_set)
            if model is None or any(given[key].tobytes() != fixed[key] for key in pinned):
                try:
                    model, pinned = upload(client, case, name, given)
                except (athanor.Unimplemented, athanor.InvalidArgument) as error:
                    ops = tuple(sorted({r.op for r in error.refusals if r.op}))
                    words = " ".join(str(error).split())
                    named = any(r.node or r.inputs or r.reason for r in error.refusals)
                    return Outcome("refused" if named else "error", words[:300], ops)
                fixed = {key: given[key].tobytes() for key in pinned}
                model.wait("baseline", timeout=WAIT_S)
            got = model.infer(given, timeout=WAIT_S)
            whys = [compare(case, list(map(array, results)), got) for results in data_set[1:]]
            if all(whys):
                return Outcome("wrong", "; ".join(whys))
            wanted = max(wanted, whys.index(""))
            if pinned:
                kind = "pinned"
        return Outcome("drawn" if case.ops & DRAWING else kind, wanted=wanted)
    except (athanor.Error, KeyError, ValueError, TypeError) as error:
        return Outcome("error", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    finally:
        try:
            client.delete(name)
        except athanor.NotFound:
            pass


def surprises(outcomes: Mapping[str, Outcome], expected: Mapping[str, str]) -> list[str]:
    """Prints a line per case that is not as expected."""
    lines = []
    for name, outcome in outcomes.items():
        listed = expected.get(name, "")
        if outcome.kind in ("right", "pinned"):
            if listed:
                lines.append(f"{name}: {outcome.kind}, and listed as one that is not: {listed}")
        elif outcome.kind == "error" or not listed.startswith(outcome.kind):
            lines.append(f"{name}: {outcome.kind}, and not listed as such: {outcome.why}")
    return lines


def report(outcomes: Mapping[str, Outcome]) -> str:
    """Counts by kind and outcome, the share that is right, and what is refused by op."""
    lines = []
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    refused: Counter[str] = Counter()
    for name, outcome in outcomes.items():
        by_kind[name.partition("/")[0]][outcome.kind] += 1
        if outcome.kind == "refused":
            refused.update(outcome.ops or ("(no op)",))
    for kind, counts in by_kind.items():
        lines.append(f"{kind}: " + ", ".join(f"{n} {what}" for what, n in counts.most_common()))
    if refused:
        lines.append("refused by op: " + ", ".join(f"{op} {n}" for op, n in refused.most_common()))
    total = sum(by_kind.values(), Counter())
    right = total["right"] + total["pinned"]
    lines.append(f"{right} of {len(outcomes)} right ({100 * right / max(1, len(outcomes)):.1f} %; "
                 f"{total['pinned']} with values given at upload), "
                 f"{total['refused']} refused, {total['drawn']} drawn, {total['wrong']} wrong, "
                 f"{total['error']} errors")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", help="names that match this shell pattern")
    parser.add_argument("--share", type=int, default=1, help="every n-th, by hash of the name")
    parser.add_argument("--workers", type=int, default=2, help="cases at once")
    parser.add_argument("--json", type=pathlib.Path, help="file for every case's outcome")
    parser.add_argument("--write_expected", action="store_true",
                        help="expected.json says what this run found refused and drawn")
    return parser.parse_args()


def main() -> int:
    """The command."""
    args = arguments()
    warnings.filterwarnings("ignore", module="onnx|numpy")
    expected: dict[str, str] = json.loads(EXPECTED.read_text())
    begin = time.monotonic()
    chosen = list(load(args.only, args.share))
    if not chosen:
        print("no case of that name")
        return 2
    with tempfile.TemporaryDirectory(prefix="athanor-onnx-") as folder:
        server = Server(pathlib.Path(folder, "state"), "--compile_workers=2").start()
        try:
            with server.client() as client, ThreadPoolExecutor(args.workers) as pool:
                found = list(pool.map(lambda case: run(client, case), chosen))
            status = server.stop()
        finally:
            server.kill()
    outcomes = {case.name: outcome for case, outcome in zip(chosen, found, strict=True)}
    if args.json:
        args.json.write_text(json.dumps({name: dataclasses.asdict(outcome)
                                         for name, outcome in outcomes.items()}, indent=1))
    if args.write_expected:
        kept = {name: why for name, why in expected.items() if name not in outcomes}
        # Why one is wrong is for people to say.
        kept |= {name: expected[name] for name, o in outcomes.items()
                 if o.kind == "wrong" and expected.get(name, "").startswith("wrong")}
        kept |= {name: f"{o.kind}: {', '.join(o.ops)}" if o.ops else o.kind
                 for name, o in outcomes.items() if o.kind in ("refused", "drawn")}
        EXPECTED.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
        expected = kept
    lines = surprises(outcomes, expected)
    print("\n".join(lines))
    print(report(outcomes))
    print(f"{len(lines)} not as expected, {time.monotonic() - begin:.0f} s, "
          f"server's status {status}")
    return 1 if lines or status else 0


if __name__ == "__main__":
    sys.exit(main())
