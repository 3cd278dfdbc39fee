"""The tiny decoder of `tests/tokens/testdata/llama` as a checkpoint that talks: with a tokenizer, a
chat template, and a context long enough that there is time to stop an answer.

    tiny_decoder.write(folder)
    client.upload(folder, name="tiny", budget="0").wait("baseline")
"""

from __future__ import annotations

import json
import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/tokens/testdata/llama"
# A token is a character: 0 is a space, 1 and 2 begin and end, 3 to 47 are a to z and A to S.
CHARACTERS = [" ", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRS"]
LONGEST = 1 << 16  # tokens of a prompt and its answer
# Its messages, one behind the other, behind the first token.
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"


def tokenizer() -> dict:
    """A tokenizer.json that splits a text into characters and puts <s> ahead."""
    vocabulary = {character.replace(" ", "Ġ"): at for at, character in enumerate(CHARACTERS)}
    added = [{"id": at, "content": CHARACTERS[at], "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True} for at in (1, 2)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            "post_processor": {
                "type": "TemplateProcessing", "pair": [],
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                           {"Sequence": {"id": "A", "type_id": 0}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}


def write(folder: pathlib.Path, longest: int = LONGEST) -> None:
    """Writes the checkpoint into a folder that is there."""
    for path in DATA.iterdir():
        if path.name != "golden.json" and path.suffix != ".gguf":
            shutil.copy(path, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": longest}))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}))
