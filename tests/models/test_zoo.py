"""The model zoo, in its tiny sizes: valid ONNX, and ONNX Runtime computes what numpy does."""

from __future__ import annotations

import functools
import pathlib
import subprocess
import sys

import llama
import mobilenet
import numpy as np
import onnx
import onnxruntime
import pytest
import resnet
import squeezenet
import vision
import vit
import whisper
import zoo

TINY = {name: model.tiny for name, model in zoo.MODELS.items()}
OPSETS = {"resnet18": {"": 13}, "resnet50": {"": 13}, "vit": {"": 16}, "unet_resized": {"": 18},
          "qdq_resnet18": {"": 13}, "squeezenet": {"": 8}, "llama": {"": 23},
          "llama_microsoft": {"": 17, "com.microsoft": 1},
          "llama_nbits": {"": 17, "com.microsoft": 1}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("zoo")


@pytest.fixture(scope="module")
def written(folder: pathlib.Path):
    """``written(name)``: the path of a tiny model, written once."""
    @functools.cache
    def path(name: str) -> pathlib.Path:
        TINY[name].write(folder / f"{name}.onnx")
        return folder / f"{name}.onnx"

    return path


def session_of(path: pathlib.Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    # Without VNNI sums of products of u8 and i8 would saturate.
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def compare(session: onnxruntime.InferenceSession, model: zoo.Model, sizes: zoo.Sizes,
            seed: int) -> zoo.Arrays:
    """Checks every output at these sizes; the reference's."""
    feed = model.inputs(sizes, seed)
    wanted = model.reference(feed)
    assert set(wanted) == {output.name for output in session.get_outputs()}
    for name, got in zip(wanted, session.run(list(wanted), feed), strict=True):
        assert np.isfinite(got).all(), (name, sizes)
        assert zoo.deviation(got, wanted[name]) <= model.tolerance, (name, sizes)
    return wanted


def sizes_to_try(model: zoo.Model) -> list[dict[str, int]]:
    """Returns sizes: all bounds at once, each dim at a bound with others between, and random
    ones."""
    lowest, highest = ({dim: bounds[i] for dim, bounds in model.dims.items()} for i in (0, 1))
    tried = [lowest, highest]
    for dim, bounds in model.dims.items():
        between = {d: (low + high) // 2 for d, (low, high) in model.dims.items()}
        tried += [between | {dim: bound} for bound in bounds]
    return tried + [model.random_sizes(seed) for seed in range(4)]


@pytest.mark.parametrize("name", TINY)
def test_file_is_valid_and_names_its_dims(written, name: str) -> None:
    path = written(name)
    onnx.checker.check_model(path, full_check=True)
    model = onnx.load(path)
    assert {o.domain: o.version for o in model.opset_import} == OPSETS.get(name, {"": 17})
    named = {size.dim_param for value in model.graph.input
             for size in value.type.tensor_type.shape.dim if size.dim_param}
    # Sums of dims are named by them; everything else is a dim with bounds.
    assert named - {"past + sequence"} == set(TINY[name].dims)


@pytest.mark.parametrize("name", TINY)
def test_onnxruntime_agrees_at_all_sizes(written, name: str) -> None:
    session, model = session_of(written(name)), TINY[name]
    for seed, sizes in enumerate(sizes_to_try(model)):
        compare(session, model, sizes, seed)


@pytest.mark.parametrize("name", TINY)
def test_answers_depend_on_inputs(name: str) -> None:
    """Otherwise a wrong computation could pass for a right one."""
    model = TINY[name]
    sizes = {dim: high for dim, (_, high) in model.dims.items()}
    answers = [model.reference(model.inputs(sizes, seed)) for seed in range(6)]
    for name, first in answers[0].items():
        values = np.stack([answer[name] for answer in answers])
        assert first.std() > 0.01, name
        assert values.std(0).mean() > 0.01, name
        assert np.abs(values).max() < 100, name
        # A recommender has one logit; which item has the largest differs all the same.
        assert len(set(values.reshape(len(answers), -1).argmax(1))) > 1, name
    if "logits" in answers[0]:
        classes = np.concatenate([answer["logits"].argmax(-1).ravel() for answer in answers])
        assert len(set(classes)) > 1


@pytest.mark.parametrize("name", ["lstm", "dlrm_ragged", "resnet50", "llama"])
def test_files_are_the_same_every_time(written, tmp_path: pathlib.Path, name: str) -> None:
    TINY[name].write(tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == written(name).read_bytes()


def test_inputs_reach_the_cases_that_matter() -> None:
    """Empty bags and bags of several; short sentences; padding."""
    feeds = [TINY["dlrm_ragged"].inputs({"batch": 6, "ids0": 4, "ids1": 9, "ids2": 20}, seed)
             for seed in range(3)]
    counts = np.concatenate([np.diff(feed[f"offsets{t}"], append=len(feed[f"ids{t}"]))
                             for feed in feeds for t in range(3)])
    assert counts.min() == 0 and counts.max() > 2
    lengths = TINY["lstm"].inputs({"batch": 4, "sequence": 9}, 0)["lengths"]
    assert lengths.max() == 9 and lengths.min() < 9
    mask = TINY["llama"].inputs({"batch": 4, "sequence": 3, "past": 9}, 0)["attention_mask"]
    assert mask.min() == 0 and (mask[:, 9:] == 1).all()


@pytest.mark.parametrize(("sequence", "past"), [(7, 0), (1, 9)])
def test_microsoft_block_in_batches(written, sequence: int, past: int) -> None:
    """With several sequences only a first part, or one token at a time, as ONNX Runtime
    requires."""
    sizes = {"batch": 3, "sequence": sequence, "past": past}
    compare(session_of(written("llama_microsoft")), TINY["llama_microsoft"], sizes, 1)


def test_forms_of_the_block_are_one_model(written) -> None:
    """All forms of a model give the same outputs for the same inputs."""
    feed = TINY["llama_microsoft"].inputs({"batch": 1, "sequence": 5, "past": 3}, 2)
    others = feed | {"position_ids": np.arange(3, 8).reshape(1, 5)}
    results = [session_of(written(name)).run(["output", "present_key"], of)
               for name, of in (("llama", others), ("llama_primitives", others),
                                ("llama_microsoft", feed))]
    for other in results[1:]:
        for got, wanted in zip(other, results[0], strict=True):
            assert zoo.deviation(got, wanted) <= 1e-5


def macs_of_resnet(config: resnet.Config) -> int:
    """Multiplications of an image of 224 by 224."""
    total = 112**2 * 7 * 7 * 3 * config.width
    side = 56
    for block in resnet.blocks(config):
        before = side
        for inputs, outputs, k, stride in block.convs:
            side //= stride
            total += side**2 * k * k * inputs * outputs
        if block.shortcut:
            inputs, outputs, stride = block.shortcut
            total += (before // stride) ** 2 * inputs * outputs
    return total + outputs * config.classes


def macs_of_mobilenet(config: mobilenet.Config) -> int:
    """The same of a MobileNet."""
    total, side = config.last * config.classes, 224
    for layers, _ in mobilenet.blocks(config):
        for layer in layers:
            side //= layer.stride
            total += side**2 * layer.k**2 * layer.outputs * (layer.inputs if layer.mixes else 1)
    return total


def test_sizes_are_those_of_the_literature() -> None:
    """Compares parameter counts with those of torchvision, timm and Hugging Face."""
    assert vision.parameters(resnet.resnet_weights(resnet.RESNET18)) == 11_689_512
    assert vision.parameters(resnet.resnet_weights(resnet.RESNET50)) == 25_557_032
    assert vision.parameters(mobilenet.mobilenet_weights()) == 3_504_872
    assert vision.parameters(squeezenet.squeezenet_weights()) == 1_235_496
    assert vision.parameters(vit.vit_weights()) == 5_717_416
    assert vision.parameters(whisper.whisper_weights()) == 8_208_384
    # TinyLlama-1.1B: 22 such blocks, embeddings, a head and a norm.
    block = vision.parameters(llama.llama_weights())
    assert 22 * block + 2 * 32_000 * 2048 + 2048 == 1_100_048_384
    assert round(macs_of_resnet(resnet.RESNET18) / 1e9, 3) == 1.814
    assert round(macs_of_resnet(resnet.RESNET50) / 1e9, 3) == 4.089
    assert round(macs_of_mobilenet(mobilenet.DEFAULT) / 1e9, 3) == 0.301


def test_resnet50_keeps_its_norms_and_resnet18_does_not(written) -> None:
    counts = {name: [node.op_type for node in onnx.load(written(name)).graph.node]
              .count("BatchNormalization") for name in ("resnet18", "resnet50")}
    convs = 1 + sum(len(block.convs) + bool(block.shortcut)
                    for block in resnet.blocks(resnet.TINY50))
    assert counts == {"resnet18": 0, "resnet50": convs}


def test_command(tmp_path: pathlib.Path) -> None:
    script = pathlib.Path(zoo.__file__)
    command = [sys.executable, script, "--out", tmp_path / "new", "--tiny", "--check"]
    only = [*command, "--only", "lstm", "unet"]
    done = subprocess.run(only, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"lstm.onnx", "unet.onnx"}
    assert "LSTM 2" in done.stdout and "deviation" in done.stdout


def test_deviation() -> None:
    assert zoo.deviation(np.array([1.5, 10.0]), np.array([1.0, 10.0])) == 0.05
    assert zoo.deviation(np.array([0.5]), np.array([0.25])) == 0.25
    assert zoo.deviation(np.zeros((0, 3)), np.zeros((0, 3))) == 0
    with pytest.raises(ValueError, match=r"\[2\]; it should be \[1\]"):
        zoo.deviation(np.zeros(2), np.zeros(1))
