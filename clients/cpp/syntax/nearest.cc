#include "clients/cpp/syntax/nearest.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace athanor::client {
namespace {

// A longer word is no slip of the finger, and the table of distances is square.
constexpr size_t kLongestWord = 64;
constexpr size_t kShortestBeginning = 2;

}  // namespace

int EditDistance(absl::string_view a, absl::string_view b) {
  // Rows of the table for the letters of `a` before this one's predecessor, for it, and for this.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string Nearest(absl::string_view word, const std::vector<std::string>& known) {
  if (word.empty() || word.size() > kLongestWord) return "";
  const std::string* best = nullptr;
  int least = 0;
  for (const std::string& candidate : known) {
    if (candidate.size() > kLongestWord) continue;
    const bool begins = word.size() >= kShortestBeginning && absl::StartsWith(candidate, word);
    const int distance = begins ? 1 : EditDistance(word, candidate);
    const int most = std::max(1, static_cast<int>(std::max(word.size(), candidate.size())) / 3);
    if (distance > most && !begins) continue;
    if (best == nullptr || distance < least) best = &candidate, least = distance;
  }
  return best == nullptr ? "" : *best;
}

}  // namespace athanor::client
