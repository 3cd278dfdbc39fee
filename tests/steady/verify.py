"""Whether a server's cache is as it should be."""

from __future__ import annotations

import grpc
from athanor._proto.proto.athanor.v1 import cache_pb2, cache_pb2_grpc
from server_process import Server


def cache_is_clean(server: Server) -> None:
    """AssertionError: the file is damaged, a row is, or one was and is in quarantine."""
    with grpc.insecure_channel(server.address) as channel:
        stub = cache_pb2_grpc.CacheServiceStub(channel)
        found = stub.Verify(cache_pb2.VerifyCacheRequest(), timeout=120)
        tiers = stub.Stat(cache_pb2.CacheStatRequest(), timeout=120).tiers
    assert found.database == "ok" and not found.bad, found
    assert not [tier for tier in tiers if tier.tier == "quarantine" and tier.rows], tiers
