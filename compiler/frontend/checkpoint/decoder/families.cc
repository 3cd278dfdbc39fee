#include "compiler/frontend/checkpoint/decoder/families.h"

#include <vector>

#include "compiler/frontend/checkpoint/files/inert.h"
#include "compiler/ir/value/message.h"

namespace athanor::checkpoint {
namespace {

constexpr CheckpointFormat kHf = CheckpointFormat::kHf, kGguf = CheckpointFormat::kGguf;

constexpr FamilyRow kFamilies[] = {
    {.name = "llama", .architecture = "LlamaForCausalLM", .gguf = "llama", .permuted = true},
    {.name = "mistral",
     .architecture = "MistralForCausalLM",
     .windows = Windows::kAll,
     .says_kv_heads = true},
    {.name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .gguf = "qwen2",
     .windows = Windows::kByLayer,
     .qkv_bias = true,
     .says_kv_heads = true},
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .gguf = "qwen3",
     .windows = Windows::kByLayer,
     .qk_norm = true,
     .says_kv_heads = true,
     .says_head = true},
    {.name = "phi3",
     .architecture = "Phi3ForCausalLM",
     .gguf = "phi3",
     .epsilon = 1e-5,
     .windows = Windows::kAll,
     .fused = true},
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .gguf = "gemma2",
     .windows = Windows::kInTurns,
     .period = 2,
     .says_kv_heads = true,
     .says_head = true,
     .tied = true,
     .sandwich = true,
     .norm_offset = true,
     .gelu = true,
     .scaled_embedding = true,
     .query_scalar = true,
     .wide_layers = 46,
     .capped = true},
    {.name = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .gguf = "gemma3",
     .windows = Windows::kInTurns,
     .period = 6,
     .qk_norm = true,
     .says_kv_heads = true,
     .says_head = true,
     .tied = true,
     .sandwich = true,
     .norm_offset = true,
     .gelu = true,
     .scaled_embedding = true,
     .query_scalar = true,
     .wide_layers = 62,
     .two_ropes = true,
     .theta = 1e6},
    {.name = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .gguf = "olmo2",
     .epsilon = 1e-5,
     .qk_norm = true,
     .qk_norm_whole = true,
     .norms_behind = true},
    {.name = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .gguf = "qwen3moe",
     .qk_norm = true,
     .says_kv_heads = true,
     .experts = true},
};

// In the order of Field.
struct FieldRow {
  std::string_view hf, gguf;
};
constexpr FieldRow kFields[] = {
    {"num_hidden_layers", "block_count"},
    {"hidden_size", "embedding_length"},
    {"intermediate_size", "feed_forward_length"},
    {"num_attention_heads", "attention.head_count"},
    {"num_key_value_heads", "attention.head_count_kv"},
    {"head_dim", "attention.key_length"},
    {"vocab_size", "vocab_size"},
    {"max_position_embeddings", "context_length"},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {"rope_theta", "rope.freq_base"},
    {"rope_local_base_freq", "rope.freq_base_swa"},
    {"sliding_window", "attention.sliding_window"},
    {"sliding_window_pattern", "attention.sliding_window_pattern"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"num_experts", "expert_count"},
    {"num_experts_per_tok", "expert_used_count"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
};

constexpr InertRow kInert[] = {
    {kHf, "_sliding_window_pattern", "", "gemma3"},  // the class does not read it
    {kHf, "cache_implementation", "", "gemma"},
    {kHf, "hidden_act", "gelu_pytorch_tanh", "gemma"},
    {kHf, "hidden_activation", "gelu_pytorch_tanh", "gemma"},
    {kHf, "use_bidirectional_attention", "false", "gemma"},
    {kHf, "decoder_sparse_step", "1", "qwen3_moe"},
    {kHf, "intermediate_size", "", "qwen3_moe"},  // of layers without experts
    {kHf, "mlp_only_layers", "[]", "qwen3_moe"},
    {kHf, "output_router_logits", "", "qwen3_moe"},
    {kHf, "router_aux_loss_coef", "", "qwen3_moe"},
    {kHf, "sliding_window", "", "qwen3_moe"},  // none is used
    {kHf, "use_sliding_window", "false", "qwen3_moe"},
    {kHf, "_name_or_path", ""},
    {kHf, "_attn_implementation*", ""},
    {kHf, "add_cross_attention", "false"},
    {kHf, "attention_bias", "false"},
    {kHf, "attention_dropout", ""},
    {kHf, "bos_token_id", ""},
    {kHf, "chunk_size_feed_forward", "0"},
    {kHf, "dtype", ""},
    {kHf, "embd_pdrop", ""},
    {kHf, "eos_token_id", ""},
    {kHf, "hidden_act", "silu|swish"},
    {kHf, "id2label.*", ""},
    {kHf, "initializer_range", ""},
    {kHf, "is_decoder", "false"},
    {kHf, "is_encoder_decoder", "false"},
    {kHf, "is_llama_config", ""},
    {kHf, "label2id.*", ""},
    {kHf, "max_window_layers", ""},
    {kHf, "mlp_bias", "false"},
    {kHf, "original_max_position_embeddings", ""},
    {kHf, "output_attentions", ""},
    {kHf, "output_hidden_states", ""},
    {kHf, "pad_token_id", ""},
    {kHf, "partial_rotary_factor", "1|1.0"},
    {kHf, "pretraining_tp", ""},
    {kHf, "resid_pdrop", ""},
    {kHf, "return_dict", ""},
    {kHf, "rope_interleaved", "false"},
    {kHf, "rope_parameters.partial_rotary_factor", "1|1.0"},
    {kHf, "tie_encoder_decoder", "false"},
    {kHf, "torch_dtype", ""},
    {kHf, "torchscript", ""},
    {kHf, "transformers.js_config.*", ""},
    {kHf, "transformers_version", ""},
    {kHf, "use_bfloat16", ""},
    {kHf, "use_cache", ""},
    {kHf, "use_mrope", "false"},
    {kGguf, "$.feed_forward_length", "", "qwen3_moe"},
    {kGguf, "$.expert_count", "0"},
    {kGguf, "$.expert_used_count", "0"},
    {kGguf, "$.rope.scaling.original_context_length", ""},
    {kGguf, "general.*", ""},
    {kGguf, "quantize.imatrix.*", ""},
    {kGguf, "split.count", "0|1"},
    {kGguf, "split.no", "0"},
    {kGguf, "split.tensors.count", ""},
    {kGguf, "tokenizer.*", ""},
};

// In the order of Part; '*' stands for the expert.
struct PartRow {
  std::string_view hf, gguf;
};
constexpr PartRow kParts[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.q_proj.bias", "attn_q.bias"},
    {"self_attn.k_proj.bias", "attn_k.bias"},
    {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"self_attn.qkv_proj.weight", "attn_qkv.weight"},
    {"mlp.gate_up_proj.weight", "ffn_up.weight"},
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.experts.*.gate_proj.weight", "ffn_gate_exps.weight"},
    {"mlp.experts.*.up_proj.weight", "ffn_up_exps.weight"},
    {"mlp.experts.*.down_proj.weight", "ffn_down_exps.weight"},
};

std::string_view NameIn(CheckpointFormat format, const FamilyRow& family) {
  return format == kHf ? family.name : family.gguf;
}

std::string_view NameIn(CheckpointFormat format, Part part) {
  const PartRow& row = kParts[static_cast<int>(part)];
  return format == kHf ? row.hf : row.gguf;
}

}  // namespace

const FamilyRow* FindFamily(CheckpointFormat format, std::string_view name) {
  for (const FamilyRow& row : kFamilies) {
    if (!name.empty() && NameIn(format, row) == name) return &row;
  }
  return nullptr;
}

std::string FamilyNames(CheckpointFormat format) {
  std::string text;
  for (const FamilyRow& row : kFamilies) {
    const std::string_view name = NameIn(format, row);
    if (!name.empty()) text += Cat(text.empty() ? "" : ", ", name);
  }
  return text;
}

std::string KeyOf(CheckpointFormat format, const FamilyRow& family, Field field) {
  const FieldRow& row = kFields[static_cast<int>(field)];
  return format == kHf ? std::string(row.hf) : Cat(family.gguf, ".", row.gguf);
}

std::optional<std::vector<std::string_view>> InertValues(CheckpointFormat format,
                                                         const FamilyRow& family,
                                                         std::string_view key) {
  return InertValuesIn(kInert, {format, family.name, family.gguf}, key);
}

std::string TensorName(CheckpointFormat format, Part part, int64_t layer, int64_t expert) {
  std::string name(NameIn(format, part));
  if (part < Part::kAttentionNorm) return name;
  if (IsByExpert(format, part)) name.replace(name.find('*'), 1, Cat(expert));
  return Cat(format == kHf ? "model.layers." : "blk.", layer, ".", name);
}

bool IsByExpert(CheckpointFormat format, Part part) {
  return NameIn(format, part).find('*') != std::string_view::npos;
}

bool IsInertTensor(CheckpointFormat format, std::string_view name) {
  return format == kHf ? name.ends_with(".rotary_emb.inv_freq") : name == "rope_freqs.weight";
}

}  // namespace athanor::checkpoint
