// The op table: one row per op, in the file of its family, ops/<family>.cc. Printer, parser,
// validation, the reference evaluator and what analyses ask (op_traits.h) are derived from the
// rows.
//
//   const OpRow& row = OpInfo(op);   // of Contract: row.name == "Contract", row.composite()
//
// Semantics common to all rows: elementwise ops take operands of equal shape and equal dtype (no
// implicit broadcast, no implicit cast: IndexMap and Cast are written out); integers wrap; every
// node has one result.
#ifndef ATHANOR_COMPILER_IR_GRAPH_OP_H_
#define ATHANOR_COMPILER_IR_GRAPH_OP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/expr/expr.h"
#include "compiler/ir/graph/op_traits.h"
#include "compiler/ir/value/dtype.h"
#include "compiler/ir/value/tensor.h"

namespace athanor {

// Rows may be reordered: the canonical hash depends on the ops' names, not on their order.
#define ATHANOR_OPS(X)                                                                             \
  /* leaves */ X(Input) X(Parameter) X(Constant) X(Iota)                                           \
      X(RandomBits) /* elementwise, one operand */                                                 \
      X(Log2) X(Exp2) X(Sin) X(Sqrt) X(Recip) X(Exp) X(Log) X(Tanh) X(Erf) X(Floor) X(Round)       \
          X(Cos) X(Tan) X(Asin) X(Acos) X(Atan) X(Sinh) X(Cosh) X(Asinh) X(Acosh) X(Atanh)         \
              X(Log1p) X(Expm1) X(Not) X(Cast) X(Bitcast) /* elementwise, two operands */          \
      X(Add) X(Mul) X(Mod) X(Div) X(TruncDiv) X(FloorDiv) X(Pow) X(Min) X(Max) X(And) X(Or) X(Xor) \
          X(Shift) X(LessThan) /* elementwise, three operands */ X(                                \
              Select) /* movement and indexing */ X(IndexMap) X(Gather)                            \
              X(Scatter) /* reductions */ X(SumReduce) X(MaxReduce) X(MulReduce) /* composites */  \
      X(Conv) X(Pool) X(Contract) X(Sigmoid) X(Gelu) X(Silu) X(Relu) X(Softmax) X(LayerNorm)       \
          X(RmsNorm) X(Attention) X(EmbeddingBag) X(Sort) X(TopK) X(Cumulate) X(Rotary)            \
              X(Dequantize) /* control */ X(Scan) /* states */ X(StateRead) X(StateWrite)          \
                  X(PagedAttention)

enum class Op : uint8_t {
#define ATHANOR_X(name) k##name,
  ATHANOR_OPS(ATHANOR_X)
#undef ATHANOR_X
};

using Shape = std::vector<Expr>;

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};
std::string ShapeToString(const Shape& shape);     // "[b, 64]"
std::string TypeToString(const TensorType& type);  // "f32[b, 64]"

// Describes every movement. Output element $0..$r-1 of shape `shape` is the operand's element at
// `coordinates` (one expression per operand axis, over $i and dims). A coordinate outside the
// operand gives the node's `fill`; a map without `fill` must be provably inside.
struct IndexMap {
  Shape shape;
  std::vector<Expr> coordinates;
  bool operator==(const IndexMap&) const = default;
};

// A nested graph: the body of a Scan. It has no dims of its own; its sizes are over those of the
// graph around it (scan.h). Shared and immutable.
class SubGraph {
 public:
  SubGraph() = default;  // empty; no node takes it
  explicit SubGraph(Graph graph);

  explicit operator bool() const { return graph_ != nullptr; }
  const Graph& operator*() const { return *graph_; }
  const Graph* operator->() const { return graph_.get(); }
  // Replaces the graph by a copy and returns that, to be changed while it is not shared. REQUIRES:
  // not empty.
  Graph& Edit();
  // Compares the graphs' text.
  bool operator==(const SubGraph& other) const;

 private:
  std::shared_ptr<const Graph> graph_;
};

using AttrValue = std::variant<bool, int64_t, double, std::string, DType, std::vector<int64_t>,
                               Shape, IndexMap, Tensor, SubGraph>;
enum class AttrType : uint8_t {
  kBool,
  kInt,
  kFloat,
  kString,
  kDType,
  kInts,
  kShape,
  kIndexMap,
  kTensor,
  kGraph
};
std::string_view AttrTypeName(AttrType type);
using Attrs = std::map<std::string, AttrValue, std::less<>>;

struct AttrSpec {
  std::string_view name;
  AttrType type;
  bool required;
  std::string_view doc;
  // Value that an absent optional attribute stands for, if one value does; the canonical form
  // writes it out.
  std::optional<AttrValue> otherwise = std::nullopt;
};

enum class OpClass : uint8_t { kLeaf, kElementwise, kMovement, kReduction, kComposite, kControl };

struct OpRow {
  Op op;
  std::string_view name;
  OpClass op_class;
  int min_inputs, max_inputs;
  std::vector<AttrSpec> attrs;
  // Returns the result type. Errors are INVALID_ARGUMENT or UNIMPLEMENTED and say what would be
  // right, without the node's name: the caller prefixes it. `bounds` holds the graph's dims.
  absl::StatusOr<TensorType> (*infer)(absl::Span<const TensorType> inputs, const Attrs& attrs,
                                      const Bounds& bounds);
  // Computes `semantics` in the slow, obvious way. Shapes are concrete; `result` has its dtype and
  // shape set and zeroed bytes. OUT_OF_RANGE names an index outside its tensor.
  absl::Status (*reference)(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                            const Expr::Env& dims, Tensor* result);
  // Error bound in units in the last place of the result; 0 is the correctly rounded value, bit for
  // bit. For rows that sum floats it is added to the reassociation bound gamma(K) * sum |terms|.
  double ulp;
  std::string_view semantics;  // NaN, infinities, signs, edges, accumulator
  OpTraits traits;

  bool composite() const { return op_class == OpClass::kComposite; }
};

absl::Span<const OpRow> OpTable();  // in the order of ATHANOR_OPS
const OpRow& OpInfo(Op op);
std::string_view OpName(Op op);
std::optional<Op> ParseOp(std::string_view name);

inline OpForm FormOf(Op op) { return OpInfo(op).traits.form; }
inline bool IsElementwise(Op op) { return OpInfo(op).op_class == OpClass::kElementwise; }
// Ops that are unlike all others: leaves, the one movement by a map, choice, and the loop.
constexpr bool IsInput(Op op) { return op == Op::kInput; }
constexpr bool IsParameter(Op op) { return op == Op::kParameter; }
constexpr bool IsStateRead(Op op) { return op == Op::kStateRead; }
constexpr bool IsStateWrite(Op op) { return op == Op::kStateWrite; }
// Reports whether the op's value is a state's: what it holds at first, or what a write leaves.
constexpr bool IsState(Op op) { return IsStateRead(op) || IsStateWrite(op); }
constexpr bool IsDeclared(Op op) { return IsInput(op) || IsParameter(op) || IsStateRead(op); }
constexpr Op DeclaredOp(bool parameter) { return parameter ? Op::kParameter : Op::kInput; }
constexpr bool IsConstant(Op op) { return op == Op::kConstant; }
constexpr bool IsIndexMap(Op op) { return op == Op::kIndexMap; }
constexpr bool IsSelect(Op op) { return op == Op::kSelect; }
constexpr bool IsAddition(Op op) { return op == Op::kAdd; }
constexpr bool IsComparison(Op op) { return op == Op::kLessThan; }
constexpr bool IsLoop(Op op) { return op == Op::kScan; }
constexpr bool IsPagedAttention(Op op) { return op == Op::kPagedAttention; }
// The axis of operand 0 along which operand 1 selects; nullopt if the op does not select by index.
std::optional<int64_t> SelectedAxis(Op op, const Attrs& attrs);

// A contraction's axes: one letter per axis, as in "bmk,bkn->bmn". A letter in both operands but
// not in the result is summed; letters in both and in the result are batch axes. Each operand has
// each letter at most once; a letter only in one operand and not in the result is summed too.
struct ContractSpec {
  std::string lhs, rhs, result;
  static absl::StatusOr<ContractSpec> Parse(std::string_view spec);
  std::string ToString() const { return lhs + "," + rhs + "->" + result; }
};

// Returns an attribute that validation has already found present and of type T.
template <typename T>
const T& GetAttr(const Attrs& attrs, std::string_view name) {
  return std::get<T>(attrs.find(name)->second);
}
template <typename T>
T GetAttrOr(const Attrs& attrs, std::string_view name, T otherwise) {
  auto it = attrs.find(name);
  return it == attrs.end() ? otherwise : std::get<T>(it->second);
}

// Reports whether an op of Rounding::kByMode only chooses among its operands' elements; true of an
// op without modes.
inline bool ModeChooses(const Attrs& attrs) {
  const std::string mode = GetAttrOr<std::string>(attrs, "mode", "set");
  return mode == "set" || mode == "max" || mode == "min";
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_OP_H_
