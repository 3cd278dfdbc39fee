#include "server/text/tokens/piece_trie.h"

#include <algorithm>

namespace athanor {

PieceTrie PieceTrie::Create(std::vector<std::pair<std::string_view, int32_t>> pieces) {
  PieceTrie trie;
  trie.first_.fill(-1);
  std::erase_if(pieces, [](const auto& piece) { return piece.first.empty(); });
  std::sort(pieces.begin(), pieces.end());
  // A node to be given children: its pieces, all of which begin with the same `depth` bytes.
  struct Open {
    int32_t node;  // -1: the root
    size_t begin, end, depth;
  };
  std::vector<Open> level = {{-1, 0, pieces.size(), 0}}, next;
  for (; !level.empty(); level.swap(next)) {
    next.clear();
    for (const Open& open : level) {
      size_t at = open.begin;
      const auto begin = static_cast<int32_t>(trie.nodes_.size());
      // Those that end at the node come first.
      while (at < open.end && pieces[at].first.size() == open.depth) ++at;
      while (at < open.end) {
        const char label = pieces[at].first[open.depth];
        Open child = {static_cast<int32_t>(trie.nodes_.size()), at, at, open.depth + 1};
        Node node;
        for (; at < open.end && pieces[at].first[open.depth] == label; ++at) {
          if (pieces[at].first.size() == child.depth) node.value = pieces[at].second;
        }
        child.end = at;
        if (open.node < 0) trie.first_[static_cast<uint8_t>(label)] = child.node;
        trie.nodes_.push_back(node);
        trie.labels_.push_back(static_cast<uint8_t>(label));
        next.push_back(child);
      }
      if (open.node < 0) continue;
      trie.nodes_[open.node].begin = begin;
      trie.nodes_[open.node].children = static_cast<int32_t>(trie.nodes_.size()) - begin;
    }
  }
  return trie;
}

}  // namespace athanor
