"""Shared by the scenarios: servers of a run, figures with their targets, models with known answers.

    def scenario(run: Run) -> None:
        server = run.server("state").start()
        run.figure("rounds", rounds)
        run.figure("growth", growth, "%", at_most=2)

A scenario asserts what must hold always; a figure with a bound is judged at the end, one that is
`timed` in the long form only.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/models")]

import athanor  # noqa: E402
import mlp  # noqa: E402
import numpy as np  # noqa: E402
from server_process import Server, built  # noqa: E402

BENCH = ROOT / "bazel-bin/clients/bench/athanor-bench"
ANSWER_SECONDS = 120  # for one answer that may wait for a compile on a busy machine


@dataclasses.dataclass
class Figure:
    """A figure with its target."""

    name: str
    value: float | str
    unit: str = ""
    reach: str = ""
    judged: bool = False
    met: bool = True


class Run:
    """A run of a scenario, with a folder, random choices and figures of its own."""

    def __init__(self, name: str, folder: pathlib.Path, seed: int, long: bool = False,
                 share: float = 1) -> None:
        self.name = name
        self.folder = folder
        self.seed = seed
        self.long = long
        self.share = share
        self.random = random.Random(f"{name} {seed}")
        self.figures: list[Figure] = []
        self._servers: list[Server] = []

    def count(self, short: int, long: int) -> int:
        """Returns how often to repeat: `short` in CI, `long` (or the share asked for) in the long
        form."""
        return max(1, round(long * self.share)) if self.long else short

    def server(self, name: str, *flags: str, **options: object) -> Server:
        """A server that ends with the run; not started. `name` is its state directory's.

        It is killed with the thread that starts it: that is the main one.
        """
        prefix = (*options.pop("prefix", ()), "setpriv", "--pdeathsig=KILL")
        server = Server(self.folder / name, "--http_listen=127.0.0.1:0", *flags, prefix=prefix,
                        **options)
        self._servers.append(server)
        return server

    def figure(self, name: str, value: float | str, unit: str = "", *,
               at_most: float | None = None, at_least: float | None = None,
               timed: bool = False) -> None:
        """Keeps a figure; with a bound it is judged, if `timed` in the long form only."""
        reach = "" if at_most is None else f"≤ {at_most:g}"
        reach = reach if at_least is None else f"≥ {at_least:g}"
        bounded = at_most is not None or at_least is not None
        met = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
        judged = bounded and (self.long or not timed)
        self.figures.append(Figure(name, value, unit, reach, judged, met or not judged))

    def missed(self) -> list[Figure]:
        """Judged figures that are not what they should be."""
        return [figure for figure in self.figures if not figure.met]

    def close(self) -> None:
        """Kills what still runs."""
        for server in self._servers:
            server.resume()
            server.kill()


# A small network by number: weights by the number, sizes such that a kernel rarely repeats.
def numbered(number: int) -> mlp.Config:
    return mlp.Config(name=f"model-{number}", widths=(8 + number % 29, 8 + number % 31, 8),
                      batch=16, seed=number)


def upload(client: athanor.Client, config: mlp.Config, **options: object) -> athanor.Model:
    return client.upload(mlp.mlp_graph(config=config), name=config.name, **options)


def check(model: athanor.Model, config: mlp.Config, batch: int = 3,
          timeout: float = ANSWER_SECONDS) -> athanor.InferResult:
    """Makes one call; raises AssertionError unless its answer agrees with numpy."""
    x = np.random.default_rng(batch).standard_normal((batch, config.widths[0]), np.float32)
    reply = model.infer({"x": x}, timeout=timeout)
    np.testing.assert_allclose(reply["y"], mlp.mlp_numpy(x, config), rtol=1e-3, atol=1e-3,
                               err_msg=f"{config.name}, plan {reply.plan_id}")
    return reply


class Background:
    """Threads that repeat what they are given until the block ends; their first error is raised.

    What `forgiven` holds ends a repetition, not the run.
    """

    def __init__(self, *bodies: Callable[[], None],
                 forgiven: tuple[type[BaseException], ...] = ()) -> None:
        self._stop = threading.Event()
        self._forgiven = forgiven
        self._errors: list[BaseException] = []
        self.rounds = 0
        self._threads = [threading.Thread(target=self._repeat, args=(body,)) for body in bodies]

    def _repeat(self, body: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                body()
                self.rounds += 1
            except self._forgiven:
                time.sleep(0.005)
            except BaseException as error:
                self._errors.append(error)
                return

    def __enter__(self) -> Background:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end()
        if kind is None and self._errors:
            raise self._errors[0]

    def alive(self) -> bool:
        """Reports whether no thread has ended with an error."""
        return not self._errors

    def end(self) -> None:
        """Begins no further repetition; returns when the last has ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join()


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    return _status_bytes(pid, "VmRSS")


def _status_bytes(pid: int, row: str) -> int:
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{row}:\s*(\d+) kB", text, re.MULTILINE)[1]) << 10


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of its children that have ended."""
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 2:].split()
    return sum(int(field) for field in fields[11:15]) / 100


def open_files(pid: int) -> int:
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def metrics(server: Server) -> dict[str, float]:
    """The samples of its metrics page: ``metrics(s)['athanor_calls']``."""
    with urllib.request.urlopen(f"http://{server.http_address}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def eventually(holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Returns once it holds. AssertionError: it never does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


def nothing_held(server: Server) -> bool:
    """Reports whether no call and no upload is left, nor memory of either."""
    samples = metrics(server)
    kinds = ("uploads", "requests")
    held = [samples[f'athanor_memory_bytes{{kind="{kind}"}}'] for kind in kinds]
    return not any(held) and samples["athanor_calls"] == 0 == samples["athanor_uploads_running"]


def without_sequences(model: athanor.Model) -> athanor.EngineStatus:
    """Waits until a language model has no sequence left; its engine then."""
    def over() -> bool:
        engine = model.engine()
        return not engine.running + engine.waiting + engine.paused

    eventually(over, "all sequences end")
    return model.engine()


def bench(server: Server, *arguments: object, prefix: Sequence[str] = ()) -> dict:
    """The summary of a run of athanor-bench, which `prefix` is the command to run by."""
    done = subprocess.run(
        [*prefix, built(BENCH), "run", f"--address={server.address}", "--out=-",
         *map(str, arguments)],
        capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, (arguments, done.stdout[-2000:], done.stderr)
    return json.loads(done.stdout)
