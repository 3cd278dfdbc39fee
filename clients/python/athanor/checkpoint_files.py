"""The files of a language model's checkpoint that are uploaded.

    checkpoint_files("folder") == {"config.json": pathlib.Path("folder/config.json"), ...}
"""

from __future__ import annotations

import json
import os
import pathlib

from athanor.errors import InvalidArgument
from athanor.onnx_files import is_inside

_CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
# The server takes these texts, *.tiktoken and *.safetensors, and refuses others by name
# (server/models/checkpoint_upload.cc).
_TEXTS = (_CONFIG, "generation_config.json", "tokenizer.json", "tokenizer.model",
          "tekken.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
          "chat_template.jinja", "vocab.txt", "modules.json", "sentence_bert_config.json",
          "config_sentence_transformers.json")
_MODULES = "modules.json"
# Files of each module that modules.json names in a folder of its own.
_OF_A_MODULE = (_CONFIG, "model.safetensors")


def _shards(index: pathlib.Path) -> list[str]:
    try:
        names = set(json.loads(index.read_bytes())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"{index}: no index of shards: {error!r}") from error
    for name in names:
        if (not isinstance(name, str) or name in ("", ".", "..")
                or any(mark in name for mark in "/\\\0")):
            raise InvalidArgument(f"{index}: {name!r} is no name of a file beside it")
    return sorted(names)


def _modules(modules: pathlib.Path) -> list[str]:
    """Returns the files of the modules of sentence-transformers that have folders of their own."""
    try:
        paths = [module["path"] for module in json.loads(modules.read_bytes())]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"{modules}: no list of modules: {error!r}") from error
    for path in paths:
        if not isinstance(path, str) or path in (".", "..") or any(m in path for m in "/\\\0"):
            raise InvalidArgument(f"{modules}: {path!r} is no name of a folder beside it")
    return [f"{path}/{name}" for path in dict.fromkeys(paths) if path for name in _OF_A_MODULE
            if (modules.parent / path / name).is_file()]


def _weights(folder: pathlib.Path) -> list[str]:
    if (folder / "model.safetensors").is_file():
        return ["model.safetensors"]
    if (folder / _INDEX).is_file():
        return [_INDEX, *_shards(folder / _INDEX)]
    found = sorted(path.name for path in folder.glob("*.safetensors")
                   if not path.name.startswith("consolidated"))  # these repeat the others
    if not found:
        raise InvalidArgument(f"{folder}: no .safetensors file; weights in other forms (.bin, .pt) "
                              "are not taken")
    return found


def checkpoint_files(path: str | os.PathLike[str]) -> dict[str, pathlib.Path]:
    """Returns the files to send, by name, of a folder with a ``config.json`` or of a GGUF file.

    Raises
    ------
    InvalidArgument
        If the folder has no weights, or a file in it is a link out of it. If ``config.json`` itself
        is a link, as in caches of model hubs, others may link to its target's folder.
    FileNotFoundError, PermissionError
        If a file is missing or unreadable.
    """
    path = pathlib.Path(path)
    if not path.is_dir():
        files = {path.name: path}
    else:
        names = [name for name in _TEXTS if name == _CONFIG or (path / name).is_file()]
        names += sorted(file.name for file in path.glob("*.tiktoken"))
        if _MODULES in names:
            names += _modules(path / _MODULES)
        files = {name: path / name for name in names + _weights(path)}
    for name, file in files.items():
        with open(file, "rb"):  # an error raised while gRPC iterates would arrive as UNKNOWN
            pass
        if path.is_dir() and not is_inside(file, path / _CONFIG):
            raise InvalidArgument(f"{path}: its file {name!r} is a link out of the folder")
    return files
