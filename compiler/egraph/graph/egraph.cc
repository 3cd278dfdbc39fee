#include "compiler/egraph/graph/egraph.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "compiler/egraph/graph/analysis.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::egraph {
namespace {

constexpr size_t kMaxChildren = (size_t{1} << 24) - 1;
constexpr size_t kMaxIds = 0xfffffff0;

using Children = absl::InlinedVector<ClassId, 8>;

}  // namespace

EGraph::EGraph(const Language* language, Analysis* analysis)
    : language_(language), analysis_(analysis), ops_(language->size()) {}

absl::StatusOr<ClassId> EGraph::Add(OpId op, PayloadId payload, absl::Span<const ClassId> children,
                                    Cause cause) {
  RETURN_IF_ERROR(language_->CheckNode(op, payload, children.size()));
  RETURN_IF_ERROR(CheckNode(op, children));
  Children canonical(children.begin(), children.end());
  for (ClassId& child : canonical) child = sets_.FindAndCompress(child);
  const uint32_t hash = Hash(op, payload, canonical);
  if (const NodeId n = FindNode(hash, op, payload, canonical); n.valid()) return class_of(n);

  const NodeId n = PushNode(op, payload, canonical, hash, cause);
  const ClassId next{class_bound()};
  if (analysis_) {
    if (absl::Status why = analysis_->MakeClass(*this, n, next); !why.ok()) {
      const std::string text = NodeText(n);
      children_.resize(nodes_.back().first_child);
      nodes_.pop_back();
      return Refuse(Refusal::Kind::kNode, cause, {}, {},
                    absl::Status(why.code(), absl::StrCat(text, ": ", std::string(why.message()))));
    }
  }
  CommitNode(n, sets_.Make());
  return next;
}

absl::Status EGraph::CheckNode(OpId op, absl::Span<const ClassId> children) const {
  for (size_t i = 0; i < children.size(); ++i) {
    if (IsClass(children[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat(language_->name(op), ": child ", i,
                                                   " is not a class of this e-graph, which has ids "
                                                   "below ",
                                                   class_bound()));
  }
  if (children.size() > kMaxChildren || nodes_.size() >= kMaxIds ||
      children_.size() + children.size() > kMaxIds) {
    return absl::ResourceExhaustedError(
        absl::StrCat(language_->name(op), ": the e-graph has no ids left for a node with ",
                     children.size(), " children"));
  }
  return absl::OkStatus();
}

uint32_t EGraph::Hash(OpId op, PayloadId payload, absl::Span<const ClassId> children) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t h = (uint64_t{op.value} << 32 | payload.value) * kOdd;
  for (const ClassId child : children) {
    h ^= h >> 29;
    h = (h + child.value + 1) * kOdd;
  }
  h = (h ^ h >> 32) * kOdd;
  return static_cast<uint32_t>(h >> 32);
}

NodeId EGraph::FindNode(uint32_t hash, OpId op, PayloadId payload,
                        absl::Span<const ClassId> children) const {
  return hash_cons_.Find(hash, [&](NodeId n) {
    const Node& node = nodes_[n.value];
    return node.op == op && node.payload == payload && this->children(n) == children;
  });
}

ClassId EGraph::Lookup(OpId op, PayloadId payload, absl::Span<const ClassId> children) const {
  Children canonical(children.begin(), children.end());
  for (ClassId& child : canonical) child = Find(child);
  const NodeId n = LookupNode(op, payload, canonical);
  return n.valid() ? class_of(n) : ClassId{};
}

NodeId EGraph::PushNode(OpId op, PayloadId payload, absl::Span<const ClassId> children,
                        uint32_t hash, Cause cause) {
  Node node{};
  node.op = op;
  node.payload = payload;
  node.first_child = static_cast<uint32_t>(children_.size());
  node.num_children = static_cast<uint32_t>(children.size());
  node.state = State::kLive;
  node.hash = hash;
  node.added_by = cause;
  children_.insert(children_.end(), children.begin(), children.end());
  nodes_.push_back(node);
  return NodeId{static_cast<uint32_t>(nodes_.size() - 1)};
}

// Enters a node of the arena into every index, as the only node of the new class `cls`.
void EGraph::CommitNode(NodeId n, ClassId cls) {
  clean_ = false;
  Node& node = nodes_[n.value];
  node.cls = cls;
  classes_.emplace_back();
  lists_.PushBack(&classes_[cls.value].nodes, n);
  const absl::Span<const ClassId> kids = children(n);
  for (size_t i = 0; i < kids.size(); ++i) {
    if (std::find(kids.begin(), kids.begin() + i, kids[i]) != kids.begin() + i) continue;
    lists_.PushBack(&classes_[kids[i].value].parents, n);
    MarkUntidy(kids[i]);
  }
  hash_cons_.Insert(node.hash, n);
  ++num_nodes_;
  ++num_classes_;
  ++ops_[node.op.value].num_nodes;
  Touch(n);
  QueueModify(cls);
}

absl::StatusOr<bool> EGraph::Union(ClassId a, ClassId b, Cause cause) {
  for (const ClassId id : {a, b}) {
    if (IsClass(id)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("Union: ", id.valid() ? absl::StrCat("class ", id.value) : "an invalid id",
                     " is not a class of this e-graph, which has ids below ", class_bound()));
  }
  return Unite(a, b, cause, Refusal::Kind::kUnion);
}

absl::StatusOr<bool> EGraph::Unite(ClassId a, ClassId b, Cause cause, Refusal::Kind kind) {
  const ClassId asked_a = a, asked_b = b;
  a = sets_.FindAndCompress(a);
  b = sets_.FindAndCompress(b);
  if (a == b) return false;
  // The class that is cheaper to move is merged into the other; of equal ones, the younger.
  const auto weight = [&](ClassId id) {
    return size_t{classes_[id.value].nodes.size} + classes_[id.value].parents.size;
  };
  if (weight(a) < weight(b) || (weight(a) == weight(b) && b < a)) std::swap(a, b);
  DidMerge did;
  if (analysis_) {
    const absl::StatusOr<DidMerge> merged = analysis_->MergeClasses(a, b);
    if (!merged.ok()) return Refuse(kind, cause, asked_a, asked_b, merged.status());
    did = *merged;
  }
  if (did.from_differs) {
    for (const NodeId p : parents(b)) QueueUpdate(p, cause);
  }
  if (did.into_changed) ValueChanged(a, cause);
  MoveClass(a, b, cause);
  return true;
}

void EGraph::MoveClass(ClassId winner, ClassId loser, Cause cause) {
  clean_ = false;
  sets_.Union(winner, loser);
  Class& to = classes_[winner.value];
  Class& from = classes_[loser.value];
  for (const NodeId n : lists_.Get(from.nodes)) {
    nodes_[n.value].cls = winner;
    Touch(n);
  }
  for (const NodeId p : lists_.Get(from.parents)) QueueRepair(p, cause);
  lists_.Append(&to.nodes, &from.nodes);
  lists_.Append(&to.parents, &from.parents);
  MarkUntidy(winner);
  --num_classes_;
}

absl::Status EGraph::Refuse(Refusal::Kind kind, Cause cause, ClassId a, ClassId b,
                            const absl::Status& why) {
  ++num_refused_[cause];
  const std::string message(why.message());
  if (refusals_.size() < kMaxRefusals) refusals_.push_back({kind, cause, a, b, message});
  if (!b.valid()) return why;
  return absl::FailedPreconditionError(
      absl::StrCat("classes ", a.value, " and ", b.value, " stay apart: ", message));
}

uint64_t EGraph::num_refused(Cause cause) const {
  const auto it = num_refused_.find(cause);
  return it == num_refused_.end() ? 0 : it->second;
}

std::vector<ClassId> EGraph::Classes() const {
  std::vector<ClassId> classes;
  classes.reserve(num_classes_);
  for (uint32_t i = 0; i < class_bound(); ++i) {
    if (Find(ClassId{i}) == ClassId{i}) classes.push_back(ClassId{i});
  }
  return classes;
}

absl::Span<const NodeId> EGraph::WithOp(absl::Span<const NodeId> sorted, OpId op) const {
  constexpr size_t kShort = 8;
  const auto before = [this](NodeId n, OpId o) { return nodes_[n.value].op < o; };
  const auto after = [this](OpId o, NodeId n) { return o < nodes_[n.value].op; };
  auto first = sorted.begin();
  if (sorted.size() > kShort) {
    first = std::lower_bound(first, sorted.end(), op, before);
    return {first, static_cast<size_t>(std::upper_bound(first, sorted.end(), op, after) - first)};
  }
  while (first != sorted.end() && before(*first, op)) ++first;
  auto last = first;
  while (last != sorted.end() && !after(op, *last)) ++last;
  return {first, static_cast<size_t>(last - first)};
}

std::string EGraph::NodeText(NodeId n) const {
  const std::string head = language_->NodeText(op(n), payload(n));
  if (children(n).empty()) return head;
  std::string text = absl::StrCat("(", head);
  for (const ClassId child : children(n)) absl::StrAppend(&text, " c", Find(child).value);
  return text + ")";
}

size_t EGraph::Bytes() const {
  size_t bytes = nodes_.capacity() * sizeof(Node) + children_.capacity() * sizeof(ClassId) +
                 sets_.Bytes() + classes_.capacity() * sizeof(Class) + lists_.Bytes() +
                 hash_cons_.Bytes() + (analysis_ ? analysis_->Bytes() : 0);
  for (const OpIndex& op : ops_) {
    bytes += (op.changes.capacity() + op.value_changes.capacity()) * sizeof(Change);
  }
  for (const auto& queue : {&repairs_, &updates_})
    bytes += queue->capacity() * sizeof(Work<NodeId>);
  return bytes;
}

}  // namespace athanor::egraph
