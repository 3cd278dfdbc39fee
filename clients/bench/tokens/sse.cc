#include "clients/bench/tokens/sse.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace athanor::bench {

void SseReader::Reset() { *this = SseReader(); }

absl::Status SseReader::Feed(absl::string_view bytes,
                             absl::FunctionRef<void(const std::string&)> event) {
  for (char byte : bytes) {
    if (byte == '\n' && std::exchange(after_return_, false)) continue;
    after_return_ = byte == '\r';
    if (byte == '\n' || byte == '\r') {
      EndLine(event);
    } else {
      line_ += byte;
    }
    if (line_.size() + data_.size() > kMostEventBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("an event of the stream is longer than ", kMostEventBytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

void SseReader::EndLine(absl::FunctionRef<void(const std::string&)> event) {
  if (line_.empty()) {
    has_data_ = false;
    if (!data_.empty()) event(std::exchange(data_, ""));
    return;
  }
  absl::string_view value = line_;
  if (line_ == "data" || absl::ConsumePrefix(&value, "data:")) {
    if (line_ == "data") value = "";
    absl::ConsumePrefix(&value, " ");
    if (has_data_) data_ += '\n';
    absl::StrAppend(&data_, value);
    has_data_ = true;
  }
  line_.clear();
}

}  // namespace athanor::bench
