// Tables of what checkpoints hold: families, keys and tensors, under the names of either format.
//
//   const FamilyRow* family = FindFamily(CheckpointFormat::kHf, "llama");
//   TensorName(CheckpointFormat::kGguf, Part::kQ, 3);     // "blk.3.attn_q.weight"
//
// To add a family: a row in families.cc, rows for the keys and tensors that only it has, a golden
// in tests/tokens. Sources of names: transformers' configuration classes, gguf's constants.
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_DECODER_FAMILIES_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_DECODER_FAMILIES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/frontend/checkpoint/files/format.h"

namespace athanor::checkpoint {

// Says which layers see only a window of keys. kByLayer: those that `layer_types` names, else those
// from `max_window_layers` on, if `use_sliding_window`. kInTurns: those that `layer_types` names,
// else all but each `period`-th.
enum class Windows : uint8_t { kNone, kAll, kByLayer, kInTurns };

struct FamilyRow {
  std::string_view name;          // Hugging Face's model_type
  std::string_view architecture;  // the class that config.json names
  std::string_view gguf;          // general.architecture; "": none
  double epsilon = 1e-6;          // of norms, where config.json has none
  Windows windows = Windows::kNone;
  int64_t period = 0;  // of kInTurns
  // GGUF's rows of Q and K alternate between the halves of a head, for a rope over neighbours.
  bool permuted = false;
  bool qkv_bias = false;       // Q, K and V have a bias
  bool qk_norm = false;        // heads of Q and K are normalised
  bool qk_norm_whole = false;  // with `qk_norm`: all heads of a row at once
  bool fused = false;          // rows of Q, K, V are one matrix, and those of gate and up
  // config.json must have num_key_value_heads, head_dim: the class has a number of its own where
  // one is missing.
  bool says_kv_heads = false, says_head = false;
  bool tied = false;          // where config.json has no tie_word_embeddings
  bool sandwich = false;      // norms behind attention and the feed-forward part too
  bool norms_behind = false;  // norms there only
  bool experts = false;       // the feed-forward part is of experts, of which each row has a few
  bool norm_offset = false;   // Hugging Face's weights of norms are added to 1; GGUF's are sums
  bool gelu = false;          // gates by Gelu's form with tanh; otherwise by Silu
  bool scaled_embedding = false;  // a token's row is multiplied by sqrt(width)
  bool query_scalar = false;      // scores are divided by the root of a number of config.json
  // GGUF has no key for that number: it is width / heads with so many layers, else a head's size.
  int64_t wide_layers = 0;
  bool capped = false;     // scores and logits are bounded by tanh
  bool two_ropes = false;  // layers with a window have a rope of their own
  double theta = 10000;    // of the rope, where config.json has none
};

// Returns nullptr if there is none. `name` is what the format calls it.
const FamilyRow* FindFamily(CheckpointFormat format, std::string_view name);
// Returns the names of a format's families, for messages: "llama, qwen2".
std::string FamilyNames(CheckpointFormat format);

// Names what a key of both formats says. GGUF's are below the architecture: "llama.block_count".
enum class Field : uint8_t {
  kLayers,
  kWidth,
  kHidden,
  kHeads,
  kKvHeads,
  kHead,
  kVocabulary,
  kPositions,
  kEpsilon,
  kTheta,
  kLocalTheta,  // of layers with a window, with `two_ropes`
  kWindow,
  kPeriod,
  kScoreCap,
  kLogitCap,
  kExperts,  // with `experts`; files may say num_local_experts too
  kExpertsOfRow,
  kExpertHidden,
};
// Returns the field's key: "num_hidden_layers", "llama.block_count".
std::string KeyOf(CheckpointFormat format, const FamilyRow& family, Field field);

// Returns the values at which the key changes no number, as config.json has them; empty: any.
// nullopt: the key is used, or unknown.
std::optional<std::vector<std::string_view>> InertValues(CheckpointFormat format,
                                                         const FamilyRow& family,
                                                         std::string_view key);

// Tensors of a decoder; from kAttentionNorm on each layer has its own.
enum class Part : uint8_t {
  kEmbedding,
  kFinalNorm,
  kLogits,
  kAttentionNorm,
  kQ,
  kK,
  kV,
  kQBias,
  kKBias,
  kVBias,
  kQNorm,
  kKNorm,
  kO,
  kForwardNorm,
  kGate,
  kUp,
  kDown,
  kQkv,     // rows of kQ, kK, kV
  kGateUp,  // rows of kGate, kUp
  kAttentionEndNorm,
  kForwardStartNorm,  // kForwardNorm of families with `sandwich`
  kForwardEndNorm,
  kRouter,
  kExpertGate,  // of one expert in Hugging Face's files, of all in GGUF's
  kExpertUp,
  kExpertDown,
};
std::string TensorName(CheckpointFormat format, Part part, int64_t layer, int64_t expert = 0);
// Reports whether each expert has such a tensor of its own.
bool IsByExpert(CheckpointFormat format, Part part);
// Reports whether files may hold the tensor though no decoder reads it: what can be computed.
bool IsInertTensor(CheckpointFormat format, std::string_view name);

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_DECODER_FAMILIES_H_
