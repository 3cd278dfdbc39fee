"""Checks that a server's cache is intact."""

from __future__ import annotations

import time

import athanor
from server_process import Server

OPEN_AGAIN_SECONDS = 60  # for a cache whose file was busy while it was opened


def cache_is_clean(server: Server) -> None:
    """AssertionError: the file is damaged, a row is, or one was and is in quarantine."""
    rows = _no_fault(server)
    assert not rows, f"{rows} rows in quarantine"


def mend_cache(server: Server) -> int | None:
    """Puts what is bad to quarantine; how many rows. None: the file says that a newer program, or
    another one, wrote it, so it is left alone. AssertionError: something bad is left.
    """
    deadline = time.monotonic() + OPEN_AGAIN_SECONDS
    with server.client() as client:
        while True:
            try:
                client.cache_verify(quarantine=True, timeout=120)
                break
            except athanor.FailedPrecondition:
                stat = client.cache_stat(timeout=120)
                others = stat.state == "UNUSABLE" and "another program" in stat.reason
                if others or stat.state in ("READ_ONLY", "NEWER_SCHEMA"):
                    return None
                assert time.monotonic() < deadline, stat
                time.sleep(0.5)
    return _no_fault(server)


def _no_fault(server: Server) -> int:
    """Rows in quarantine, of a cache in which nothing is bad."""
    with server.client() as client:
        found = client.cache_verify(timeout=120)
        tiers = client.cache_stat(timeout=120).tiers
    assert found.database == "ok" and not found.bad, found
    return tiers["quarantine"].rows
