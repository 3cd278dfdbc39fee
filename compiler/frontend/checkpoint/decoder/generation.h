// Reads how a checkpoint's sequences end, and what its authors sample with.
//
//   GenerationDefaults defaults = ReadGeneration(CheckpointFormat::kHf, generation, config,
//   &refusals);
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_DECODER_GENERATION_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_DECODER_GENERATION_H_

#include <cstdint>
#include <vector>

#include "compiler/frontend/checkpoint/decoder/families.h"
#include "compiler/frontend/checkpoint/files/keys.h"
#include "compiler/frontend/refusal.h"

namespace athanor::checkpoint {

struct GenerationDefaults {
  std::vector<int32_t> end_tokens;  // any of them ends a sequence; ascending
  double temperature = 1;           // 0: the most likely token
  int64_t top_k = 0;                // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
};

// `generation` has generation_config.json's keys, or none; `config` those of config.json, which
// tells ends where the other does not, or those of a GGUF file. Keys that are wrong are refused;
// others are not read. What is not said is as in GenerationDefaults: transformers' own top_k of 50
// is not taken over.
GenerationDefaults ReadGeneration(CheckpointFormat format, const Keys& generation,
                                  const Keys& config, std::vector<ImportRefusal>* refusals);

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_DECODER_GENERATION_H_
