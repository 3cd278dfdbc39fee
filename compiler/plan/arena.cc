#include "compiler/plan/arena.h"

#include <numeric>
#include <utility>

namespace athanor {

namespace {

constexpr int64_t kAlignment = 64;

bool Meet(const std::vector<ArenaValue>& values, int a, int b) {
  const ArenaValue& x = values[a];
  const ArenaValue& y = values[b];
  if (x.last < y.first || y.last < x.first) return false;
  auto replaces = [&](const ArenaValue& born, const ArenaValue& dying, int dying_id) {
    return dying.last == born.first &&
           std::find(born.may_replace.begin(), born.may_replace.end(), dying_id) != born.may_replace.end();
  };
  return !replaces(x, y, b) && !replaces(y, x, a);
}

}  // namespace

int64_t PlaceValues(std::vector<ArenaValue>* values) {
  std::vector<int> order;
  for (size_t v = 0; v < values->size(); ++v) {
    if ((*values)[v].bytes > 0 && (*values)[v].first >= 0) order.push_back(static_cast<int>(v));
  }
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    const int64_t x = (*values)[a].bytes, y = (*values)[b].bytes;
    return x != y ? x > y : a < b;
  });
  int64_t total = 0;
  std::vector<int> placed;
  for (int v : order) {
    std::vector<std::pair<int64_t, int64_t>> taken;  // [begin, end) of values alive at the same time
    for (int p : placed) {
      const ArenaValue& other = (*values)[p];
      if (Meet(*values, v, p)) taken.emplace_back(other.offset, other.offset + other.bytes);
    }
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + (*values)[v].bytes <= begin) break;
      offset = std::max(offset, (end + kAlignment - 1) / kAlignment * kAlignment);
    }
    (*values)[v].offset = offset;
    total = std::max(total, offset + (*values)[v].bytes);
    placed.push_back(v);
  }
  return total;
}

}  // namespace athanor
