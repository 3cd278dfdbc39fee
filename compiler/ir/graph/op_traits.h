// Traits tell analyses what they need to know of an op. They stand in the op's row, beside its
// inference and its reference function, so that nobody else has to switch over ops.
//
//   OpInfo(op).traits.form == OpForm::kReduce       // what search and codegen make of it
//   OpInfo(op).traits.rounding == Rounding::kRounds // what a check of results allows it
//
// Defaults follow from the row's class (OpTable completes them); a movement or composite op says
// what its class does not. The test of the op table fails while a row lacks a trait.
#ifndef ATHANOR_COMPILER_IR_GRAPH_OP_TRAITS_H_
#define ATHANOR_COMPILER_IR_GRAPH_OP_TRAITS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace athanor {

struct Graph;
struct Node;
using NodeId = int32_t;
class Cutter;       // ops/cutter.h
struct ValueFacts;  // ops/value_facts.h
struct ValueQuery;

// The kinds of code that a kernel has for an op.
enum class OpForm : uint8_t {
  kByClass,      // default: kElementwise, kReduce or kDecomposed; other classes state one
  kOperand,      // Input, Parameter, StateRead: bytes from outside
  kLiteral,      // bytes in the graph
  kCount,        // each element is its coordinate along attribute `axis`
  kRandom,       // each element follows from operand 0, a scalar, and its place
  kElementwise,  // each element from those at the same place
  kView,         // each element is one of operand 0, where attribute `map` says, or `fill`
  kGather,       // each element is one of operand 0, where operand 1 says
  kReduce,       // a fold over attribute `axes`
  kContract,     // sums of products by attribute `spec`
  kAttention,
  kBags,        // rows of operand 0 reduced by bag
  kOrder,       // positions along attribute `axis` in order, all or the first
  kScatter,     // operand 0 with operand 2 combined in where operand 1 says
  kStateWrite,  // the state of operand 0, with operand 2 written into it where operand 1 says
  kLoop,        // a body run step by step
  kDecomposed,  // no kernel of its own: its decomposition has
};

// Distances of an op's float result from the exact one.
enum class Rounding : uint8_t {
  kRounds,    // within the row's `ulp` of it
  kChooses,   // an operand's element; of zeros of both signs either
  kKeeps,     // an operand's element, bit for bit
  kIntegral,  // an integer that the dtype holds: exact
  kBits,      // its operand's bits
  kConverts,  // correctly rounded to a dtype that may be narrower
  kByMode,    // by attribute `mode`: set, max and min choose, others round
};

// Ways in which errors of operands reach the result; server/tuner/check has a bound for each.
enum class ErrorRule : uint8_t {
  kByClass,   // default: kMonotone for elementwise ops, kDecomposed for composites, else kNone
  kNone,      // no operand is a float
  kMonotone,  // f(x), largest at an end of [x - e, x + e]
  kMonotoneFromZero,  // the same, of a function that takes no negative numbers
  kReciprocal,        // the same, with a pole at 0
  kSumOfTwo,
  kProductOfTwo,
  kQuotient,
  kRemainder,
  kPower,
  kEither,      // the larger or smaller of two
  kComparison,  // true or false by two
  kChoice,      // Select
  kPeriodic,    // in [-1, 1], slope at most 1
  kTangent,
  kBits,  // any error leaves nothing known
  kSum,
  kLargest,
  kProduct,
  kContraction,
  kBags,
  kMoved,  // elements of operand 0 elsewhere, by operand 1 where there is one
  kScattered,
  kOrder,
  kLoop,
  kDecomposed,  // as its decomposition says
};

// Uses of an operand, as far as they matter for index checks and for test data drawn for it.
enum class OperandRole : uint8_t {
  kNone,
  kPassed,   // its elements are the result's
  kIndex,    // selects along attribute `axis` of operand 0, or axis 0
  kOffsets,  // begins of bags over operand 1
  kFactor,
  kTerm,
  kContracted,  // products of its elements are summed
  kMask,        // added to scores
  kSlots,       // distinct rows of operand 0, a state
  kBlocks,      // distinct blocks of `block` rows of operand 1
  kSequences,   // rows of operand 3
  kPositions,   // distinct keys of the blocks in a row of operand 3
};

// The result's axis that each operand's axis becomes, position by position: flow[operand][axis].
using AxisFlow = std::vector<std::vector<int>>;
inline constexpr int kMixed = -1;  // its elements meet in the result, or it has no such axis

struct RowTraits {
  // REQUIRES: a form other than kOperand, kLiteral, kCount, kRandom, kView and kLoop, for which
  // rows/ has proofs of its own. Default: elementwise ops keep every axis, reductions drop `axes`.
  AxisFlow (*flow)(const Graph& graph, const Node& node) = nullptr;
  std::string_view mixes = "";  // verb for messages about an axis that its flow mixes
  bool fixed_sizes = false;     // the sizes in its attributes must not vary with the rows
};

struct OpTraits {
  OpForm form = OpForm::kByClass;
  Rounding rounding = Rounding::kRounds;
  ErrorRule errors = ErrorRule::kByClass;
  // Operations per element of the result; a multiply-add counts as two. Unused for the forms that
  // search counts itself: kContract, kAttention, kOrder.
  double flops = 1;
  // True if the reference function visits each element a few times, instead of a row of an operand
  // for each element. True of every op that is not a composite.
  bool linear = false;
  std::vector<OperandRole> roles = {};  // by operand; kNone behind its end
  RowTraits rows = {};
  // Derives facts about its values; null: only those that its dtype gives.
  ValueFacts (*values)(const ValueQuery& query) = nullptr;
  // Pulls the operands' elements from which the wanted elements of a node follow (ops/cutter.h).
  // Null for kOperand and kLiteral. Default: the function of its class (elementwise, reduction).
  absl::Status (*sample)(Cutter& cutter, NodeId node) = nullptr;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_OP_TRAITS_H_
