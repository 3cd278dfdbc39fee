#include "compiler/frontend/checkpoint/encoder/families.h"

#include <utility>

#include "compiler/ir/value/message.h"

namespace athanor::checkpoint::encoder {
namespace {

constexpr CheckpointFormat kHf = CheckpointFormat::kHf, kGguf = CheckpointFormat::kGguf;

constexpr FamilyRow kFamilies[] = {
    {.name = "bert",
     .architectures = "BertModel|BertForMaskedLM|BertForPreTraining",
     .prefix = "bert.",
     .gguf = "bert"},
    // In GGUF they are of the architecture bert.
    {.name = "roberta",
     .architectures = "RobertaModel|RobertaForMaskedLM",
     .prefix = "roberta.",
     .counts_from_padding = true},
    {.name = "xlm-roberta",
     .architectures = "XLMRobertaModel|XLMRobertaForMaskedLM",
     .prefix = "roberta.",
     .counts_from_padding = true},
};

// In the order of Field.
struct NameRow {
  std::string_view hf, gguf;
};
constexpr NameRow kFields[] = {
    {"num_hidden_layers", "block_count"},
    {"hidden_size", "embedding_length"},
    {"intermediate_size", "feed_forward_length"},
    {"num_attention_heads", "attention.head_count"},
    {"vocab_size", "vocab_size"},
    {"max_position_embeddings", "context_length"},
    {"layer_norm_eps", "attention.layer_norm_epsilon"},
};

constexpr InertRow kInert[] = {
    {kHf, "pad_token_id", "", "bert"},
    {kHf, "_name_or_path", ""},
    {kHf, "_attn_implementation*", ""},
    {kHf, "_num_labels", ""},
    {kHf, "add_cross_attention", "false"},
    {kHf, "attention_probs_dropout_prob", ""},
    {kHf, "bos_token_id", ""},
    {kHf, "chunk_size_feed_forward", ""},  // pieces of the same sum
    {kHf, "classifier_dropout", ""},
    {kHf, "directionality", ""},  // of BERT's first code, which nothing reads
    {kHf, "dtype", ""},
    {kHf, "eos_token_id", ""},
    {kHf, "finetuning_task", ""},
    {kHf, "gradient_checkpointing", ""},
    {kHf, "hidden_dropout_prob", ""},
    {kHf, "id2label.*", ""},
    {kHf, "initializer_range", ""},
    {kHf, "is_decoder", "false"},
    {kHf, "is_encoder_decoder", "false"},
    {kHf, "label2id.*", ""},
    {kHf, "output_attentions", ""},
    {kHf, "output_hidden_states", ""},
    {kHf, "output_past", ""},
    {kHf, "pooler_fc_size", ""},
    {kHf, "pooler_num_attention_heads", ""},
    {kHf, "pooler_num_fc_layers", ""},
    {kHf, "pooler_size_per_head", ""},
    {kHf, "pooler_type", ""},
    {kHf, "position_embedding_type", "absolute"},
    {kHf, "prefix", ""},
    {kHf, "problem_type", ""},
    {kHf, "return_dict", ""},
    {kHf, "task_specific_params.*", ""},
    {kHf, "tie_encoder_decoder", "false"},
    {kHf, "tie_word_embeddings", ""},  // of a head
    {kHf, "tokenizer_class", ""},
    {kHf, "torch_dtype", ""},
    {kHf, "torchscript", ""},
    {kHf, "transformers.js_config.*", ""},
    {kHf, "transformers_version", ""},
    {kHf, "use_bfloat16", ""},
    {kHf, "use_cache", ""},
    {kGguf, "$.attention.causal", "false"},
    {kGguf, "general.*", ""},
    {kGguf, "quantize.imatrix.*", ""},
    {kGguf, "split.count", "0|1"},
    {kGguf, "split.no", "0"},
    {kGguf, "split.tensors.count", ""},
    {kGguf, "tokenizer.*", ""},
};

// In the order of Part.
constexpr NameRow kParts[] = {
    {"embeddings.word_embeddings.weight", "token_embd.weight"},
    {"embeddings.position_embeddings.weight", "position_embd.weight"},
    {"embeddings.token_type_embeddings.weight", "token_types.weight"},
    {"embeddings.LayerNorm.weight", "token_embd_norm.weight"},
    {"embeddings.LayerNorm.bias", "token_embd_norm.bias"},
    {"attention.self.query.weight", "attn_q.weight"},
    {"attention.self.query.bias", "attn_q.bias"},
    {"attention.self.key.weight", "attn_k.weight"},
    {"attention.self.key.bias", "attn_k.bias"},
    {"attention.self.value.weight", "attn_v.weight"},
    {"attention.self.value.bias", "attn_v.bias"},
    {"attention.output.dense.weight", "attn_output.weight"},
    {"attention.output.dense.bias", "attn_output.bias"},
    {"attention.output.LayerNorm.weight", "attn_output_norm.weight"},
    {"attention.output.LayerNorm.bias", "attn_output_norm.bias"},
    {"intermediate.dense.weight", "ffn_up.weight"},
    {"intermediate.dense.bias", "ffn_up.bias"},
    {"output.dense.weight", "ffn_down.weight"},
    {"output.dense.bias", "ffn_down.bias"},
    {"output.LayerNorm.weight", "layer_output_norm.weight"},
    {"output.LayerNorm.bias", "layer_output_norm.bias"},
};

std::string_view NameIn(CheckpointFormat format, const FamilyRow& family) {
  return format == kHf ? family.name : family.gguf;
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
  const NameRow& row = kFields[static_cast<int>(field)];
  return format == kHf ? std::string(row.hf) : Cat(family.gguf, ".", row.gguf);
}

InertKey InertValues(CheckpointFormat format, const FamilyRow& family, std::string_view key) {
  return InertValuesIn(kInert, {format, family.name, family.gguf}, key);
}

std::string TensorName(CheckpointFormat format, Part part, int64_t layer) {
  const NameRow& row = kParts[static_cast<int>(part)];
  const std::string_view name = format == kHf ? row.hf : row.gguf;
  if (part < Part::kQ) return std::string(name);
  return Cat(format == kHf ? "encoder.layer." : "blk.", layer, ".", name);
}

std::string CanonicalName(CheckpointFormat format, const FamilyRow& family, std::string_view name) {
  if (format != kHf) return std::string(name);
  if (name.starts_with(family.prefix)) name.remove_prefix(family.prefix.size());
  for (const auto& [old, now] : {std::pair(".LayerNorm.gamma", ".LayerNorm.weight"),
                                 std::pair(".LayerNorm.beta", ".LayerNorm.bias")}) {
    if (!name.ends_with(old)) continue;
    return Cat(name.substr(0, name.size() - std::string_view(old).size()), now);
  }
  return std::string(name);
}

bool IsInertTensor(CheckpointFormat format, std::string_view name) {
  if (format != kHf) return false;
  return name.starts_with("pooler.") || name.starts_with("cls.") || name.starts_with("lm_head.") ||
         name == "embeddings.position_ids" || name == "embeddings.token_type_ids";
}

}  // namespace athanor::checkpoint::encoder
