"""A cache whose pages go bad between two starts: every start serves, every answer is right, and a
look at the cache leaves nothing bad in it.
"""

from __future__ import annotations

import pathlib
import random
import shutil

from harness import Run, check, numbered, upload
from verify import mend_cache

MODELS = 4
PAGE = 4096


def _spoil(path: pathlib.Path, choice: random.Random) -> str:
    """Spoils one file in one way; which."""
    data = bytearray(path.read_bytes())
    way = choice.choice(("bit", "page", "zeros", "swap", "cut", "header", "log"))
    at = choice.randrange(max(1, len(data) // PAGE)) * PAGE
    if way == "bit":
        data[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
    elif way == "page":
        data[at:at + PAGE] = choice.randbytes(len(data[at:at + PAGE]))
    elif way == "zeros":
        data[at:at + PAGE] = bytes(len(data[at:at + PAGE]))
    elif way == "swap":
        other = choice.randrange(max(1, len(data) // PAGE)) * PAGE
        data[at:at + PAGE], data[other:other + PAGE] = data[other:other + PAGE], data[at:at + PAGE]
    elif way == "cut":
        del data[choice.randrange(len(data)):]
    elif way == "header":
        data[choice.randrange(100)] = choice.randrange(256)
    else:
        path.with_name(path.name + "-wal").write_bytes(choice.randbytes(choice.randrange(9000)))
    path.write_bytes(data)
    return f"{way} at {at}"


def scenario(run: Run) -> None:
    server = run.server("state").start()
    configs = [numbered(number) for number in range(MODELS)]
    with server.client() as client:
        for config in configs:
            check(upload(client, config), config)
    assert server.stop() == 0
    cache, good = server.state / "cache.db", run.folder / "good.db"
    shutil.copy(cache, good)
    rounds, moved, quarantined, alone, answers = run.count(20, 2000), 0, 0, 0, 0
    for number in range(rounds):
        for path in server.state.glob("cache.db*"):
            path.unlink()
        shutil.copy(good, cache)
        how = _spoil(cache, run.random)
        try:
            server.start()
            with server.client() as client:
                for config in configs:
                    check(client.model(config.name), config)
                new = numbered(MODELS + number)
                check(upload(client, new), new)
                answers += len(configs) + 1
                client.delete(new.name)
                mended = mend_cache(server)
                quarantined += mended or 0
                alone += mended is None
            assert server.stop() == 0
            moved += bool(list(server.state.glob("cache.db.damaged-*")))
        except Exception as error:
            raise AssertionError(f"round {number}, {how}: {error}") from error
    run.figure("starts with a spoilt file", rounds)
    run.figure("starts after which a file was moved aside", moved)
    run.figure("files left alone, as of a newer program or another", alone)
    run.figure("rows put to quarantine", quarantined)
    run.figure("answers compared", answers)
