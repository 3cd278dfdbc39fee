// Variables of patterns, and their values in one match.
//
//   [](const Match& m) { return shapes.Get(m.graph(), m.Class("x")).rank == 2; }
//
// A variable holds a class (?x), a payload (round[?digits]), or all further children of a node with
// any number of children (?xs...). Names are given without the question mark and the dots.
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_VARIABLES_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_VARIABLES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/egraph/graph/egraph.h"
#include "compiler/egraph/graph/ids.h"

namespace athanor::egraph {

enum class VariableKind : uint8_t { kClass, kPayload, kRest };

struct Variable {
  std::string name;  // empty: it cannot be referred to by name
  VariableKind kind = VariableKind::kClass;
  uint32_t rest_begin = 0;  // kRest: number of children before it

  bool operator==(const Variable&) const = default;
};

// The variables of a rule, by index.
class Variables {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // Returns the variable of this name, which is added if it is new. INVALID_ARGUMENT if it exists
  // with another kind.
  absl::StatusOr<uint32_t> Intern(const std::string& name, VariableKind kind);
  // Adds a variable without a name.
  uint32_t AddNameless(VariableKind kind);

  // Returns kNone if there is none.
  uint32_t Find(std::string_view name) const;
  size_t size() const { return variables_.size(); }
  const Variable& operator[](uint32_t i) const { return variables_[i]; }
  Variable& operator[](uint32_t i) { return variables_[i]; }
  bool operator==(const Variables&) const = default;

 private:
  std::vector<Variable> variables_;
};

// Values of variables. Borrows everything; lives for one call of a condition or applier.
class Match {
 public:
  // `values` are the numbers of classes and of payloads; for rests, of the node.
  Match(const EGraph* graph, const Variables* variables, absl::Span<const uint32_t> values)
      : graph_(graph), variables_(variables), values_(values) {}

  const EGraph& graph() const { return *graph_; }

  // Return values by name; an invalid id, or no children, if there is no such variable of this
  // kind. Classes are canonical at the time of the call.
  ClassId Class(std::string_view name) const { return Class(variables_->Find(name)); }
  PayloadId Payload(std::string_view name) const { return Payload(variables_->Find(name)); }
  absl::Span<const ClassId> Rest(std::string_view name) const {
    return Rest(variables_->Find(name));
  }

  // Return values by index.
  ClassId Class(uint32_t i) const;
  PayloadId Payload(uint32_t i) const;
  absl::Span<const ClassId> Rest(uint32_t i) const;

 private:
  bool Is(uint32_t i, VariableKind kind) const {
    return i < variables_->size() && (*variables_)[i].kind == kind;
  }

  const EGraph* graph_;
  const Variables* variables_;
  absl::Span<const uint32_t> values_;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_VARIABLES_H_
