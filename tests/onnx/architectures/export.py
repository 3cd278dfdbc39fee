"""Architectures of transformers as ONNX files, with inputs and what torch makes of them.

    python export.py FOLDER segformer exported     # a row by an exporter
    python export.py FOLDER --list                 # names of all rows

Writes FOLDER/ROW-EXPORTER.onnx, .npz (the inputs and outputs of each set, by set and name) and
.json (bounds of the dims; why there is no file). Runs where torch and transformers are, which
nothing else of the repository needs: `against_torch.py` makes such an environment.
"""

from __future__ import annotations

import inspect
import io
import json
import logging
import pathlib
import sys
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import torch
import transformers
from models import ROWS, VOCABULARY, Row

EXPORTERS = ("traced", "exported")  # torch.onnx.export without and with dynamo
IMAGE = 96  # an image's largest height and width
OPSET = 18

Arrays = dict[str, torch.Tensor]
# The names of each input's dynamic axes.
Dynamic = dict[str, dict[int, str]]


def tokens(generator: torch.Generator, batch: int, length: int) -> torch.Tensor:
    """Draws ids that are not special; special ones are below 5."""
    return torch.randint(5, VOCABULARY, (batch, length), generator=generator)


def mask(batch: int, length: int) -> torch.Tensor:
    """Makes a mask in which each text is one token shorter than the one before."""
    shorter = torch.arange(batch)[:, None].clamp(max=length - 1)
    return (torch.arange(length)[None] < length - shorter).long()


TEXTS = [(2, 7), (1, 12), (3, 9)]
TEXT_DIMS = {"batch": (1, 4), "sequence": (2, 32)}


def text_sets(row: Row, generator: torch.Generator) -> tuple[list[Arrays], Dynamic, dict]:
    axes = {0: "batch", 1: "sequence"}
    names = ["input_ids"] if row.inputs == "bare tokens" else ["input_ids", "attention_mask"]
    sets = [{"input_ids": tokens(generator, b, s), "attention_mask": mask(b, s)} for b, s in TEXTS]
    return [{n: s[n] for n in names} for s in sets], dict.fromkeys(names, axes), TEXT_DIMS


def two_texts(row: Row, generator: torch.Generator) -> tuple[list[Arrays], Dynamic, dict]:
    sets = [{"input_ids": tokens(generator, b, s), "attention_mask": mask(b, s),
             "decoder_input_ids": tokens(generator, b, t)}
            for (b, s), t in zip(TEXTS, (5, 3, 6), strict=True)]
    axes = {0: "batch", 1: "sequence"}
    return sets, {"input_ids": axes, "attention_mask": axes,
                  "decoder_input_ids": {0: "batch", 1: "target"}}, TEXT_DIMS | {"target": (2, 32)}


def images(row: Row, generator: torch.Generator) -> tuple[list[Arrays], Dynamic, dict]:
    most = row.most or IMAGE
    sizes = [(2, 64, 64), (1, 64, 96), (1, 96, 64) if row.inputs == "image of 32s" else (1, 80, 72)]
    sets = [{"pixel_values": torch.randn(b, 3, h, w, generator=generator)} for b, h, w in sizes]
    return (sets, {"pixel_values": {0: "batch", 2: "height", 3: "width"}},
            {"batch": (1, 4), "height": (32, most), "width": (32, most)})


def squares(row: Row, generator: torch.Generator) -> tuple[list[Arrays], Dynamic, dict]:
    size = row.sizes.get("image_size", 64)
    height, width = size if isinstance(size, list) else (size, size)
    sets = [{"pixel_values": torch.randn(b, 3, height, width, generator=generator)}
            for b in (2, 1, 3)]
    return sets, {"pixel_values": {0: "batch"}}, {"batch": (1, 4)}


def waves(row: Row, generator: torch.Generator) -> tuple[list[Arrays], Dynamic, dict]:
    sets = [{"input_values": torch.randn(b, n, generator=generator)}
            for b, n in ((2, 400), (1, 523), (3, 301))]
    return sets, {"input_values": {0: "batch", 1: "samples"}}, {"batch": (1, 4),
                                                               "samples": (200, 800)}


def sound_and_text(row: Row, generator: torch.Generator) -> tuple[list[Arrays], Dynamic, dict]:
    sets = [{"input_features": torch.randn(b, 8, 40, generator=generator),
             "decoder_input_ids": tokens(generator, b, t)} for b, t in ((2, 5), (1, 3), (3, 9))]
    return (sets, {"input_features": {0: "batch"},
                   "decoder_input_ids": {0: "batch", 1: "target"}},
            {"batch": (1, 4), "target": (2, 16)})


def spectrograms(row: Row, generator: torch.Generator) -> tuple[list[Arrays], Dynamic, dict]:
    sets = [{"input_values": torch.randn(b, 40, 32, generator=generator)} for b in (2, 1, 3)]
    return sets, {"input_values": {0: "batch"}}, {"batch": (1, 4)}


def text_and_image(row: Row, generator: torch.Generator) -> tuple[list[Arrays], Dynamic, dict]:
    sets = [{"input_ids": tokens(generator, t, s),
             "pixel_values": torch.randn(b, 3, 32, 32, generator=generator)}
            for t, s, b in ((3, 7, 2), (1, 12, 3), (2, 5, 1))]
    for arrays in sets:
        arrays["input_ids"][:, -1] = 2  # the end, whose place the model looks for
    return (sets, {"input_ids": {0: "texts", 1: "sequence"}, "pixel_values": {0: "images"}},
            {"texts": (1, 4), "images": (1, 4), "sequence": (2, 32)})


Maker = Callable[[Row, torch.Generator], tuple[list[Arrays], Dynamic, dict]]
INPUTS: dict[str, Maker] = {
    "tokens": text_sets, "bare tokens": text_sets, "two texts": two_texts, "image": images,
    "image of 32s": images,    "square": squares, "wave": waves, "sound and text": sound_and_text,
    "spectrogram": spectrograms, "text and image": text_and_image,
}


class Outer(torch.nn.Module):
    """The model with its inputs by place, and of its outputs the first two that are tensors."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names
        takes = inspect.signature(model.forward).parameters
        self.more = {"use_cache": False} if "use_cache" in takes else {}

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = self.model(**dict(zip(self.names, values, strict=True)), **self.more,
                          return_dict=True)
        return tuple(v for v in made.to_tuple() if isinstance(v, torch.Tensor))[:2]


def build(row: Row) -> torch.nn.Module:
    """The model with random weights that let every layer be heard."""
    config = getattr(transformers, row.config)(**row.sizes)
    config._attn_implementation = "eager"
    torch.manual_seed(14)
    model = getattr(transformers, row.model)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, min(0.5, parameter[0].numel() ** -0.5))
    return model


def exported(module: torch.nn.Module, example: Arrays, axes: Dynamic, exporter: str,
             outputs: list[str]) -> onnx.ModelProto:
    """The file of the module, its weights in it."""
    names, values = list(example), tuple(example.values())
    if exporter == "traced":
        buffer = io.BytesIO()
        torch.onnx.export(module, values, buffer, input_names=names, output_names=outputs,
                          dynamic_axes=axes, opset_version=OPSET, dynamo=False)
        return onnx.load_from_string(buffer.getvalue())
    dynamic = tuple({axis: torch.export.Dim.DYNAMIC for axis in axes[name]} for name in names)
    program = torch.onnx.export(module, values, input_names=names, output_names=outputs,
                                dynamic_shapes=(dynamic,), opset_version=OPSET, dynamo=True,
                                verbose=False)
    model = program.model_proto
    # The exporter names dims itself; the names here are what their bounds are given by.
    for info in model.graph.input:
        for axis, dim in axes[info.name].items():
            shown = info.type.tensor_type.shape.dim[axis].dim_param
            rename_dim(model, shown, dim)
    return model


def rename_dim(model: onnx.ModelProto, old: str, new: str) -> None:
    """Replaces names of dims in every shape that the file states."""
    if not old or old == new:
        return
    graph = model.graph
    for info in [*graph.input, *graph.output, *graph.value_info]:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param == old:
                dim.dim_param = new


def make(folder: pathlib.Path, row: Row, exporter: str) -> None:
    """The files of one row by one exporter."""
    generator = torch.Generator().manual_seed(14)
    sets, axes, dims = INPUTS[row.inputs](row, generator)
    module = Outer(build(row), list(sets[0]))
    stem = folder / f"{row.name}-{exporter}"
    kept: dict[str, np.ndarray] = {}
    with torch.no_grad():
        for i, arrays in enumerate(sets):
            results = module(*arrays.values())
            kept |= {f"{i}/in/{name}": value.numpy() for name, value in arrays.items()}
            kept |= {f"{i}/out/y{o}": value.numpy() for o, value in enumerate(results)}
        outputs = [f"y{o}" for o in range(len(results))]
        model = exported(module, sets[0], axes, exporter, outputs)
    del model.metadata_props[:]
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    stem.with_suffix(".onnx").write_bytes(model.SerializeToString())
    np.savez_compressed(stem.with_suffix(".npz"), **kept)
    stem.with_suffix(".json").write_text(json.dumps({"dims": dims}))


def main() -> int:
    """The command."""
    folder, rest = pathlib.Path(sys.argv[1]), sys.argv[2:]
    if rest == ["--list"]:
        print("\n".join(row.name for row in ROWS))
        return 0
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    name, exporter = rest
    row = next(row for row in ROWS if row.name == name)
    try:
        make(folder, row, exporter)
    except Exception as error:
        # Reports anything that torch cannot do.
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        (folder / f"{name}-{exporter}.json").write_text(json.dumps({"not_exported": words}))
        print(f"{name} {exporter}: {words}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
