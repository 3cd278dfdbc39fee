// Known contents: values made from attributes, shapes and single numbers.
#include <algorithm>
#include <string_view>

#include "compiler/frontend/onnx/known/sizes_internal.h"

namespace athanor::onnx {
namespace {

constexpr std::string_view kOps[] = {"Constant", "Shape", "Size", "ConstantOfShape", "Range"};

Values KnownShape(const SizeCall& call) {
  const Shape& shape = call.c.In(0).shape;
  const auto rank = static_cast<int64_t>(shape.size());
  int64_t start = 0, end = rank;
  if (call.version() >= 15) {
    start = call.c.Int("start");
    if (call.c.Given("end")) end = call.c.Int("end");
  }
  start = std::clamp<int64_t>(start < 0 ? start + rank : start, 0, rank);
  end = std::clamp<int64_t>(end < 0 ? end + rank : end, 0, rank);
  Cells cells{Elem::kInt64, {std::max<int64_t>(end - start, 0)}, {}, 1};
  for (int64_t i = start; i < end; ++i) cells.sizes.push_back(shape[i]);
  return One(FromCells(std::move(cells), call.bounds));
}

Values KnownSize(const SizeCall& call) {
  Expr count = 1;
  for (const Expr& size : call.c.In(0).shape) count *= size;
  return One(FromCells({Elem::kInt64, {}, {count}, 1}, call.bounds));
}

Values KnownConstant(const SizeCall& call) {
  const HandlerContext& c = call.c;
  if (c.node().attribute_size() != 1) return std::nullopt;
  const auto whole = [&](const std::vector<int64_t>& values, Shape64 shape) {
    Cells cells{Elem::kInt64, std::move(shape), {}, 1};
    for (int64_t value : values) cells.sizes.emplace_back(value);
    return CountOf(cells.shape, call.most) ? One(FromCells(std::move(cells), call.bounds))
                                           : std::nullopt;
  };
  const auto floats = [&](const std::vector<double>& values, Shape64 shape) -> Values {
    if (!CountOf(shape, call.most)) return std::nullopt;
    Tensor literal = Tensor::Zeros(DType::kF32, std::move(shape));
    for (size_t i = 0; i < values.size(); ++i) {
      literal.data<float>()[i] = static_cast<float>(values[i]);
    }
    return One(WithKnown(Elem::kFloat, KnownOf(std::move(literal))));
  };
  const auto length = [](const auto& values) {
    return Shape64{static_cast<int64_t>(values.size())};
  };
  if (c.Given("value_int")) return whole({c.Int("value_int")}, {});
  if (c.Given("value_ints")) return whole(c.Ints("value_ints"), length(c.Ints("value_ints")));
  if (c.Given("value_float")) return floats({c.Float("value_float")}, {});
  if (c.Given("value_floats")) {
    return floats(c.Floats("value_floats"), length(c.Floats("value_floats")));
  }
  if (!c.Given("value")) return std::nullopt;
  absl::StatusOr<Value> value = c.TensorAttr("value");
  if (!value.ok() || value->known == nullptr) return std::nullopt;
  return std::vector<Value>{*std::move(value)};
}

Values KnownConstantOfShape(const SizeCall& call) {
  const std::optional<std::vector<int64_t>> shape = Numbers(call, 0);
  const std::optional<int64_t> count = shape ? CountOf(*shape, call.most) : std::nullopt;
  if (!count || *count > 1024) return std::nullopt;  // larger ones are data
  Tensor one = Tensor::Zeros(DType::kF32, {1});
  Elem elem = Elem::kFloat;
  if (call.c.Given("value")) {
    absl::StatusOr<Value> value = call.c.TensorAttr("value");
    if (!value.ok() || value->known == nullptr || !value->known->literal) return std::nullopt;
    one = *value->known->literal;
    elem = value->elem;
  }
  if (one.elements() != 1) return std::nullopt;
  Tensor result{one.dtype, *shape, {}};
  for (int64_t i = 0; i < *count; ++i) result.bytes += one.bytes;
  return One(WithKnown(elem, KnownOf(std::move(result))));
}

Values KnownRange(const SizeCall& call) {
  const std::optional<std::vector<int64_t>> start = Numbers(call, 0), limit = Numbers(call, 1),
                                            delta = Numbers(call, 2);
  if (!start || !limit || !delta || start->size() != 1 || limit->size() != 1 ||
      delta->size() != 1 || delta->front() == 0) {
    return std::nullopt;
  }
  const Expr distance = delta->front() > 0 ? Expr(limit->front()) - Expr(start->front())
                                           : Expr(start->front()) - Expr(limit->front());
  const Expr step = delta->front() > 0 ? Expr(delta->front()) : Expr(0) - Expr(delta->front());
  const std::optional<int64_t> count = MaxOf(0, CeilDiv(distance, step)).constant();
  if (!count || *count > call.most) return std::nullopt;
  Cells cells{call.c.In(0).elem, {*count}, {}, 1};
  for (int64_t i = 0; i < *count; ++i) {
    cells.sizes.push_back(Expr(start->front()) + Expr(i) * Expr(delta->front()));
  }
  return One(FromCells(std::move(cells), call.bounds));
}

}  // namespace

Values KnownMade(const SizeCall& call) {
  const std::string_view op = call.c.node().op_type();
  if (op == "Constant") return KnownConstant(call);
  if (op == "Shape") return KnownShape(call);
  if (op == "Size") return KnownSize(call);
  if (op == "ConstantOfShape") return KnownConstantOfShape(call);
  return op == "Range" ? KnownRange(call) : std::nullopt;
}

absl::Span<const std::string_view> MadeOps() { return kOps; }

}  // namespace athanor::onnx
