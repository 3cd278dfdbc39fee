"""Writes testdata/<case>: tiny seeded encoders, and the embeddings that transformers gives of them.

    python tests/tokens/make/encoders.py [case ...]

Run by hand, where torch, transformers, safetensors, tokenizers and gguf are installed. A case's
folder holds the checkpoint as transformers and sentence-transformers write it, `model.gguf` with
the same weights where the case says so (named as llama.cpp's converter does), and `golden.json`:
`ids` (inputs), `embeddings` (one for each, as the folder's files say), `kinds` (the same with other
poolings, not normalised), and `activations` (the first input's mean with each of them). They are
computed in f64, each input by itself. Weights are multiples of 1/128 that bf16 and f16 hold
exactly.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import string
import sys

import gguf
import numpy as np
import safetensors
import safetensors.torch
import tokenizers
import torch
import transformers
import transformers.activations

TESTDATA = pathlib.Path(__file__).parents[1] / "testdata"
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "max_position_embeddings": 40}
# One input in the middle holds a 1, which is RoBERTa's padding.
INPUTS = [[2, 7, 42, 9, 9, 19, 30, 11, 60, 47, 25, 3], [2, 3], [2, 33, 1, 1, 50, 3], [5]]
ACTIVATIONS = ("gelu", "gelu_python", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu",
               "swish", "tanh")
FLAGS = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}
GGUF_NAMES = {
    "embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q", "attention.self.key": "attn_k",
    "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}


@dataclasses.dataclass(frozen=True)
class Case:
    """A checkpoint to make. `pooling` None: no files of sentence-transformers."""

    family: str
    config: dict
    pooling: str | None = "mean"
    normalised: bool = True
    dtype: torch.dtype = torch.float32
    head: bool = False  # saved with a head, whose class prefixes the encoder's tensors
    old: bool = False  # norms and buffers as the first files had them
    gguf: bool = False
    tokenizer: bool = False


CASES = {
    "bert": Case("Bert", {}, gguf=True, tokenizer=True),
    "bert_old": Case("Bert", {"hidden_act": "gelu_new", "type_vocab_size": 3}, "cls", False,
                     torch.bfloat16, head=True, old=True),
    "roberta": Case("Roberta", {"layer_norm_eps": 1e-5, "type_vocab_size": 1, "pad_token_id": 1},
                    None, False, torch.float16),
    "xlm_roberta": Case("XLMRoberta", {"layer_norm_eps": 1e-5, "type_vocab_size": 1,
                                       "pad_token_id": 1, "hidden_act": "relu"}, "cls", head=True),
    "xlm_roberta_gguf": Case("XLMRoberta", {"layer_norm_eps": 1e-5, "type_vocab_size": 1,
                                            "pad_token_id": 1}, "lasttoken", gguf=True),
}


def weights(model: torch.nn.Module, seed: int) -> None:
    """Fills the model from the seed: norms near 1, biases and matrices around 0."""
    draw = np.random.default_rng(seed)
    for name, parameter in sorted(model.named_parameters()):
        norm = name.endswith("LayerNorm.weight")
        spread = 0.25 if norm or name.endswith("bias") else 0.4
        made = draw.normal(1 if norm else 0, spread, tuple(parameter.shape))
        grid = np.clip(np.round(made * 128), -255, 255) / 128
        parameter.data = torch.tensor(grid, dtype=torch.float32)


def pooled(rows: torch.Tensor, kind: str) -> torch.Tensor:
    """One input's rows [T, width] as an embedding."""
    if kind == "cls":
        return rows[0]
    if kind == "lasttoken":
        return rows[-1]
    return rows.mean(0) if kind == "mean" else rows.max(0).values


def short(rows: list[torch.Tensor]) -> list[list[float]]:
    return [[float(f"{x:.9g}") for x in row.tolist()] for row in rows]


def golden(encoder: torch.nn.Module, case: Case) -> dict:
    """The embeddings of the inputs."""
    with torch.no_grad():
        rows = [encoder(torch.tensor([ids])).last_hidden_state[0] for ids in INPUTS]
    own = [pooled(row, case.pooling or "mean") for row in rows]
    if case.normalised:
        own = [torch.nn.functional.normalize(row, dim=0) for row in own]
    kinds = {kind: short([pooled(row, kind) for row in rows]) for kind in FLAGS}
    activations = {}
    for name in ACTIVATIONS:
        for layer in encoder.encoder.layer:
            layer.intermediate.intermediate_act_fn = transformers.activations.ACT2FN[name]
        with torch.no_grad():
            row = encoder(torch.tensor(INPUTS[:1])).last_hidden_state[0].mean(0)
        activations[name] = short([row])
    return {"ids": INPUTS, "embeddings": short(own), "kinds": kinds, "activations": activations}


def write_pooling(folder: pathlib.Path, case: Case) -> None:
    """Writes the files of sentence-transformers."""
    prefix = "sentence_transformers.models."
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    listed = [{"idx": i, "name": str(i), "path": path, "type": prefix + name}
              for i, (path, name) in enumerate(modules[:3 if case.normalised else 2])]
    (folder / "modules.json").write_text(json.dumps(listed, indent=2) + "\n")
    flags = {f"pooling_mode_{flag}": kind == case.pooling for kind, flag in FLAGS.items()}
    config = {"word_embedding_dimension": SIZES["hidden_size"], **flags}
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps(config, indent=2) + "\n")
    length = {"max_seq_length": 32, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(length) + "\n")


def write_tokenizer(folder: pathlib.Path) -> None:
    """Writes a WordPiece of letters: 64 tokens."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.ascii_lowercase,
              *(f"##{letter}" for letter in string.ascii_lowercase), "the", "##ing", "##ed", "##er",
              ",", ".", "?"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    made = tokenizers.BertWordPieceTokenizer(vocabulary)
    made.add_special_tokens(tokens[:5])
    made.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512,
              "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]",
              "unk_token": "[UNK]", "mask_token": "[MASK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def make_old(path: pathlib.Path, positions: int) -> None:
    """Renames norms, and adds a buffer of integers."""
    with safetensors.safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    old = {}
    for name, tensor in tensors.items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        old[name.replace("LayerNorm.bias", "LayerNorm.beta")] = tensor
    old["bert.embeddings.position_ids"] = torch.arange(positions).reshape(1, positions)
    safetensors.torch.save_file(old, path, {"format": "pt"})


def gguf_name(name: str) -> str:
    """`encoder.layer.0.output.dense.bias` -> `blk.0.ffn_down.bias`."""
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("encoder.layer."):
        _, _, layer, stem = stem.split(".", 3)
        return f"blk.{layer}.{GGUF_NAMES[stem]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def write_gguf(path: pathlib.Path, encoder: torch.nn.Module, case: Case) -> None:
    """Writes keys and tensors as llama.cpp's converter does: vectors in f32, matrices in f16."""
    config = encoder.config
    skipped = 0 if case.family == "Bert" else config.pad_token_id + 1
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings - skipped)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    kinds = {"mean": gguf.PoolingType.MEAN, "cls": gguf.PoolingType.CLS,
             "lasttoken": gguf.PoolingType.LAST}
    writer.add_pooling_type(kinds[case.pooling])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    writer.add_token_type_count(config.type_vocab_size)
    for name, tensor in encoder.state_dict().items():
        if name.startswith("pooler."):
            continue
        array = tensor.numpy()
        if "position_embeddings" in name:
            array = array[skipped:]
        vector = array.ndim == 1 or "token_types" in gguf_name(name)
        writer.add_tensor(gguf_name(name), array.astype(np.float32 if vector else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(name: str, case: Case, seed: int) -> None:
    config = getattr(transformers, f"{case.family}Config")(**(SIZES | case.config))
    kind = "ForMaskedLM" if case.head else "Model"
    model = getattr(transformers, case.family + kind)(config).float().eval()
    weights(model, seed)
    model.tie_weights()
    encoder = getattr(model, model.base_model_prefix) if case.head else model
    folder = TESTDATA / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if case.gguf:
        write_gguf(folder / "model.gguf", encoder, case)
    model.to(case.dtype).save_pretrained(folder)
    if case.old:
        make_old(folder / "model.safetensors", config.max_position_embeddings)
    if case.pooling:
        write_pooling(folder, case)
    if case.tokenizer:
        write_tokenizer(folder)
    said = golden(encoder.double(), case)
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in said.pop("embeddings"))
    rest = json.dumps(said, separators=(",", ":"))[:-1]
    (folder / "golden.json").write_text(f'{rest},"embeddings":[\n{rows}\n]}}\n')
    print(f"{name}: {sum(file.stat().st_size for file in folder.rglob('*.*'))} bytes")


def main() -> None:
    for name in sys.argv[1:] or list(CASES):
        make(name, CASES[name], 101 + list(CASES).index(name))


if __name__ == "__main__":
    main()
