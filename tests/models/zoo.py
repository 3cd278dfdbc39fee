"""The model zoo: every model that is written as ONNX for tests and benchmarks, in one table.

    model = zoo.MODELS["resnet18"]       # or .tiny: the same in small
    model.write("resnet18.onnx")
    feed = model.inputs({"batch": 2, "height": 64, "width": 80}, seed=1)
    wanted = model.reference(feed)       # float64, by name of output

    python tests/models/zoo.py --out DIR [--only NAME...] [--tiny] [--check]

writes them all and says what is in each; `--check` compares ONNX Runtime with the reference.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import dlrm_ragged
import encoder
import llama
import lstm
import mobilenet
import numpy as np
import resnet
import resnet_qdq
import squeezenet
import unet
import vit
import whisper

Sizes = Mapping[str, int]
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Model:
    """A model in one size."""

    name: str
    dims: Mapping[str, tuple[int, int]]  # bounds of each dynamic dim, each to be chosen freely
    typical: Sizes  # sizes to time it at
    tolerance: float  # largest `deviation` that passes in f32
    write: Callable[[str | os.PathLike[str]], None]
    inputs: Callable[[Sizes, int], Arrays]  # from sizes and a seed
    reference: Callable[[Mapping[str, np.ndarray]], Arrays]  # numpy in float64
    tiny: Model | None = None

    def random_sizes(self, seed: int) -> dict[str, int]:
        """Sizes within the bounds."""
        random = np.random.default_rng(seed)
        return {dim: int(random.integers(low, high + 1)) for dim, (low, high) in self.dims.items()}


def deviation(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, in units of the largest value that is wanted or of 1.

    Raises
    ------
    ValueError
        The shapes differ.
    """
    if got.shape != wanted.shape:
        raise ValueError(f"shape {list(got.shape)}; it should be {list(wanted.shape)}")
    if not wanted.size:
        return 0.0
    return float(np.abs(got - wanted).max() / max(1.0, np.abs(wanted).max()))


def _encoder_inputs(sizes: Sizes, config: encoder.Config, seed: int) -> Arrays:
    shape = (sizes["b"], sizes["s"])
    return {"ids": np.random.default_rng(seed).integers(0, config.vocabulary, shape)}


def _encoder_numpy(feed: Mapping[str, np.ndarray], config: encoder.Config) -> Arrays:
    return {"hidden": encoder.encoder_numpy(feed["ids"], config)}


TINY_ENCODER = encoder.Config(layers=2, width=48, heads=4, hidden=96, vocabulary=101, positions=40,
                              batch=3)
# Functions that make a model from a config: write it, give inputs, compute in numpy.
FORMS = {
    "dlrm": (dlrm_ragged.ragged_onnx, dlrm_ragged.ragged_inputs, dlrm_ragged.ragged_numpy),
    "encoder": (encoder.encoder_onnx, _encoder_inputs, _encoder_numpy),
    "llama": (llama.llama_onnx, llama.llama_inputs, llama.llama_numpy),
    "lstm": (lstm.lstm_onnx, lstm.lstm_inputs, lstm.lstm_numpy),
    "mobilenet": (mobilenet.mobilenet_onnx, mobilenet.mobilenet_inputs, mobilenet.mobilenet_numpy),
    "qdq": (resnet_qdq.qdq_onnx, resnet.resnet_inputs, resnet_qdq.qdq_numpy),
    "resnet": (resnet.resnet_onnx, resnet.resnet_inputs, resnet.resnet_numpy),
    "squeezenet": (squeezenet.squeezenet_onnx, squeezenet.squeezenet_inputs,
                   squeezenet.squeezenet_numpy),
    "unet": (unet.unet_onnx, unet.unet_inputs, unet.unet_numpy),
    "vit": (vit.vit_onnx, vit.vit_inputs, vit.vit_numpy),
    "whisper": (whisper.whisper_onnx, whisper.whisper_inputs, whisper.whisper_numpy),
}
_IMAGE = {"batch": 1, "height": 224, "width": 224}
_BLOCK = {"batch": 1, "sequence": 16, "past": 112}
# The name's form (what precedes "_" or digits), its config, a tiny one, typical sizes, tolerance.
_ROWS = {
    "encoder": (encoder.DEFAULT, TINY_ENCODER, {"b": 1, "s": 128}, 1e-5),
    "resnet18": (resnet.RESNET18, resnet.TINY18, _IMAGE, 5e-5),
    "resnet50": (resnet.RESNET50, resnet.TINY50, _IMAGE, 5e-5),
    # A logit is off by a part of a step if f32 rounds to another code than f64. At full size ONNX
    # Runtime's differ from f64 by 0.023, ours by 0.033, and the two from each other by 0.030.
    "qdq_resnet18": (resnet.RESNET18, resnet.TINY18, _IMAGE, 5e-2),
    "squeezenet": (squeezenet.DEFAULT, squeezenet.TINY, _IMAGE, 5e-5),
    "mobilenet": (mobilenet.DEFAULT, mobilenet.TINY, _IMAGE, 5e-5),
    "unet": (unet.DEFAULT, unet.TINY, {"batch": 1, "height": 128, "width": 128}, 5e-5),
    "unet_resized": (unet.RESIZED, unet.TINY_RESIZED, {"batch": 1, "height": 128, "width": 128},
                     5e-5),
    "dlrm_ragged": (dlrm_ragged.DEFAULT, dlrm_ragged.TINY,
                    {"batch": 64, "ids0": 64, "ids1": 192, "ids2": 640}, 1e-5),
    "dlrm_padded": (dlrm_ragged.PADDED, dlrm_ragged.TINY_PADDED,
                    {"batch": 64, "bag0": 1, "bag1": 3, "bag2": 10}, 1e-5),
    "lstm": (lstm.DEFAULT, lstm.TINY, {"batch": 1, "sequence": 64}, 1e-5),
    "whisper": (whisper.DEFAULT, whisper.TINY, {"batch": 1, "frames": 1000}, 1e-5),
    "vit": (vit.DEFAULT, vit.TINY, {"batch": 1}, 1e-5),
    "llama": (llama.DEFAULT, llama.TINY, _BLOCK, 1e-5),
    "llama_microsoft": (llama.MICROSOFT, llama.TINY_MICROSOFT, _BLOCK, 1e-5),
    "llama_primitives": (llama.PRIMITIVES, llama.TINY_PRIMITIVES, _BLOCK, 1e-5),
    "llama_nbits": (llama.NBITS, llama.TINY_NBITS, _BLOCK, 1e-5),
}


def _dims(config: object) -> dict[str, tuple[int, int]]:
    if isinstance(config, encoder.Config):
        return {"b": (1, config.batch), "s": (1, config.positions)}
    return config.dims


def _model(name: str, config: object, typical: Sizes, tolerance: float,
           tiny: Model | None) -> Model:
    write, inputs, reference = FORMS[name.partition("_")[0].rstrip("0123456789")]
    return Model(name, _dims(config), typical, tolerance,
                 functools.partial(write, config=config),
                 lambda sizes, seed: inputs(sizes, config, seed),
                 functools.partial(reference, config=config), tiny)


def _row(name: str, config: object, tiny: object, typical: Sizes, tolerance: float) -> Model:
    bounds = _dims(tiny)
    small = {dim: min(size, bounds[dim][1]) for dim, size in typical.items()}
    return _model(name, config, typical, tolerance, _model(name, tiny, small, tolerance, None))


MODELS: dict[str, Model] = {name: _row(name, *row) for name, row in _ROWS.items()}


def describe(model: Model, path: Path) -> str:
    """Describes the file at `path` in one line."""
    import onnx

    loaded = onnx.load(path)
    opsets = ", ".join(f"{o.domain} {o.version}".strip() for o in loaded.opset_import)
    ops = collections.Counter(node.op_type for node in loaded.graph.node)
    values = sum(int(np.prod(t.dims)) for t in loaded.graph.initializer)
    dims = ", ".join(f"{dim} {low}..{high}" for dim, (low, high) in model.dims.items())
    return (f"{model.name}: opset {opsets}; {len(loaded.graph.node)} nodes "
            f"({', '.join(f'{op} {n}' for op, n in sorted(ops.items()))}); {values:,} values in "
            f"initialisers, {path.stat().st_size / 2**20:.1f} MiB; {dims}")


def check(model: Model, path: Path, seed: int = 0) -> dict[str, float]:
    """The deviation of each output of ONNX Runtime from the reference at typical sizes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of what it cannot make faster
    # Without VNNI sums of products of u8 and i8 would saturate.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = model.inputs(model.typical, seed)
    wanted = model.reference(feed)
    return {name: deviation(got, wanted[name])
            for name, got in zip(wanted, session.run(list(wanted), feed), strict=True)}


def main() -> int:
    """Writes the models; 1 if one was checked and deviates too much."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=MODELS, metavar="NAME",
                        help="one of: " + ", ".join(MODELS))
    parser.add_argument("--tiny", action="store_true", help="in the sizes of tests")
    parser.add_argument("--check", action="store_true",
                        help="also compare ONNX Runtime with the reference")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    status = 0
    for name in args.only or MODELS:
        model = MODELS[name].tiny if args.tiny else MODELS[name]
        path = args.out / f"{name}.onnx"
        model.write(path)
        print(describe(model, path))
        if args.check:
            for output, value in check(model, path).items():
                passes = value <= model.tolerance
                status = status if passes else 1
                print(f"  {output} at {dict(model.typical)}: deviation {value:.1e}, at most "
                      f"{model.tolerance} passes{'' if passes else ': FAILED'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
