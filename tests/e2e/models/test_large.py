"""A model of many megabytes in external data: right answers, and what it takes of memory.

Bounds are of memory that is not a mapped file, and far from what is taken: a copy of the weights
more than allowed breaks them, a few buffers do not.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import athanor
import large
import numpy as np
import onnxruntime
import pytest
from memory_watch import MemoryWatch, held
from server_process import Server

CONFIG = large.SMALL
BYTES = 4 * CONFIG.parameters  # 61 MB
OTHER = 32 << 20  # buffers, threads, code


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """The file, its weights beside it."""
    path = tmp_path_factory.mktemp("large") / "llama.onnx"
    large.large_onnx(path, CONFIG)
    yield path
    path.unlink()
    large.data_path(path).unlink()


def _compare(served: athanor.Model, wanted: onnxruntime.InferenceSession, batch: int,
             sequence: int) -> None:
    feed = large.large_inputs({"batch": batch, "sequence": sequence}, CONFIG, seed=sequence)
    logits = wanted.run(None, feed)[0]
    found = served.infer(feed, timeout=300)["logits"]
    np.testing.assert_allclose(found, logits, rtol=0, atol=1e-4 * np.abs(logits).max())


def test_weights_take_one_prepared_copy(tmp_path: pathlib.Path, model: pathlib.Path) -> None:
    wanted = onnxruntime.InferenceSession(model)
    server = Server(tmp_path / "state").start()
    try:
        with server.client() as client:
            begin = held(server.pid).server
            with MemoryWatch(server.pid) as watch:
                served = client.upload(model, "large", budget="0", dims=CONFIG.dims, buckets={})
                served.wait("baseline", timeout=300)
            assert watch.samples > 1
            info = served.info()
            assert BYTES <= info.memory["parameters"] < BYTES + (1 << 20)  # and rotary tables
            prepared = info.memory["prepared"]
            assert BYTES // 2 < prepared < BYTES + (1 << 20)
            assert watch.peak.server - begin < prepared + OTHER
            for sizes in ((1, 1), (1, 8), (2, 9)):
                _compare(served, wanted, *sizes)
            arenas = served.info().memory["arenas"]
            assert held(server.pid).server - begin < prepared + OTHER + arenas
            _compare(served, wanted, 4, 128)
        server.stop()
        server.start()
        with server.client() as client:
            _compare(client.model("large"), wanted, 1, 8)
            assert held(server.pid).server < prepared + 2 * OTHER
    finally:
        server.kill()


def test_a_check_takes_no_copy(tmp_path: pathlib.Path, model: pathlib.Path) -> None:
    """Uploading, importing and hashing keep the weights in files, not in memory."""
    server = Server(tmp_path / "state").start()
    try:
        with server.client() as client:
            begin = held(server.pid).server
            with MemoryWatch(server.pid, interval=0.002) as check:
                client.check(model, dims=CONFIG.dims)
            assert check.samples > 5
            assert check.peak.server - begin < OTHER
    finally:
        server.kill()


def test_what_does_not_fit_is_refused_with_the_numbers(tmp_path: pathlib.Path,
                                                       model: pathlib.Path) -> None:
    """Neither weights beyond the limit, nor weights and what is prepared from them."""
    for limit, kind in ((BYTES // 2, "parameters"), (BYTES + BYTES // 2, "prepared")):
        server = Server(tmp_path / kind, f"--memory_limit={limit}").start()
        try:
            with server.client() as client, pytest.raises(athanor.ResourceExhausted) as refused:
                served = client.upload(model, "large", budget="0", dims=CONFIG.dims, buckets={})
                served.wait("baseline", timeout=300)
            assert str(limit) in str(refused.value) and "--memory_limit" in str(refused.value)
            assert kind in str(refused.value)
            assert held(server.pid).server < limit
        finally:
            server.kill()
