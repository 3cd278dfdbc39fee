"""Whether a server's cache is as it should be."""

from __future__ import annotations

import sqlite3

import grpc
from athanor._proto.proto.athanor.v1 import cache_pb2, cache_pb2_grpc
from server_process import Server


def cache_is_clean(server: Server) -> None:
    """AssertionError: the file is damaged, or a row is."""
    found = _verify(server)
    assert found.database == "ok" and not found.bad, found


def _verify(server: Server) -> cache_pb2.CacheVerification:
    with grpc.insecure_channel(server.address) as channel:
        stub = cache_pb2_grpc.CacheServiceStub(channel)
        try:
            return stub.Verify(cache_pb2.VerifyCacheRequest(), timeout=120)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNIMPLEMENTED:
                raise
    # A server without the service: what SQLite itself says.
    with sqlite3.connect(f"file:{server.cache}?mode=ro", uri=True, timeout=60) as db:
        [(text,)] = db.execute("PRAGMA integrity_check(1)").fetchall()
    return cache_pb2.CacheVerification(database=text)
