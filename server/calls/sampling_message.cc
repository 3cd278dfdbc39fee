#include "server/calls/sampling_message.h"

#include <algorithm>
#include <random>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

absl::StatusOr<Sampling> ReadSampling(const v1::Sampling& message, const Sampling& defaults,
                                      int64_t vocabulary) {
  Sampling sampling = defaults;
  if (message.has_temperature()) sampling.temperature = message.temperature();
  if (message.has_top_k()) sampling.top_k = message.top_k();
  if (message.has_top_p()) sampling.top_p = message.top_p();
  if (message.has_min_p()) sampling.min_p = message.min_p();
  if (message.has_repetition_penalty()) sampling.repetition = message.repetition_penalty();
  if (message.has_presence_penalty()) sampling.presence = message.presence_penalty();
  if (message.has_frequency_penalty()) sampling.frequency = message.frequency_penalty();
  if (message.has_logprobs()) sampling.logprobs = message.logprobs();
  sampling.seed = message.has_seed() ? message.seed() : RandomSeed();
  if (!message.bias().empty()) {
    sampling.bias.assign(message.bias().begin(), message.bias().end());
    std::sort(sampling.bias.begin(), sampling.bias.end());  // a map has no order of its own
  }
  RETURN_IF_ERROR(Prefixed("sampling.", sampling.Check(vocabulary)));
  return sampling;
}

v1::Sampling SamplingMessage(const Sampling& sampling) {
  v1::Sampling message;
  message.set_temperature(sampling.temperature);
  message.set_top_k(sampling.top_k);
  message.set_top_p(sampling.top_p);
  message.set_min_p(sampling.min_p);
  message.set_repetition_penalty(sampling.repetition);
  message.set_presence_penalty(sampling.presence);
  message.set_frequency_penalty(sampling.frequency);
  for (const auto& [token, added] : sampling.bias) (*message.mutable_bias())[token] = added;
  if (sampling.logprobs.has_value()) {
    message.set_logprobs(static_cast<int32_t>(*sampling.logprobs));
  }
  return message;
}

}  // namespace athanor
