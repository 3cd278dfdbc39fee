// E-nodes: an arena in which a node keeps its id, and a hash table that finds it by its content.
//
//   const NodeContent sum(kAdd, {}, {x, y});          // with canonical children
//   NodeId n = table.Find(sum);
//   if (!n.valid()) table.Enter(n = table.Push(sum, Cause::kUser));
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_NODE_TABLE_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_NODE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compiler/egraph/graph/hash_cons.h"
#include "compiler/egraph/graph/ids.h"
#include "compiler/egraph/graph/union_find.h"

namespace athanor::egraph {

// Everything that makes two nodes equal. Borrows the children.
struct NodeContent {
  NodeContent(OpId op, PayloadId payload, absl::Span<const ClassId> children);

  OpId op;
  PayloadId payload;
  absl::Span<const ClassId> children;
  uint32_t hash;
};

struct ENode {
  enum class State : uint32_t {
    kLive,    // found by its content
    kShadow,  // equal to a live node of another class with which the analysis refused to unite it
    kDead,
  };
  OpId op;
  PayloadId payload;
  ClassId cls;  // id of its class; canonical when the e-graph is clean
  uint32_t first_child;
  uint32_t num_children : 24;
  State state : 2;
  uint32_t repair_queued : 1;
  uint32_t update_queued : 1;
  uint32_t hash;  // hash of its content
  Cause added_by;
  uint32_t stamp;  // see change_log.h
  uint32_t value_stamp;
};

class NodeTable {
 public:
  const ENode& operator[](NodeId n) const { return nodes_[n.value]; }
  ENode& operator[](NodeId n) { return nodes_[n.value]; }
  absl::Span<const ClassId> children(NodeId n) const {
    return {children_.data() + nodes_[n.value].first_child, nodes_[n.value].num_children};
  }
  NodeContent Content(NodeId n) const {
    return {nodes_[n.value].op, nodes_[n.value].payload, children(n)};
  }
  // Returns the number of ids given, those of dead nodes too.
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  size_t num_live() const { return live_.size(); }
  // Reports whether a further node with that many children gets an id.
  bool HasRoomFor(size_t num_children) const;
  size_t Bytes() const;

  // Returns the live node of this content; an invalid id if there is none.
  NodeId Find(const NodeContent& content) const {
    return live_.Find(content.hash, [&](NodeId n) {
      const ENode& node = nodes_[n.value];
      return node.op == content.op && node.payload == content.payload &&
             children(n) == content.children;
    });
  }

  // Adds a node at the end of the arena, which Find does not know yet.
  NodeId Push(const NodeContent& content, Cause added_by);
  // Removes the node that was pushed last. REQUIRES: it was not entered.
  void Pop();
  // Makes a node live. REQUIRES: Find(Content(n)) finds none.
  void Enter(NodeId n);
  // Makes a node's children canonical. It is live no longer, until it is entered again.
  NodeContent Canonicalize(NodeId n, UnionFind* sets);

 private:
  std::vector<ENode> nodes_;
  std::vector<ClassId> children_;  // children of all nodes, one after another
  HashCons live_;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_NODE_TABLE_H_
