// The table of operators that e-nodes consist of.
//
//   enum MathOp { kAdd, kNum };
//   absl::StatusOr<Language> math = Language::Make({
//       {.name = "+", .arity = 2},
//       {.name = "num", .arity = 0, .payload = NumberText(), .literal = true},
//   });
//   // "(+ 1 ?x)" now parses as a pattern, and OpId{kAdd} is "+".
//
// Immutable, so threads may share it.
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_LANGUAGE_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_LANGUAGE_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "compiler/egraph/graph/ids.h"

namespace athanor::egraph {

// Text form of an operator's payloads. `parse` returns nullopt for invalid text. Both are called
// from the thread that prints or parses.
struct PayloadText {
  std::function<std::string(PayloadId)> print;
  std::function<std::optional<PayloadId>(std::string_view)> parse;
};

struct OpSpec {
  static constexpr int kVariadic = -1;

  std::string name;  // without blanks, brackets, quotes or a leading '?'
  int arity = 0;     // or kVariadic
  // If set, every node of the operator has a payload; otherwise none has.
  std::optional<PayloadText> payload = {};
  // For an operator without children: its nodes are written as their payload alone, `3` instead of
  // `num[3]`. An atom that is no operator's name is tried with the literal operators in the table's
  // order.
  bool literal = false;
};

class Language {
 public:
  // The id of an operator is its index in `ops`. INVALID_ARGUMENT names the row that is wrong.
  static absl::StatusOr<Language> Make(std::vector<OpSpec> ops);

  size_t size() const { return ops_.size(); }
  bool Has(OpId op) const { return op.value < ops_.size(); }
  // REQUIRES: Has(op).
  const OpSpec& spec(OpId op) const { return ops_[op.value]; }
  const std::string& name(OpId op) const { return spec(op).name; }

  // Returns an invalid id if there is no such operator.
  OpId Find(const std::string& name) const;
  // A literal atom, as operator and payload.
  struct Literal {
    OpId op;
    PayloadId payload;
  };
  std::optional<Literal> ParseLiteral(std::string_view atom) const;

  // Returns OK, or an error that says what is wrong with such a node.
  absl::Status CheckNode(OpId op, PayloadId payload, size_t num_children) const;

  // Returns "+", "perm[1, 0]" or, for literals, "3".
  std::string NodeText(OpId op, PayloadId payload) const;

 private:
  std::vector<OpSpec> ops_;
  absl::flat_hash_map<std::string, OpId> by_name_;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_LANGUAGE_H_
