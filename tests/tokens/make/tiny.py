"""Writes testdata/<case>: tiny seeded checkpoints, and what transformers answers from them.

    python tests/tokens/make/tiny.py [case ...]

Run by hand, where torch, transformers, safetensors and gguf are installed. A case's folder holds
the checkpoint as transformers writes it, `model.gguf` with the same weights where llama.cpp has
the family (its tensors' names, and Q and K permuted as its converter does), and `golden.json`:
`ids` (a prompt), `logits` (a row for each id), `greedy` (the most likely token, STEPS times), and
`gaps` (by how much its logit exceeds the next one's). Weights are multiples of 1/128 that bf16 and
f16 hold exactly.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import sys
from collections.abc import Iterator

import gguf
import numpy as np
import torch
import transformers

STEPS = 64
PROMPT = [1, 7, 42, 3, 3, 19, 30, 11, 0, 47, 25, 8]
TESTDATA = pathlib.Path(__file__).parents[1] / "testdata"
SIZES = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
         "bos_token_id": 1, "eos_token_id": 2}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
GEMMA = {"head_dim": 16, "pad_token_id": 0, "sliding_window": 8}
CAPS = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 10.0}
# A root of the width that bf16 does not round, and a layer that sees all keys.
GEMMA3 = {"hidden_size": 16, "num_hidden_layers": 7, "query_pre_attn_scalar": 16,
          "rope_parameters": {
              "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
              "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}
MOE = {"head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
NAMES = {  # of GGUF by those of Hugging Face
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps"}
GEMMA_NAMES = {"post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}
OLMO2_NAMES = {"post_attention_layernorm": "post_attention_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}


@dataclasses.dataclass(frozen=True)
class Case:
    """A checkpoint to make: `config` on top of SIZES, `arch` as GGUF calls it ("": no GGUF)."""

    family: str
    config: dict
    arch: str = ""
    dtype: torch.dtype = torch.bfloat16
    shard_bytes: int = 1 << 30


CASES = {
    "llama": Case("Llama", {"rms_norm_eps": 1e-5}, "llama", shard_bytes=20_000),
    "llama3": Case("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True,
                             "head_dim": 16}, "llama", torch.float32),
    "mistral": Case("Mistral", {"sliding_window": 8}, dtype=torch.float16),
    "qwen2": Case("Qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
                            "tie_word_embeddings": True}, "qwen2"),
    "qwen3": Case("Qwen3", {"head_dim": 16}, "qwen3"),
    "qwen2_window": Case("Qwen2", {"use_sliding_window": True, "sliding_window": 8,
                                   "max_window_layers": 1}),
    "phi3": Case("Phi3", {"sliding_window": 8, "pad_token_id": 0}, "phi3"),
    "gemma2": Case("Gemma2", GEMMA | CAPS | {"query_pre_attn_scalar": 16}, "gemma2",
                   torch.float32),
    # GGUF cannot say these; bf16 rounds the root of the width.
    "gemma2_bf16": Case("Gemma2", GEMMA | CAPS | {
        "query_pre_attn_scalar": 6, "tie_word_embeddings": False,
        "layer_types": ["full_attention", "sliding_attention"]}),
    "gemma3": Case("Gemma3", GEMMA | GEMMA3, "gemma3"),
    "olmo2": Case("Olmo2", {"pad_token_id": 0}, "olmo2"),
    "qwen3_moe": Case("Qwen3Moe", MOE | {"norm_topk_prob": True}, "qwen3moe"),
    # GGUF cannot say this.
    "qwen3_moe_sums": Case("Qwen3Moe", MOE, dtype=torch.float16),
}


def weights(model: torch.nn.Module, seed: int) -> None:
    """Fills the model from the seed: norms near 1, biases and matrices around 0."""
    draw = np.random.default_rng(seed)
    for name, parameter in sorted(model.named_parameters()):
        norm = "norm" in name
        offset = type(model).__name__.startswith("Gemma")  # its norms add 1 to their weights
        spread = 0.25 if norm or name.endswith("bias") else 0.4
        made = draw.normal(1 if norm and not offset else 0, spread, tuple(parameter.shape))
        if offset and "embed_tokens" in name:  # else a scaled token repeats itself
            made /= 16
        grid = np.clip(np.round(made * 128), -255, 255) / 128
        parameter.data = torch.tensor(grid, dtype=torch.float32)


def gguf_name(name: str, arch: str) -> str:
    """`model.layers.0.self_attn.q_proj.weight` -> `blk.0.attn_q.weight`."""
    names = NAMES | (GEMMA_NAMES if arch.startswith("gemma") else {})
    names |= OLMO2_NAMES if arch == "olmo2" else {}
    stem, kind = name.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return f"{names[stem]}.{kind}"
    layer, rest = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{names[rest]}.{kind}"


def arrays(model: torch.nn.Module) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the model's tensors; its experts' gates and ups apart, each with ".weight" behind."""
    for name, tensor in model.state_dict().items():
        if name.endswith("experts.gate_up_proj"):
            gate, up = np.split(tensor.numpy(), 2, axis=1)
            yield name.replace("gate_up_proj", "gate_proj.weight"), gate
            yield name.replace("gate_up_proj", "up_proj.weight"), up
        elif name.endswith("experts.down_proj"):
            yield f"{name}.weight", tensor.numpy()
        else:
            yield name, tensor.numpy()


def write_gguf(path: pathlib.Path, model: torch.nn.Module, arch: str) -> None:
    """Writes keys and tensors as llama.cpp's converter does: vectors in f32, matrices in f16."""
    config = model.config
    writer = gguf.GGUFWriter(path, arch)
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    if arch in ("llama", "phi3"):
        writer.add_rope_dimension_count(head)
    if arch in ("phi3", "gemma2", "gemma3"):
        writer.add_sliding_window(config.sliding_window)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if arch == "qwen3moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if head * heads != config.hidden_size:
        writer.add_key_length(head)
        writer.add_value_length(head)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"<{i}>" for i in range(config.vocab_size)])
    writer.add_eos_token_id(config.eos_token_id)
    if rope["rope_type"] == "llama3":
        plain = 10000.0 ** -(torch.arange(0, head, 2).float() / head)
        factors = plain / model.model.rotary_emb.inv_freq
        writer.add_tensor("rope_freqs.weight", factors.numpy().astype(np.float32))
    for name, array in arrays(model):
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if arch == "llama" and ("q_proj" in name or "k_proj" in name):
            rows = heads if "q_proj" in name else kv_heads
            array = array.reshape(rows, 2, head // 2, -1).swapaxes(1, 2).reshape(array.shape)
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            array = array + 1
        writer.add_tensor(gguf_name(name, arch),
                          array.astype(np.float32 if array.ndim == 1 else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def golden(model: torch.nn.Module) -> dict[str, list]:
    """The logits of the prompt, and STEPS tokens behind it, each from all that is before it."""
    ids, gaps = list(PROMPT), []
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
        for _ in range(STEPS):
            top = torch.topk(model(torch.tensor([ids])).logits[0, -1], 2)
            ids.append(int(top.indices[0]))
            gaps.append(round(float(top.values[0] - top.values[1]), 5))
    return {"ids": PROMPT, "greedy": ids[len(PROMPT):], "gaps": gaps,
            "logits": [[float(f"{x:.7g}") for x in row] for row in logits.tolist()]}


def check_gguf(path: pathlib.Path, expected: list[list[float]]) -> None:
    """Raises unless transformers answers the same from the GGUF."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name,
                                                              dtype=torch.float32)
    with torch.no_grad():
        made = model.eval()(torch.tensor([PROMPT])).logits[0].numpy()
    np.testing.assert_allclose(made, np.array(expected), rtol=1e-4, atol=1e-4)


def make(name: str, case: Case, seed: int) -> None:
    kind = "Gemma3TextConfig" if case.family == "Gemma3" else f"{case.family}Config"
    config = getattr(transformers, kind)(**(SIZES | case.config))
    model = getattr(transformers, f"{case.family}ForCausalLM")(config).float().eval()
    weights(model, seed)
    model.tie_weights()
    if case.family.startswith("Gemma"):  # transformers rounds it to the type that it computes in
        scale = model.model.embed_tokens.embed_scale
        scale.copy_(scale.to(case.dtype))
    folder = TESTDATA / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    said = golden(model)
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in said.pop("logits"))
    rest = json.dumps(said, separators=(",", ":"))[:-1]
    (folder / "golden.json").write_text(f'{rest},"logits":[\n{rows}\n]}}\n')
    if case.arch:
        write_gguf(folder / "model.gguf", model, case.arch)
    model.to(case.dtype).save_pretrained(folder, max_shard_size=case.shard_bytes)
    # From a GGUF transformers reads no head size of its own, no rope_freqs, no padding token.
    if case.arch and not {"head_dim", "pad_token_id"} & case.config.keys():
        expected = json.loads((folder / "golden.json").read_text())["logits"]
        check_gguf(folder / "model.gguf", expected)
    print(f"{name}: {min(said['gaps'])} apart, {len(set(said['greedy']))} different tokens")


def main() -> None:
    chosen = sys.argv[1:] or list(CASES)
    for name in chosen:
        make(name, CASES[name], 1 + list(CASES).index(name))


if __name__ == "__main__":
    main()
