"""Disks that are full or read-only, of the state, of the cache and of both."""

from __future__ import annotations

import re

import athanor
from harness import Run, check, numbered, upload
from server_process import Server, ServerFailed
from small_disk import SmallDisk

WHERE = ("state", "cache", "both")
OLD = numbered(1)


def _server(run: Run, disk: SmallDisk, where: str) -> Server:
    """A server with its state, its cache or both on the disk."""
    name = f"{where}-server"
    on_disk = disk.folder / name
    cache = disk.folder if where == "cache" else None
    flags = [f"--cache={cache / 'cache.db'}"] if cache else []
    if where == "state":
        flags = [f"--cache={run.folder / 'elsewhere.db'}"]
    server = run.server(name, *flags, prefix=disk.prefix)
    if where != "cache":
        server.state = on_disk
        server.log = run.folder / f"{name}.log"
    return server


def _full(run: Run, where: str) -> None:
    """Filled while the server runs: what serves goes on, what needs the disk says so."""
    with SmallDisk(run.folder / f"full-{where}", megabytes=6) as disk:
        server = _server(run, disk, where).start()
        with server.client() as client:
            check(upload(client, OLD), OLD)
            disk.fill()
            for number in range(2, run.count(5, 12)):
                config = numbered(number)
                try:
                    model = upload(client, config)
                except athanor.ResourceExhausted as error:
                    assert where != "cache", error
                    assert "space" in str(error) or "full" in str(error), error
                    continue
                assert where == "cache", "a model is stored on a full disk"
                check(model, config)
            check(client.model(OLD.name), OLD)
        server.kill()  # and a start on the full disk
        if where == "cache":
            server.start()
            with server.client() as client:
                check(client.model(OLD.name), OLD)
        disk.empty()
        if server.running:
            assert server.stop() == 0
        server.start()
        with server.client() as client:
            check(client.model(OLD.name), OLD)
            check(upload(client, numbered(20)), numbered(20))
        assert server.stop() == 0


def _read_only(run: Run, where: str) -> None:
    """From the start: no server on a state it cannot write, one without a cache it cannot."""
    with SmallDisk(run.folder / f"read-only-{where}", megabytes=6) as disk:
        server = _server(run, disk, where).start()
        with server.client() as client:
            check(upload(client, OLD), OLD)
        assert server.stop() == 0
        disk.mount("ro")
        if where == "cache":
            before = len(server.log.read_text())
            server.start()
            with server.client() as client:
                check(client.model(OLD.name), OLD)
                check(upload(client, numbered(2)), numbered(2))
            assert server.stop() == 0
            said = server.log.read_text()[before:]
            assert re.search("cache.*read-?only", said, re.IGNORECASE), said
        else:
            try:
                server.start()
            except ServerFailed as error:
                assert "ead-only file system" in str(error), error
            else:
                raise AssertionError("it serves from a state directory that it cannot write")
        disk.mount("rw")
        server.start()
        with server.client() as client:
            check(client.model(OLD.name), OLD)
        assert server.stop() == 0


def scenario(run: Run) -> None:
    for where in WHERE:
        for case in (_full, _read_only):
            try:
                case(run, where)
            except AssertionError as error:
                raise AssertionError(f"{case.__name__[1:]} disk of {where}: {error}") from error
    run.figure("cases, each right", 2 * len(WHERE))
