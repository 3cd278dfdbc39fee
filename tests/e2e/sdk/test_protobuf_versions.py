"""The SDK as `pip install ./clients/python` makes it, with each major version of protobuf, beside
tritonclient in one process. The environments are made here, from PyPI.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT, Server

PROGRAM = pathlib.Path(__file__).with_name("beside_tritonclient.py")
# Dependencies of tritonclient, whose bounds on protobuf are narrower than what it runs with.
NEEDS = ("ml_dtypes<=0.5.4", "packaging", "python-rapidjson", "urllib3")


@dataclasses.dataclass(frozen=True)
class Environment:
    """Packages to install: `given` with the SDK, then `alone` without its dependencies."""

    protobuf: str  # how its version begins
    given: tuple[str, ...]
    alone: tuple[str, ...] = ()


ENVIRONMENTS = {
    "oldest": Environment("5.26.0", ("protobuf==5.26.0", "grpcio==1.67.1", *NEEDS),
                          ("tritonclient==2.60.0",)),
    "tritonclient's": Environment("6.", ("tritonclient[grpc]==2.73.0",)),
    "newest": Environment("7.", ("protobuf>=7,<8", *NEEDS), ("tritonclient==2.73.0",)),
}


def run(*command: str | pathlib.Path, **environment: str) -> str:
    """Its standard output; AssertionError with all it printed where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/",
                          env={**os.environ, **environment})
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The SDK's, built as pip builds it: with the newest build tools that its bounds allow."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--quiet", "--no-deps",
        "--wheel-dir", folder, ROOT / "clients/python")
    (built,) = folder.glob("athanor-*.whl")
    return built


@pytest.fixture(scope="module", params=ENVIRONMENTS)
def python(request: pytest.FixtureRequest, wheel: pathlib.Path,
           tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, Environment]:
    """The interpreter of an environment."""
    environment = ENVIRONMENTS[request.param]
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder)
    interpreter = folder / "bin/python"
    install = (interpreter, "-m", "pip", "install", "--disable-pip-version-check", "--quiet")
    run(*install, wheel, *environment.given)
    if environment.alone:
        run(*install, "--no-deps", *environment.alone)
    return interpreter, environment


@pytest.mark.parametrize("implementation", ["upb", "python"])
@pytest.mark.parametrize("first", ["sdk", "tritonclient"])
def test_both_call_one_server(python: tuple[pathlib.Path, Environment], server: Server, first: str,
                              implementation: str) -> None:
    interpreter, environment = python
    said = json.loads(run(interpreter, PROGRAM, server.address, first,
                          PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=implementation))
    assert said["protobuf"].startswith(environment.protobuf)
    assert said["implementation"] == implementation
