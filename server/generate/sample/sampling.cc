#include "server/generate/sample/sampling.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Refuses NaN too.
absl::Status CheckRange(absl::string_view name, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; it has to be from ", low, " to ", high));
}

}  // namespace

absl::Status Sampling::Check(int64_t vocabulary) const {
  RETURN_IF_ERROR(CheckRange("temperature", temperature, 0, 1000));
  RETURN_IF_ERROR(CheckRange("top_k", static_cast<double>(top_k), 0, INT32_MAX));
  RETURN_IF_ERROR(CheckRange("top_p", top_p, 0, 1));
  if (top_p == 0) {
    return absl::InvalidArgumentError(
        "top_p is 0, which leaves no token; for the likeliest one, set temperature to 0");
  }
  RETURN_IF_ERROR(CheckRange("min_p", min_p, 0, 1));
  RETURN_IF_ERROR(CheckRange("repetition_penalty", repetition, 0.01, 100));
  RETURN_IF_ERROR(CheckRange("presence_penalty", presence, -2, 2));
  RETURN_IF_ERROR(CheckRange("frequency_penalty", frequency, -2, 2));
  if (logprobs.has_value()) {
    RETURN_IF_ERROR(CheckRange("logprobs", static_cast<double>(*logprobs), 0, kMostLogprobs));
  }
  if (static_cast<int64_t>(bias.size()) > kMostBias) {
    return absl::InvalidArgumentError(
        absl::StrCat("bias has ", bias.size(), " tokens; it may have ", kMostBias));
  }
  absl::flat_hash_set<int32_t> seen;
  for (const auto& [token, added] : bias) {
    if (token < 0 || token >= vocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat("bias names token ", token, "; the model's are 0 to ", vocabulary - 1));
    }
    if (!seen.insert(token).second) {
      return absl::InvalidArgumentError(absl::StrCat("bias names token ", token, " twice"));
    }
    RETURN_IF_ERROR(CheckRange(absl::StrCat("bias of token ", token), added, -100, 100));
  }
  return absl::OkStatus();
}

}  // namespace athanor
