"""Weights of models, drawn from a seed."""

from __future__ import annotations

import numpy as np


class SeededArrays:
    """Arrays by name, f32, drawn one after the other from one seed."""

    def __init__(self, seed: int) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._random = np.random.default_rng(seed)

    def normal(self, *shape: int, deviation: float = 0.1, mean: float = 0.0) -> np.ndarray:
        """Normal values."""
        values = self._random.standard_normal(shape, np.float32)
        return values * np.float32(deviation) + np.float32(mean)
