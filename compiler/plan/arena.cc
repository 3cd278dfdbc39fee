#include "compiler/plan/arena.h"

#include <numeric>
#include <utility>

namespace athanor {

namespace {

// Required relation of the places of two values.
enum class Relation { kFree, kSameOrApart, kApart };

Relation RelationOf(const std::vector<ArenaValue>& values, int a, int b) {
  const ArenaValue& x = values[a];
  const ArenaValue& y = values[b];
  if (x.last < y.first || y.last < x.first) return Relation::kFree;
  auto replaces = [&](const ArenaValue& born, const ArenaValue& dying, int dying_id) {
    return dying.last == born.first && dying.bytes == born.bytes &&
           std::find(born.may_replace.begin(), born.may_replace.end(), dying_id) !=
               born.may_replace.end();
  };
  return replaces(x, y, b) || replaces(y, x, a) ? Relation::kSameOrApart : Relation::kApart;
}

struct Taken {
  int64_t begin, end;
  bool shareable;  // by a value that begins at the same offset
};

// Returns the lowest place for a value: over one that may be replaced if possible, else in free
// space.
int64_t OffsetFor(const ArenaValue& value, const std::vector<Taken>& taken) {
  const int64_t bytes = value.bytes, alignment = value.alignment;
  for (const Taken& t : taken) {
    if (!t.shareable || t.begin % alignment != 0) continue;
    bool fits = std::all_of(taken.begin(), taken.end(), [&](const Taken& o) {
      const bool apart = o.end <= t.begin || t.begin + bytes <= o.begin;
      return apart || (o.shareable && o.begin == t.begin);
    });
    if (fits) return t.begin;
  }
  int64_t offset = 0;
  for (const Taken& t : taken) {
    if (offset + bytes <= t.begin) break;
    offset = std::max(offset, (t.end + alignment - 1) / alignment * alignment);
  }
  return offset;
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
    std::vector<Taken> taken;  // places of values alive at the same time
    for (int p : placed) {
      const ArenaValue& other = (*values)[p];
      Relation relation = RelationOf(*values, v, p);
      if (relation == Relation::kFree) continue;
      taken.push_back(
          {other.offset, other.offset + other.bytes, relation == Relation::kSameOrApart});
    }
    std::sort(taken.begin(), taken.end(),
              [](const Taken& a, const Taken& b) { return a.begin < b.begin; });
    (*values)[v].offset = OffsetFor((*values)[v], taken);
    total = std::max(total, (*values)[v].offset + (*values)[v].bytes);
    placed.push_back(v);
  }
  return total;
}

}  // namespace athanor
