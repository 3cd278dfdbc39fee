"""kill -9 at random moments under load, search, uploads, deletions, pins and cache writing.

The driver keeps a ledger of what was acknowledged. After each restart: what was acknowledged is
there, what was deleted is gone, pins hold, every answer agrees with numpy, the cache is clean, and
no child process of the killed server lives on. A language model's streams end with an error where
they are cut, and what came before it is the beginning of the answer.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import threading
import time

import athanor
import tiny_decoder
from harness import Background, Run, check, eventually, numbered, upload
from http_tokens import Cut, complete
from server_process import Server
from verify import cache_is_clean

MODELS = 8  # kept at most
TOKENS = "tokens"  # the language model's name
ANSWER = 300  # tokens of an answer


@dataclasses.dataclass
class Entry:
    """State of a model; None: requested, but not acknowledged."""

    present: bool | None = None
    pinned: str | None = ""  # the plan; empty: none


class Ledger:
    """Acknowledged states, by model number. Threads read it, one changes it."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.last = 0  # number of a model
        self.cut_off = 0  # changes whose answer never came
        # Found after a restart as they were acknowledged; more than once if it lasts.
        self.uploads_held = 0
        self.deletions_held = 0
        self.pins_held = 0
        self.answers = 0  # compared with numpy

    def present(self) -> list[int]:
        return [number for number, entry in list(self.entries.items()) if entry.present]


class Streams:
    """Questions to the language model, asked both ways, and the answer to each prompt."""

    def __init__(self, run: Run, server: Server, client: athanor.Client) -> None:
        folder = run.folder / "decoder"
        folder.mkdir()
        tiny_decoder.write(folder)
        client.upload(folder, name=TOKENS, budget="0").wait("baseline", timeout=300)
        self._server = server
        self.cut = 0
        self.answers = 0  # compared, also between restarts
        self._lock = threading.Lock()
        shared = self._draw(run, 20)
        prompts = [self._draw(run, 1), shared, shared + self._draw(run, 7), self._draw(run, 33)]
        self._asked = [(prompt, self._begin(client, prompt).result()) for prompt in prompts]

    @staticmethod
    def _draw(run: Run, tokens: int) -> tuple[int, ...]:
        return tuple(run.random.randrange(3, 48) for _ in range(tokens))

    @staticmethod
    def _begin(client: athanor.Client, prompt: tuple[int, ...]) -> athanor.Generation:
        return client.model(TOKENS).generate(prompt, max_tokens=ANSWER, ignore_eos=True,
                                             temperature=0, timeout=300)

    def check(self, client: athanor.Client) -> None:
        """The model is there, and answers as ever."""
        for prompt, answer in self._asked:
            assert self._begin(client, prompt).result().tokens == answer.tokens, prompt
            assert complete(self._server.openai_address, TOKENS, prompt, ANSWER) == answer.text
            self.answers += 2

    def ask_http(self, killed: threading.Event) -> None:
        """Reads one answer, unless it is cut."""
        prompt, answer = self._choice()
        try:
            text = complete(self._server.openai_address, TOKENS, prompt, ANSWER)
        except Cut:
            if not killed.is_set():
                raise
            time.sleep(0.01)
            return
        assert text == answer.text, (prompt, text)
        with self._lock:
            self.answers += 1

    def _choice(self) -> tuple[tuple[int, ...], athanor.GenerateResult]:
        return self._asked[int(time.monotonic() * 1e6) % len(self._asked)]

    def ask(self, client: athanor.Client, killed: threading.Event) -> None:
        """Reads one answer, or as much of it as comes."""
        prompt, answer = self._choice()
        seen: list[int] = []
        try:
            for piece in self._begin(client, prompt):
                seen += piece.tokens
        except athanor.Error:
            assert tuple(seen) == answer.tokens[:len(seen)], (prompt, seen)
            if not killed.is_set():
                raise
            with self._lock:
                self.cut += bool(seen)
            time.sleep(0.01)
            return
        assert tuple(seen) == answer.tokens, (prompt, seen)
        with self._lock:
            self.answers += 1


class Moment:
    """The work that a kill interrupts."""

    def __init__(self, run: Run, ledger: Ledger, client: athanor.Client) -> None:
        self.random, self.ledger, self.client = run.random, ledger, client
        self.killed = threading.Event()

    def change(self) -> None:
        """Uploads, deletes, pins or unpins one model."""
        if self.killed.is_set():
            time.sleep(0.01)
            return
        try:
            present = self.ledger.present()
            kind = self.random.random()
            if not present or kind < 0.4 and len(present) < MODELS:
                self._upload()
            elif kind < 0.7:
                self._pin(self.random.choice(present))
            elif len(present) > 2:
                self._delete(self.random.choice(present))
        except athanor.Error:
            if not self.killed.is_set():
                raise
        self.killed.wait(self.random.uniform(0, 0.1))

    def _upload(self) -> None:
        self.ledger.last += 1
        number = self.ledger.last
        entry = self.ledger.entries[number] = Entry()
        upload(self.client, numbered(number), budget=self.random.choice(("0", "exhaust", "20c")))
        entry.present = True

    def _delete(self, number: int) -> None:
        entry = self.ledger.entries[number]
        entry.present = None
        self.client.delete(numbered(number).name)
        entry.present = False

    def _pin(self, number: int) -> None:
        model, entry = self.client.model(numbered(number).name), self.ledger.entries[number]
        plans = model.info().plan_ids
        if not plans:
            return
        plan = "" if entry.pinned else self.random.choice(plans)
        entry.pinned = None
        try:
            model.pin_plan(plan)
        except athanor.NotFound:  # it went from the kept ones meanwhile
            entry.pinned = None
            return
        entry.pinned = plan

    def ask(self) -> None:
        """Calls some model once."""
        present = self.ledger.present()
        if not present:
            time.sleep(0.01)
            return
        number = present[int(time.monotonic() * 1e6) % len(present)]
        try:
            check(self.client.model(numbered(number).name), numbered(number))
        except athanor.Error:
            gone = not self.ledger.entries[number].present
            if not gone and not self.killed.is_set():
                raise


def kill(server: Server) -> None:
    """SIGKILL to the server alone: its children must find out."""
    children = server.children()
    os.kill(server.pid, signal.SIGKILL)
    eventually(lambda: not any(map(_lives, children)), f"children {children} end")
    server.kill()


def _lives(pid: int) -> bool:
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


def settle(ledger: Ledger, client: athanor.Client) -> None:
    """Compares the server with the ledger, which learns what became of cut off changes."""
    listed = {info.name: info for info in client.models() if info.name != TOKENS}
    for number, entry in ledger.entries.items():
        name = numbered(number).name
        info = listed.pop(name, None)
        if entry.present is None:
            ledger.cut_off += 1
            entry.present = info is not None
        else:
            ledger.uploads_held += entry.present
            ledger.deletions_held += not entry.present
        assert entry.present == (info is not None), f"{name}: {entry}, listed: {info}"
        if info is None:
            continue
        model = client.model(name)
        check(model, numbered(number))
        ledger.answers += 1
        info = model.info()
        if entry.pinned is None:
            ledger.cut_off += 1
            entry.pinned = info.plan_id if info.pinned else ""
        assert info.pinned == bool(entry.pinned), f"{name}: {entry}, it is {info}"
        assert entry.pinned in ("", info.plan_id), f"{name}: {entry}, it is {info}"
        ledger.pins_held += info.pinned
    assert not listed, f"never uploaded: {sorted(listed)}"
    for number in [n for n, entry in ledger.entries.items() if not entry.present]:
        del ledger.entries[number]


def scenario(run: Run) -> None:
    server = run.server("state", "--search_budget=exhaust", "--openai_listen=127.0.0.1:0")
    ledger, streams = Ledger(), None
    moments, answers = run.count(6, 300), 0
    for moment in range(moments):
        server.start()
        with server.client() as client:
            settle(ledger, client)
            streams = streams or Streams(run, server, client)
            streams.check(client)
            cache_is_clean(server)
            work = Moment(run, ledger, client)

            def stream(asked: Streams = streams, work: Moment = work) -> None:
                asked.ask(work.client, work.killed)

            def stream_http(asked: Streams = streams, work: Moment = work) -> None:
                asked.ask_http(work.killed)

            with Background(work.change, work.ask, work.ask, stream, stream_http) as load:
                time.sleep(run.random.uniform(0.02, 1.5 if moment % 5 else 4 if run.long else 1.5))
                work.killed.set()
                kill(server)
            answers += load.rounds
    server.start()
    with server.client() as client:
        settle(ledger, client)
        streams.check(client)
    cache_is_clean(server)
    assert server.stop() == 0
    run.figure("moments of kill -9", moments)
    run.figure("models uploaded", ledger.last)
    run.figure("changes cut off", ledger.cut_off)
    # Any that did not hold ends the scenario: these say how much was looked at.
    run.figure("acknowledged uploads found again, at each restart", ledger.uploads_held)
    run.figure("acknowledged deletions that held", ledger.deletions_held)
    run.figure("pins that held, at each restart", ledger.pins_held)
    run.figure("answers compared after restarts", ledger.answers)
    run.figure("answers compared between them", answers)
    run.figure("streams of tokens cut behind their first", streams.cut,
               at_least=1 if run.long else None)
    run.figure("streams that came whole, each as ever", streams.answers)
