#include "clients/bench/tokens/stream_collector.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor::bench {

void StreamCollector::Begin(const Request& request) {
  request_ = request;
  at_.clear();
  tokens_.clear();
  usage_.reset();
  answer_ = {};
}

void StreamCollector::Chunk(Clock::time_point at, int32_t tokens) {
  at_.push_back(at);
  if (tokens != kNotTold) tokens_.push_back(tokens);
}

void StreamCollector::Piece(absl::string_view text, absl::Span<const int32_t> tokens) {
  if (!request_.keep) return;
  answer_.text.append(text.data(), text.size());
  answer_.tokens.insert(answer_.tokens.end(), tokens.begin(), tokens.end());
}

Answer StreamCollector::TakeAnswer() {
  answer_.input_tokens = usage_->input_tokens;
  answer_.output_tokens = usage_->output_tokens;
  return std::exchange(answer_, {});
}

int64_t StreamCollector::told() const {
  if (tokens_.empty()) return kNotTold;
  int64_t sum = 0;
  for (int32_t tokens : tokens_) sum += tokens;
  return sum;
}

int64_t StreamCollector::output_tokens() const {
  if (told() != kNotTold) return told();
  return usage_.has_value() ? usage_->output_tokens : static_cast<int64_t>(at_.size());
}

absl::Status StreamCollector::End() const {
  if (at_.empty()) {
    return absl::DataLossError(
        absl::StrCat("the stream ended without a token; ", request_.asked, " were asked for"));
  }
  if (!usage_.has_value()) {
    return absl::DataLossError(
        absl::StrCat("the stream ended without its usage, after ", at_.size(), " chunks"));
  }
  if (told() != kNotTold && told() != usage_->output_tokens) {
    return absl::DataLossError(absl::StrCat("the stream brought ", told(),
                                            " tokens, but its usage says ", usage_->output_tokens));
  }
  const int64_t output = usage_->output_tokens;
  const bool full = usage_->length && request_.max_model_len > 0 &&
                    usage_->input_tokens + output >= request_.max_model_len;
  if (output < 1 || output > request_.asked ||
      (request_.exact && output != request_.asked && !full)) {
    return absl::DataLossError(absl::StrCat("the stream brought ", output, " of ", request_.asked,
                                            " tokens",
                                            output < request_.asked ? ": it ended early" : ""));
  }
  return absl::OkStatus();
}

void StreamCollector::Tell(Clock::time_point start, CallRecord* record) const {
  auto stream = std::make_shared<TokenStream>();
  stream->input_tokens = usage_->input_tokens > 0 ? usage_->input_tokens : request_.sent_tokens;
  stream->cached_tokens = usage_->cached_tokens;
  stream->output_tokens = usage_->output_tokens;
  stream->chunk_tokens = tokens_;
  stream->chunk_ns.reserve(at_.size());
  for (Clock::time_point at : at_) {
    stream->chunk_ns.push_back(
        std::chrono::duration_cast<std::chrono::nanoseconds>(at - start).count());
  }
  record->done_ns = stream->chunk_ns.back();
  record->tokens = std::move(stream);
}

}  // namespace athanor::bench
