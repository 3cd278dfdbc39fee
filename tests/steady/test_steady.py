"""The short form of each scenario. ATHANOR_STEADY_SEED=<number> repeats a run's random choices."""

from __future__ import annotations

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import report  # noqa: E402
from harness import Run, eventually  # noqa: E402
from scenarios import SCENARIOS, Outcome, play  # noqa: E402

SEED = int(os.environ.get("ATHANOR_STEADY_SEED", random.randrange(1 << 31)))


@pytest.mark.parametrize("name", SCENARIOS)
def test_short_form(name: str, tmp_path: pathlib.Path) -> None:
    print(f"ATHANOR_STEADY_SEED={SEED}")  # pytest shows it with a failure
    outcome = play(name, tmp_path, SEED)
    text = "\n".join(report.lines(outcome))
    print(text)
    assert outcome.good, f"ATHANOR_STEADY_SEED={SEED}\n{text}"


def test_every_file_with_a_scenario_is_a_row() -> None:
    here = pathlib.Path(__file__).parent
    files = {path.stem for path in here.glob("*.py")
             if re.search(r"^def scenario\(", path.read_text(), re.MULTILINE)}
    assert files == set(SCENARIOS)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_servers_end_with_the_run(ending: signal.Signals, tmp_path: pathlib.Path) -> None:
    here = pathlib.Path(__file__).parent
    run = subprocess.Popen([sys.executable, here / "steady.py", "--only", "soak", "--long",
                            "--folder", tmp_path], stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: _servers_in(tmp_path), "a server runs")
        run.send_signal(ending)
        code = run.wait(60)
    finally:
        run.kill()
    eventually(lambda: not _servers_in(tmp_path), "its server ends")
    assert code == (128 + ending if ending == signal.SIGTERM else -ending)


def _servers_in(folder: pathlib.Path) -> list[int]:
    """Processes with a state directory there."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(f"--state_dir={folder}/".encode()) for word in words):
            found.append(int(process.name))
    return found


def test_the_page_says_what_was_missed(tmp_path: pathlib.Path) -> None:
    run = Run("idle", tmp_path, 1, long=True)
    run.figure("share <of a core>", 0.75, "%", at_most=0.5)
    run.figure("rounds", 3)
    outcome = Outcome(SCENARIOS["idle"], run, 1.0, "Traceback: a & b")
    assert not outcome.good and [figure.name for figure in run.missed()] == ["share <of a core>"]
    text = report.page([outcome], {"Seed": "1"})
    ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
    for part in ("Missed: idle", "share &lt;of a core&gt;", "0.75 %", "≤ 0.5", "a &amp; b"):
        assert part in text
    short = Run("idle", tmp_path, 1)
    short.figure("late", 9, at_most=1, timed=True)
    assert not short.missed(), "a timed figure is judged in the long form only"
