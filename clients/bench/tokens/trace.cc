#include "clients/bench/tokens/trace.h"

#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "clients/bench/tokens/lengths.h"
#include "clients/cpp/inputs/text_input.h"
#include "deploy/bazel/libs/status_macros.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {
namespace {

using nlohmann::json;

constexpr double kMostMilliseconds = 7 * 86'400e3;

// Returns a whole number from `low` to `high`; -1 if the row has none.
int64_t CountAt(const json& row, const char* key, int64_t low, int64_t high) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number_integer()) return -1;
  const int64_t value = found->get<int64_t>();
  return value >= low && value <= high ? value : -1;
}

// Returns what is wrong with the row; "" if it made a call. Its time counts from the epoch of the
// file.
std::string ReadCall(const json& row, TraceCall* call) {
  if (!row.is_object()) return "must be a JSON object";
  const auto time = row.find("timestamp");
  if (time == row.end() || !time->is_number() || !std::isfinite(time->get<double>())) {
    return "must have a \"timestamp\", in milliseconds";
  }
  call->seconds = time->get<double>() / 1e3;
  call->input_tokens = CountAt(row, "input_length", 1, kMostTokens);
  call->output_tokens = CountAt(row, "output_length", 1, kMostTokens);
  if (call->input_tokens < 0 || call->output_tokens < 0) {
    return absl::StrCat(
        "must have an \"input_length\" and an \"output_length\", each a number of tokens from 1 "
        "to ",
        kMostTokens);
  }
  const auto ids = row.find("hash_ids");
  const int64_t blocks = (call->input_tokens + kTraceBlock - 1) / kTraceBlock;
  if (ids == row.end() || !ids->is_array() || static_cast<int64_t>(ids->size()) != blocks) {
    return absl::StrCat("must have \"hash_ids\", one for each ", kTraceBlock,
                        " tokens of the prompt, here ", blocks);
  }
  for (const json& id : *ids) {
    if (!id.is_number_integer()) return "must have whole numbers as \"hash_ids\"";
    call->blocks.push_back(id.get<int64_t>());
  }
  return "";
}

}  // namespace

absl::StatusOr<Trace> ReadTrace(const std::string& path) {
  ASSIGN_OR_RETURN(std::string bytes, client::ReadFile(path));
  Trace trace;
  double begin = 0;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(bytes, '\n')) {
    ++line_number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    TraceCall call;
    std::string wrong = ReadCall(json::parse(line, nullptr, /*allow_exceptions=*/false), &call);
    if (trace.empty()) begin = call.seconds;
    call.seconds -= begin;
    if (wrong.empty() && (call.seconds < 0 || call.seconds * 1e3 > kMostMilliseconds)) {
      wrong = "must be due within a week of the first line, not before it";
    }
    if (wrong.empty() && !trace.empty() && call.seconds < trace.back().seconds) {
      wrong = "must be due no sooner than the line before it";
    }
    if (!wrong.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--trace ", path, ": line ", line_number, " ", wrong));
    }
    trace.push_back(std::move(call));
  }
  if (trace.empty())
    return absl::InvalidArgumentError(absl::StrCat("--trace ", path, ": holds no call"));
  return trace;
}

}  // namespace athanor::bench
