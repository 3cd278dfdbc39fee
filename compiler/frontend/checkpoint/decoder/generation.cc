#include "compiler/frontend/checkpoint/decoder/generation.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>

#include "compiler/frontend/checkpoint/files/key_reader.h"

namespace athanor::checkpoint {
namespace {

constexpr int64_t kMostToken = std::numeric_limits<int32_t>::max();

std::vector<int32_t> Ends(KeyReader& read, std::initializer_list<std::string_view> keys) {
  std::set<int32_t> ends;
  for (std::string_view key : keys) {
    for (int64_t end : read.Integers(key, 0, kMostToken)) ends.insert(static_cast<int32_t>(end));
  }
  return {ends.begin(), ends.end()};
}

}  // namespace

GenerationDefaults ReadGeneration(CheckpointFormat format, const Keys& generation,
                                  const Keys& config, std::vector<ImportRefusal>* refusals) {
  GenerationDefaults defaults;
  KeyReader from_config(config, refusals), read(generation, refusals);
  if (format == CheckpointFormat::kGguf) {
    defaults.end_tokens =
        Ends(from_config, {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                           "tokenizer.ggml.eom_token_id"});
    return defaults;
  }
  constexpr std::string_view kEnd = "eos_token_id";
  // The ranges are those that requests have (server/generate/sample/sampling.h).
  defaults.end_tokens = Ends(read.Has(kEnd) ? read : from_config, {kEnd});
  defaults.temperature = read.Number("temperature", 0, 1000, defaults.temperature);
  defaults.top_k = read.Integer("top_k", 0, kMostToken, defaults.top_k);
  defaults.top_p = read.Number("top_p", 1e-6, 1, defaults.top_p);
  defaults.min_p = read.Number("min_p", 0, 1, defaults.min_p);
  defaults.repetition_penalty =
      read.Number("repetition_penalty", 0.01, 100, defaults.repetition_penalty);
  if (!read.Flag("do_sample", true)) defaults.temperature = 0;
  return defaults;
}

}  // namespace athanor::checkpoint
