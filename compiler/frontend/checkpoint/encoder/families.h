// Tables of what checkpoints of encoders hold: families, keys and tensors, under the names of
// either format.
//
//   const FamilyRow* family = FindFamily(CheckpointFormat::kHf, "xlm-roberta");
//   TensorName(CheckpointFormat::kGguf, Part::kQ, 3);     // "blk.3.attn_q.weight"
//
// To add a family: a row in families.cc, rows for the keys and tensors that only it has, a golden
// in tests/tokens. Sources of names: transformers' configuration classes, gguf's constants.
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_FAMILIES_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_FAMILIES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "compiler/frontend/checkpoint/files/format.h"
#include "compiler/frontend/checkpoint/files/inert.h"

namespace athanor::checkpoint::encoder {

struct FamilyRow {
  std::string_view name;  // Hugging Face's model_type
  // The classes of config.json, separated by '|', whose tensors hold the whole encoder. Others
  // have heads that say something else than an embedding.
  std::string_view architectures;
  std::string_view prefix;  // of tensors in files of classes with heads
  std::string_view gguf;    // general.architecture; "": none
  // Positions are counted from pad_token_id + 1, by tokens that are no padding. GGUF's files hold
  // the table from there on, and every token is counted.
  bool counts_from_padding = false;
};

// Returns nullptr if there is none. `name` is what the format calls it.
const FamilyRow* FindFamily(CheckpointFormat format, std::string_view name);
// Returns the names of a format's families, for messages: "bert, roberta".
std::string FamilyNames(CheckpointFormat format);

// Names what a key of both formats says. GGUF's are below the architecture: "bert.block_count".
enum class Field : uint8_t {
  kLayers,
  kWidth,
  kHidden,
  kHeads,
  kVocabulary,
  kPositions,
  kEpsilon,
};
std::string KeyOf(CheckpointFormat format, const FamilyRow& family, Field field);

InertKey InertValues(CheckpointFormat format, const FamilyRow& family, std::string_view key);

// Tensors of an encoder; from kQ on each layer has its own.
enum class Part : uint8_t {
  kTokens,
  kPositions,
  kTypes,
  kStartNorm,
  kStartNormBias,
  kQ,
  kQBias,
  kK,
  kKBias,
  kV,
  kVBias,
  kO,
  kOBias,
  kAttentionNorm,
  kAttentionNormBias,
  kUp,
  kUpBias,
  kDown,
  kDownBias,
  kForwardNorm,
  kForwardNormBias,
};
inline constexpr Part kLastPart = Part::kForwardNormBias;
std::string TensorName(CheckpointFormat format, Part part, int64_t layer);
// Returns the name by which TensorName knows a file's tensor: without its class's prefix, and norms
// as newer files name them.
std::string CanonicalName(CheckpointFormat format, const FamilyRow& family, std::string_view name);
// Reports whether files may hold the tensor (by its canonical name) though no embedding depends on
// it: heads, buffers.
bool IsInertTensor(CheckpointFormat format, std::string_view name);

}  // namespace athanor::checkpoint::encoder

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_FAMILIES_H_
