"""Makes nn.npz: what torch's modules make of the cases of `nn_cases.py`, with seeded weights.

    python tests/e2e/sdk/testdata/make_nn.py      # needs torch; made with 2.13.0 for the CPU

By case: ``case/weight/NAME``, ``case/input/NAME``, ``case/output/NUMBER``.
"""

from __future__ import annotations

import pathlib
import sys
import zlib

import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from nn_cases import CASES, called  # noqa: E402


def array(shape: tuple, kind: str, random: np.random.Generator) -> np.ndarray:
    sizes = [size[1] if isinstance(size, tuple) else size for size in shape]
    if kind == "bool":
        made = random.random(sizes) < 0.4
        made[..., 0] = False  # some key is shown
        return made
    if kind.startswith("ids"):
        return random.integers(0, int(kind[3:]), sizes)
    return random.standard_normal(sizes).astype(np.float32)


def main() -> None:
    kept: dict[str, np.ndarray] = {}
    for name, case in CASES.items():
        seed = zlib.crc32(name.encode())
        torch.manual_seed(seed)
        random = np.random.default_rng(seed)
        module = eval(case.theirs, {"nn": torch.nn}).eval()
        with torch.no_grad():
            for key, weight in module.state_dict().items():
                if weight.is_floating_point():  # norms would begin with ones and zeros
                    noise = torch.from_numpy(array(tuple(weight.shape), "f32", random)) * 0.3
                    weight.copy_(noise.abs() + 0.5 if "var" in key else weight + noise)
                kept[f"{name}/weight/{key}"] = weight.numpy()
            inputs = {key: array(*given, random) for key, given in case.inputs.items()}
            values = {key: torch.from_numpy(value) for key, value in inputs.items()}
            outputs = called(case, module, values, case.their_options)
        kept |= {f"{name}/input/{key}": value for key, value in inputs.items()}
        kept |= {f"{name}/output/{i}": value.numpy() for i, value in enumerate(outputs)}
    np.savez_compressed(HERE / "nn.npz", **kept)


if __name__ == "__main__":
    main()
