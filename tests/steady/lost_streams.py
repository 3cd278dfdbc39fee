"""Clients of the OpenAI interface that never read, read a byte at a time, or vanish while they
send, while their prompt is computed, while they wait and in the middle of their stream: others get
whole answers meanwhile, and what the lost ones held goes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import tiny_decoder
from harness import (
    Background,
    Run,
    eventually,
    nothing_held,
    open_files,
    resident,
    without_sequences,
)
from http_tokens import Socket, complete, request

NAME = "tokens"
CONTEXT = 1 << 12  # tokens of the decoder
TOKEN_KV_BYTES = 256
KV_MEMORY = CONTEXT * TOKEN_KV_BYTES  # of one context, so that clients take each other's blocks
SMALL = 4096  # bytes that the system takes in for who does not read
ANSWER = 40


class _Slow:
    """Reads its stream a byte at a time, until it is left."""

    def __init__(self, address: str, body: bytes) -> None:
        self._socket = Socket(address, body, buffer=SMALL)
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._left.wait(0.05):
            try:
                if not self._socket.read(1):
                    return
            except OSError:
                return

    def vanish(self) -> None:
        self._left.set()
        self._thread.join()
        self._socket.vanish()


class _Lost:
    """Makes clients that get lost, by the way they do it."""

    def __init__(self, run: Run, address: str) -> None:
        self.random = run.random
        self.address = address
        self.kinds: Sequence[Callable[[], Socket | _Slow]] = (
            self.unread, self.slow, self.sending, self.computing, self.first_bytes)

    def _prompt(self, tokens: int) -> list[int]:
        return [self.random.randrange(3, 48) for _ in range(tokens)]

    def unread(self) -> Socket:
        """As many tokens as there is room for, with all that makes an event long."""
        return Socket(self.address, request(NAME, self._prompt(4), CONTEXT - 4, logprobs=5),
                      buffer=SMALL)

    def slow(self) -> _Slow:
        return _Slow(self.address, request(NAME, self._prompt(4), CONTEXT - 4, logprobs=5))

    def sending(self) -> Socket:
        """A part of a request."""
        body = request(NAME, self._prompt(500), 5)
        return Socket(self.address, body, send=self.random.randrange(len(body)))

    def computing(self) -> Socket:
        """A prompt that takes many steps."""
        return Socket(self.address, request(NAME, self._prompt(CONTEXT - 100), 50))

    def first_bytes(self) -> Socket:
        lost = Socket(self.address, request(NAME, self._prompt(9), CONTEXT // 2))
        lost.read(self.random.randrange(1, 2000))
        return lost


def scenario(run: Run) -> None:
    server = run.server("state", "--openai_listen=127.0.0.1:0", f"--kv_memory={KV_MEMORY}").start()
    folder = run.folder / "decoder"
    folder.mkdir()
    tiny_decoder.write(folder, CONTEXT)
    rounds, counts = run.count(5, 400), dict.fromkeys(("lost", "answers"), 0)
    with server.client() as client:
        model = client.upload(folder, name=NAME, budget="0")
        model.wait("baseline", timeout=300)
        prompts = [[run.random.randrange(3, 48) for _ in range(length)] for length in (1, 16, 50)]
        alone = [model.generate(prompt, max_tokens=ANSWER, ignore_eos=True, temperature=0,
                                timeout=300).result().text for prompt in prompts]
        complete(server.openai_address, NAME, prompts[0], 1)
        free = without_sequences(model).free_blocks
        files, begin = open_files(server.pid), resident(server.pid)
        lost = _Lost(run, server.openai_address)

        def ask() -> None:
            """One answer each way, which is that of the prompt alone."""
            for prompt, text in zip(prompts, alone, strict=True):
                assert complete(server.openai_address, NAME, prompt, ANSWER) == text, prompt
            answer = model.generate(prompts[0], max_tokens=ANSWER, ignore_eos=True, temperature=0,
                                    timeout=300).result()
            assert answer.text == alone[0], answer

        with Background(ask) as asking:
            for _ in range(rounds):
                kinds = [run.random.choice(lost.kinds) for _ in range(4)]
                clients = [kind() for kind in kinds]
                run.random.shuffle(clients)
                seen = asking.rounds
                if run.random.random() < 0.5:  # else they are gone at once
                    eventually(lambda seen=seen: asking.rounds > seen or not asking.alive(),
                               "others are answered", 300)
                for gone in clients:
                    gone.vanish()
                counts["lost"] += len(clients)
        counts["answers"] = 4 * asking.rounds
        ask()
        engine = without_sequences(model)
        assert engine.free_blocks == free, engine
        eventually(lambda: open_files(server.pid) <= files + 2, "lost connections are closed")
        eventually(lambda: nothing_held(server), "what lost clients held is given back")
    run.figure("clients lost", counts["lost"])
    run.figure("answers beside them, each as alone", counts["answers"], at_least=1)
    run.figure("preemptions", engine.preemptions)
    run.figure("resident before and after",
               f"{begin / 2**20:.1f}, {resident(server.pid) / 2**20:.1f}", "MiB")
    assert server.stop() == 0
