"""Runs tests/tokens/text_tool, and makes texts to compare tokenizers on."""

from __future__ import annotations

import pathlib
import random
import struct
import subprocess
import sys
import unicodedata
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOL = ROOT / "bazel-bin/tests/tokens/text_tool"
TRUSTED, AROUND = 1, 2
REFUSED = 0xFFFFFFFF


def _run(kind: str, file: pathlib.Path, texts: Sequence[str | bytes], flags: int,
         config: pathlib.Path | str | None) -> subprocess.CompletedProcess[bytes]:
    inputs = []
    for text in texts:
        data = text if isinstance(text, bytes) else text.encode()
        inputs.append(struct.pack("<IB", len(data), flags) + data)
    command = [str(TOOL), kind, str(file), *([str(config)] if config else [])]
    done = subprocess.run(command, input=b"".join(inputs), capture_output=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr.decode())
    return done


def seconds(kind: str, file: pathlib.Path, texts: Sequence[str], flags: int = 0,
            config: pathlib.Path | str | None = None) -> float:
    """Returns the processor time of encoding the texts, without reading the file."""
    return float(_run(kind, file, texts, flags, config).stderr)


def encode(kind: str, file: pathlib.Path, texts: Sequence[str | bytes], flags: int = 0,
           config: pathlib.Path | str | None = None) -> list[tuple[list[int] | None, str]]:
    """Returns of each text the ids and what they decode to; None and a message if it is refused."""
    done = _run(kind, file, texts, flags, config)
    out, at, results = done.stdout, 0, []

    def number() -> int:
        nonlocal at
        at += 4
        return struct.unpack_from("<I", out, at - 4)[0]

    for _ in texts:
        count = number()
        ids = None
        if count != REFUSED:
            ids = list(struct.unpack_from(f"<{count}i", out, at))
            at += 4 * count
        size = number()
        results.append((ids, out[at:at + size].decode()))
        at += size
    assert at == len(out)
    return results


def tree_texts(most: int) -> list[str]:
    """The tree's own sources, documents first, up to `most` bytes."""
    texts, total = [], 0
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True,
                           text=True).stdout.split()
    names.sort(key=lambda name: (not name.endswith((".md", ".py")), name))
    for name in names:
        if not name.endswith((".md", ".py", ".cc", ".h", ".proto", "BUILD")):
            continue
        text = (ROOT / name).read_text(errors="replace")
        texts.append(text)
        total += len(text)
        if total > most:
            break
    return texts


# Scripts, spaces, controls, combining marks, emoji and what splits words.
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFG", "0123456789", " ", "  \t\n\r", "'sSdDmMtT",
    "'ll're've",
    ".,;:!?()[]{}<>|/\\\"#$%&*+-=@^_`~", "äöüßéèñçåøæœ", "абвгдежзиклмн", "αβγδεζηθ",
    "中文字符日本語の漢字", "かなカナ한국어조선", "السلام عليكم", "हिन्दी देवनागरी", "ไทยภาษา",
    "\u0300\u0301\u0308\u0327\u20dd",
    "\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u180e\u200b",
    "\x00\x01\x07\x0b\x0c\x1f\x7f\x85\u200c\u200d\ufeff", "😀👩‍👩‍👧🏽🇩🇪✈️",
    "½²Ⅷ①٣४", "ſKİıﬁǅ", "▁", "𝒜𝔅𠀀",
    "\U0010ffff\ue000\ufffd",
]


def random_texts(count: int, seed: int, words: Sequence[str] = ()) -> list[str]:
    """Mixes of a few alphabets each, with `words` strewn in."""
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        chosen = rng.sample(ALPHABETS, rng.randint(1, 5))
        pieces = []
        for _ in range(rng.choice((0, 1, 2, 5, 20, 60))):
            if words and rng.random() < 0.15:
                pieces.append(rng.choice(words))
            alphabet = rng.choice(chosen)
            pieces.append("".join(rng.choice(alphabet) for _ in range(rng.choice((1, 1, 2, 3, 8)))))
            if rng.random() < 0.3:
                pieces.append(" ")
        texts.append("".join(pieces))
    return texts


def code_points() -> list[str]:
    """Every code point that Python's tables assign, between letters and spaces."""
    return [f"a{chr(c)}b {chr(c)} 1{chr(c)}{chr(c)}" for c in range(sys.maxunicode + 1)
            if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
