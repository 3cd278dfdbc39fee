"""Drawn nodes through a server: its kernels instead of the reference evaluator."""

from __future__ import annotations

import pathlib
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from node import Case

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import suite  # noqa: E402


def run(cases: Mapping[str, Case], workers: int = 2) -> dict[str, tuple[str, str]]:
    """Word and text by the name of the case, as of `suite.py`; a server of its own is started.

    Raises
    ------
    SystemExit
        The server ended other than by request.
    """
    def one(name: str) -> suite.Outcome:
        case = cases[name]
        rtol, atol = case.tolerances()
        sets = [(case.inputs, case.expected)]
        return suite.run(client, suite.Case(f"random/{name}", case.model, sets, rtol, atol,
                                            case.bounds()))

    with tempfile.TemporaryDirectory(prefix="athanor-ops-") as folder:
        server = suite.Server(pathlib.Path(folder, "state"), "--compile_workers=2").start()
        try:
            with server.client() as client, ThreadPoolExecutor(workers) as pool:
                found = dict(zip(cases, pool.map(one, cases), strict=True))
            status = server.stop()
        finally:
            server.kill()
    if status:
        raise SystemExit(f"the server ended with {status}")
    return {name: (outcome.kind, outcome.why) for name, outcome in found.items()}
