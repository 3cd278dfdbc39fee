#include "compiler/frontend/names.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

constexpr size_t kMaxCandidates = 4096;
constexpr size_t kMaxCompared = 64;  // longer names are not compared
constexpr size_t kMaxJoined = 16;
constexpr size_t kMaxMessage = 2048;

char Lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Returns the Levenshtein distance, ignoring case; any value above `limit` if the distance exceeds
// it.
size_t EditDistance(std::string_view a, std::string_view b, size_t limit) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    size_t least = row[0];
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (Lower(a[i - 1]) == Lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      least = std::min(least, row[j]);
    }
    if (least > limit) return limit + 1;
  }
  return row[b.size()];
}

}  // namespace

std::string NearestName(std::string_view name, absl::Span<const std::string_view> candidates) {
  if (name.empty() || name.size() > kMaxCompared) return "";
  size_t best = std::max<size_t>(1, name.size() / 3) + 1;
  std::string_view nearest;
  for (std::string_view candidate : candidates.subspan(0, kMaxCandidates)) {
    if (candidate.empty() || candidate.size() > kMaxCompared) continue;
    const size_t distance = EditDistance(name, candidate, best - 1);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return std::string(nearest);
}

std::string DidYouMean(std::string_view name, absl::Span<const std::string_view> candidates) {
  const std::string nearest = NearestName(name, candidates);
  return nearest.empty() ? "" : Cat("; did you mean ", Quoted(nearest), "?");
}

std::string JoinNames(absl::Span<const std::string_view> names) {
  std::string text;
  for (std::string_view name : names.subspan(0, kMaxJoined)) {
    text += Cat(text.empty() ? "" : ", ", name);
  }
  return names.size() > kMaxJoined ? text + ", ..." : text;
}

absl::Status Shortened(const absl::Status& status) {
  if (status.message().size() <= kMaxMessage) return status;
  size_t end = kMaxMessage;
  // Does not cut inside a character.
  while (end > 0 && (static_cast<unsigned char>(status.message()[end]) & 0xc0) == 0x80) --end;
  return absl::Status(status.code(), Cat(std::string(status.message().substr(0, end)), "..."));
}

}  // namespace athanor
