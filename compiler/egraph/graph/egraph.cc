#include "compiler/egraph/graph/egraph.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "compiler/egraph/graph/analysis.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::egraph {
namespace {

using Children = absl::InlinedVector<ClassId, 8>;

}  // namespace

EGraph::EGraph(const Language* language, Analysis* analysis)
    : language_(language), analysis_(analysis), changes_(language->size()) {}

absl::StatusOr<ClassId> EGraph::Add(OpId op, PayloadId payload, absl::Span<const ClassId> children,
                                    Cause cause) {
  RETURN_IF_ERROR(language_->CheckNode(op, payload, children.size()));
  RETURN_IF_ERROR(CheckNode(op, children));
  Children canonical(children.begin(), children.end());
  for (ClassId& child : canonical) child = sets_.FindAndCompress(child);
  const NodeContent content(op, payload, canonical);
  if (const NodeId n = nodes_.Find(content); n.valid()) return class_of(n);

  const NodeId n = nodes_.Push(content, cause);
  const ClassId next{class_bound()};
  if (analysis_) {
    if (absl::Status why = analysis_->MakeClass(*this, n, next); !why.ok()) {
      const std::string text = NodeText(n);
      nodes_.Pop();
      why = absl::Status(why.code(), absl::StrCat(text, ": ", std::string(why.message())));
      return refusals_.Add(Refusal::Kind::kNode, cause, {}, {}, why);
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
  if (!nodes_.HasRoomFor(children.size())) {
    return absl::ResourceExhaustedError(
        absl::StrCat(language_->name(op), ": the e-graph has no ids left for a node with ",
                     children.size(), " children"));
  }
  return absl::OkStatus();
}

ClassId EGraph::Lookup(OpId op, PayloadId payload, absl::Span<const ClassId> children) const {
  Children canonical(children.begin(), children.end());
  for (ClassId& child : canonical) child = Find(child);
  const NodeId n = LookupNode(op, payload, canonical);
  return n.valid() ? class_of(n) : ClassId{};
}

// Enters a node of the arena into every index, as the only node of the new class `cls`.
void EGraph::CommitNode(NodeId n, ClassId cls) {
  clean_ = false;
  nodes_[n].cls = cls;
  nodes_.Enter(n);
  lists_.AddClass(n);
  modify_queued_.push_back(false);
  const absl::Span<const ClassId> kids = children(n);
  for (size_t i = 0; i < kids.size(); ++i) {
    if (std::find(kids.begin(), kids.begin() + i, kids[i]) != kids.begin() + i) continue;
    lists_.AddParent(kids[i], n);
  }
  ++num_nodes_;
  ++num_classes_;
  changes_.Add(op(n));
  changes_.Touch(n, &nodes_[n]);
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
  const auto weight = [&](ClassId id) { return nodes(id).size() + parents(id).size(); };
  if (weight(a) < weight(b) || (weight(a) == weight(b) && b < a)) std::swap(a, b);
  DidMerge did;
  if (analysis_) {
    const absl::StatusOr<DidMerge> merged = analysis_->MergeClasses(a, b);
    if (!merged.ok()) return refusals_.Add(kind, cause, asked_a, asked_b, merged.status());
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
  for (const NodeId n : nodes(loser)) {
    nodes_[n].cls = winner;
    changes_.Touch(n, &nodes_[n]);
  }
  for (const NodeId p : parents(loser)) QueueRepair(p, cause);
  lists_.Merge(winner, loser);
  sets_.Union(winner, loser);
  --num_classes_;
}

std::vector<ClassId> EGraph::Classes() const {
  std::vector<ClassId> classes;
  classes.reserve(num_classes_);
  for (uint32_t i = 0; i < class_bound(); ++i) {
    if (Find(ClassId{i}) == ClassId{i}) classes.push_back(ClassId{i});
  }
  return classes;
}

std::string EGraph::NodeText(NodeId n) const {
  const std::string head = language_->NodeText(op(n), payload(n));
  if (children(n).empty()) return head;
  std::string text = absl::StrCat("(", head);
  for (const ClassId child : children(n)) absl::StrAppend(&text, " c", Find(child).value);
  return text + ")";
}

size_t EGraph::Bytes() const {
  return nodes_.Bytes() + sets_.Bytes() + lists_.Bytes() + changes_.Bytes() +
         (repairs_.capacity() + updates_.capacity()) * sizeof(Work) +
         (analysis_ ? analysis_->Bytes() : 0);
}

}  // namespace athanor::egraph
