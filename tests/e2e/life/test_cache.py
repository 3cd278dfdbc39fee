"""The cache as operators see it: counted, checked, cleaned, and moved between servers."""

from __future__ import annotations

import asyncio
import base64
import json
import pathlib
import re
import sqlite3
import subprocess
from collections.abc import Iterator

import athanor
import numpy as np
import pytest
from athanor import cache as bundles
from conftest import ATHANORD, CLI, Server, built

SEEDS = {"ours": b"o" * 32, "theirs": b"t" * 32}


def graph(scale: float = 1.0) -> athanor.Graph:
    g = athanor.Graph("m", dims={"b": (1, 8)})
    w = np.linspace(-scale, scale, 64, dtype=np.float32).reshape(16, 4)
    g.output("y", athanor.relu(g.input("x", ("b", 16), "f32") @ g.parameter("w", w)))
    return g


def upload(client: athanor.Client, name: str = "m", scale: float = 1.0) -> athanor.CompileJob:
    """Its job, once the baseline serves."""
    model = client.upload(graph(scale), name=name).wait("baseline", timeout=120)
    x = np.ones((2, 16), np.float32)
    w = np.linspace(-scale, scale, 64, dtype=np.float32).reshape(16, 4)
    np.testing.assert_allclose(model.infer({"x": x})["y"], np.maximum(x @ w, 0), rtol=1e-5)
    return client.job(model.info().compile_job_id)


def pem(kind: str, prefix: str, key: bytes) -> str:
    body = base64.b64encode(bytes.fromhex(prefix) + key).decode()
    return f"-----BEGIN {kind} KEY-----\n{body}\n-----END {kind} KEY-----\n"


@pytest.fixture
def keys(tmp_path: pathlib.Path) -> dict[str, tuple[pathlib.Path, pathlib.Path]]:
    """Private and public key files (RFC 8410), by name."""
    files = {}
    for name, seed in SEEDS.items():
        private, public = tmp_path / f"{name}.pem", tmp_path / f"{name}.pub.pem"
        private.write_text(pem("PRIVATE", "302e020100300506032b657004220420", seed))
        subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
        files[name] = (private, public)
    return files


@pytest.fixture
def servers(tmp_path: pathlib.Path) -> Iterator:
    """``servers(name, *flags)``: started, each with a cache of its own."""
    running = []

    def start(name: str, *flags: str) -> Server:
        server = Server(tmp_path / name, *flags).start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.kill()


def test_explain_says_why_a_plan_was_found_or_not(own_server: Server) -> None:
    with own_server.client() as client:
        upload(client)
        bucket, = client.cache_explain("m")
        assert bucket.hit and bucket.plan_id == client.model("m").info().plan_id
        assert bucket.bucket == {"b": (1, 8)} and bucket.differences == ()
        assert bucket.plan_id in bucket.steps[0]
        assert client.cache_explain("m", "1", {"b": (1, 8)}) == [bucket]
        text = cli(own_server, "cache", "explain", "m/1")
        assert f"b=1..8: found {bucket.plan_id}" in text
        assert "kernels: " in text
        client.cache_collect_garbage(1)
        bucket, = client.cache_explain("m")
        assert not bucket.hit and "none of graph" in bucket.steps[0]
        with pytest.raises(athanor.NotFound, match="it has b=1..8"):
            client.cache_explain("m", bucket={"b": (1, 9)})
        assert '"nobody" does not exist' in cli(own_server, "cache", "explain", "nobody",
                                                  status=1)


def execute(server: Server, sql: str) -> None:
    with sqlite3.connect(server.state / "cache.db", timeout=60) as file:
        file.execute(sql)
    file.close()


def cli(server: Server, *arguments: object, status: int = 0) -> str:
    result = subprocess.run([built(CLI), "--address", server.address, *map(str, arguments)],
                            capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == status, (arguments, result.stdout, result.stderr)
    return result.stdout + result.stderr


def test_stat_counts_what_was_compiled(own_server: Server) -> None:
    with own_server.client() as client:
        first = client.cache_stat()
        assert (first.state, first.reason) == ("USABLE", "")
        assert (first.kernels_compiled, first.candidates_measured) == (0, 0)
        assert first.limit_bytes == 2 << 30
        assert pathlib.Path(first.path) == own_server.state / "cache.db"
        job = upload(client)
        stat = client.cache_stat()
        assert stat.kernels_compiled >= job.kernels_total > 0
        assert stat.candidates_measured == 0
        assert stat.tiers["kernels"].misses == stat.kernels_compiled
        assert stat.tiers["kernels"].rows + stat.writes_waiting >= stat.kernels_compiled
        # The same kernels again are no compilations.
        assert upload(client, "again").kernels_from_cache == job.kernels_total
        again = client.cache_stat()
        assert again.kernels_compiled == stat.kernels_compiled
        assert again.kernels_from_cache > stat.kernels_from_cache
        assert again.tiers["kernels"].hits > stat.tiers["kernels"].hits
    assert own_server.stop() == 0
    own_server.start()
    with own_server.client() as client:
        client.model("m").wait("baseline", timeout=120)
        stat = client.cache_stat()
        assert (stat.kernels_compiled, stat.candidates_measured) == (0, 0)


def test_a_searchs_candidates_are_counted(servers) -> None:
    server = servers("searching", "--search_budget=20c")
    with server.client() as client:
        model = client.upload(graph(), name="m").wait("optimised", timeout=300)
        job = client.job(model.info().compile_job_id)
        stat = client.cache_stat()
        # Tasks with one kernel share its time: the search counts each of them.
        assert 0 < stat.candidates_measured <= job.search.candidates + job.search.plans_measured


def test_a_corrupted_row_is_reported_and_put_aside(own_server: Server) -> None:
    with own_server.client() as client:
        upload(client)
        clean = client.cache_verify()
        assert (clean.bad, clean.database) == ((), "ok")
        kernels = client.cache_stat().tiers["kernels"].rows
        assert clean.rows >= kernels > 0
        assert "0 bad; database: ok" in cli(own_server, "cache", "verify")
        execute(own_server, "UPDATE kernels SET object = CAST(x'00' || substr(object, 2) AS BLOB)"
                            " WHERE rowid = (SELECT MIN(rowid) FROM kernels)")
        reported = client.cache_verify()
        assert [row.tier for row in reported.bad] == ["kernels"]
        assert "kernel" in reported.bad[0].about and reported.bad[0].why
        assert "athanor: 1 bad rows" in cli(own_server, "cache", "verify", status=1)
        assert client.cache_stat().tiers["quarantine"].rows == 0
        assert len(client.cache_verify(quarantine=True).bad) == 1
        assert client.cache_verify().bad == ()
        stat = client.cache_stat()
        assert stat.tiers["quarantine"].rows == 1
        assert stat.tiers["kernels"].rows == kernels - 1
        # Its plan is compiled again, once.
        before = stat.kernels_compiled
        upload(client, "again")
        assert client.cache_stat().kernels_compiled == before + 1
        assert "removed 1 rows" in cli(own_server, "cache", "gc", "--quarantine")
        assert client.cache_stat().tiers["quarantine"].rows == 0


def test_garbage_is_collected(own_server: Server) -> None:
    with own_server.client() as client:
        upload(client)
        assert client.cache_verify().bad == ()  # and all is written
        rows = client.cache_stat().tiers["kernels"].rows
        planned = client.cache_collect_garbage(1, dry_run=True)
        assert planned.tiers["kernels"][0] == rows > 0
        assert client.cache_stat().tiers["kernels"].rows == rows
        said = json.loads(cli(own_server, "--json", "cache", "gc", "--limit", "1KiB", "--dry_run"))
        assert said["dry_run"] and said["tiers"]["kernels"]["rows"] > 0
        done = client.cache_collect_garbage(1)
        assert done.rows == planned.rows
        assert client.cache_stat().tiers["kernels"].rows == 0
        with pytest.raises(athanor.InvalidArgument, match="limit_bytes: -1 is negative"):
            client.cache_collect_garbage(-1)
        cli(own_server, "cache", "gc", "--limit", "many", status=2)


def test_an_empty_recipe_tier_is_a_bundle(servers, tmp_path: pathlib.Path) -> None:
    one, two = servers("one"), servers("two")
    path = tmp_path / "empty.bundle"
    text = cli(one, "cache", "export", path)
    assert "exported 0 recipes, 0 plans, 0 kernels" in text and "the cache holds none yet" in text
    with two.client() as client:
        taken = client.cache_import(path)
        assert (taken.recipes_added, taken.kernels_added, taken.signed_by) == (0, 0, "")
        assert taken.origin.startswith("athanord ")


def layers(dim: str) -> athanor.Graph:
    g = athanor.Graph("layers", dims={dim: (1, 64)})
    value = g.input("x", (dim, 256), "f32")
    for i in range(3):
        w = np.full((256, 256), (i + 1) / 256, np.float32)
        value = athanor.tanh(value @ g.parameter(f"w{i}", w))
    g.output("y", value)
    return g


def test_recipes_of_a_bundle_are_tried(servers, tmp_path: pathlib.Path) -> None:
    one, two = (servers(name, "--search_budget=40c") for name in ("one", "two"))
    path = tmp_path / "recipes.bundle"
    with one.client() as client:
        model = client.upload(layers("b"), name="m").wait("optimised", timeout=300)
        search = client.job(model.info().compile_job_id).search
        assert search.recipes_tried == 0
        made = client.cache_export(path)
        # The bundle holds recipes of the adopted plan, if there was one.
        assert (made.recipes > 0) == (search.plans_taken > 0) and not made.signed
    with two.client() as client:
        taken = client.cache_import(path)
        assert (taken.recipes_added, taken.signed_by) == (made.recipes, "")
        # Another plan's key, the same regions; what serves was measured here.
        model = client.upload(layers("rows"), name="m").wait("optimised", timeout=300)
        job = client.job(model.info().compile_job_id)
        assert job.stop_reason != "STOP_RESTORED"
        assert (job.search.recipes_tried > 0) == (made.recipes > 0)
        assert client.cache_stat().candidates_measured > 0
        assert client.cache_verify().bad == ()
        x = np.linspace(-1, 1, 3 * 256, dtype=np.float32).reshape(3, 256)
        expected = x
        for i in range(3):
            expected = np.tanh(expected @ np.full((256, 256), (i + 1) / 256, np.float32))
        np.testing.assert_allclose(model.infer({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)


def test_kernels_travel_between_servers_that_trust(servers, keys, tmp_path: pathlib.Path) -> None:
    private, public = keys["ours"]
    one = servers("one", f"--cache_signing_key={private}")
    two = servers("two", f"--cache_trusted_keys={keys['theirs'][1]},{public}")
    path = tmp_path / "kernels.bundle"
    with one.client() as client:
        upload(client)
        made = client.cache_export(path, binaries=True)
        assert made.kernels == client.cache_stat().tiers["kernels"].rows > 0
        assert made.signed and made.recipes == 0
    with two.client() as client:
        taken = client.cache_import(path)
        assert (taken.kernels_added, taken.kernels_known) == (made.kernels, 0)
        assert len(taken.signed_by) == 64
        # Imported plans are not compiled, and are right.
        upload(client)
        assert client.cache_stat().kernels_compiled == 0
        assert client.cache_import(path).kernels_known == made.kernels
        assert client.cache_verify().bad == ()

    async def by_asyncio() -> None:
        async with athanor.AsyncClient(one.address) as client:
            assert await client.cache_export(tmp_path / "b", binaries=True) == made
            assert (await client.cache_stat()).tiers["kernels"].rows == made.kernels
            assert (await client.cache_verify()).bad == ()
            assert (await client.cache_collect_garbage(dry_run=True)).rows == 0
        async with athanor.AsyncClient(two.address) as client:
            assert (await client.cache_import(tmp_path / "b")).kernels_known == made.kernels

    asyncio.run(by_asyncio())
    assert f"({made.kernels} were here)" in cli(two, "cache", "import", path)
    assert f"{made.kernels} kernels to" in cli(one, "cache", "export", tmp_path / "c",
                                               "--binaries")


def test_a_model_travels_and_nothing_is_compiled(servers, keys, tmp_path: pathlib.Path) -> None:
    private, public = keys["ours"]
    one = servers("one", f"--cache_signing_key={private}", "--search_budget=20c")
    two = servers("two", f"--cache_trusted_keys={public}", "--search_budget=20c")
    path = tmp_path / "m.bundle"
    with one.client() as client:
        model = client.upload(graph(), name="m", buckets={"b": [(1, 1), (2, 8)]})
        served = model.wait("optimised", timeout=300).info().plan_id
        other = athanor.Graph("other", dims={"b": (1, 8)})
        other.output("y", athanor.exp(other.input("x", ("b", 3), "f32")))
        client.upload(other, name="other").wait("optimised", timeout=300)
        made = client.cache_export(path, "m", binaries=True)
        assert made.signed and made.recipes == 0
        # A plan of the full range and two boxes at least.
        assert made.plans >= 3
        assert 0 < made.kernels < client.cache_stat().tiers["kernels"].rows
        with pytest.raises(athanor.InvalidArgument, match="ask for binaries"):
            client.cache_export(tmp_path / "none", "m")
        with pytest.raises(athanor.NotFound, match="nobody"):
            client.cache_export(tmp_path / "none", "nobody", binaries=True)
    text = cli(one, "cache", "export", "--model", "m/1", "--binaries", tmp_path / "by-cli")
    assert f"{made.plans} plans, {made.kernels} kernels to" in text
    with two.client() as client:
        taken = client.cache_import(path)
        assert (taken.plans_added, taken.kernels_added) == (made.plans, made.kernels)
        model = client.upload(graph(), name="m", buckets={"b": [(1, 1), (2, 8)]})
        assert model.wait("optimised", timeout=300).info().plan_id == served
        w = np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4)
        for rows in (1, 2, 8):
            x = np.ones((rows, 16), np.float32)
            np.testing.assert_allclose(model.infer({"x": x})["y"], np.maximum(x @ w, 0), rtol=1e-5)
        stat = client.cache_stat()
        assert (stat.kernels_compiled, stat.candidates_measured) == (0, 0)
        assert client.job(model.info().compile_job_id).stop_reason == "STOP_RESTORED"
        assert client.cache_verify().bad == ()
    assert f"0 plans ({made.plans} were here)" in cli(two, "cache", "import", path)


def rewrite(source: pathlib.Path, target: pathlib.Path, change) -> pathlib.Path:
    chunks = list(bundles.read_bundle(source))
    change(chunks)
    with bundles.BundleFile(target) as file:
        for chunk in chunks:
            file.add(chunk)
    return target


def test_tampered_foreign_and_unsigned_bundles_are_refused(servers, keys,
                                                           tmp_path: pathlib.Path) -> None:
    one = servers("one", f"--cache_signing_key={keys['ours'][0]}")
    two = servers("two", f"--cache_trusted_keys={keys['ours'][1]}")
    three = servers("three", f"--cache_trusted_keys={keys['theirs'][1]}")
    good, bad = tmp_path / "good.bundle", tmp_path / "bad.bundle"
    with one.client() as client:
        upload(client)
        client.cache_export(good, binaries=True)
    with two.client() as client:
        def tampered(chunks: list) -> None:
            kernel = next(c for c in chunks if c.record.HasField("kernel"))
            kernel.record.kernel.object += b"\x90"

        with pytest.raises(athanor.InvalidArgument,
                           match=r"record \d+ \(kernel [0-9a-f]{12}\): it does not link"):
            client.cache_import(rewrite(good, bad, tampered))
        text = cli(two, "cache", "import", bad, status=1)
        assert re.search(r"athanor: bundle: record \d+ \(kernel", text)

        def other_format(chunks: list) -> None:
            chunks[0].header.format = 7

        with pytest.raises(athanor.InvalidArgument, match="format: 7; bundles of 1 are read here"):
            client.cache_import(rewrite(good, bad, other_format))

        def unsigned(chunks: list) -> None:
            chunks[0].header.public_key = b""
            chunks[-1].trailer.signature = b""

        with pytest.raises(athanor.PermissionDenied, match="is not signed"):
            client.cache_import(rewrite(good, bad, unsigned))
        with pytest.raises(athanor.InvalidArgument, match="without a trailer"):
            client.cache_import(rewrite(good, bad, lambda chunks: chunks.pop()))
        bad.write_bytes(good.read_bytes()[:-3])
        with pytest.raises(athanor.InvalidArgument, match="is not a bundle: chunk"):
            client.cache_import(bad)
        assert "is not a bundle" in cli(two, "cache", "import", bad, status=2)
        assert client.cache_stat().tiers["kernels"].rows == 0
    with three.client() as client:
        with pytest.raises(athanor.PermissionDenied, match="is not among the 1 trusted here"):
            client.cache_import(good)
        with pytest.raises(athanor.FailedPrecondition, match="--cache_signing_key"):
            client.cache_export(tmp_path / "none.bundle", binaries=True)
        assert not list(tmp_path.glob("none.bundle*"))
        assert client.cache_stat().tiers["kernels"].rows == 0


def test_a_newer_schema_is_left_alone(own_server: Server) -> None:
    with own_server.client() as client:
        upload(client)
    assert own_server.stop() == 0
    execute(own_server, "PRAGMA user_version = 1000")
    file = own_server.state / "cache.db"
    before = file.read_bytes()
    own_server.start()
    with own_server.client() as client:
        client.model("m").wait("baseline", timeout=120)
        stat = client.cache_stat()
        assert stat.state == "NEWER_SCHEMA" and "1000" in stat.reason
        with pytest.raises(athanor.FailedPrecondition, match="1000"):
            client.cache_verify()
    assert "newer schema" in cli(own_server, "cache", "stat")
    assert own_server.stop() == 0
    assert file.read_bytes() == before, "not a byte of another server's file is written"
    assert not file.with_name("cache.db-wal").exists()


def refused(tmp_path: pathlib.Path, *flags: str) -> str:
    """Returns the output of a server that does not start."""
    result = subprocess.run(
        [built(ATHANORD), "--listen=127.0.0.1:0", f"--state_dir={tmp_path / 'state'}", *flags],
        capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode in (1, 2), result
    return result.stderr


def test_flags_that_cannot_be_used_are_refused_at_the_start(keys, tmp_path: pathlib.Path) -> None:
    assert "--cache_signing_key: '/none.pem': cannot be read" in refused(
        tmp_path, "--cache_signing_key=/none.pem")
    private, public = keys["ours"]
    assert f"--cache_trusted_keys: '{private}': " in refused(
        tmp_path, f"--cache_trusted_keys={public},{private}")
    assert "--cache_limit" in refused(tmp_path, "--cache_limit=lots")


NETWORK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/vfs.h>
int statfs(const char* path, struct statfs* out) {
  int (*real)(const char*, struct statfs*) = dlsym(RTLD_NEXT, "statfs");
  const int code = real(path, out);
  if (code == 0 && strstr(path, "on-nfs")) out->f_type = 0x6969;
  return code;
}
int statfs64(const char* path, struct statfs64* out) {
  int (*real)(const char*, struct statfs64*) = dlsym(RTLD_NEXT, "statfs64");
  const int code = real(path, out);
  if (code == 0 && strstr(path, "on-nfs")) out->f_type = 0x6969;
  return code;
}
"""


def test_a_network_file_system_is_refused_at_the_start(tmp_path: pathlib.Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    source, library = tmp_path / "network.c", tmp_path / "network.so"
    source.write_text(NETWORK)
    subprocess.run(["clang-19", "-shared", "-fPIC", source, "-o", library], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    (tmp_path / "on-nfs").mkdir()
    text = refused(tmp_path, f"--cache={tmp_path}/on-nfs/cache.db")
    assert f"--cache={tmp_path}/on-nfs/cache.db: on nfs" in text
