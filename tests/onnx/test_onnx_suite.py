"""A share of ONNX's backend suite, as `deploy/test` runs it; `suite.py` runs all of it."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import athanor
import pytest
import suite

SHARE = 8


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[athanor.Client]:
    """Yields a client of a server that compiles two models at once."""
    server = suite.Server(tmp_path_factory.mktemp("onnx") / "state", "--compile_workers=2").start()
    with server.client() as connected:
        yield connected
    assert server.stop() == 0, server.log.read_text()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", list(suite.load("*", SHARE)), ids=lambda case: case.name)
def test_case(client: athanor.Client, case: suite.Case) -> None:
    outcome = suite.run(client, case)
    expected = json.loads(pathlib.Path(suite.EXPECTED).read_text())
    assert not suite.surprises({case.name: outcome}, expected)
