"""State directories of earlier schemas open and serve: nothing is compiled, searched or lost."""

from __future__ import annotations

import pathlib

import athanor
import older_state
import pytest
from conftest import Server

KEPT = sorted(path.name for path in older_state.TESTDATA.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A cache that this build wrote on this machine."""
    state = tmp_path_factory.mktemp("machine") / "state"
    server = Server(state).start()
    with server.client() as client:
        g = athanor.Graph("any")
        g.output("y", athanor.relu(g.input("x", 4, "f32")))
        client.upload(g, name="any").wait("baseline", timeout=120)
    assert server.stop() == 0
    return state / "cache.db"


@pytest.mark.parametrize("name", KEPT)
def test_opens_and_serves_without_compiling(name: str, machine: pathlib.Path,
                                            tmp_path: pathlib.Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    older_state.restore(name, state, machine)
    server = Server(state).start()
    with server.client() as client:
        (kept,) = client.models()
        assert (kept.name, kept.version, kept.state) == (older_state.MODEL, "1", "READY")
        model = client.model(older_state.MODEL)
        older_state.check(model)
        assert {job.phase for job in client.jobs()} <= {"DONE"}, "nothing is searched again"
        verified = client.cache_verify()
        assert (verified.bad, verified.quarantined, verified.database) == ((), (), "ok")
        # Its plan is found for other models too, and its weights need not travel again.
        again = client.upload(older_state.graph(), name="again", budget="0")
        again.wait("baseline", timeout=120)
        older_state.check(again)
        stat = client.cache_stat()
        assert (stat.kernels_compiled, stat.candidates_measured) == (0, 0)
    assert server.stop() == 0
