#include "compiler/search/regions/region_cost.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>

namespace athanor {
namespace {

// Share of a weight's cost that counts: `prepare` computes it once per model.
constexpr double kWeightShare = 0.01;
// Added to each node, so that of two free ways the shorter wins.
constexpr double kNodeSeconds = 1e-11;

double ValueOf(const Expr& e, const Expr::Env& sizes) {
  const std::optional<int64_t> value = e.Evaluate(sizes);
  return value ? static_cast<double>(std::max<int64_t>(*value, 0)) : 0;
}

double Elements(const TensorType& type, const Expr::Env& sizes) {
  double elements = 1;
  for (const Expr& e : type.shape) elements *= ValueOf(e, sizes);
  return elements;
}

double Bytes(const TensorType& type, const Expr::Env& sizes) {
  return Elements(type, sizes) * DTypeBytes(type.dtype);
}

double ContractFlops(const Attrs& attrs, absl::Span<const TensorType* const> operands,
                     const Expr::Env& sizes) {
  const ContractSpec spec = *ContractSpec::Parse(GetAttr<std::string>(attrs, "spec"));
  double flops = 2;
  std::set<char> counted;
  for (int side = 0; side < 2; ++side) {
    const std::string& letters = side == 0 ? spec.lhs : spec.rhs;
    for (size_t i = 0; i < letters.size(); ++i) {
      if (counted.insert(letters[i]).second) flops *= ValueOf(operands[side]->shape[i], sizes);
    }
  }
  return flops;
}

double AttentionFlops(absl::Span<const TensorType* const> operands, const TensorType& result,
                      const Expr::Env& sizes) {
  const Shape &q = operands[0]->shape, &k = operands[1]->shape;
  double rows = 1;
  for (size_t i = 0; i + 1 < q.size(); ++i) rows *= ValueOf(q[i], sizes);
  return 2 * rows * ValueOf(k[k.size() - 2], sizes) *
         (ValueOf(q.back(), sizes) + ValueOf(result.shape.back(), sizes));
}

// Keys that the table has place for, of each sequence.
double PagedKeys(const Attrs& attrs, absl::Span<const TensorType* const> operands,
                 const Expr::Env& sizes) {
  return ValueOf(operands[3]->shape[1], sizes) *
         static_cast<double>(GetAttr<int64_t>(attrs, "block"));
}

double PagedFlops(const Attrs& attrs, absl::Span<const TensorType* const> operands,
                  const TensorType& result, const Expr::Env& sizes) {
  return 2 * PagedKeys(attrs, operands, sizes) *
         (Elements(*operands[0], sizes) + Elements(result, sizes));
}

// Reads of the pools of keys and values what the table has place for.
double PagedBytes(const Attrs& attrs, absl::Span<const TensorType* const> operands,
                  const Expr::Env& sizes) {
  const double slots = ValueOf(operands[3]->shape[0], sizes) * PagedKeys(attrs, operands, sizes);
  double bytes = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const double all = Bytes(*operands[i], sizes), pool = ValueOf(operands[i]->shape[0], sizes);
    bytes += i == 1 || i == 2 ? all * std::min(1.0, slots / std::max(1.0, pool)) : all;
  }
  return bytes;
}

// Returns the cost of a sort in multiply-adds: each element is read and compared, the wanted ones
// are sorted.
double SortFlops(double elements, double wanted) {
  constexpr double kCompare = 8, kSort = 400;
  return kCompare * elements + kSort * wanted;
}

}  // namespace

bool HasKernel(Op op, absl::Span<const TensorType* const> operands) {
  const OpForm form = FormOf(op);
  if (form != OpForm::kAttention) return form != OpForm::kDecomposed;
  return operands[0]->shape.back().constant().has_value() &&
         operands[2]->shape.back().constant().has_value();
}

NodeCosts::NodeCosts(const std::vector<Dim>& dims, const std::vector<SizePoint>& sizes,
                     const Machine& machine)
    : machine_(machine) {
  for (const SizePoint& point : sizes) {
    Expr::Env& env = sizes_.emplace_back();
    for (size_t d = 0; d < dims.size() && d < point.size(); ++d) env[dims[d].name] = point[d];
  }
}

double NodeCosts::Of(Op op, const Attrs& attrs, absl::Span<const TensorType* const> operands,
                     const TensorType& result, bool weight) const {
  if (IsDeclared(op)) return 0;
  if (!HasKernel(op, operands)) return std::numeric_limits<double>::infinity();
  double seconds = 0;
  // Takes the mean over the sizes of the search.
  for (const Expr::Env& sizes : sizes_) seconds += At(sizes, op, attrs, operands, result);
  seconds /= static_cast<double>(sizes_.size());
  return kNodeSeconds + (weight ? kWeightShare * seconds : seconds);
}

double NodeCosts::At(const Expr::Env& sizes, Op op, const Attrs& attrs,
                     absl::Span<const TensorType* const> operands, const TensorType& result) const {
  double moved = Bytes(result, sizes);
  const auto takes = [&](double flops) {
    return machine_.launch_seconds +
           std::max(flops / machine_.f32_flops_per_second, moved / machine_.read_bytes_per_second);
  };
  const OpForm form = FormOf(op);
  switch (form) {
    // Kernels compute these where they read them.
    case OpForm::kLiteral:
    case OpForm::kCount:
    case OpForm::kView:
      return 0;
    case OpForm::kGather:
      return moved / machine_.cache_bytes_per_second;
    case OpForm::kReduce:
      moved += Bytes(*operands[0], sizes);
      return Elements(*operands[0], sizes) / machine_.f32_flops_per_second +
             moved / machine_.cache_bytes_per_second;
    case OpForm::kContract:
    case OpForm::kAttention:
      if (IsPagedAttention(op)) {
        moved += PagedBytes(attrs, operands, sizes);
        return takes(PagedFlops(attrs, operands, result, sizes));
      }
      for (const TensorType* t : operands) moved += Bytes(*t, sizes);
      return takes(form == OpForm::kContract ? ContractFlops(attrs, operands, sizes)
                                             : AttentionFlops(operands, result, sizes));
    case OpForm::kBags:
      moved *= 2;
      return takes(0);
    case OpForm::kOrder:
      moved += Bytes(*operands[0], sizes);
      return takes(SortFlops(Elements(*operands[0], sizes), Elements(result, sizes)));
    case OpForm::kStateWrite:  // leaves the state's other rows as they are
      moved = Bytes(*operands[2], sizes);
      [[fallthrough]];
    case OpForm::kScatter:
      for (size_t i = 1; i < operands.size(); ++i) moved += Bytes(*operands[i], sizes);
      return takes(0);
    default:
      return OpInfo(op).traits.flops * Elements(result, sizes) / machine_.f32_flops_per_second;
  }
}

}  // namespace athanor
