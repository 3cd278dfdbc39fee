"""Runs Bazel and shows how far it is: one line that changes, or without a terminal one every 30 s.

    python3 -m deploy.progress bazel build //server:athanord

Everything else that Bazel prints is shown only when it fails.
"""

from __future__ import annotations

import collections
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import TextIO

# Bazel's lines of progress, in the form that --curses=no gives them.
LINE = re.compile(r"\[([\d,]+) / ([\d,]+)\]\s*(.*)")
# Bazel learns of the actions of tests late, but knows from the start how many tests there are.
TESTS = re.compile(r"([\d,]+) / ([\d,]+) tests; ")
FLAGS = ("--show_progress", "--curses=no", "--color=no", "--show_progress_rate_limit=1",
         "--ui_event_filters=-info")
# Seconds between lines where there is no terminal.
PAUSE = 30
# The speed of the last so many seconds tells how long the rest takes; before half of it, nothing.
WINDOW = 120


class Progress:
    """What is done and left, from Bazel's lines and the time that each came at."""

    def __init__(self) -> None:
        self.seen: collections.deque[tuple[float, int]] = collections.deque()
        self.done = self.total = 0
        self.now = ""

    def read(self, line: str, seconds: float) -> bool:
        """Takes in a line; False where it is none of progress."""
        match = LINE.match(line)
        if not match:
            return False
        self.now = match[3]
        tests = TESTS.match(self.now)
        counts = tests if tests and tests[1] != "0" else match
        total = int(counts[2].replace(",", ""))
        if counts is tests and total != self.total:
            self.seen.clear()
        self.done, self.total = int(counts[1].replace(",", "")), total
        self.seen.append((seconds, self.done))
        while self.seen[-1][0] - self.seen[0][0] > WINDOW:
            self.seen.popleft()
        return True

    def left(self) -> float | None:
        """Seconds until the rest is done, at the speed of late; None while that is not known."""
        (first, before), (last, after) = self.seen[0], self.seen[-1]
        if last - first < WINDOW / 2 or after == before:
            return None
        return (self.total - self.done) * (last - first) / (after - before)

    def text(self) -> str:
        left = self.left()
        if left is None:
            about = ""
        elif left < 90:
            about = f"about {max(10, round(left, -1)):.0f} s left; "
        else:
            about = f"about {left / 60:.0f} min left; "
        return f"[{self.done}/{self.total}] {about}{self.now}"


def show(progress: Progress, stream: TextIO) -> None:
    """Writes the line, on a terminal over the one before."""
    if stream.isatty():
        width = shutil.get_terminal_size().columns
        stream.write("\r\x1b[K" + progress.text()[:width - 1])
    else:
        stream.write(progress.text() + "\n")
    stream.flush()


def run(command: Sequence[str], *, cwd: str | None = None, quiet: bool = False,
        limit: float | None = None, stream: TextIO = sys.stderr) -> int:
    """Runs a Bazel command that has FLAGS, and returns its exit status.

    What is not progress is passed on; with `quiet`, only once the command has failed. After
    `limit` seconds the command is told to stop.
    """
    progress, other = Progress(), []
    shown = start = time.monotonic()
    pause = 0 if stream.isatty() else PAUSE
    with subprocess.Popen(command, cwd=cwd, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        # Killed, it would leave its server at work, for whose end the next command waits.
        timer = threading.Timer(limit or 0, process.send_signal, [signal.SIGINT])
        if limit is not None:
            timer.start()
        try:
            for line in process.stdout:
                now = time.monotonic()
                if progress.read(line, now - start):
                    if now - shown >= pause:
                        show(progress, stream)
                        shown = now
                elif quiet:
                    other.append(line)
                else:
                    stream.write(line if not stream.isatty() else "\r\x1b[K" + line)
                    stream.flush()
            process.wait()
        except KeyboardInterrupt:  # the command was interrupted, too
            process.wait()
        finally:
            timer.cancel()
    if stream.isatty():
        stream.write("\r\x1b[K")
    if process.returncode:
        stream.writelines(other)
    stream.flush()
    return process.returncode


if __name__ == "__main__":
    program, verb, *rest = sys.argv[1:]
    sys.exit(run([program, verb, *FLAGS, *rest], quiet=True))
