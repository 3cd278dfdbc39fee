// The arrays of a run's calls, beside the figures of summary.cc.
#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "clients/bench/figures/summary.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

std::string CodeName(int32_t code) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

}  // namespace

json Detailed(const LoadResult& result) {
  json latencies = json::array(), starts = json::array(), queues = json::array(),
       errors = json::array(), inputs = json::array(), outputs = json::array(),
       ttfts = json::array(), itls = json::array();
  for (const CallRecord& record : result.calls) {
    latencies.push_back(record.answered() ? json(Seconds(record.done_ns - record.due_ns)) : json());
    starts.push_back(Seconds(record.due_ns));
    queues.push_back(record.queue_us < 0 ? json()
                                         : json(static_cast<double>(record.queue_us) / 1e6));
    errors.push_back(record.answered() ? "" : CodeName(record.code));
    if (record.tokens == nullptr) {
      for (json* values : {&inputs, &outputs, &ttfts}) values->push_back(json());
      itls.push_back(json::array());
      continue;
    }
    const TokenStream& stream = *record.tokens;
    inputs.push_back(stream.input_tokens);
    outputs.push_back(stream.output_tokens);
    ttfts.push_back(Seconds(stream.chunk_ns.front() - record.due_ns));
    json gaps = json::array();
    for (size_t i = 1; i < stream.chunk_ns.size(); ++i) {
      gaps.push_back(Seconds(stream.chunk_ns[i] - stream.chunk_ns[i - 1]));
    }
    itls.push_back(std::move(gaps));
  }
  json detailed = {{"latencies", latencies},
                   {"start_times", starts},
                   {"queue_times", queues},
                   {"errors", errors}};
  const bool tokens = std::any_of(result.calls.begin(), result.calls.end(),
                                  [](const CallRecord& r) { return r.tokens != nullptr; });
  if (tokens) {
    detailed.update(
        {{"input_lens", inputs}, {"output_lens", outputs}, {"ttfts", ttfts}, {"itls", itls}});
  }
  return detailed;
}

}  // namespace athanor::bench
