#include "server/text/jinja/marked.h"

#include <algorithm>

namespace athanor::jinja {
namespace {

size_t RunAt(const std::vector<Marked::Run>& runs, size_t at) {
  const auto after = [](size_t byte, const Marked::Run& run) { return byte < run.end; };
  return std::upper_bound(runs.begin(), runs.end(), at, after) - runs.begin();
}

}  // namespace

bool Marked::TrustedAt(size_t at) const { return runs_[RunAt(runs_, at)].trusted; }

void Marked::Append(absl::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  bytes_.append(bytes.data(), bytes.size());
  if (runs_.empty() || runs_.back().trusted != trusted) runs_.push_back({0, trusted});
  runs_.back().end = bytes_.size();
}

void Marked::AppendSlice(const Marked& other, size_t begin, size_t end) {
  const absl::string_view bytes = other.bytes_;
  for (size_t run = RunAt(other.runs_, begin); begin < end; ++run) {
    const size_t stop = std::min(end, other.runs_[run].end);
    Append(bytes.substr(begin, stop - begin), other.runs_[run].trusted);
    begin = stop;
  }
}

Marked Marked::Slice(size_t begin, size_t end) const {
  Marked slice;
  slice.AppendSlice(*this, begin, end);
  return slice;
}

}  // namespace athanor::jinja
