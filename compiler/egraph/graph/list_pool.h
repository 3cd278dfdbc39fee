// Many small growing lists in one array: there is no allocation per list, and their total size is
// known. A list's block doubles when it is full; free blocks are reused by size.
//
//   ListPool<NodeId> pool;
//   ListPool<NodeId>::List list;
//   pool.PushBack(&list, NodeId{7});
//   for (NodeId n : pool.Get(list)) ...   // valid until the pool next grows
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_LIST_POOL_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_LIST_POOL_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"

namespace athanor::egraph {

template <typename T>
class ListPool {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // A handle. Copies refer to the same list, so only one of them may be changed or freed.
  struct List {
    uint32_t begin = 0;
    uint32_t size = 0;
    uint32_t capacity = 0;  // zero or a power of two
  };

  absl::Span<const T> Get(const List& list) const {
    return {items_.data() + list.begin, list.size};
  }
  absl::Span<T> GetMutable(const List& list) { return {items_.data() + list.begin, list.size}; }

  void PushBack(List* list, T item) {
    if (list->size == list->capacity) Reserve(list, list->size + 1);
    items_[list->begin + list->size++] = item;
  }

  // Appends the items of `from` to `to` and empties `from`.
  void Append(List* to, List* from) {
    Reserve(to, to->size + from->size);
    std::copy_n(items_.begin() + from->begin, from->size, items_.begin() + to->begin + to->size);
    to->size += from->size;
    Free(from);
  }

  void Truncate(List* list, size_t size) { list->size = static_cast<uint32_t>(size); }

  void Free(List* list) {
    if (list->capacity > 0) free_[std::countr_zero(list->capacity)].push_back(list->begin);
    *list = List{};
  }

  size_t Bytes() const {
    size_t bytes = items_.capacity() * sizeof(T);
    for (const auto& blocks : free_) bytes += blocks.capacity() * sizeof(uint32_t);
    return bytes;
  }

 private:
  void Reserve(List* list, uint32_t size) {
    if (size <= list->capacity) return;
    List bigger{.begin = 0, .size = list->size, .capacity = std::bit_ceil(size)};
    auto& blocks = free_[std::countr_zero(bigger.capacity)];
    if (blocks.empty()) {
      bigger.begin = static_cast<uint32_t>(items_.size());
      items_.resize(items_.size() + bigger.capacity);
    } else {
      bigger.begin = blocks.back();
      blocks.pop_back();
    }
    std::copy_n(items_.begin() + list->begin, list->size, items_.begin() + bigger.begin);
    Free(list);
    *list = bigger;
  }

  std::vector<T> items_;
  std::array<std::vector<uint32_t>, 32> free_;  // blocks of 2^i items
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_LIST_POOL_H_
