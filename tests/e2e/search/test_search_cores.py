"""Cores that requests leave to searches."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import athanor
import numpy as np
import pytest
from conftest import ATHANORD, Server, built

CORES = len(os.sched_getaffinity(0))
X = np.arange(5, dtype=np.float32)


def doubled() -> athanor.Graph:
    g = athanor.Graph("doubled", dims={"n": (1, 64)})
    g.output("y", g.input("x", "n", "f32") * 2)
    return g


def test_requests_keep_off_a_core_set_aside(tmp_path: pathlib.Path) -> None:
    assert CORES > 1, "needs two cores"
    server = Server(tmp_path / "aside", "--search_cores=1")
    server.start()
    try:
        line = re.search(r'msg="?serving"?.*', server.log.read_text())
        assert line and f"threads={CORES - 1}" in line[0] and "search_cores=1" in line[0]
        with server.client() as client:
            model = client.upload(doubled(), name="m", budget="5c")
            np.testing.assert_array_equal(model.infer({"x": X}, timeout=120)["y"], X * 2)
            model.wait("optimised", timeout=120)
            np.testing.assert_array_equal(model.infer({"x": X})["y"], X * 2)
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("cores", [CORES, 4000])
def test_one_core_is_left_to_requests(tmp_path: pathlib.Path, cores: int) -> None:
    done = subprocess.run([built(ATHANORD), "--listen=127.0.0.1:0",
                           f"--state_dir={tmp_path / 'state'}", f"--search_cores={cores}"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"--search_cores={cores}: this process may use {CORES} cores" in done.stderr
    assert f"give at most {CORES - 1}" in done.stderr
