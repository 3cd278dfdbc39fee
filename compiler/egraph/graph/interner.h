// Maps attributes of e-nodes to small numbers: the engine compares payload ids and never reads the
// attributes.
//
//   Interner<std::string> names;
//   PayloadId x = names.Intern("x");
//   names.Get(x) == "x";
//
// Ids count from zero in order of first use. Not thread-safe.
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_INTERNER_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_INTERNER_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/hash/hash.h"
#include "compiler/egraph/graph/ids.h"

namespace athanor::egraph {

template <typename T, typename Hash = absl::Hash<T>, typename Equal = std::equal_to<T>>
class Interner {
 public:
  PayloadId Intern(T value) {
    const PayloadId next{static_cast<uint32_t>(values_.size())};
    const auto [entry, inserted] = ids_.try_emplace(std::move(value), next);
    if (inserted) values_.push_back(&entry->first);
    return entry->second;
  }

  // REQUIRES: `id` came from Intern. The reference is valid as long as the interner.
  const T& Get(PayloadId id) const { return *values_[id.value]; }

  size_t size() const { return values_.size(); }

 private:
  absl::node_hash_map<T, PayloadId, Hash, Equal> ids_;
  std::vector<const T*> values_;  // point to keys of ids_, which do not move
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_INTERNER_H_
