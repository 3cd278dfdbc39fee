#include "server/tuner/inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

constexpr int64_t kMaxCheckBytes = int64_t{1} << 30;
// Larger tensors repeat their first elements: a prime number of them, so that rows differ.
constexpr int64_t kDrawn = 65'521;

// What a value is used for, found from its uses back to the graph's inputs.
struct Role {
  std::optional<int64_t> index_limit;  // selects in [0, limit)
  std::optional<int64_t> offsets_of;   // begins of bags over this many ids
  bool mask = false;                   // added to scores
};

void Narrow(Role* role, int64_t limit) {
  role->index_limit = std::min(limit, role->index_limit.value_or(limit));
}

int64_t SizeOf(const Expr& size, const Expr::Env& dims) { return size.Evaluate(dims).value_or(0); }

void PassBack(const Role& from, Role* to) {
  if (from.index_limit) Narrow(to, *from.index_limit);
  if (from.offsets_of) to->offsets_of = from.offsets_of;
  to->mask = to->mask || from.mask;
}

std::vector<Role> FindRoles(const Graph& graph, const Expr::Env& dims) {
  std::vector<Role> roles(graph.nodes.size());
  for (NodeId n = static_cast<NodeId>(graph.nodes.size()); n-- > 0;) {
    const Node& node = graph.node(n);
    const auto shape = [&](int operand) -> const Shape& {
      return graph.node(node.inputs[operand]).type.shape;
    };
    switch (node.op) {
      case Op::kGather:
      case Op::kScatter: {
        const auto axis = GetAttr<int64_t>(node.attrs, "axis");
        Narrow(&roles[node.inputs[1]], SizeOf(shape(0)[axis], dims));
        if (node.op == Op::kGather) PassBack(roles[n], &roles[node.inputs[0]]);
        break;
      }
      case Op::kEmbeddingBag:
        Narrow(&roles[node.inputs[1]], SizeOf(shape(0)[0], dims));
        roles[node.inputs[2]].offsets_of = SizeOf(shape(1)[0], dims);
        break;
      case Op::kAttention:
        if (node.inputs.size() > 3) roles[node.inputs[3]].mask = true;
        break;
      case Op::kIndexMap:
      case Op::kCast:
        PassBack(roles[n], &roles[node.inputs[0]]);
        break;
      case Op::kSelect:
        PassBack(roles[n], &roles[node.inputs[1]]);
        PassBack(roles[n], &roles[node.inputs[2]]);
        break;
      default:
        break;
    }
  }
  return roles;
}

// SplitMix64 (Steele, Lea and Flood 2014): short, and the same on every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  double Uniform(double low, double high) {
    return low + (high - low) * std::ldexp(static_cast<double>(Bits() >> 11), -53);
  }
  // Both ends included; the range is far below 2^64, so the remainder is even enough.
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Bits() % static_cast<uint64_t>(high - low + 1));
  }
  // Nearly: the sum of four uniform values, with mean 0 and deviation 1.
  double Normal() {
    const uint64_t bits = Bits();
    const int64_t sum = static_cast<int64_t>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                             (bits >> 32 & 0xffff) + (bits >> 48));
    return static_cast<double>(sum - 2 * 0xffff) * (1.7320508 / 0x10000);
  }

 private:
  uint64_t state_;
};

class Filler {
 public:
  Filler(uint64_t seed, IndexChoice choice) : random_(seed), choice_(choice) {}

  void Fill(const Role& role, Tensor* tensor) {
    if (role.offsets_of && !IsFloat(tensor->dtype)) return Offsets(*role.offsets_of, tensor);
    const double scale = std::exp2(random_.Uniform(-4, 2));
    const int64_t elements = tensor->elements(), drawn = std::min(elements, kDrawn);
    for (int64_t i = 0; i < drawn; ++i) {
      const DType dtype = tensor->dtype;
      if (dtype == DType::kBool) {
        StoreScalar(*tensor, i, Scalar::Unsigned(dtype, random_.Bits() & 1));
      } else if (IsFloat(dtype)) {
        StoreScalar(*tensor, i, Scalar::Float(dtype, Float(role, dtype, scale)));
      } else {
        const int64_t value = role.index_limit ? Index(*role.index_limit) : Integer();
        StoreScalar(*tensor, i,
                    IsSigned(dtype) ? Scalar::Signed(dtype, value)
                                    : Scalar::Unsigned(dtype, static_cast<uint64_t>(value)));
      }
    }
    const int64_t bytes = DTypeBytes(tensor->dtype);
    for (int64_t i = drawn; i < elements; i += drawn) {
      std::memcpy(tensor->bytes.data() + i * bytes, tensor->bytes.data(),
                  std::min(drawn, elements - i) * bytes);
    }
  }

 private:
  double Float(const Role& role, DType dtype, double scale) {
    const int kind = static_cast<int>(random_.Bits() % 20);
    if (role.mask && kind < 5) return -std::numeric_limits<double>::infinity();
    if (role.index_limit) return static_cast<double>(Index(*role.index_limit));
    if (dtype == DType::kF8E8M0) return std::exp2(static_cast<double>(random_.Between(-6, 6)));
    const double normal = random_.Normal();
    if (kind == 0) return std::signbit(normal) ? -0.0 : 0.0;
    if (kind == 1) return std::nearbyint(4 * normal);
    if (kind < 4 && DTypeBytes(dtype) > 1) return normal * std::exp2(random_.Uniform(-10, 4));
    return normal * scale;
  }

  // Ends of the range and neighbours of what came before are more likely than chance.
  int64_t Index(int64_t limit) {
    if (limit <= 1) return 0;
    const int kind = static_cast<int>(random_.Bits() % 8);
    if (kind == 0) return last_ = 0;
    if (kind == 1) return last_ = limit - 1;
    if (kind == 2 && last_ < limit) return last_;
    return last_ = random_.Between(0, limit - 1);
  }

  int64_t Integer() {
    if (choice_ == IndexChoice::kZero) return 0;
    if (choice_ == IndexChoice::kSmall) return random_.Between(0, 3);
    return (random_.Bits() & 1) != 0 ? random_.Between(-8, 8)
                                     : static_cast<int64_t>(random_.Bits());
  }

  // Bags of uneven length, some empty; the first begins at 0.
  void Offsets(int64_t ids, Tensor* tensor) {
    std::vector<int64_t> begins(tensor->elements());
    for (int64_t& begin : begins) begin = random_.Between(0, ids);
    std::sort(begins.begin(), begins.end());
    if (!begins.empty()) begins[0] = 0;
    for (size_t i = 0; i < begins.size(); ++i) {
      StoreScalar(*tensor, static_cast<int64_t>(i),
                  IsSigned(tensor->dtype)
                      ? Scalar::Signed(tensor->dtype, begins[i])
                      : Scalar::Unsigned(tensor->dtype, static_cast<uint64_t>(begins[i])));
    }
  }

  Random random_;
  const IndexChoice choice_;
  int64_t last_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<Tensor>> RandomInputs(const Graph& graph, const Expr::Env& dims,
                                                 uint64_t seed, IndexChoice choice) {
  const std::vector<Role> roles = FindRoles(graph, dims);
  std::vector<NodeId> ids = graph.InputIds();
  const std::vector<NodeId> parameters = graph.ParameterIds();
  ids.insert(ids.end(), parameters.begin(), parameters.end());
  std::vector<Tensor> tensors;
  for (NodeId id : ids) {
    const TensorType& type = graph.node(id).type;
    std::vector<int64_t> shape;
    double bytes = DTypeBytes(type.dtype);
    for (const Expr& size : type.shape) {
      const std::optional<int64_t> value = size.Evaluate(dims);
      if (!value || *value < 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            graph.Describe(id), ": size ", size.ToString(), " has no value at the check's dims"));
      }
      shape.push_back(*value);
      bytes *= static_cast<double>(*value);
    }
    if (bytes > static_cast<double>(kMaxCheckBytes)) {
      return absl::InvalidArgumentError(absl::StrCat(graph.Describe(id), ": ", bytes,
                                                     " bytes are more than the ", kMaxCheckBytes,
                                                     " that a check may use"));
    }
    Tensor tensor = Tensor::Zeros(type.dtype, std::move(shape));
    // A generator of its own per tensor: one more input changes no other.
    Filler(seed * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(id), choice).Fill(roles[id], &tensor);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace athanor
