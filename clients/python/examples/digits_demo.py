"""Uploads the digit classifier, sends it real images, prints answers and held-out accuracy.

    .venv/bin/python clients/python/examples/digits_demo.py --address 127.0.0.1:50051

With --model FILE that file (a bundle of Graph.save, or ONNX) is uploaded and called once with
random inputs instead. Exits with 1 if an answer is wrong or the accuracy below 95 %.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

import athanor
import numpy as np

WEIGHTS = pathlib.Path(__file__).resolve().parents[3] / "tests/models/digits/digits.npz"
LARGEST_BATCH = 64
SHADES = " .:-=+*#%@"


def digits_graph(weights: dict[str, np.ndarray]) -> athanor.Graph:
    """Images f32[b, 64] of pixels 0 to 16 to logits f32[b, 10]."""
    g = athanor.Graph("digits", dims={"b": (1, LARGEST_BATCH)})
    h = g.input("image", ("b", 64), "f32") * (1 / 16)
    for layer in range(3):
        w = g.parameter(f"w{layer}", weights[f"w{layer}"])
        b = g.parameter(f"b{layer}", weights[f"b{layer}"])
        h = h @ w + b
        h = athanor.relu(h) if layer < 2 else h
    g.output("logits", h)
    return g


def reference(weights: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """The same network in numpy and float64."""
    h = images.astype(np.float64) / 16
    for layer in range(3):
        h = h @ weights[f"w{layer}"] + weights[f"b{layer}"]
        h = np.maximum(h, 0) if layer < 2 else h
    return h


def picture(image: np.ndarray) -> list[str]:
    """An image as eight lines of text."""
    return ["".join(SHADES[int(p) * (len(SHADES) - 1) // 16] * 2 for p in row)
            for row in image.reshape(8, 8)]


def show(images: np.ndarray, answers: np.ndarray, labels: np.ndarray) -> None:
    """A few images side by side over their answers."""
    for lines in zip(*map(picture, images), strict=True):
        print("   ".join(lines))
    captions = [f"answer {a}, truth {t}" for a, t in zip(answers, labels, strict=True)]
    print("   ".join(f"{caption:<16}" for caption in captions))


def run_digits(client: athanor.Client) -> bool:
    """Upload, first answer, pictures, accuracy; whether all was right."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    with np.load(WEIGHTS, allow_pickle=False) as file:
        weights = dict(file)
    data = load_digits()
    images = data.data[weights["held_out"]].astype(np.float32)
    labels = data.target[weights["held_out"]]
    expected = reference(weights, images)

    graph = digits_graph(weights)
    start = time.perf_counter()
    model = client.upload(graph, name="digits")
    stored = time.perf_counter()
    first = model.infer({"image": images[:1]}, timeout=300)
    done = time.perf_counter()
    right = bool(np.allclose(first["logits"], expected[:1], rtol=1e-4, atol=1e-4))
    print(f"digits version {model.version}: stored after {stored - start:.3f} s, first "
          f"{'right' if right else 'WRONG'} answer {done - start:.3f} s after the upload call "
          f"(plan {first.plan_id})")
    model.wait("baseline", timeout=300)

    answers = []
    for at in range(0, len(images), LARGEST_BATCH):
        answers.append(model.infer({"image": images[at:at + LARGEST_BATCH]})["logits"])
    logits = np.concatenate(answers)
    digits = logits.argmax(axis=1)
    show(images[:5], digits[:5], labels[:5])
    error = np.abs(logits - expected).max()
    accuracy = (digits == labels).mean()
    print(f"held-out accuracy through the server: {accuracy:.2%} ({(digits == labels).sum()} of "
          f"{len(labels)} images); largest difference from numpy {error:.1e}")
    print(f"call it: athanor.Client({client.address!r}).model('digits')"
          ".infer({'image': f32[b, 64]})['logits']")
    return right and bool(error < 1e-3) and bool(accuracy >= 0.95)


def bounds(text: str) -> tuple[str, int | tuple[int, int]]:
    """A dim of the command line: NAME=LOW:HIGH, or NAME=SIZE."""
    name, equals, sizes = text.partition("=")
    low, colon, high = sizes.partition(":")
    if not (name and equals and low.isdigit() and (high.isdigit() if colon else not high)):
        raise argparse.ArgumentTypeError(f"{text!r}: give NAME=LOW:HIGH, such as batch=1:64, or "
                                         "NAME=SIZE")
    return name, (int(low), int(high)) if colon else int(low)


def run_file(client: athanor.Client, path: pathlib.Path,
             dims: dict[str, int | tuple[int, int]]) -> bool:
    """Uploads a model file and calls it once, every dim at its least size."""
    start = time.perf_counter()
    model = client.upload(path, name=path.stem, dims=dims or None)
    model.wait("baseline", timeout=600)
    info = model.info()
    print(f"{info.name} version {info.version}: baseline plan {info.plan_id} after "
          f"{time.perf_counter() - start:.3f} s")
    random = np.random.default_rng(0)
    sizes = {dim: max(low, 1) for dim, (low, _) in info.dims.items()}
    inputs = {}
    for tensor in info.inputs:
        if not all(size.isdigit() or size in sizes for size in tensor.shape):
            print(f"input {tensor} has a compound size; call it yourself")
            return True
        shape = [int(size) if size.isdigit() else sizes[size] for size in tensor.shape]
        dtype = athanor.dtypes.dtype_of(tensor.dtype)
        floating = dtype.kind == "float"
        values = random.standard_normal(shape) if floating else np.zeros(shape)
        inputs[tensor.name] = values.astype(dtype.numpy)
    for name, value in model.infer(inputs, timeout=600).items():
        print(f"{name}: {value.dtype} {value.shape}, first values {value.ravel()[:4]}")
    return True


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", metavar="HOST:PORT",
                        help="of the server; else ATHANOR_ADDRESS, else 127.0.0.1:50051")
    parser.add_argument("--model", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--dim", type=bounds, action="append", default=[],
                        metavar="NAME=LOW:HIGH", help="bounds of a dim of an ONNX file")
    args = parser.parse_args()
    try:
        with athanor.Client(args.address) as client:
            ok = run_file(client, args.model, dict(args.dim)) if args.model else run_digits(client)
    except athanor.Error as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return 1
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
