#include "compiler/ir/rows/sequence_independence.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/rows/walk.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using row_walk::Rows;
using row_walk::Walk;

// Says what a value follows from.
enum class Source : uint8_t {
  kFixed,   // weights and constants
  kState,   // what a state holds
  kTable,   // inputs without rows
  kWanted,  // rows that were asked for
  kRows,    // one row of T each
};

class Sequences {
 public:
  Sequences(const Graph& graph, std::string_view dim)
      : graph_(graph),
        walk_{graph, std::string(dim), graph.DimBounds(), std::vector<Rows>(graph.nodes.size())},
        sources_(graph.nodes.size(), Source::kFixed) {}

  absl::Status Run() {
    const std::vector<bool> needed = row_walk::Needed(graph_);
    for (NodeId n = 0; n < static_cast<NodeId>(needed.size()); ++n) {
      if (!needed[n]) continue;
      if (absl::Status s = Visit(n); !s.ok()) return Prefixed(graph_.Describe(n) + ": ", s);
    }
    if (wanted_ >= 0) RETURN_IF_ERROR(WalkWanted(needed));
    return CheckEnds();
  }

  std::string wanted() const {
    return wanted_ < 0 ? "" : *graph_.node(wanted_).type.shape[0].symbol();
  }

 private:
  bool Has(const Node& node, int operand, Source source) const {
    return sources_[node.inputs[operand]] == source;
  }
  bool HasAny(const Node& node, Source source) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](NodeId i) { return sources_[i] == source; });
  }
  // Reports whether the operand has one element of axis 0 for each row of T.
  bool IsRow(const Node& node, int operand) const {
    const Rows& rows = walk_.rows[node.inputs[operand]];
    return Has(node, operand, Source::kRows) && rows.axis == 0 && rows.per_row.IsConstant(1);
  }

  absl::Status Visit(NodeId n) {
    const Node& node = graph_.node(n);
    Source& source = sources_[n];
    if (IsStateRead(node.op)) {
      source = Source::kState;
      const Shape& shape = node.type.shape;
      if (std::none_of(shape.begin(), shape.end(),
                       [&](const Expr& e) { return e.Uses(walk_.dim); })) {
        return absl::OkStatus();
      }
      return Invalid("has the rows of dim ", walk_.dim, "; a state has slots");
    }
    if (IsLoop(node.op)) return Invalid("is a loop, which no proof about sequences knows");
    if (IsStateWrite(node.op)) {
      source = Source::kState;
      if (IsRow(node, 1) && IsRow(node, 2)) return absl::OkStatus();
      return Invalid("writes what is no row of dim ", walk_.dim);
    }
    if (Begins(node)) {
      source = Source::kWanted;
      return Begin(node.inputs[1]);
    }
    ASSIGN_OR_RETURN(walk_.rows[n], row_walk::Prove(walk_, node));
    if (IsInput(node.op)) {
      source = walk_.rows[n].any() ? Source::kRows : Source::kTable;
      return absl::OkStatus();
    }
    if (IsPagedAttention(node.op)) return VisitPaged(node, &source);
    return VisitOther(node, walk_.rows[n].any(), &source);
  }

  // A Gather of rows of T by an input that has none.
  bool Begins(const Node& node) const {
    if (FormOf(node.op) != OpForm::kGather || !IsRow(node, 0)) return false;
    const Node& index = graph_.node(node.inputs[1]);
    return GetAttr<int64_t>(node.attrs, "axis") == 0 && IsInput(index.op) &&
           Has(node, 1, Source::kTable) && index.type.shape.size() == 1 &&
           index.type.shape[0].symbol().has_value();
  }

  absl::Status Begin(NodeId index) {
    if (wanted_ >= 0 && wanted_ != index) {
      return Invalid("asks for rows by ", graph_.Describe(index), ", another node by ",
                     graph_.Describe(wanted_));
    }
    wanted_ = index;
    return absl::OkStatus();
  }

  absl::Status VisitPaged(const Node& node, Source* source) {
    *source = Source::kRows;
    for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i) {
      const Op op = graph_.node(node.inputs[i]).op;
      const std::string what = Cat("operand ", i, ", ", graph_.Describe(node.inputs[i]), ", ");
      if (i == 1 || i == 2) {
        if (!Has(node, i, Source::kState)) return Invalid(what, "is no state");
      } else if (i == 3) {
        if (!IsInput(op) || !Has(node, i, Source::kTable)) {
          return Invalid(what, "is no table that is an input");
        }
      } else if (i == 6) {
        if (!Has(node, i, Source::kFixed)) return Invalid(what, "is no weight");
      } else if (!IsRow(node, i) || (i == 4 && !IsInput(op))) {
        return Invalid(what, "is no row of dim ", walk_.dim, i == 4 ? " that is an input" : "");
      }
    }
    return absl::OkStatus();
  }

  absl::Status VisitOther(const Node& node, bool rows, Source* source) {
    if (HasAny(node, Source::kState)) {
      return Invalid("reads a state; only PagedAttention knows whose slots a row may read");
    }
    if (rows) {
      *source = Source::kRows;
      if (HasAny(node, Source::kWanted)) {
        return Invalid("takes rows that were asked for into each row of dim ", walk_.dim);
      }
      const bool reads_table = FormOf(node.op) == OpForm::kGather && Has(node, 1, Source::kRows);
      for (int i = reads_table ? 1 : 0; i < static_cast<int>(node.inputs.size()); ++i) {
        if (!Has(node, i, Source::kTable)) continue;
        return Invalid("takes operand ", i, ", which has no rows of dim ", walk_.dim,
                       ", into each of them");
      }
      return absl::OkStatus();
    }
    *source = HasAny(node, Source::kWanted)  ? Source::kWanted
              : HasAny(node, Source::kTable) ? Source::kTable
                                             : Source::kFixed;
    if (*source == Source::kWanted && HasAny(node, Source::kTable)) {
      return Invalid("takes an input without rows into each row that was asked for");
    }
    return absl::OkStatus();
  }

  // Checks that rows that were asked for stay apart too. Weights may be spread over them.
  absl::Status WalkWanted(const std::vector<bool>& needed) {
    Walk walk{graph_, wanted(), walk_.bounds, std::vector<Rows>(graph_.nodes.size())};
    walk.rows[wanted_] = {0, 1};
    for (NodeId n = 0; n < static_cast<NodeId>(needed.size()); ++n) {
      if (!needed[n] || (sources_[n] != Source::kWanted && sources_[n] != Source::kFixed)) continue;
      const absl::StatusOr<Rows> rows = row_walk::Prove(walk, graph_.node(n));
      if (!rows.ok()) return Prefixed(graph_.Describe(n) + ": ", rows.status());
      walk.rows[n] = *rows;
    }
    wanted_rows_ = std::move(walk.rows);
    return absl::OkStatus();
  }

  absl::Status CheckEnds() const {
    for (const Output& output : graph_.outputs) {
      const bool asked = sources_[output.node] == Source::kWanted;
      if ((asked ? wanted_rows_ : walk_.rows)[output.node].axis == 0) continue;
      return Invalid("output ", Quoted(output.name), ": has no rows of dim ",
                     asked ? wanted() : walk_.dim, " on axis 0");
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  Walk walk_;
  std::vector<Source> sources_;    // by node
  NodeId wanted_ = -1;             // the input that asks for rows
  std::vector<Rows> wanted_rows_;  // by node: rows of the dim of that input
};

}  // namespace

SequenceProof ProveSequenceIndependent(const Graph& graph, std::string_view dim) {
  Sequences sequences(graph, dim);
  absl::Status s = row_walk::CheckDim(graph, dim);
  if (s.ok()) s = sequences.Run();
  if (!s.ok()) return {false, std::string(s.message()), ""};
  return {true, "", sequences.wanted()};
}

}  // namespace athanor
