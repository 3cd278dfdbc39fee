"""Tokenizers' files and templates that are changed at random: read or refused, never worse.

A reader ends with a refusal of a right code, or reads a tokenizer that encodes and decodes texts; a
template ends with parts or with an error of its own. Nothing crashes or hangs, and no letter that a
user wrote becomes trusted. `ATHANOR_CHANGED_FILES` says how many of each kind; 150.
"""

from __future__ import annotations

import copy
import json
import os
import pathlib
import random
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.tokens import jinja_oracle, oracle

COUNT = int(os.environ.get("ATHANOR_CHANGED_FILES", "150"))
CODES = ("INVALID_ARGUMENT", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED")
TEXTS = ["", "Ab é zo Zo [CLS]<s> 中x", "aab\u0301\u0323  \n_a<0x41>", "xx " * 50, "a" * 3000,
         "\u0301\u0323" * 1000, "( ) .,!?" * 20, "\x00\ufffd\u200b"]


def added(id_: int, content: str, special: bool) -> dict:
    return {"id": id_, "content": content, "special": special, "normalized": not special}


# Small files that together have each type that is read.
FILES: list[dict] = [
    {"added_tokens": [added(1, "[CLS]", True), added(5, "Zo", False)],
     "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                    "strip_accents": None, "lowercase": True},
     "pre_tokenizer": {"type": "BertPreTokenizer"},
     "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
     "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
     "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
               "max_input_chars_per_word": 4,
               "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "##b": 4}}},
    {"added_tokens": [added(4, "<s>", True)],
     "normalizer": {"type": "Sequence", "normalizers": [
         {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "x+"}, "content": "a"},
         {"type": "Prepend", "prepend": "a"}, {"type": "Lowercase"}]},
     "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
         {"type": "Split", "pattern": {"Regex": "\\s+|b"}, "behavior": "MergedWithNext",
          "invert": False},
         {"type": "Digits", "individual_digits": True}, {"type": "Whitespace"},
         {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]},
     "post_processor": {
         "type": "TemplateProcessing", "pair": [],
         "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}}],
         "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
     "decoder": {"type": "ByteLevel"},
     "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "aa": 3}, "merges": ["a a"]}},
    {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "StripAccents"}, {"type": "Strip", "strip_left": True, "strip_right": False}]},
     "pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first",
                       "split": True},
     "decoder": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"},
     "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": True,
               "vocab": [["<unk>", 0], ["_a", -2], ["b", -3], ["_", -3], ["<0x41>", -9]]}},
    {"pre_tokenizer": {"type": "Punctuation", "behavior": "Contiguous"},
     "decoder": {"type": "Sequence", "decoders": [
         {"type": "Replace", "pattern": {"String": "_"}, "content": " "},
         {"type": "ByteFallback"}, {"type": "Fuse"},
         {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
     "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
               "vocab": {"<unk>": 0, "<0x61>": 1, "_": 2, "b": 3, "bb": 4},
               "merges": [["b", "b"]]}},
]
VALUES: list[Any] = [None, True, False, 0, 1, -1, 2**31, 2**63, 2**64 - 1, 1e300, -1.5, "", "a",
                     "##", "\u0000", "é\u0301", "x" * 5000, [], {}, "(a*)*b", "(?:a|aa)+$", "[",
                     "\\p{L}", "a{0,65535}", "(?=x)*", "\ud800", "NFC", "WordPiece", "Sequence",
                     "BPE", "Unigram", "ByteLevel"]
Path = tuple[str | int, ...]


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yields the places of all values inside one."""
    items = (value.items() if isinstance(value, dict) else
             enumerate(value) if isinstance(value, list) else ())
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def changed_file(rng: random.Random) -> str:
    """Returns a file with one to three changes: values gone, replaced, doubled or renamed."""
    file = copy.deepcopy(rng.choice(FILES))
    for _ in range(rng.choice((1, 1, 2, 3))):
        path = rng.choice(list(places(file)) or [("model",)])
        parent, key = at(file, path[:-1]), path[-1]
        other = rng.choice([file, *FILES])
        value = at(other, rng.choice(list(places(other)) or [()]))
        kind = rng.randrange(5)
        if kind == 0 and key in (parent if isinstance(parent, dict) else range(len(parent))):
            del parent[key]
        elif kind == 1:
            parent[key] = copy.deepcopy(rng.choice(VALUES))
        elif kind == 2 and isinstance(parent, dict):
            parent[rng.choice(["shiny", "type", f"{key}x"])] = copy.deepcopy(value)
        elif kind == 3 and isinstance(parent, list):
            parent.append(copy.deepcopy(value))
        else:
            parent[key] = copy.deepcopy(value)
    text = json.dumps(file)
    if rng.random() < 0.1:
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice("{}[]\",:\\0a") + text[place + rng.randrange(3):]
    return text


def test_changed_tokenizers(tmp_path: pathlib.Path):
    rng = random.Random(1)
    path = tmp_path / "tokenizer.json"
    read = 0
    for _ in range(COUNT):
        path.write_text(changed_file(rng))
        flags = rng.choice([0, oracle.TRUSTED, oracle.TRUSTED | oracle.AROUND])
        try:
            answers = oracle.encode("json", path, TEXTS, flags)
        except ValueError as refusal:
            assert str(refusal).startswith(CODES), (refusal, path.read_text())
            continue
        for ids, text in answers:
            assert ids is not None or text.startswith(CODES), (text, path.read_text())
        read += 1
    assert read > COUNT / 20


# Mixed with each other: statements, expressions, and what they are made of.
SNIPPETS = ["{{ ", " }}", "{% ", " %}", "{%- ", " -%}", "{# ", " #}", "if ", "endif", "else",
            "for m in messages ", "endfor", "set x = ", "macro f(a, b=1) ", "endmacro", "f(1)",
            "messages", "messages[0].content", "m.role", " | upper", " | trim", " | join(', ')",
            " | tojson", " | list", " | replace('a', 'b')", " | length", ".split(',')", "[::-1]",
            "[1:", "]", "(", ")", "'a'", "\"b\"", "1", "2.5", "none", "true", "x", " ~ ", " + ",
            " * ", "**", " in ", " is defined", " is string", "not ", "and ", "namespace(y=1)",
            "range(9)", "range(10**9)", "loop.index", "raise_exception('no')", "strftime_now('%Y')",
            "\n", " ", "text <|x|>", "é", "x * 10**9", "'a' * 10**9", "recursive ", "loop(m)",
            "filter upper", "endfilter", "call f()", "endcall", "continue", "break", "%}{{",
            "caller()"]


def changed_template(rng: random.Random, sources: list[str]) -> str:
    """Returns a template with runs exchanged, dropped, doubled or put in."""
    source = rng.choice(sources)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        begin = rng.randrange(len(source) + 1)
        end = min(len(source), begin + rng.choice((0, 0, 1, 3, 10)))
        other = rng.choice(sources)
        place = rng.randrange(len(other))
        put = rng.choice([lambda: "", lambda: rng.choice(SNIPPETS),
                          lambda other=other, place=place: other[place:place + 20],
                          lambda: "".join(rng.choices(SNIPPETS, k=6))])()
        source = source[:begin] + put + source[end:]
    return source


def test_changed_templates():
    """No template shows a user's letters as the authors' own."""
    rng = random.Random(2)
    folder = pathlib.Path(__file__).parent / "templates"
    sources = [path.read_text() for path in sorted(folder.glob("*.jinja"))]
    mark = "\u2e18"  # is in no template
    chat = [{"role": "user", "content": f"{mark}a, b{mark}"},
            {"role": "assistant", "content": f"é{mark} x"}]
    asked = [{"template": changed_template(rng, sources), "model": {"bos_token": "<s>"},
              "request": {"messages": chat, "add_generation_prompt": True, "tools": None}}
             for _ in range(4 * COUNT)]
    lines = "".join(json.dumps(one) + "\n" for one in asked)
    done = subprocess.run([str(jinja_oracle.TOOL)], input=lines, capture_output=True, text=True,
                          check=True, timeout=600)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(answers) == len(asked)
    rendered = 0
    for one, answer in zip(asked, answers, strict=True):
        if "code" in answer:
            assert answer["code"] in CODES, (answer, one["template"])
            assert answer["error"], one["template"]
            continue
        rendered += 1
        trusted = "".join(text for text, by_authors in answer["parts"] if by_authors)
        assert mark not in trusted, one["template"]
    assert rendered > COUNT / 5


@pytest.mark.parametrize("source", [
    "{% for a in range(10**9) %}{% endfor %}", "{{ 'a' * 10**9 }}", "{{ [1] * 10**9 }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{% set x = namespace(a='ab') %}{% for i in range(99) %}{% set x.a = x.a ~ x.a %}{% endfor %}",
])
def test_endless_templates_are_refused(source: str):
    line = json.dumps({"template": source, "model": {}, "request": {"messages": []}}) + "\n"
    done = subprocess.run([str(jinja_oracle.TOOL)], input=line, capture_output=True, text=True,
                          check=True, timeout=120)
    assert json.loads(done.stdout)["code"] in CODES
