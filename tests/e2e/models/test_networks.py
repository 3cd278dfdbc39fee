"""Linear layers and recommenders against numpy, in composites and in primitives."""

from __future__ import annotations

import pathlib

import athanor
import digits_demo
import dlrm
import mlp
import numpy as np
import onnxruntime
import pytest

FORMS = pytest.mark.parametrize("composite", [True, False], ids=["composites", "primitives"])

NETWORKS = [mlp.DIGITS, mlp.Config(widths=(48, 48, 48, 48)), mlp.Config(widths=(7, 33, 1), batch=5)]


@pytest.mark.parametrize("config", NETWORKS, ids=["digits", "equal", "uneven"])
@FORMS
def test_linear_layers(client: athanor.Client, composite: bool, config: mlp.Config) -> None:
    model = client.upload(mlp.mlp_graph(composite, config), name="layers")
    for b in (1, config.batch, 3):
        x = np.random.default_rng(b).standard_normal((b, config.widths[0]), np.float32)
        got = model.infer({config.input: x}, timeout=120)[config.output]
        np.testing.assert_allclose(got, mlp.mlp_numpy(x, config), rtol=0, atol=1e-5)
    client.delete("layers")


def test_digits_of_figures_are_those_of_the_demo() -> None:
    """The figures' network computes what the demo's reference does."""
    weights = dict(np.load(mlp.DIGITS.learned, allow_pickle=False))
    images = np.random.default_rng(1).integers(0, 17, (9, 64)).astype(np.float32)
    np.testing.assert_array_equal(mlp.mlp_numpy(images, mlp.DIGITS),
                                  digits_demo.reference(weights, images))


# The bottom network ever wider than its input, bags of many lengths, one table, no seventh pair.
RECOMMENDERS = [
    dlrm.MINI,
    dlrm.Config(tables=(11, 50), bags=(3, 2), bottom=(5, 64, 16), top=(24, 1), batch=40),
    dlrm.Config(tables=(7,), bags=(1,), bottom=(13, 8), top=(1,), batch=9),
]


@pytest.mark.parametrize("config", RECOMMENDERS, ids=["mini", "bags", "one-table"])
@FORMS
def test_recommender(client: athanor.Client, composite: bool, config: dlrm.Config) -> None:
    model = client.upload(dlrm.dlrm_graph(composite, config), name="dlrm")
    for b in (1, config.batch, 7):
        feed = dlrm.dlrm_inputs(b, config, seed=b)
        got = model.infer(feed, timeout=120)["click"]
        np.testing.assert_allclose(got, dlrm.dlrm_numpy(feed, config), rtol=0, atol=1e-5)
    client.delete("dlrm")


def test_recommender_refuses_a_row_its_table_lacks(client: athanor.Client) -> None:
    model = client.upload(dlrm.dlrm_graph(config=dlrm.MINI), name="dlrm-rows")
    for row in (20, -1):
        feed = dlrm.dlrm_inputs(4, dlrm.MINI)
        feed["bags1"][2, 0] = row
        with pytest.raises(athanor.InvalidArgument, match=str(row)):
            model.infer(feed, timeout=120)
    client.delete("dlrm-rows")


@pytest.mark.parametrize("config", [*NETWORKS, *RECOMMENDERS], ids=lambda config: config.name)
def test_onnx_of_linear_layers_and_recommenders(tmp_path: pathlib.Path,
                                                config: mlp.Config | dlrm.Config) -> None:
    """The networks behind the figures compute the same as the reference."""
    path = tmp_path / "model.onnx"
    if isinstance(config, mlp.Config):
        mlp.mlp_onnx(path, config)
        x = np.random.default_rng(2).standard_normal((3, config.widths[0]), np.float32)
        feed, want = {config.input: x}, mlp.mlp_numpy(x, config)
    else:
        dlrm.dlrm_onnx(path, config)
        feed = dlrm.dlrm_inputs(3, config)
        want = dlrm.dlrm_numpy(feed, config)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, feed)[0], want, rtol=0, atol=1e-5)
