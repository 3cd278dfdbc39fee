// Finds all pieces that a text begins with.
//
//   const PieceTrie trie = PieceTrie::Create({{"a", 0}, {"ab", 1}});
//   trie.Find("abc", [&](size_t bytes, int32_t value) {...});   // (1, 0), then (2, 1)
#ifndef ATHANOR_SERVER_TEXT_TOKENS_PIECE_TRIE_H_
#define ATHANOR_SERVER_TEXT_TOKENS_PIECE_TRIE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace athanor {

// Immutable, so thread-safe. Keeps no views of what it is made of.
class PieceTrie {
 public:
  // The values are 0 or more. Of equal pieces the highest value counts; empty ones are passed over.
  static PieceTrie Create(std::vector<std::pair<std::string_view, int32_t>> pieces);

  bool empty() const { return nodes_.empty(); }

  // Calls `receive` with the bytes and the value of each piece that `text` begins with, the
  // shortest first.
  template <typename Receive>
  void Find(std::string_view text, Receive receive) const {
    if (text.empty()) return;
    int32_t at = first_[static_cast<uint8_t>(text[0])];
    for (size_t bytes = 1; at >= 0; ++bytes) {
      const Node& node = nodes_[at];
      if (node.value >= 0) receive(bytes, node.value);
      if (bytes == text.size() || node.children == 0) return;
      const uint8_t* const labels = labels_.data() + node.begin;
      const void* const found =
          std::memchr(labels, static_cast<uint8_t>(text[bytes]), node.children);
      if (found == nullptr) return;
      at = node.begin + static_cast<int32_t>(static_cast<const uint8_t*>(found) - labels);
    }
  }

 private:
  struct Node {
    int32_t begin = 0;     // its children, side by side
    int32_t children = 0;  // at most 256
    int32_t value = -1;    // of the piece that ends here; -1: none does
  };
  std::array<int32_t, 256> first_{};  // nodes of first bytes; -1: no piece begins so
  std::vector<Node> nodes_;           // level by level
  std::vector<uint8_t> labels_;       // by node: the byte that leads to it
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_TOKENS_PIECE_TRIE_H_
