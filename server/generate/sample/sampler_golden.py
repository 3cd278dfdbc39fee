"""Writes `sampler_golden.inc`: tokens that numpy chooses by sorting all logits, in f64.

    .venv/bin/python server/generate/sample/sampler_golden.py

Cases in which rounding may decide are left out.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random

import numpy as np

NEAR = 1e-5  # a share of the probability that f32 may miss
HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass
class Case:
    """One choice; the fields are those of Sampling, in the order of the C++ rows."""

    size: int
    stream: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition: float
    presence: float
    frequency: float
    seed: int
    position: int


def logits_of(case: Case) -> np.ndarray:
    """Squares of hashed numbers: exact in f32, some of them equal."""
    x = np.arange(case.size, dtype=np.uint64) * 2654435761 + case.stream * 97 & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 2246822519 & 0xFFFFFFFF
    x ^= x >> 13
    value = x >> 20
    return (value * value).astype(np.float32) / np.float32(2**20)


def uniform(seed: int, position: int) -> float:
    """Philox4x32-10 of (position, seed): 53 bits of its first two words."""
    c = [position & 0xFFFFFFFF, position >> 32, 0, 0]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ key[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ key[1], a & 0xFFFFFFFF]
        key = [key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return ((c[0] << 32 | c[1]) >> 11) * 2.0**-53


def penalised(case: Case, logits: np.ndarray) -> np.ndarray:
    """Every third token is in the prompt; each token that is 1 modulo 5 was generated twice."""
    token = np.arange(case.size)
    generated = token % 5 == 1
    seen = (token % 3 == 0) | generated
    one = np.float32(case.repetition)
    logits = np.where(seen, np.where(logits > 0, logits / one, logits * one), logits)
    logits = logits - np.float32(case.frequency) * np.float32(2) * generated
    return (logits - np.float32(case.presence) * generated).astype(np.float32)


def token_of(case: Case) -> int | None:
    """The token, or None where rounding may decide."""
    logits = penalised(case, logits_of(case)).astype(np.float64)
    order = np.lexsort((np.arange(case.size), -logits))
    weights = np.exp((logits[order] - logits[order[0]]) / np.float64(np.float32(case.temperature)))
    if case.top_k > 0:
        weights[case.top_k:] = 0
    reached = np.concatenate([[0], np.cumsum(weights)[:-1]]) / weights.sum()
    if case.top_p < 1:
        if np.abs(reached - case.top_p).min() < NEAR:
            return None
        weights[reached >= case.top_p] = 0
    if case.min_p > 0 and np.abs(weights - case.min_p).min() < NEAR:
        return None
    weights[weights < case.min_p] = 0
    by_token = np.zeros(case.size)
    by_token[order] = weights / weights.sum()
    sums = np.cumsum(by_token)
    u = uniform(case.seed, case.position)
    if np.abs(sums - u).min() < NEAR:
        return None
    return int(np.searchsorted(sums, u, side="right"))


def main() -> None:
    chance = random.Random(1)
    rows = []
    while len(rows) < 200:
        plain = chance.random() < 0.5
        case = Case(
            size=chance.choice([1, 2, 50, 64, 65, 1000, 5000]),
            stream=chance.randrange(1000),
            temperature=chance.choice([0.25, 0.75, 1, 1.5, 4]),
            top_k=chance.choice([0, 0, 1, 5, 40, 400]),
            top_p=chance.choice([1, 1, 0.3, 0.9, 0.99]),
            min_p=chance.choice([0, 0, 0.02, 0.2]),
            repetition=1 if plain else chance.choice([1, 0.8, 1.3]),
            presence=0 if plain else chance.choice([0, -1, 0.5]),
            frequency=0 if plain else chance.choice([0, -0.25, 0.5]),
            seed=chance.getrandbits(64),
            position=chance.choice([0, 1, chance.randrange(5000), 2**33]),
        )
        token = token_of(case)
        if token is not None:
            # A float's literal has a point; a whole number's does not.
            values = [f"{value!r}f" if isinstance(value, float) else f"{value}u"
                      if name == "seed" else str(value)
                      for name, value in dataclasses.asdict(case).items()]
            rows.append(f"{{{', '.join(values)}, {token}}},\n")
    (HERE / "sampler_golden.inc").write_text("// By sampler_golden.py.\n" + "".join(rows))


if __name__ == "__main__":
    main()
