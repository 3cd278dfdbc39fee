#include "server/generate/sample/stop_watcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {

absl::Status StopWatcher::Check(absl::Span<const std::string> stops) {
  if (static_cast<int64_t>(stops.size()) > kMostStops) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", stops.size(), " stop strings; there may be ", kMostStops));
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) return absl::InvalidArgumentError("a stop string is empty; leave it out");
    if (static_cast<int64_t>(stop.size()) > kMostBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a stop string has ", stop.size(), " bytes; it may have ", kMostBytes));
    }
  }
  return absl::OkStatus();
}

StopWatcher::StopWatcher(absl::Span<const std::string> stops) {
  for (const std::string& stop : stops) {
    Pattern pattern{.stop = stop, .shorter = {0, 0}};
    for (size_t end = 1; end < stop.size(); ++end) {
      Match(stop[end], &pattern);
      pattern.shorter.push_back(pattern.matched);
    }
    pattern.matched = 0;
    patterns_.push_back(std::move(pattern));
  }
}

void StopWatcher::Match(char byte, Pattern* pattern) {
  int32_t& matched = pattern->matched;
  while (matched > 0 && pattern->stop[matched] != byte) matched = pattern->shorter[matched];
  if (pattern->stop[matched] == byte) ++matched;
}

StopWatcher::Found StopWatcher::Add(absl::string_view piece) {
  const size_t before = held_.size();
  Found found{.text = std::exchange(held_, {})};
  absl::StrAppend(&found.text, piece);
  for (size_t end = before + 1; end <= found.text.size(); ++end) {
    int32_t longest = 0;
    for (Pattern& pattern : patterns_) {
      Match(found.text[end - 1], &pattern);
      if (pattern.matched < static_cast<int32_t>(pattern.stop.size())) continue;
      found.stop = true;
      longest = std::max(longest, pattern.matched);
    }
    if (!found.stop) continue;
    found.stop_text = found.text.substr(end - longest, longest);
    found.text.resize(end - longest);
    return found;
  }
  int32_t held = 0;
  for (const Pattern& pattern : patterns_) held = std::max(held, pattern.matched);
  held_ = found.text.substr(found.text.size() - held);
  found.text.resize(found.text.size() - held);
  return found;
}

}  // namespace athanor
