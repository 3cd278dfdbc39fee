#include "compiler/egraph/graph/node_table.h"

namespace athanor::egraph {
namespace {

constexpr size_t kMaxChildren = (size_t{1} << 24) - 1;
constexpr size_t kMaxIds = 0xfffffff0;

uint32_t Hash(OpId op, PayloadId payload, absl::Span<const ClassId> children) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t h = (uint64_t{op.value} << 32 | payload.value) * kOdd;
  for (const ClassId child : children) {
    h ^= h >> 29;
    h = (h + child.value + 1) * kOdd;
  }
  h = (h ^ h >> 32) * kOdd;
  return static_cast<uint32_t>(h >> 32);
}

}  // namespace

NodeContent::NodeContent(OpId op, PayloadId payload, absl::Span<const ClassId> children)
    : op(op), payload(payload), children(children), hash(Hash(op, payload, children)) {}

bool NodeTable::HasRoomFor(size_t num_children) const {
  return num_children <= kMaxChildren && nodes_.size() < kMaxIds &&
         children_.size() + num_children <= kMaxIds;
}

size_t NodeTable::Bytes() const {
  return nodes_.capacity() * sizeof(ENode) + children_.capacity() * sizeof(ClassId) + live_.Bytes();
}

NodeId NodeTable::Push(const NodeContent& content, Cause added_by) {
  ENode node{};
  node.op = content.op;
  node.payload = content.payload;
  node.first_child = static_cast<uint32_t>(children_.size());
  node.num_children = static_cast<uint32_t>(content.children.size());
  node.state = ENode::State::kLive;
  node.hash = content.hash;
  node.added_by = added_by;
  children_.insert(children_.end(), content.children.begin(), content.children.end());
  nodes_.push_back(node);
  return NodeId{size() - 1};
}

void NodeTable::Pop() {
  children_.resize(nodes_.back().first_child);
  nodes_.pop_back();
}

void NodeTable::Enter(NodeId n) {
  nodes_[n.value].state = ENode::State::kLive;
  live_.Insert(nodes_[n.value].hash, n);
}

NodeContent NodeTable::Canonicalize(NodeId n, UnionFind* sets) {
  ENode& node = nodes_[n.value];
  if (node.state == ENode::State::kLive) live_.Erase(node.hash, n);
  for (uint32_t i = 0; i < node.num_children; ++i) {
    ClassId& child = children_[node.first_child + i];
    child = sets->FindAndCompress(child);
  }
  const NodeContent content = Content(n);
  node.hash = content.hash;
  return content;
}

}  // namespace athanor::egraph
