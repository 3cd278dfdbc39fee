"""Trains the digit classifier of the demo and writes digits.npz beside this file.

    .venv/bin/python tests/models/digits/train.py

The data are scikit-learn's digits: 1,797 real images of 8x8 pixels from 0 to 16. A fifth of each
class is held out; the positions of those images are in the file, so that whoever computes the
accuracy uses images the training never saw. Seeded; the file holds plain arrays, no pickle.
"""

from __future__ import annotations

import pathlib

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

SEED = 20
PATH = pathlib.Path(__file__).with_name("digits.npz")


def logits(weights: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """The network in numpy, float64: images [n, 64] of pixels 0 to 16 to logits [n, 10]."""
    x = images.astype(np.float64) / 16
    for layer in (0, 1):
        x = np.maximum(x @ weights[f"w{layer}"] + weights[f"b{layer}"], 0)
    return x @ weights["w2"] + weights["b2"]


def main() -> None:
    """Trains, writes, prints the held-out accuracy."""
    data = load_digits()
    positions = np.arange(len(data.target))
    train, held_out = train_test_split(positions, test_size=0.2, random_state=SEED,
                                       stratify=data.target)
    model = MLPClassifier((128, 64), alpha=1e-3, max_iter=400, random_state=SEED)
    model.fit(data.data[train] / 16, data.target[train])
    arrays = {"held_out": np.sort(held_out).astype(np.int64)}
    for layer, (weight, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
        arrays[f"w{layer}"] = weight.astype(np.float32)
        arrays[f"b{layer}"] = bias.astype(np.float32)
    np.savez_compressed(PATH, **arrays)
    answers = logits(arrays, data.data[arrays["held_out"]]).argmax(axis=1)
    right = answers == data.target[arrays["held_out"]]
    print(f"{PATH.name}: {PATH.stat().st_size} bytes, held-out accuracy {right.mean():.4f} "
          f"({right.sum()} of {len(right)})")


if __name__ == "__main__":
    main()
