"""The scenarios of this folder, one row each: a file with ``scenario(run)``."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
import time
import traceback
from collections.abc import Callable

import churn
import clock
import disk
import idle
import kill
import lost_clients
import lost_streams
import overload
import pages
import restart
import soak
import tokens
import two_servers
from harness import Run


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A scenario: actions on a server, and what must hold."""

    name: str
    run: Callable[[Run], None]
    reach: str


SCENARIOS = {row.name: row for row in (
    Scenario("kill", kill.scenario, "killed at random moments: nothing acknowledged is lost, the "
             "cache is clean, every later answer is right"),
    Scenario("churn", churn.scenario, "uploads, calls, deletions, failed uploads: memory within "
             "2 % after the first 50"),
    Scenario("overload", overload.scenario, "5x the capacity: p99 of what is accepted at most "
             "twice that at capacity, the rest refused, no memory growth"),
    Scenario("lost_clients", lost_clients.scenario, "connections reset, silent or unread: others "
             "are served, what was held is given back"),
    Scenario("lost_streams", lost_streams.scenario, "streams of tokens unread, read slowly or left "
             "at any time: others' answers are whole, what was held is given back"),
    Scenario("disk", disk.scenario, "full and read-only disks: refused by name, what serves goes "
             "on, and all is well once there is room"),
    Scenario("pages", pages.scenario, "a cache spoilt between starts: every start serves, "
             "every answer is right"),
    Scenario("clock", clock.scenario, "a time of day that jumps by years: nothing ends early or "
             "late, nothing is lost"),
    Scenario("idle", idle.scenario, "at most 0.5 % of a core while nobody asks"),
    Scenario("restart", restart.scenario, "ready within 0.5 s of its start with the same plans, "
             "nothing compiled, nothing measured"),
    Scenario("two_servers", two_servers.scenario, "two on one cache: each kernel is compiled once, "
             "and the one that is left does the work of one that is killed"),
    Scenario("tokens", tokens.scenario, "an hour of a language model's mixed load, with blocks for "
             "half of it: each answer as alone, no block stays taken, memory within 1 %"),
    Scenario("soak", soak.scenario, "hours of everything: memory, files and cache stay"),
)}


@dataclasses.dataclass
class Outcome:
    """A scenario that was run."""

    scenario: Scenario
    run: Run
    seconds: float
    error: str  # empty: none

    @property
    def good(self) -> bool:
        return not self.error and not self.run.missed()


def play(name: str, folder: pathlib.Path, seed: int, long: bool = False,
         share: float = 1) -> Outcome:
    """Runs one scenario to its end, whatever that is."""
    home = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))
    run, begin, error = Run(name, home, seed, long, share), time.monotonic(), ""
    try:
        SCENARIOS[name].run(run)
    except Exception:
        error = traceback.format_exc()
    finally:
        run.close()
    return Outcome(SCENARIOS[name], run, time.monotonic() - begin, error)
