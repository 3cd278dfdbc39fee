"""Bundles as files, and what the cache says as plain values."""

from __future__ import annotations

import pathlib

import athanor
import pytest
from athanor import cache
from athanor.protos import cache_pb2

RECIPE = cache_pb2.CacheBundleRecord(recipe=cache_pb2.RegionRecipe(genome="g" * 300))
KERNEL = cache_pb2.CacheBundleRecord(kernel=cache_pb2.KernelBinary(object=b"\x00\xff"))
CHUNKS = [
    cache_pb2.CacheBundleChunk(header=cache_pb2.CacheBundleHeader(format=1)),
    cache_pb2.CacheBundleChunk(record=RECIPE),
    cache_pb2.CacheBundleChunk(record=KERNEL),
    cache_pb2.CacheBundleChunk(trailer=cache_pb2.CacheBundleTrailer(records=2, signature=b"s")),
]


def write(path: pathlib.Path, chunks: list[cache_pb2.CacheBundleChunk]) -> cache.CacheExport:
    with cache.BundleFile(path) as file:
        for chunk in chunks:
            file.add(chunk)
    return file.written


def test_a_bundle_comes_back_as_it_was_written(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.bundle"
    assert write(path, CHUNKS) == athanor.CacheExport(recipes=1, kernels=1, signed=True, plans=0)
    assert list(cache.read_bundle(path)) == CHUNKS
    assert [p.name for p in tmp_path.iterdir()] == ["a.bundle"]
    # As protobuf's own delimited messages: a varint, then so many bytes.
    data = path.read_bytes()
    assert data[0] == len(CHUNKS[0].SerializeToString())
    assert data[1 + data[0]:][:2] == bytes([len(CHUNKS[1].SerializeToString()) & 0x7f | 0x80, 2])


def test_what_is_cut_off_leaves_the_file_before(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.bundle"
    write(path, CHUNKS)
    with pytest.raises(KeyError), cache.BundleFile(path) as file:
        file.add(CHUNKS[0])
        raise KeyError
    assert list(cache.read_bundle(path)) == CHUNKS
    assert [p.name for p in tmp_path.iterdir()] == ["a.bundle"]


def test_every_cut_inside_a_chunk_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.bundle"
    write(path, CHUNKS)
    data = path.read_bytes()
    ends = {0, len(data)}
    for count in range(1, len(CHUNKS)):
        write(path, CHUNKS[:count])
        ends.add(path.stat().st_size)
    for size in range(len(data)):
        path.write_bytes(data[:size])
        if size in ends:
            assert len(list(cache.read_bundle(path))) < len(CHUNKS)
        else:
            with pytest.raises(athanor.InvalidArgument, match="is not a bundle: chunk"):
                list(cache.read_bundle(path))


@pytest.mark.parametrize("data", [b"\xff" * 11, b"\x05hello", b"\xff\xff\xff\xff\x0f"])
def test_other_files_are_refused(tmp_path: pathlib.Path, data: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(data)
    with pytest.raises(athanor.InvalidArgument, match="chunk 0 cannot be read"):
        list(cache.read_bundle(path))


def test_stat_as_a_plain_value() -> None:
    message = cache_pb2.CacheStat(path="/c", state=cache_pb2.CacheStat.NEWER_SCHEMA, reason="r",
                                  schema=9, kernels_compiled=1, kernels_from_cache=2,
                                  candidates_measured=3)
    tier = message.tiers.add(tier="plans", rows=4, bytes=5, hits=6, misses=7, bad_rows=8)
    tier.misses_by_reason["gate"] = 7
    message.leases.add(kind="plan", about="model m", pid=71, ours=True, age_seconds=0.5)
    stat = cache.cache_stat(message)
    assert (stat.state, stat.reason, stat.schema) == ("NEWER_SCHEMA", "r", 9)
    assert (stat.kernels_compiled, stat.kernels_from_cache, stat.candidates_measured) == (1, 2, 3)
    assert stat.tiers == {"plans": athanor.CacheTier(4, 5, 6, 7, 8, {"gate": 7})}
    assert stat.leases == (athanor.CacheLease("plan", "model m", 71, True, 0.5),)


def test_explanations_as_plain_values() -> None:
    message = cache_pb2.CacheExplanation()
    bucket = message.buckets.add(plan_id="p-1", hit=True, steps=["plans: found p-1"])
    bucket.bucket.add(name="b", min=1, max=64)
    bucket.differences.add(column="threads", wanted="2", found="4", gates=False)
    assert cache.cache_explanations(message) == [athanor.CacheExplanation(
        bucket={"b": (1, 64)}, hit=True, plan_id="p-1",
        differences=(athanor.CacheDifference("threads", "2", "4", False),),
        steps=("plans: found p-1",))]
