"""State directories that an earlier server wrote, kept as text in ``testdata``.

A cache belongs to a machine: its rows are keyed by the CPU and the compiler. `restore` moves the
kept rows to the machine at hand. It computes their keys and checksums itself, as
``compiler/cache/keys.h`` and ``rows.h`` describe them, so any machine finds out when a key or a
row has changed its format.

``python older_state.py NAME`` keeps the state that the built server writes: run it after a change
of schema, on a machine with AVX-512.
"""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile

import athanor
import numpy as np
from athanor.protos import plan_pb2
from server_process import Server

TESTDATA = pathlib.Path(__file__).with_name("testdata")
MODEL = "older"
# Columns of the cache's tables in the order that their checksums take them.
PLAN_KEY = ("semantics_version plan_format codegen_version graph_hash interface_hash dim_box "
            "approximate device triple cpu features").split()
PLAN_CONDITIONS = "rule_set disabled_rules compiler_version libraries driver threads clocks".split()
PLAN = ["key", "conditions", "plan_id", *PLAN_KEY, *PLAN_CONDITIONS, "kind", "share_of_baseline",
        "low", "high", "compared_with", "kernel_keys", "body", "bytes", "created_us"]
KERNEL_KEY = ("source_hash flags triple cpu features compiler_version codegen_version").split()
SEARCH = "key conditions options stop seconds candidates bytes created_us".split()
MACHINE = "device triple cpu features rule_set compiler_version libraries driver threads clocks"


def weights() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)


def check(model: athanor.Model) -> None:
    """Compares one answer with numpy's."""
    x = np.random.default_rng(2).standard_normal((5, 8)).astype(np.float32)
    expected = np.maximum(x.astype(np.float64) @ weights(), 0)
    np.testing.assert_allclose(model.infer({"x": x})["y"], expected, rtol=1e-5, atol=1e-6)


def graph() -> athanor.Graph:
    g = athanor.Graph(MODEL)
    x = g.input("x", ("b", 8), "f32")
    g.output("y", athanor.relu(x @ g.parameter("w", weights())))
    return g


def hash_of(values: list[object]) -> bytes:
    """SHA-256 over the values, each with its length; numbers as the cache hashes them."""
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, float):
            value = struct.pack("<d", value)
        elif not isinstance(value, bytes):
            value = str(value).encode()
        digest.update(b"%d:" % len(value) + value)
    return digest.digest()


def restore(name: str, state: pathlib.Path, machine: pathlib.Path) -> None:
    """Makes ``state`` from the kept ``name``, for the machine that wrote the cache ``machine``."""
    kept = TESTDATA / name
    shutil.copytree(kept / "tensors", state / "tensors")
    for database in ("registry", "cache"):
        with sqlite3.connect(state / f"{database}.db") as file:
            file.executescript((kept / f"{database}.sql").read_text())
        file.close()
    with sqlite3.connect(machine) as file:
        file.row_factory = sqlite3.Row
        plan, kernel, target = (file.execute(f"SELECT * FROM {table}").fetchone()
                                for table in ("plans", "kernels", "targets"))
    file.close()
    with sqlite3.connect(state / "cache.db") as file:
        file.row_factory = sqlite3.Row
        kernels = _bind_kernels(file, kernel)
        _bind_plan(file, plan, kernels)
        file.execute(f"INSERT INTO targets VALUES ({', '.join('?' * len(target))})", tuple(target))
    file.close()


def _update(file: sqlite3.Connection, table: str, row: dict[str, object]) -> None:
    file.execute(f"UPDATE {table} SET {', '.join(f'{c} = ?' for c in row)} WHERE rowid = ?",
                 (*row.values(), row["rowid"]))


def _bind_kernels(file: sqlite3.Connection, like: sqlite3.Row) -> dict[str, bytes]:
    """By the hash of their source, the keys they have now."""
    keys = {}
    for found in file.execute("SELECT rowid, * FROM kernels").fetchall():
        row = dict(found) | {c: like[c] for c in KERNEL_KEY if c != "source_hash"}
        row["key"] = keys[row["source_hash"]] = hash_of([row[c] for c in KERNEL_KEY])
        row["checksum"] = hash_of([row["key"], row["object"]])
        _update(file, "kernels", row)
    return keys


def _bind_plan(file: sqlite3.Connection, like: sqlite3.Row, kernels: dict[str, bytes]) -> None:
    (found,) = file.execute("SELECT rowid, * FROM plans").fetchall()
    row = dict(found) | {c: like[c] for c in MACHINE.split()}
    plan, here = _plan_of(row["body"]), _plan_of(like["body"])
    plan.target.CopyFrom(here.target)
    keys = [kernels[kernel.source_hash] for kernel in plan.kernels]
    row["body"] = _stored(plan, keys)
    row["kernel_keys"] = b"".join(keys)
    row["key"] = hash_of([row[c] for c in PLAN_KEY])
    row["conditions"] = hash_of([row[c] for c in PLAN_CONDITIONS])
    row["checksum"] = hash_of([row[c] for c in PLAN])
    _update(file, "plans", row)
    (found,) = file.execute("SELECT rowid, * FROM searches").fetchall()
    search = dict(found) | {"key": row["key"], "conditions": row["conditions"]}
    search["checksum"] = hash_of([search[c] for c in SEARCH])
    _update(file, "searches", search)


def _plan_of(body: bytes) -> plan_pb2.Plan:
    """Field 1 of a StoredPlan (proto/athanor/internal/stored.proto), which comes first."""
    assert body[0] == 0x0A
    size, at, shift = 0, 1, 0
    while True:
        size |= (body[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if body[at - 1] < 0x80:
            return plan_pb2.Plan.FromString(body[at:at + size])


def _stored(plan: plan_pb2.Plan, keys: list[bytes]) -> bytes:
    """A StoredPlan of a baseline: the plan and its kernels' keys."""
    body = plan.SerializeToString(deterministic=True)
    size, left = b"", len(body)
    while left >= 0x80:
        size, left = size + bytes([left & 0x7F | 0x80]), left >> 7
    head = b"\x0a" + size + bytes([left])
    return head + body + b"".join(b"\x12" + bytes([len(key)]) + key for key in keys)


def keep(name: str) -> None:
    """Writes ``testdata/NAME``: a model that a search of 20 candidates left on its baseline."""
    with tempfile.TemporaryDirectory() as folder:
        state = pathlib.Path(folder, "state")
        server = Server(state).start()
        with server.client() as client:
            model = client.upload(graph(), name=MODEL, budget="20c")
            for _ in client.watch(model.info().compile_job_id, timeout=120):
                pass
        assert server.stop() == 0
        kept = TESTDATA / name
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(state / "tensors", kept / "tensors")
        with sqlite3.connect(state / "cache.db") as file:
            (body,) = file.execute("SELECT body FROM plans").fetchone()
            for kernel in _plan_of(body).kernels:
                file.execute("UPDATE kernels SET object = ? WHERE source_hash = ?",
                             (_portable(kernel.source, folder), kernel.source_hash))
            sources = ", ".join(f"'{kernel.source_hash}'" for kernel in _plan_of(body).kernels)
            file.execute(f"DELETE FROM kernels WHERE source_hash NOT IN ({sources})")
            for table in ("checks", "timings", "targets"):  # rows about the machine, not the plan
                file.execute(f"DELETE FROM {table}")
        for database in ("registry", "cache"):
            with sqlite3.connect(state / f"{database}.db") as file:
                lines = [f"PRAGMA {pragma} = {file.execute(f'PRAGMA {pragma}').fetchone()[0]};"
                         for pragma in ("application_id", "user_version")]
                (kept / f"{database}.sql").write_text("\n".join([*lines, *file.iterdump(), ""]))
            file.close()


# The masked moves of AVX-512, for machines without.
PRELUDE = """
#define __builtin_ia32_loadups512_mask(from, otherwise, mask) ({ \\
    __auto_type v_ = (otherwise); const float* f_ = (from); const unsigned m_ = (mask); \\
    for (int i_ = 0; i_ < 16; ++i_) if (m_ >> i_ & 1) v_[i_] = f_[i_]; v_; })
#define __builtin_ia32_storeups512_mask(to, value, mask) ({ \\
    __auto_type v_ = (value); float* t_ = (to); const unsigned m_ = (mask); \\
    for (int i_ = 0; i_ < 16; ++i_) if (m_ >> i_ & 1) t_[i_] = v_[i_]; })
"""


def _portable(source: str, folder: str) -> bytes:
    """The object of a kernel that was printed for AVX-512, for any x86-64 of the last ten years."""
    result = pathlib.Path(folder, "kernel.so")
    subprocess.run(["clang-19", "-x", "c", "-", "-O2", "-march=x86-64-v2", "-ffp-contract=off",
                    "-fPIC", "-shared", "-nostdlib", "-s", "-Wno-psabi", "-o", result],
                   input=(PRELUDE + source).encode(), check=True)
    return result.read_bytes()


if __name__ == "__main__":
    keep(sys.argv[1])
