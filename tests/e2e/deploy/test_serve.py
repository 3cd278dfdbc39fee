"""The help of deploy's programs; the demo of deploy/serve with one's own file; the SDK's wheel in
a fresh environment."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import venv

import onnx
import onnx_models
import pytest
from conftest import ROOT
from server_process import Server

DEMO = ROOT / "clients/python/examples/digits_demo.py"
CALL = """
import sys, athanor
g = athanor.Graph("wheel", dims={"b": (1, 8)})
g.output("y", g.input("x", ("b", 3), "f32") + 1)
with athanor.Client(sys.argv[1]) as client:
    import numpy as np
    print(athanor.__file__, client.upload(g, "wheel").infer(np.zeros((1, 3), "f4"))["y"].tolist())
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """An ONNX file with a dim that has no bounds."""
    path = tmp_path_factory.mktemp("serve") / "rows.onnx"
    onnx.save(onnx_models.model([onnx.helper.make_node("Relu", ["x"], ["y"])],
                                [onnx_models.value("x", ["batch", 4])],
                                [onnx_models.value("y", ["batch", 4])]), path)
    return path


@pytest.mark.parametrize("program", ["serve", "test", "bench", "gpu"])
@pytest.mark.parametrize("asked", [["--help"], ["-h"], ["--once", "--help"]])
def test_help_comes_before_any_set_up(program: str, asked: list[str],
                                      tmp_path: pathlib.Path) -> None:
    """There is nothing to set up with here: no list of packages, no Bazel."""
    (tmp_path / "deploy").mkdir()
    for name in ("setup", program):
        shutil.copy(ROOT / "deploy" / name, tmp_path / "deploy")
    done = subprocess.run([f"deploy/{program}", *asked], cwd=tmp_path, check=False,
                          capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stderr) == (0, "")
    assert f"deploy/{program}" in done.stdout and "set -euo" not in done.stdout
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(
        ["deploy", "setup", program])


def demo(server: Server, *arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, DEMO, "--address", server.address,
                           *map(str, arguments)], capture_output=True, text=True, check=False)


def test_the_demo_serves_an_onnx_file_by_its_dims(server: Server, model: pathlib.Path) -> None:
    done = demo(server, "--model", model, "--dim", "batch=1:64")
    assert done.returncode == 0, done.stderr
    assert "y: float32 (1, 4)" in done.stdout


@pytest.mark.parametrize(("dims", "status", "said"), [
    ([], 1, "batch"), (["--dim", "batch"], 2, "give NAME=LOW:HIGH"),
    (["--dim", "batch=1:x"], 2, "give NAME=LOW:HIGH")])
def test_the_demo_says_what_is_wrong(server: Server, model: pathlib.Path, dims: list[str],
                                     status: int, said: str) -> None:
    done = demo(server, "--model", model, *dims)
    assert done.returncode == status and said in done.stderr, done.stderr


def test_the_wheel_works_in_an_environment_of_its_own(server: Server,
                                                      tmp_path: pathlib.Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps",
                    "--no-build-isolation", "--disable-pip-version-check",
                    "--wheel-dir", tmp_path, ROOT / "clients/python"], check=True)
    (wheel,) = tmp_path.glob("athanor-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                    wheel], check=True)
    done = subprocess.run([python, "-I", "-c", CALL, server.address], cwd=tmp_path, check=False,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    where, _, values = done.stdout.strip().partition(" ")
    assert pathlib.Path(where).is_relative_to(tmp_path / "env")
    assert values == "[[1.0, 1.0, 1.0]]"
