"""Writes the onnx package's backend test models and the small zoo as inputs of the fuzz targets.

    .venv/bin/python tests/fuzz/onnx_corpus.py DIR [--max-bytes 100000]

Each file is a saved input: the byte of the ONNX target (corpus.h), then the model. Models of equal
bytes are written once; those above `--max-bytes` are left out and counted.
"""

from __future__ import annotations

import argparse
import hashlib
import pathlib
import sys
import tempfile
from collections.abc import Iterator

import onnx
from onnx.backend.test.loader import load_model_tests

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS / "models"))

import zoo  # noqa: E402

ONNX_TARGET = 253  # kOnnxTarget


def suite_models() -> Iterator[tuple[str, bytes]]:
    """Name and serialised model of each backend case, those that are not served too."""
    for kind in ("node", "simple", "pytorch-converted", "pytorch-operator"):
        for case in load_model_tests(kind=kind):
            if case.model is not None:
                yield case.name, case.model.SerializeToString()
            elif case.model_dir is not None:
                yield case.name, (pathlib.Path(case.model_dir) / "model.onnx").read_bytes()


def zoo_models() -> Iterator[tuple[str, bytes]]:
    """Name and serialised model of the zoo's small forms."""
    with tempfile.TemporaryDirectory() as folder:
        for name, model in zoo.MODELS.items():
            small = model.tiny or model
            path = pathlib.Path(folder) / f"{name}.onnx"
            small.write(path)
            proto = onnx.load(path)  # external data inside
            yield f"zoo_{name}", proto.SerializeToString()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--max-bytes", type=int, default=100_000)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    written: set[str] = set()
    large = 0
    for models in (suite_models(), zoo_models()):
        for name, model in models:
            digest = hashlib.sha256(model).hexdigest()
            if len(model) > args.max_bytes:
                large += 1
            elif digest not in written:
                written.add(digest)
                (args.folder / name).write_bytes(bytes([ONNX_TARGET]) + model)
    print(f"{len(written)} models, {large} left out for their size: {args.folder}")


if __name__ == "__main__":
    main()
