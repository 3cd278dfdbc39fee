"""The zoo's models, in small, through the server: values against numpy in float64, and sizes drawn
at random within the bounds without anything compiled for a request.
"""

from __future__ import annotations

import pathlib

import athanor
import pytest
import zoo

# A transformer, convnets (quotients of dims, joined images), a cache, loops.
MANY = ("encoder", "resnet18", "squeezenet", "unet_resized", "llama", "lstm")
SIZES = 200


def _uploaded(client: athanor.Client, model: zoo.Model, folder: pathlib.Path) -> athanor.Model:
    path = folder / f"{model.name}.onnx"
    model.write(path)
    served = client.upload(path, f"zoo-{model.name}", budget="0", dims=model.dims)
    return served.wait("baseline", timeout=600)


def _check(served: athanor.Model, model: zoo.Model, sizes: zoo.Sizes, seed: int) -> None:
    feed = model.inputs(sizes, seed)
    got = served.infer(feed, timeout=120)
    for name, wanted in model.reference(feed).items():
        found = zoo.deviation(got[name], wanted)
        assert found <= model.tolerance, f"{name} of {dict(sizes)}: off by {found:.1e}"


@pytest.mark.parametrize("name", zoo.MODELS)
def test_values(client: athanor.Client, tmp_path: pathlib.Path, name: str) -> None:
    model = zoo.MODELS[name].tiny
    try:
        served = _uploaded(client, model, tmp_path)
        assert served.info().dims == {dim: tuple(bounds) for dim, bounds in model.dims.items()}
        _check(served, model, model.typical, 1)
        _check(served, model, {dim: low for dim, (low, _) in model.dims.items()}, 2)
        _check(served, model, {dim: high for dim, (_, high) in model.dims.items()}, 3)
    finally:
        for info in client.models(f"zoo-{name}"):
            client.delete(info.name)


@pytest.mark.parametrize("name", MANY)
def test_any_sizes_without_compiling(client: athanor.Client, tmp_path: pathlib.Path,
                                     name: str) -> None:
    model = zoo.MODELS[name].tiny
    served = _uploaded(client, model, tmp_path)
    try:
        _settled(client, served)
        before = client.cache_stat().kernels_compiled
        for seed in range(SIZES):
            _check(served, model, model.random_sizes(seed), seed)
        assert client.cache_stat().kernels_compiled == before
    finally:
        client.delete(f"zoo-{name}")


def _settled(client: athanor.Client, served: athanor.Model) -> None:
    """Its job has ended: the plans of its buckets are there."""
    for _ in served.watch(timeout=600):
        pass
    assert all(job.finished for job in client.jobs(served.name))
