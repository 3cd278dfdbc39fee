"""Compares our tokenizer with the library that owns a vocabulary, by hand, on 10 MB of text.

    python -m venv /tmp/oracle
    /tmp/oracle/bin/pip install --no-deps tokenizers==0.23.3 sentencepiece==0.2.3 gguf==0.19.0 \
        tiktoken regex requests protobuf numpy pyyaml
    bazel build //tests/tokens:text_tool
    /tmp/oracle/bin/python tests/tokens/make/vocabularies.py [--speed] [--mb 10] FILE...

Each text is encoded and decoded: 10 MB of many scripts, code, markup, numbers, white space, emoji
and marks, and every code point that Python's tables assign, alone and next to others. Of each file
one line says how many texts differ, or why it is refused. The files are others', so they are not
committed; README.md lists the packages that have them. DeepSeek LLM's vocabulary wants llama.cpp's
source in its place beside it.

| file | library |
|---|---|
| tokenizer.json | tokenizers |
| a .model | sentencepiece |
| a list of ranks, tekken's json | tiktoken |
| a GGUF's vocabulary | tokenizers with the steps of the model's own file, or sentencepiece |
"""

from __future__ import annotations

import argparse
import base64
import collections
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gguf
import sentencepiece
import tiktoken
import tokenizers
from sentencepiece import sentencepiece_model_pb2

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import oracle

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
          r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
_ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _ENDS,
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _ENDS,
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
# The expression, the normaliser and the model_type of a list of ranks, by what its path has; the
# first counts.
RANKS = {"llama3": (LLAMA3, None, "llama"), "llama4": (O200K, None, "llama4"),
         "qwen3_6": (QWEN35, "NFC", "qwen3_5"), "qwen": (QWEN2, "NFC", "qwen2")}


def _split(pattern: str, behavior: str = "isolated") -> Any:
    return tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), behavior)


def _bytes(words: bool) -> Any:
    return tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words)


def _digits(each: bool) -> Any:
    return tokenizers.pre_tokenizers.Digits(individual_digits=each)


# The pre-tokenizers of the models' own files, by tokenizer.ggml.pre.
STEPS: dict[str, tuple[bool, list[Any]]] = {
    "gpt-2": (False, [_bytes(True)]),
    "mpt": (True, [_bytes(True)]),
    "smollm": (False, [_digits(True), _bytes(True)]),
    "starcoder": (False, [_digits(True), _bytes(True)]),
    "refact": (False, [_digits(True), _bytes(True)]),
    "command-r": (True, [_digits(True), _bytes(True)]),
    "falcon": (False, [tokenizers.pre_tokenizers.Punctuation("contiguous"), _bytes(True),
                       _digits(False), _split("[0-9][0-9][0-9]")]),
    "deepseek-coder": (False, [_split("[\r\n]"), _split(r"\s?\p{L}+"), _split(r"\s?\p{P}+"),
                               _split("[一-龥ࠀ-一가-퟿]+"), _digits(True), _bytes(False)]),
    "llama-bpe": (False, [_split(LLAMA3), _bytes(False)]),
    "qwen2": (True, [_split(QWEN2), _bytes(False)]),
    "qwen35": (True, [_split(QWEN35), _bytes(False)]),
}


def deepseek_llm(source: pathlib.Path) -> list[Any]:
    """Returns the steps of DeepSeek LLM, whose long expression llama.cpp's source has."""
    text = source.read_text()
    begin = text.index("case LLAMA_VOCAB_PRE_TYPE_DEEPSEEK_LLM:\n                regex_exprs")
    letters = re.search(r"\[A-Za-z[^]]+\]", text[begin:]).group()
    return [_split("[\r\n]"), _split(rf"\s?{letters}+"),
            _split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), _split(r"\s+$"), _split("[一-龥ࠀ-一가-퟿]+"),
            _digits(True), _bytes(False)]


def gemma(tokens: dict[str, int], merges: list[tuple[str, ...]]) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(tokenizers.models.BPE(
        tokens, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = tokenizers.decoders.Sequence([
        tokenizers.decoders.Replace("▁", " "), tokenizers.decoders.ByteFallback(),
        tokenizers.decoders.Fuse()])
    return made


def bert(tokens: list[str], types: list[int]) -> tokenizers.Tokenizer:
    """The tokenizer of an uncased model; pieces are written as llama.cpp's converter does."""
    pieces = [token if kind == 3 or (token[0] == "[" and token[-1] == "]") else
              token[1:] if token[0] == "▁" and token != "▁" else "##" + token
              for token, kind in zip(tokens, types, strict=True)]
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(
        {piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    made.add_special_tokens([tokenizers.AddedToken(token, normalized=False)
                             for token, kind in zip(tokens, types, strict=True) if kind == 3])
    return made


class Known(NamedTuple):
    """A vocabulary as its library reads it."""

    kind: str  # what text_tool calls it
    file: pathlib.Path  # for text_tool
    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
    words: list[str]  # texts of tokens that are cut out of a text
    flags: int = 0
    without: frozenset[str] = frozenset()  # characters that are taken out of texts
    config: str = ""  # for text_tool


def bert_form(c: str) -> str:
    """Returns what BertNormalizer makes of a character by Python's tables, without spaces."""
    if unicodedata.category(c) in ("Cc", "Cf") or c == "\ufffd" or c.isspace():
        return ""
    return "".join(part for part in unicodedata.normalize("NFD", c)
                   if unicodedata.category(part) != "Mn")


def older_than(made: tokenizers.Tokenizer) -> frozenset[str]:
    """Returns the characters that the library's own tables, of Unicode 8.0 to 10.0, do not know."""
    file = json.loads(made.to_str())
    found = set()
    points = [chr(code) for code in range(sys.maxunicode + 1)
              if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        if f'"{form}"' in json.dumps(file["normalizer"]):
            normal = getattr(tokenizers.normalizers, form)().normalize_str
            found |= {c for c in points for text in (c, f"a\u0345{c}", f"a{c}\u0334")
                      if normal(text) != unicodedata.normalize(form, text)}
    if "BertNormalizer" in json.dumps(file["normalizer"]):
        normal = tokenizers.normalizers.BertNormalizer(
            strip_accents=True, lowercase=False).normalize_str
        found |= {c for c in points if c > "\x7f" and normal(c).strip() != bert_form(c)}
    if '"Punctuation"' in json.dumps(file["pre_tokenizer"]) or "BertPre" in json.dumps(file):
        pieces = tokenizers.pre_tokenizers.Punctuation().pre_tokenize_str
        found |= {c for c in points if c > "\x7f"
                  and (unicodedata.category(c)[0] == "P") != (len(pieces(c + "a")) == 2)}
    return frozenset(found)


def of_tokenizers(made: tokenizers.Tokenizer, kind: str, file: pathlib.Path) -> Known:
    words = [token.content for token in made.get_added_tokens_decoder().values()]
    return Known(kind, file, lambda text: made.encode(text, add_special_tokens=False).ids,
                 made.decode, words, oracle.TRUSTED, older_than(made))


def of_sentencepiece(model: bytes, kind: str, file: pathlib.Path) -> Known:
    made = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [made.id_to_piece(i) for i in range(len(made))]
    words = [piece for i, piece in enumerate(pieces) if not made.is_byte(i)
             and (made.is_control(i) or piece.startswith(("[", "<")) and len(piece) > 3)]

    def decode(ids: list[int]) -> str:  # we leave out what is unknown
        return made.decode([token for token in ids if token != made.unk_id()])

    return Known(kind, file, made.encode, decode, words, without=frozenset("\0"))


def of_ranks(ranks: dict[bytes, int], pattern: str, form: str | None, first: int, kind: str,
             file: pathlib.Path, model_type: str = "") -> Known:
    made = tiktoken.Encoding(file.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def encode(text: str) -> list[int]:
        text = unicodedata.normalize(form, text) if form else text
        return [first + rank for rank in made.encode_ordinary(text)]

    def decode(ids: list[int]) -> str:
        return made.decode([token - first for token in ids])

    return Known(kind, file, encode, decode, ["<|im_start|>"], config=model_type)


def of_gguf(file: pathlib.Path) -> Known:
    fields = {name.removeprefix("tokenizer.ggml."): field
              for name, field in gguf.GGUFReader(file).fields.items()}
    tokens = fields["tokens"].contents()
    types = fields["token_type"].contents()
    model = fields["model"].contents()
    if model in ("llama", "t5"):
        proto = sentencepiece_model_pb2.ModelProto()
        unk = fields["unknown_token_id"].contents() if "unknown_token_id" in fields else -1
        for i, (token, score, kind) in enumerate(
                zip(tokens, fields["scores"].contents(), types, strict=True)):
            fills = kind == 2 and unk not in (-1, i)  # the library knows one unknown token
            proto.pieces.add(piece=token, score=score, type=3 if fills else kind)
        trainer = proto.trainer_spec
        trainer.model_type = trainer.BPE if model == "llama" else trainer.UNIGRAM
        trainer.byte_fallback = 6 in types
        normalizer = proto.normalizer_spec
        normalizer.name = "identity"
        normalizer.remove_extra_whitespaces = (
            "remove_extra_whitespaces" in fields and fields["remove_extra_whitespaces"].contents())
        if "precompiled_charsmap" in fields:
            normalizer.precompiled_charsmap = bytes(
                byte & 255 for byte in fields["precompiled_charsmap"].contents())
        normalizer.add_dummy_prefix = "add_space_prefix" not in fields or bool(
            fields["add_space_prefix"].contents())
        return of_sentencepiece(proto.SerializeToString(), "gguf", file)
    if model == "bert":
        return of_tokenizers(bert(tokens, types), "gguf", file)
    pre = fields["pre"].contents() if "pre" in fields else ""
    steps = dict(STEPS)
    if pre == "deepseek-llm":
        steps[pre] = (False, deepseek_llm(file.parent.parent / "src/llama-vocab.cpp"))
    if model != "gemma4" and (model != "gpt2" or pre not in steps):
        def unknown(_: Any) -> Any:
            raise ValueError(f"this script has no steps for {model} {pre!r}")

        return Known("gguf", file, unknown, unknown, [])
    ids = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in fields["merges"].contents()]
    if model == "gemma4":
        made = gemma(ids, merges)
    else:
        form, pretokenizers = steps[pre]
        made = tokenizers.Tokenizer(tokenizers.models.BPE(ids, merges,
                                                          ignore_merges=pre == "llama-bpe"))
        if form:
            made.normalizer = tokenizers.normalizers.NFC()
        made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(pretokenizers)
        made.decoder = tokenizers.decoders.ByteLevel()
    added = [tokenizers.AddedToken(token, normalized=False, special=kind != 4)
             for token, kind in zip(tokens, types, strict=True) if kind in (2, 3, 4)]
    made.add_special_tokens([token for token in added if token.special])
    made.add_tokens([token for token in added if not token.special])
    return of_tokenizers(made, "gguf", file)


def _ranks(file: pathlib.Path) -> dict[bytes, int] | None:
    try:
        pairs = [line.split() for line in file.read_bytes().splitlines() if line]
        return {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
    except ValueError:
        return None


def known(file: pathlib.Path) -> Known:
    """Returns a vocabulary with the library that owns it."""
    if file.read_bytes()[:4] == b"GGUF":
        return of_gguf(file)
    if file.suffix == ".json":
        text = file.read_text()
        if '"pattern"' in text[:2000] and '"config"' in text[:2000]:
            config = json.loads(text)
            first = config["config"]["default_num_special_tokens"]
            count = config["config"]["default_vocab_size"] - first
            ranks = {base64.b64decode(token["token_bytes"]): token["rank"]
                     for token in config["vocab"][:count]}
            return of_ranks(ranks, config["config"]["pattern"], None, first, "tekken", file)
        made = tokenizers.Tokenizer.from_file(str(file))
        made.no_truncation()
        made.no_padding()
        return of_tokenizers(made, "json", file)
    ranks = _ranks(file)
    if ranks is None:
        return of_sentencepiece(file.read_bytes(), "model", file)
    name = next(name for name in RANKS if name in f"{file.parent.name}/{file.name}")
    pattern, form, model_type = RANKS[name]
    return of_ranks(ranks, pattern, form, 0, "ranks", file, model_type)


def _letters() -> dict[str, list[str]]:
    """The letters, marks and digits that are assigned, by the first word of their names."""
    scripts: dict[str, list[str]] = collections.defaultdict(list)
    for code in range(0x21, sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character)[0] in "LMN":
            scripts[unicodedata.name(character, "NONE").split()[0]].append(character)
    return scripts


EMOJI = ["😀", "👩‍👩‍👧‍👦", "👍🏽", "🇩🇪", "🇩", "1️⃣", "✈️", "❤️‍🔥",
         "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🧑🏿‍🚀", "\ufe0f", "\u200d", "☎︎"]
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\r", "\u00a0", "\u3000", "\u2028", "\x0b", "\x0c",
          "\x85", "\u200b", "\u1680", "\ufeff"]
MARKS = [chr(code) for code in range(0x300, 0x370)] + ["\u0591", "\u064b", "\u093c", "\u0e31",
                                                       "\u20dd", "\u3099", "\U0001d165"]


def _markup(rng: random.Random, word: Callable[[], str]) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        return f"<{word()} class=\"{word()}\">{word()}&amp;{word()}</{word()}>\n"
    if kind == 1:
        return json.dumps({word(): [word(), rng.random(), None]}, indent=rng.choice([None, 2]),
                          ensure_ascii=rng.random() < 0.5)
    if kind == 2:
        return f"$$\\frac{{{word()}_{{{rng.randrange(99)}}}}}{{\\sqrt{{{word()}}}}}$$\n"
    if kind == 3:
        return f"| {word()} | **{word()}** | `{word()}` |\n|---|:-:|---|\n"
    if kind == 4:
        return f"https://{word()}.example/{word()}?q={word()}&n={rng.getrandbits(40)}#{word()} "
    return f"    if ({word()} != {word()}[{rng.randrange(99)}]) {{ return 'it''s'; }}  // don't\r\n"


def _pieces(rng: random.Random, words: list[str]) -> Iterator[str]:
    """Yields pieces of a text without end."""
    scripts = [letters for letters in _letters().values() if len(letters) > 5]
    usual = [letters for letters in scripts if len(letters) > 40]

    def word() -> str:
        letters = rng.choice(usual if rng.random() < 0.5 else scripts)
        return "".join(rng.choices(letters[:rng.choice((26, 60, len(letters)))],
                                   k=rng.choice((1, 2, 4, 7, 12))))

    def number() -> str:
        return rng.choice([str(rng.getrandbits(rng.choice((3, 10, 40, 200)))), f"{rng.random()}",
                           f"{rng.getrandbits(64):x}", f"1{rng.choice(',._ ')}000",
                           rng.choice("²½Ⅷ①٣४๓߉") * rng.randrange(1, 5)])

    def marked() -> str:
        return "".join(letter + "".join(rng.choices(MARKS, k=rng.choice((0, 1, 1, 2, 9))))
                       for letter in word())

    def latin() -> str:
        return " ".join("".join(rng.choices("etaoinshrdlucmfwypvbgkETAS'-", k=rng.randrange(1, 9)))
                        for _ in range(rng.randrange(1, 30)))

    def space() -> str:
        return rng.choice(SPACES) * rng.choice((1, 1, 2, 3, 8, 40, 300))

    def form() -> str:
        return unicodedata.normalize(rng.choice(["NFC", "NFD", "NFKC", "NFKD"]), word() + marked())

    def special() -> str:
        chosen = rng.choice(words) if words else "<s>"
        return chosen[rng.choice((0, 0, 1)):rng.choice((len(chosen), len(chosen), -1))]

    def sign() -> str:
        return "".join(rng.choices(".,;:!?()[]{}<>|/\\\"'#$%&*+-=@^_`~«»“”…—、。！？·",
                                   k=rng.choice((1, 1, 2, 3, 30))))

    makers = [word, word, word, number, marked, latin, latin, latin, space, space, form, special,
              sign, sign, lambda: _markup(rng, word), lambda: "".join(rng.choices(EMOJI, k=3))]
    while True:
        yield rng.choice(makers)()
        if rng.random() < 0.4:
            yield " "


def is_known(text: str) -> bool:
    """Whether Python's tables assign all of the text."""
    return all(unicodedata.category(c) not in ("Cn", "Cs") for c in text)


def mixed(total: int, words: list[str], seed: int) -> list[str]:
    """Returns `total` bytes of texts: with `words` strewn in, or else a fifth is the tree's."""
    texts = [] if words else oracle.tree_texts(total // 5)
    size = sum(len(text.encode()) for text in texts)
    rng = random.Random(seed)
    pieces = _pieces(rng, words)
    while size < total:
        most = rng.choice((20, 200, 2000, 30_000))
        text = ""
        while len(text) < most:
            text += next(pieces)
        if is_known(text):
            texts.append(text)
            size += len(text.encode())
    return texts


def points() -> list[str]:
    """Returns every code point that is assigned: alone, and in its contexts."""
    texts = []
    for code in range(sys.maxunicode + 1):
        c = chr(code)
        if unicodedata.category(c) not in ("Cn", "Cs", "Co"):
            texts += [c, f"a{c}b {c} 1{c}{c}", f"  {c}\n{c}'s.{c}{c}\u0301é{c}"]
    return texts


def known_of(vocabulary: Known, texts: list[str]) -> list[str]:
    """Returns the texts without characters that the library does not know, or that end it."""
    table = dict.fromkeys(map(ord, vocabulary.without))
    return [text.translate(table) for text in texts] if table else texts


def compare(vocabulary: Known, texts: list[str], show: int) -> str:
    """Returns how many texts and bytes were compared, and what differs."""
    texts = mixed(500_000, vocabulary.words, 3) + texts
    texts = known_of(vocabulary, texts)
    wrong: list[tuple[str, Any, Any]] = []
    for text, (ids, decoded) in zip(texts, oracle.encode(vocabulary.kind, vocabulary.file, texts,
                                                         vocabulary.flags, vocabulary.config),
                                          strict=True):
        right = vocabulary.encode(text)
        if ids != right:
            at = len(os.path.commonprefix([ids or [], right]))
            wrong.append((text, decoded if ids is None else ids[at:at + 6], right[at:at + 6]))
        elif decoded != (text_of := vocabulary.decode(right)):
            at = len(os.path.commonprefix([decoded, text_of]))
            wrong.append((text, decoded[at:at + 40], text_of[at:at + 40]))
    for text, ours, theirs in sorted(wrong, key=lambda item: len(item[0]))[:show]:
        print(f"    {text[:60]!r} ({len(text)}): ours {ours!r}, theirs {theirs!r}")
    size = sum(len(text.encode()) for text in texts)
    return f"{len(texts)} texts, {size} bytes: {len(wrong)} differ" + (
        f"; {len(vocabulary.without)} characters taken out" * bool(vocabulary.without))


def speed(vocabulary: Known, rounds: int) -> str:
    """Returns by how much we are faster on one thread: rounds in turns, and their spread."""
    texts = {"tree": oracle.tree_texts(1_000_000), "mixed": mixed(1_000_000, vocabulary.words, 2)}
    found = []
    for name, some in texts.items():
        some = known_of(vocabulary, some)
        ratios = []
        for _ in range(rounds):
            start = time.process_time()
            for text in some:
                vocabulary.encode(text)
            theirs = time.process_time() - start
            ratios.append(theirs / oracle.seconds(vocabulary.kind, vocabulary.file, some,
                                                  vocabulary.flags, vocabulary.config))
        found.append(f"{name} {statistics.median(ratios):.1f} x "
                     f"({min(ratios):.1f} to {max(ratios):.1f})")
    return "; ".join(found)


def main() -> None:
    """Compares, or measures, each file of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--mb", type=int, default=10, help="Mixed text for each, in MB; 10")
    parser.add_argument("--show", type=int, default=3, help="Differences to print; 3")
    parser.add_argument("--speed", action="store_true", help="Measure instead of comparing")
    asked = parser.parse_args()
    texts = [] if asked.speed else mixed(asked.mb * 1_000_000, [], 1) + points()
    for file in asked.files:
        try:
            vocabulary = known(file)
            oracle.encode(vocabulary.kind, vocabulary.file, [], 0, vocabulary.config)
            outcome = (speed(vocabulary, 5) if asked.speed else
                       compare(vocabulary, texts, asked.show))
        except (ValueError, subprocess.CalledProcessError) as error:
            outcome = f"refused: {str(error).strip()[:300]}"
        print(f"{file.parent.name}/{file.name}: {outcome}", flush=True)


if __name__ == "__main__":
    main()
