"""Writes ONNX's backend test cases to a folder, for tests/conformance/onnx_cases and others.

    .venv/bin/python tests/onnx/cases.py DIR [--filter 'test_softmax*'] [--zoo]

The onnx package makes most cases in memory. In DIR are then `cases.tsv` (kind, name, rtol, atol,
why it is not counted or nothing) and, but for those not counted, KIND/NAME with `model.onnx` and
for each data set k `set_k/input_i.pb` and `set_k/output_i.pb`, TensorProtos in the order of the
model's inputs and outputs. With --zoo also the small forms of tests/models/zoo.py, kind "zoo", at
several sizes each: `dims.tsv` has the bounds of their dims, atol is in units of the largest value.
"""

from __future__ import annotations

import argparse
import fnmatch
import pathlib
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import onnx.numpy_helper
from onnx.backend.test.loader import DATA_DIR, load_model_tests
from onnx.backend.test.runner import Runner

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
SEQUENCE_OPS = {"ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty",
                "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap",
                "SplitToSequence"}
OPTIONAL_OPS = {"Optional", "OptionalGetElement", "OptionalHasElement"}
TRAINING = "ai.onnx.preview.training"

# Inputs and results; lists of results that are as right may follow.
DataSet = tuple[Sequence[object], ...]


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and all inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_of(attribute.g)
            for inner in attribute.graphs:
                yield from graphs_of(inner)


def kinds_of(model: onnx.ModelProto) -> set[str]:
    """Kinds of types on the model's interface, "tensor(string)" for a tensor of strings."""
    kinds = set()
    for info in (*model.graph.input, *model.graph.output):
        kind = info.type.WhichOneof("value")
        if kind == "tensor_type" and info.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            kind = "string"
        kinds.add(kind)
    return kinds


def not_counted(model: onnx.ModelProto) -> str:
    """Why a case is not counted: "sequence", "optional", "training", "string"; empty if it is."""
    if any(opset.domain == TRAINING for opset in model.opset_import):
        return "training"
    ops = {node.op_type for graph in graphs_of(model.graph) for node in graph.node}
    kinds = kinds_of(model)
    if "sequence_type" in kinds or ops & SEQUENCE_OPS:
        return "sequence"
    if "optional_type" in kinds or ops & OPTIONAL_OPS:
        return "optional"
    # Ops of ai.onnx.ml are refused because of their domain.
    domains = {opset.domain for opset in model.opset_import}
    return "string" if "string" in kinds and "ai.onnx.ml" not in domains else ""


def to_proto(value: object, name: str) -> onnx.TensorProto:
    """A tensor as the file of a data set holds it; strings for those of ai.onnx.ml."""
    if isinstance(value, onnx.TensorProto):
        return value
    return onnx.numpy_helper.from_array(np.asarray(value), name)


def read_data_sets(folder: pathlib.Path) -> list[DataSet]:
    """The data sets beside a model that the package has as files."""
    def read(data_set: pathlib.Path, what: str) -> list[onnx.TensorProto]:
        count = len(list(data_set.glob(f"{what}_*.pb")))
        return [onnx.load_tensor(data_set / f"{what}_{i}.pb") for i in range(count)]

    return [(read(data_set, "input"), read(data_set, "output"))
            for data_set in sorted(folder.glob("test_data_set_*"))]


def light_data_set(model: onnx.ModelProto, expected: pathlib.Path) -> DataSet:
    """The one data set of a light model, by the rule of the package's runner."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [Runner.generate_dummy_data(info) for info in model.graph.input
              if info.name not in weights]
    return inputs, [onnx.load_tensor(expected)]


def load(case: object) -> tuple[onnx.ModelProto, list[DataSet]]:
    """A case's model and data sets, wherever the package has them."""
    if case.model is not None:
        return case.model, list(case.data_sets)
    if case.model_dir is not None:
        folder = pathlib.Path(case.model_dir)
        model = onnx.load(folder / "model.onnx")
        # Only uncounted cases have values other than tensors.
        return model, [] if not_counted(model) else read_data_sets(folder)
    path = pathlib.Path(DATA_DIR, "light", pathlib.Path(case.url).name)
    model = onnx.load(path)
    expected = path.with_name(f"{path.stem}_output_0.pb")
    return model, [light_data_set(model, expected)]


def write_case(folder: pathlib.Path, model: onnx.ModelProto, data_sets: list[DataSet]) -> None:
    """The files of a case."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "model.onnx").exists():
        (folder / "model.onnx").write_bytes(model.SerializeToString())
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [info.name for info in model.graph.input if info.name not in weights]
    outputs = [info.name for info in model.graph.output]
    for k, (given, expected) in enumerate(data_sets):
        data_set = folder / f"set_{k}"
        data_set.mkdir()
        for what, values, names in (("input", given, inputs), ("output", expected, outputs)):
            for i, value in enumerate(values):
                proto = to_proto(value, names[i] if i < len(names) else "")
                (data_set / f"{what}_{i}.pb").write_bytes(proto.SerializeToString())


def zoo_data_set(model: object, proto: onnx.ModelProto, sizes: dict[str, int],
                 seed: int) -> DataSet:
    """Inputs of these sizes and what the model's float64 reference makes of them."""
    types = {info.name: onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
             for info in (*proto.graph.input, *proto.graph.output)}
    feed = model.inputs(sizes, seed)
    wanted = model.reference(feed)
    weights = {tensor.name for tensor in proto.graph.initializer}
    names = [info.name for info in proto.graph.input if info.name not in weights]
    return ([feed[name] for name in names],
            [np.asarray(wanted[info.name]).astype(types[info.name])
             for info in proto.graph.output])


def write_zoo(target: pathlib.Path, pattern: str) -> Iterator[str]:
    """The zoo's small forms at their least, largest and some random sizes; their names."""
    sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "models"))
    import zoo

    for name, row in zoo.MODELS.items():
        if not fnmatch.fnmatch(name, pattern):
            continue
        model, folder = row.tiny, target / "zoo" / name
        folder.mkdir(parents=True)
        model.write(folder / "model.onnx")
        proto = onnx.load(folder / "model.onnx", load_external_data=False)
        least = {dim: low for dim, (low, _) in model.dims.items()}
        most = {dim: high for dim, (_, high) in model.dims.items()}
        sizes = [least, most, *(model.random_sizes(seed) for seed in range(3))]
        write_case(folder, proto, [zoo_data_set(model, proto, one, seed)
                                   for seed, one in enumerate(sizes)])
        (folder / "dims.tsv").write_text("".join(
            f"{dim}\t{low}\t{high}\n" for dim, (low, high) in model.dims.items()))
        yield f"zoo\t{name}\t0\t{model.tolerance}\t\n"


def write_cases(target: pathlib.Path, pattern: str, zoo: bool = False) -> Counter[str]:
    """Returns all cases whose name matches, how many are counted, and why others are not."""
    if target.exists():
        if any(target.iterdir()) and not (target / "cases.tsv").exists():
            raise SystemExit(f"{target} holds other files; give a new folder")
        shutil.rmtree(target)
    target.mkdir(parents=True)
    counts: Counter[str] = Counter()
    with (target / "cases.tsv").open("w") as table:
        for kind in KINDS:
            for case in sorted(load_model_tests(kind=kind), key=lambda case: case.name):
                if not fnmatch.fnmatch(case.name, pattern):
                    continue
                model, data_sets = load(case)
                reason = not_counted(model)
                counts[reason or "counted"] += 1
                table.write(f"{kind}\t{case.name}\t{case.rtol}\t{case.atol}\t{reason}\n")
                if not reason:
                    write_case(target / kind / case.name, model, data_sets)
        for line in write_zoo(target, pattern) if zoo else ():
            counts["of the zoo"] += 1
            table.write(line)
    return counts


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("target", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--filter", default="*", help="of names, as a shell's pattern")
    parser.add_argument("--zoo", action="store_true", help="the zoo's small models too")
    arguments = parser.parse_args()
    counts = write_cases(arguments.target, arguments.filter, arguments.zoo)
    print(", ".join(f"{count} {what}" for what, count in counts.most_common()))


if __name__ == "__main__":
    sys.exit(main())
