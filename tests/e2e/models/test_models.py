"""The two shared models: the digit classifier and the transformer encoder."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import sys

import athanor
import encoder
import make_testdata
import numpy as np
import onnxruntime
import pytest
from athanor.protos import graph_pb2
from conftest import ROOT, Server
from google.protobuf import text_format

SMALL = make_testdata.SMALL


def token_ids(b: int, s: int, vocabulary: int) -> np.ndarray:
    """Random ids, the first and the last of the vocabulary among them."""
    ids = np.random.default_rng(b * 1000 + s).integers(0, vocabulary, (b, s))
    ids[0, 0], ids[-1, -1] = 0, vocabulary - 1
    return ids


def test_digits_demo(server: Server) -> None:
    """The demo of deploy/serve: right answers and 98 % of the held-out images."""
    demo = ROOT / "clients/python/examples/digits_demo.py"
    result = subprocess.run([sys.executable, demo, "--address", server.address], timeout=300,
                            capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "first right answer" in result.stdout
    assert "held-out accuracy through the server: 98.06%" in result.stdout


def test_demo_with_a_file(server: Server, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "small.athanor"
    encoder.encoder_graph(config=SMALL).save(path)
    demo = ROOT / "clients/python/examples/digits_demo.py"
    command = [sys.executable, demo, "--address", server.address, "--model", path]
    result = subprocess.run(command, timeout=300, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "hidden: float32 (1, 1, 48)" in result.stdout


@pytest.fixture(scope="module", params=[True, False], ids=["composites", "primitives"])
def encoder_model(client: athanor.Client, request: pytest.FixtureRequest) -> athanor.Model:
    return client.upload(encoder.encoder_graph(request.param), name="encoder")


@pytest.mark.parametrize(("b", "s"), [(1, 1), (1, 16), (2, 7), (3, 128)])
def test_encoder(encoder_model: athanor.Model, b: int, s: int) -> None:
    ids = token_ids(b, s, encoder.DEFAULT.vocabulary)
    got = encoder_model.infer({"ids": ids}, timeout=120)["hidden"]
    assert got.shape == (b, s, 384)
    np.testing.assert_allclose(got, encoder.encoder_numpy(ids), rtol=0, atol=1e-4)


@pytest.mark.parametrize("composite", [True, False])
def test_small_encoder_at_every_length(client: athanor.Client, composite: bool) -> None:
    """Sizes that divide no tile, up and down."""
    model = client.upload(encoder.encoder_graph(composite, SMALL), name="small")
    for b, s in [(1, 1), (8, 64), (1, 2), (3, 17), (8, 1), (2, 63), (5, 31), (1, 64)]:
        ids = token_ids(b, s, SMALL.vocabulary)
        got = model.infer({"ids": ids}, timeout=120)["hidden"]
        np.testing.assert_allclose(got, encoder.encoder_numpy(ids, SMALL), rtol=0, atol=1e-4)
    client.delete("small")


def test_testdata_is_what_the_sdk_builds() -> None:
    """Otherwise: python tests/models/make_testdata.py."""
    files = make_testdata.files()
    assert {path.name for path in make_testdata.FOLDER.glob("*.txtpb")} == set(files)
    for file, graph in files.items():
        stored = text_format.Parse((make_testdata.FOLDER / file).read_text(), graph_pb2.Graph())
        built = text_format.Parse(make_testdata.graph_text(graph), graph_pb2.Graph())
        assert stored == built, file


def test_deadline_passes_while_the_baseline_is_made(client: athanor.Client) -> None:
    """The call ends in time, the compile job goes on, a later call gets its answer."""
    config = dataclasses.replace(SMALL, width=44, hidden=76)  # kernels that no other test made
    model = client.upload(encoder.encoder_graph(config=config), name="deadline")
    ids = token_ids(2, 5, config.vocabulary)
    with pytest.raises(athanor.DeadlineExceeded):
        model.infer({"ids": ids}, timeout=0.02)
    got = model.infer({"ids": ids}, timeout=120)["hidden"]
    np.testing.assert_allclose(got, encoder.encoder_numpy(ids, config), rtol=0, atol=1e-4)
    client.delete("deadline")


def test_onnx_is_the_same_model(tmp_path: pathlib.Path) -> None:
    """The models behind the figures compute the same as the reference."""
    path = tmp_path / "small.onnx"
    encoder.encoder_onnx(path, SMALL)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for b, s in [(1, 1), (2, 7), (8, 64)]:
        ids = token_ids(b, s, SMALL.vocabulary)
        np.testing.assert_allclose(session.run(None, {"ids": ids})[0],
                                   encoder.encoder_numpy(ids, SMALL), rtol=0, atol=1e-5)
