"""Two servers on one cache: what both want is compiled once, and a server that is killed while it
compiles for both leaves the work to the other.
"""

from __future__ import annotations

import concurrent.futures
import os
import signal
from collections.abc import Callable
from typing import TypeVar

import athanor
import mlp
from harness import Run, check, eventually, numbered, upload
from server_process import Server
from verify import cache_is_clean

MODELS = 4  # at a time
Answer = TypeVar("Answer")


class Pair:
    """Two servers with one cache, and models that no kernel is shared by at a time."""

    def __init__(self, run: Run) -> None:
        # A holder that stands still loses its lease by its end only, not by its silence.
        flags = (f"--cache={run.folder / 'shared.db'}", "--lease_timeout=10m")
        self.servers = [run.server(name, *flags).start() for name in ("first", "second")]
        self._last = run.random.randrange(1 << 20)

    def fresh(self, count: int) -> list[mlp.Config]:
        """Neighbours in number: no two have a layer of the same sizes."""
        self._last += count
        return [numbered(self._last - of) for of in range(count)]

    def compiled(self) -> int:
        """Kernels, by both since they started."""
        return sum(_on(server, lambda client: client.cache_stat().kernels_compiled)
                   for server in self.servers)

    def kept(self) -> int:
        """Different kernels in the cache."""
        cache_is_clean(self.servers[0])  # also writes waiting rows
        cache_is_clean(self.servers[1])
        return _on(self.servers[0], lambda client: client.cache_stat().tiers["kernels"].rows)


def _on(server: Server, body: Callable[[athanor.Client], Answer]) -> Answer:
    with server.client() as client:
        return body(client)


def _serve(server: Server, config: mlp.Config) -> None:
    _on(server, lambda client: check(upload(client, config), config))


def _once(pair: Pair) -> int:
    """Both get the same new models at the same time; how many kernels that took."""
    compiled, kept = pair.compiled(), pair.kept()
    jobs = [(server, config) for config in pair.fresh(MODELS) for server in pair.servers]
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(_serve, *zip(*jobs, strict=True)))
    compiled, kept = pair.compiled() - compiled, pair.kept() - kept
    assert compiled == kept, f"{compiled} kernels compiled for {kept} different ones"
    return kept


def _killed(run: Run, pair: Pair) -> None:
    """The holder of a lease is killed, for which the other waits: it finishes, and so does the
    holder once it is back.
    """
    holder, other = run.random.sample(pair.servers, 2)
    [config] = pair.fresh(1)
    for child in holder.children():
        os.kill(child, signal.SIGSTOP)  # so that it comes no further
    with holder.client() as client, other.client() as survivor:
        upload(client, config)
        eventually(lambda: any(lease.ours and f'"{config.name}"' in lease.about
                               for lease in client.cache_stat().leases), "it holds the lease")
        model = upload(survivor, config)
        job = model.info().compile_job_id
        eventually(lambda: survivor.job(job).waits_for, "the other waits for it")
        os.kill(holder.pid, signal.SIGKILL)
        check(model, config)
    holder.kill()
    holder.start()
    _on(holder, lambda client: check(client.model(config.name), config))


def scenario(run: Run) -> None:
    pair = Pair(run)
    for server in pair.servers:  # each has a compiler that runs
        [config] = pair.fresh(1)
        _serve(server, config)
    rounds, kills = run.count(2, 50), run.count(1, 50)
    kernels = sum(_once(pair) for _ in range(rounds))
    for _ in range(kills):
        _killed(run, pair)
        for server in pair.servers:
            # A restarted one has none until it builds.
            if not server.children():
                [config] = pair.fresh(1)
                _serve(server, config)
    for server in pair.servers:
        cache_is_clean(server)
        eventually(lambda on=server: not _on(on, lambda client: client.cache_stat().leases),
                   "no lease is left")  # a plan serves a moment before its lease is given back
        assert server.stop() == 0
    run.figure("models given to both at the same time", rounds * MODELS)
    run.figure("kernels, each compiled once", kernels)
    run.figure("kills of the one that holds a lease", kills)
