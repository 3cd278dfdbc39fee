// LoopOverBags: recognises the Loop that exporters write for an EmbeddingBag. Its body cuts one bag
// out of the ids, gathers its rows and reduces them. The sizes depend on data, so no single step
// can be built, but the whole loop is one op of ours.
#include <limits>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/ops/networks/handlers_control.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;

// The parts of a loop over bags. The values belong to the scopes around the loop.
struct Bags {
  const Value* table = nullptr;   // [V, D]
  const Value* ids = nullptr;     // [N]
  const Value* starts = nullptr;  // at least one per bag
  const Value* ends = nullptr;
  std::string_view mode;
};

std::optional<std::vector<int64_t>> IntegersOf(const TensorProto& tensor) {
  if (tensor.data_type() != TensorProto::INT64 || tensor.dims_size() > 1) return std::nullopt;
  if (!tensor.has_raw_data()) {
    return std::vector<int64_t>(tensor.int64_data().begin(), tensor.int64_data().end());
  }
  std::vector<int64_t> values(tensor.raw_data().size() / sizeof(int64_t));
  tensor.raw_data().copy(reinterpret_cast<char*>(values.data()), values.size() * sizeof(int64_t));
  return values;
}

// Matches a body, going back from its outputs.
class Matcher {
 public:
  explicit Matcher(HandlerContext& c) : c_(c), body_(c.GraphAttr("body")) {
    for (const NodeProto& node : body_.node()) {
      for (const std::string& result : node.output()) makers_[result] = &node;
    }
    for (const TensorProto& tensor : body_.initializer()) constants_[tensor.name()] = &tensor;
  }

  std::optional<Bags> Match() {
    if (body_.input_size() != 2 || body_.output_size() != 2) return std::nullopt;
    Bags bags;
    if (!GoesOn(body_.output(0).name()) || !MatchReduction(&bags)) return std::nullopt;
    return bags;
  }

 private:
  const NodeProto* Maker(std::string_view name, std::string_view op) const {
    const auto found = makers_.find(name);
    return found == makers_.end() || found->second->op_type() != op ? nullptr : found->second;
  }
  // Returns a value that is defined outside the body; null otherwise.
  const Value* Outer(std::string_view name) const {
    if (makers_.contains(name) || constants_.contains(name)) return nullptr;
    return c_.Outer(name);
  }
  static const AttributeProto* Attribute(const NodeProto& node, std::string_view name) {
    for (const AttributeProto& attribute : node.attribute()) {
      if (attribute.name() == name) return &attribute;
    }
    return nullptr;
  }

  // Returns numbers that are the same in every step.
  std::optional<std::vector<int64_t>> Constants(std::string_view name) const {
    if (const auto found = constants_.find(name); found != constants_.end()) {
      return IntegersOf(*found->second);
    }
    if (const NodeProto* constant = Maker(name, "Constant")) {
      if (const AttributeProto* value = Attribute(*constant, "value"))
        return IntegersOf(value->t());
      if (const AttributeProto* value = Attribute(*constant, "value_ints")) {
        return std::vector<int64_t>(value->ints().begin(), value->ints().end());
      }
      return std::nullopt;
    }
    const Value* outer = Outer(name);
    if (outer == nullptr || outer->known == nullptr) return std::nullopt;
    std::vector<int64_t> values;
    for (const Expr& size : outer->known->sizes) {
      if (!size.constant()) return std::nullopt;
      values.push_back(*size.constant());
    }
    return values;
  }

  // Checks operand or attribute `name`, such as axes.
  bool IsInts(const NodeProto& node, int operand, std::string_view name,
              const std::vector<int64_t>& want) const {
    if (const AttributeProto* attribute = Attribute(node, name)) {
      return std::vector<int64_t>(attribute->ints().begin(), attribute->ints().end()) == want;
    }
    return operand < node.input_size() && Constants(node.input(operand)) == want;
  }
  static int64_t IntOr(const NodeProto& node, std::string_view name, int64_t otherwise) {
    const AttributeProto* attribute = Attribute(node, name);
    return attribute == nullptr ? otherwise : attribute->i();
  }

  // Reports whether the condition is true in every step.
  bool GoesOn(std::string_view name) const {
    while (true) {
      // Passed through, and it was true when the loop was entered.
      if (name == body_.input(1).name()) return true;
      const auto found = makers_.find(name);
      if (found == makers_.end()) break;
      const NodeProto& node = *found->second;
      const bool alias = node.op_type() == "Identity" || node.op_type() == "Cast";
      if (!alias || node.input_size() != 1) break;
      name = node.input(0);
    }
    if (const auto found = constants_.find(name); found != constants_.end()) {
      return IsTrue(*found->second);
    }
    if (const NodeProto* constant = Maker(name, "Constant")) {
      const AttributeProto* value = Attribute(*constant, "value");
      return value != nullptr && IsTrue(value->t());
    }
    const Value* outer = Outer(name);
    if (outer == nullptr || outer->known == nullptr) return false;
    const std::vector<Expr>& sizes = outer->known->sizes;
    return sizes.size() == 1 && sizes[0].constant().value_or(0) != 0;
  }
  static bool IsTrue(const TensorProto& tensor) {
    if (tensor.data_type() != TensorProto::BOOL) return false;
    return tensor.has_raw_data() ? tensor.raw_data() == "\x01"
                                 : tensor.int32_data_size() == 1 && tensor.int32_data(0) == 1;
  }

  bool MatchReduction(Bags* bags) const {
    constexpr std::pair<std::string_view, std::string_view> kModes[] = {
        {"ReduceSum", "sum"}, {"ReduceMean", "mean"}, {"ReduceMax", "max"}};
    for (const auto& [op, mode] : kModes) {
      const NodeProto* reduction = Maker(body_.output(1).name(), op);
      if (reduction == nullptr || IntOr(*reduction, "keepdims", 1) != 0 ||
          !IsInts(*reduction, 1, "axes", {0})) {
        continue;
      }
      bags->mode = mode;
      return MatchRows(reduction->input(0), bags);
    }
    return false;
  }

  bool MatchRows(std::string_view name, Bags* bags) const {
    const NodeProto* gather = Maker(name, "Gather");
    if (gather == nullptr || gather->input_size() != 2 || IntOr(*gather, "axis", 0) != 0) {
      return false;
    }
    bags->table = Outer(gather->input(0));
    const NodeProto* slice = Maker(gather->input(1), "Slice");
    if (slice == nullptr || slice->input_size() < 3) return false;
    const auto is_default = [&](int operand, int64_t value) {
      return operand >= slice->input_size() || slice->input(operand).empty() ||
             Constants(slice->input(operand)) == std::vector<int64_t>{value};
    };
    if (!is_default(3, 0) || !is_default(4, 1)) return false;
    bags->ids = Outer(slice->input(0));
    bags->starts = MatchBound(slice->input(1));
    bags->ends = MatchBound(slice->input(2));
    return bags->table != nullptr && bags->ids != nullptr && bags->starts != nullptr &&
           bags->ends != nullptr;
  }

  // Returns the vector whose element at the step's number is the bound.
  const Value* MatchBound(std::string_view name) const {
    bool vector = false;  // already made a vector of one element
    if (const NodeProto* reshape = Maker(name, "Unsqueeze")) {
      if (!IsInts(*reshape, 1, "axes", {0})) return nullptr;
      name = reshape->input(0), vector = true;
    } else if (const NodeProto* other = Maker(name, "Reshape")) {
      if (!IsInts(*other, 1, "shape", {1}) && !IsInts(*other, 1, "shape", {-1})) return nullptr;
      name = other->input(0), vector = true;
    }
    const NodeProto* gather = Maker(name, "Gather");
    if (gather == nullptr || gather->input_size() != 2 || IntOr(*gather, "axis", 0) != 0) {
      return nullptr;
    }
    std::string_view step = gather->input(1);
    if (const NodeProto* unsqueeze = vector ? nullptr : Maker(step, "Unsqueeze")) {
      if (!IsInts(*unsqueeze, 1, "axes", {0})) return nullptr;
      step = unsqueeze->input(0), vector = true;
    }
    return vector && step == body_.input(0).name() ? Outer(gather->input(0)) : nullptr;
  }

  HandlerContext& c_;
  const GraphProto& body_;
  absl::flat_hash_map<std::string_view, const NodeProto*> makers_;
  absl::flat_hash_map<std::string_view, const TensorProto*> constants_;
};

bool IsVector(const Value& v) { return v.rank() == 1 && IsInteger(v.dtype()); }

// Returns the offsets of consecutive bags; where bags are not consecutive, -1, which EmbeddingBag
// refuses.
Value CheckedOffsets(OpBuilder& b, const Value& starts, const Value& ends, const Expr& count,
                     const Expr& ids) {
  // Start of the next bag; for the last bag, the number of ids.
  const Value next = MapOr(b, starts, {count}, {Expr::Axis(0) + 1}, b.Integer(Elem::kInt64, -1));
  const Value is_last =
      Equal(b, b.Iota(Elem::kInt64, {count}, 0), Size(b, Elem::kInt64, count - 1, {}));
  const Value want = Select(b, is_last, Size(b, Elem::kInt64, ids, {}), next);
  return Select(b, Equal(b, ends, want), starts, b.Integer(Elem::kInt64, -1));
}

// ONNX reduces an empty bag to 0, NaN or the lowest value, depending on the mode; EmbeddingBag
// always to 0.
Value WithEmptyBags(OpBuilder& b, const Value& result, std::string_view mode, const Value& starts,
                    const Value& ends) {
  if (mode == "sum") return result;
  const double nothing = mode == "mean" ? std::numeric_limits<double>::quiet_NaN()
                                        : -std::numeric_limits<double>::infinity();
  return Select(b, Unsqueeze(b, Equal(b, starts, ends), {1}), b.Scalar(result.elem, nothing),
                result);
}

}  // namespace

absl::StatusOr<bool> LoopOverBags(HandlerContext& c) {
  if (c.inputs() < 1 || c.inputs() > 2 || !c.Has(0) || c.outputs() > 1) return false;
  if (c.In(0).known == nullptr || c.In(0).known->sizes.size() != 1) return false;
  if (c.Has(1)) {
    ASSIGN_OR_RETURN(std::optional<bool> condition, KnownCondition(c.In(1)));
    if (!condition.value_or(false)) return false;
  }
  const std::optional<Bags> bags = Matcher(c).Match();
  if (!bags) return false;
  OpBuilder& b = c.b();
  const Expr& count = c.In(0).known->sizes[0];
  const auto enough = [&](const Value& v) {
    return IsVector(v) && b.bounds().NonNegative(v.shape[0] - count);
  };
  if (!IsVector(*bags->ids) || !enough(*bags->starts) || !enough(*bags->ends) ||
      bags->table->rank() != 2 || !IsFloat(bags->table->dtype()) ||
      !Computes(bags->table->dtype()) || !b.bounds().NonNegative(count)) {
    return false;
  }
  if (bags->table->poisoned || bags->ids->poisoned || bags->starts->poisoned ||
      bags->ends->poisoned) {
    return absl::AbortedError("a value that the loop reads was refused");
  }
  const auto first = [&](const Value& v) {
    return Slice(b, Cast(b, v, Elem::kInt64), 0, 0, count);
  };
  // If there is one start more than bags, it is the end of the last bag.
  const Value starts = first(*bags->starts), ends = first(*bags->ends);
  const Expr& all = bags->ids->shape[0];
  const Value offsets = CheckedOffsets(b, starts, ends, count, all);
  Value ids = *bags->ids;
  if (IsSigned(ids.dtype())) {
    const Value wide = Cast(b, ids, Elem::kInt64);
    ids = Select(b, Less(b, wide, b.Integer(Elem::kInt64, 0)),
                 Add(b, wide, Size(b, Elem::kInt64, bags->table->shape[0], {})), wide);
  }
  const Value rows = b.Raw(Op::kEmbeddingBag, {*bags->table, ids, offsets},
                           {{"mode", std::string(bags->mode)}}, bags->table->elem);
  c.Set(0, WithEmptyBags(b, rows, bags->mode, starts, ends));
  c.Note(
      "is served as an EmbeddingBag; bags that do not lie one after the other, from the first id "
      "to the last, are an error of the request");
  return true;
}

}  // namespace athanor::onnx
