#include "server/tuner/run/inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/input_value.h"
#include "compiler/ir/sample/compare.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr int64_t kMaxCheckBytes = int64_t{1} << 30;
// Limit on bags: their offsets cannot repeat.
constexpr int64_t kMaxBags = int64_t{1} << 22;
// Larger tensors of distinct indices repeat them.
constexpr int64_t kMaxDistinct = int64_t{1} << 22;

// The use of a value, found by following uses back to the graph's inputs.
struct Role {
  std::optional<int64_t> index_limit;  // it selects in [0, limit)
  bool distinct = false;               // no two elements select the same, while there are enough
  std::optional<int64_t> offsets_of;   // it holds begins of bags over this many ids
  bool mask = false;                   // it is added to scores
  int64_t terms = 0;                   // of the longest contraction it is an operand of
  bool factor = false, term = false;   // of products; of sums
};

void Narrow(Role* role, int64_t limit) {
  role->index_limit = std::min(limit, role->index_limit.value_or(limit));
}

int64_t SizeOf(const Expr& size, const Expr::Env& dims) { return size.Evaluate(dims).value_or(0); }

void PassBack(const Role& from, Role* to) {
  if (from.index_limit) Narrow(to, *from.index_limit);
  to->distinct = to->distinct || from.distinct;
  if (from.offsets_of) to->offsets_of = from.offsets_of;
  to->mask = to->mask || from.mask;
  to->terms = std::max(to->terms, from.terms);
  to->factor = to->factor || from.factor;
  to->term = to->term || from.term;
}

// Returns how many products each result of a contraction sums.
int64_t TermsOf(const Graph& graph, const Node& node, const Expr::Env& dims) {
  const absl::StatusOr<ContractSpec> spec =
      ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec"));
  if (!spec.ok()) return 1;
  int64_t terms = 1;
  for (size_t axis = 0; axis < spec->lhs.size(); ++axis) {
    if (spec->result.find(spec->lhs[axis]) != std::string::npos) continue;
    const int64_t size = SizeOf(graph.node(node.inputs[0]).type.shape[axis], dims);
    if (__builtin_mul_overflow(terms, std::max<int64_t>(size, 1), &terms)) return 1;
  }
  return terms;
}

// Returns the same for a convolution by w [M, C/group, K...].
int64_t WindowTerms(const Shape& w, const Expr::Env& dims) {
  int64_t terms = 1;
  for (size_t axis = 1; axis < w.size(); ++axis) {
    const int64_t size = SizeOf(w[axis], dims);
    if (__builtin_mul_overflow(terms, std::max<int64_t>(size, 1), &terms)) return 1;
  }
  return terms;
}

// Walks from uses to what they use.
std::vector<Role> FindRoles(const Graph& graph, const Expr::Env& dims) {
  std::vector<Role> roles(graph.nodes.size());
  for (NodeId n = static_cast<NodeId>(graph.nodes.size()); n-- > 0;) {
    const Node& node = graph.node(n);
    const auto shape = [&](int operand) -> const Shape& {
      return graph.node(node.inputs[operand]).type.shape;
    };
    const std::vector<OperandRole>& uses = OpInfo(node.op).traits.roles;
    for (size_t i = 0; i < node.inputs.size() && i < uses.size(); ++i) {
      Role& operand = roles[node.inputs[i]];
      switch (uses[i]) {
        case OperandRole::kNone:
          break;
        case OperandRole::kPassed:
          PassBack(roles[n], &operand);
          break;
        case OperandRole::kIndex:
          Narrow(&operand, SizeOf(shape(0)[*SelectedAxis(node.op, node.attrs)], dims));
          break;
        case OperandRole::kOffsets:
          operand.offsets_of = SizeOf(shape(1)[0], dims);
          break;
        case OperandRole::kSlots:
          Narrow(&operand, SizeOf(shape(0)[0], dims));
          operand.distinct = true;
          break;
        case OperandRole::kBlocks:
          Narrow(&operand, SizeOf(shape(1)[0], dims) / GetAttr<int64_t>(node.attrs, "block"));
          operand.distinct = true;
          break;
        case OperandRole::kSequences:
          Narrow(&operand, SizeOf(shape(3)[0], dims));
          break;
        case OperandRole::kPositions:
          Narrow(&operand, SizeOf(shape(3)[1], dims) * GetAttr<int64_t>(node.attrs, "block"));
          operand.distinct = true;
          break;
        case OperandRole::kFactor:
          operand.factor = true;
          break;
        case OperandRole::kTerm:
          operand.term = true;
          break;
        case OperandRole::kContracted:
          operand.terms = node.attrs.contains("spec") ? TermsOf(graph, node, dims)
                                                      : WindowTerms(shape(1), dims);
          break;
        case OperandRole::kMask:
          operand.mask = true;
          break;
      }
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
  // Both ends are included. The range is far below 2^64, so the bias of the remainder is
  // negligible.
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Bits() % static_cast<uint64_t>(high - low + 1));
  }
  // Approximately normal: the sum of four uniform values, with mean 0 and deviation 1.
  double Normal() {
    const uint64_t bits = Bits();
    const int64_t sum = static_cast<int64_t>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                             (bits >> 32 & 0xffff) + (bits >> 48));
    return static_cast<double>(sum - 2 * 0xffff) * (1.7320508 / 0x10000);
  }

 private:
  uint64_t state_;
};

// For float dtypes of more than a byte.
int LargestExponent(DType dtype) {
  return dtype == DType::kF64 ? 1023 : dtype == DType::kF16 ? 15 : 127;
}

double SmallestNormal(DType dtype) { return std::ldexp(1.0, 1 - LargestExponent(dtype)); }

class Filler {
 public:
  Filler(uint64_t seed, const DrawOptions& options) : random_(seed), options_(options) {}

  // Draws the first elements of a tensor of this size.
  Tensor Draw(const Role& role, DType dtype, int64_t elements, bool parameter) {
    const bool offsets = role.offsets_of && !IsFloat(dtype);
    const bool distinct = role.distinct && role.index_limit.value_or(0) >= elements &&
                          elements <= kMaxDistinct && !IsFloat(dtype) && dtype != DType::kBool;
    Tensor drawn =
        Tensor::Zeros(dtype, {offsets || distinct ? elements : std::min(elements, kMaxDrawn)});
    if (distinct) {
      Distinct(*role.index_limit, &drawn);
      return drawn;
    }
    if (offsets) {
      Offsets(*role.offsets_of, &drawn);
      return drawn;
    }
    const double scale = std::exp2(random_.Uniform(-4, 2));
    const bool weight = parameter && options_.model_weights;
    const bool special = !parameter && !role.mask && !role.index_limit && IsFloat(dtype);
    for (int64_t i = 0; i < drawn.elements(); ++i) {
      if (dtype == DType::kBool) {
        StoreScalar(drawn, i, Scalar::Unsigned(dtype, random_.Bits() & 1));
      } else if (IsFloat(dtype)) {
        double value = weight ? Weight(role, dtype, scale) : Float(role, dtype, scale);
        if (special && options_.special == SpecialFloats::kExtremes) value = Extreme(value, dtype);
        if (special && options_.special == SpecialFloats::kEnds) value = Small(value, dtype);
        StoreScalar(drawn, i, Scalar::Float(dtype, value));
      } else {
        const int64_t value = role.index_limit ? Index(*role.index_limit) : Integer();
        StoreInteger(i, value, &drawn);
      }
    }
    if (special && drawn.elements() > 0) AddLargeOrNonFinite(&drawn);
    return drawn;
  }

  // Draws the first elements of a random order of [0, limit).
  void Distinct(int64_t limit, Tensor* tensor) {
    absl::flat_hash_map<int64_t, int64_t> moved;  // by place: what a swap has left there
    const auto at = [&](int64_t place) {
      const auto it = moved.find(place);
      return it == moved.end() ? place : it->second;
    };
    for (int64_t i = 0; i < tensor->elements(); ++i) {
      const int64_t from = random_.Between(i, limit - 1), value = at(from);
      moved[from] = at(i);
      StoreInteger(i, value, tensor);
    }
  }

 private:
  double Weight(const Role& role, DType dtype, double scale) {
    if (role.terms > 0) return random_.Normal() / std::sqrt(static_cast<double>(role.terms));
    if (role.factor) return 1 + random_.Normal() / 8;
    if (role.term) return random_.Normal() / 8;
    return Float(role, dtype, scale);
  }

  double Extreme(double value, DType dtype) {
    const int kind = static_cast<int>(random_.Bits() % 16);
    if (kind < 3) return kind == 0 ? -0.0 : 0.0;
    if (kind < 5) return std::ldexp(value, 6);
    if (kind < 6) return std::ldexp(value, dtype == DType::kF16 ? -14 : -100);
    return value;
  }

  double Small(double value, DType dtype) {
    const int kind = static_cast<int>(random_.Bits() % 16);
    if (kind >= 4 || DTypeBytes(dtype) == 1) return value;
    const double least = kind < 2 ? SmallestNormal(dtype) : UnitInLastPlace(dtype, 0);
    return kind % 2 == 0 ? least : -least;
  }

  // Adds at most one large number, so that overflow of a sum does not depend on its order.
  void AddLargeOrNonFinite(Tensor* drawn) {
    if (DTypeBytes(drawn->dtype) == 1) return;  // not every storage dtype has such values
    const int64_t last = drawn->elements() - 1;
    const auto put = [&](double value) {
      StoreScalar(*drawn, random_.Between(0, last), Scalar::Float(drawn->dtype, value));
    };
    const double infinity = std::numeric_limits<double>::infinity();
    if (options_.special == SpecialFloats::kEnds) {
      const double half = std::ldexp(1 - UnitRoundoff(drawn->dtype), LargestExponent(drawn->dtype));
      put((random_.Bits() & 1) != 0 ? half : -half);
    }
    if (options_.special == SpecialFloats::kNaN) put(std::numeric_limits<double>::quiet_NaN());
    if (options_.special == SpecialFloats::kInfinities) {
      put(infinity);
      put(-infinity);
    }
  }

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

  // Ends of the range and neighbours of the previous index get extra probability.
  int64_t Index(int64_t limit) {
    if (limit <= 1) return 0;
    const int kind = static_cast<int>(random_.Bits() % 8);
    if (kind == 0) return last_ = 0;
    if (kind == 1) return last_ = limit - 1;
    if (kind == 2 && last_ < limit) return last_;
    return last_ = random_.Between(0, limit - 1);
  }

  int64_t Integer() {
    if (options_.choice == IndexChoice::kZero) return 0;
    if (options_.choice == IndexChoice::kSmall) return random_.Between(0, 3);
    return (random_.Bits() & 1) != 0 ? random_.Between(-8, 8)
                                     : static_cast<int64_t>(random_.Bits());
  }

  // Draws bags of uneven length, some empty; the first begins at 0.
  void Offsets(int64_t ids, Tensor* tensor) {
    std::vector<int64_t> begins(tensor->elements());
    for (int64_t& begin : begins) begin = random_.Between(0, ids);
    std::sort(begins.begin(), begins.end());
    if (!begins.empty()) begins[0] = 0;
    for (size_t i = 0; i < begins.size(); ++i) {
      StoreInteger(static_cast<int64_t>(i), begins[i], tensor);
    }
  }

  static void StoreInteger(int64_t at, int64_t value, Tensor* tensor) {
    StoreScalar(*tensor, at,
                IsSigned(tensor->dtype)
                    ? Scalar::Signed(tensor->dtype, value)
                    : Scalar::Unsigned(tensor->dtype, static_cast<uint64_t>(value)));
  }

  Random random_;
  const DrawOptions& options_;
  int64_t last_ = 0;
};

// Inputs that say which slots a PagedAttention reads: its table, sequence and position.
struct PagedRows {
  NodeId table = -1, sequence = -1, position = -1;
  int64_t rows = 0, sequences = 0, blocks_of_each = 0, blocks = 0, block = 0;
};

// Returns those of the graph's first PagedAttention whose three are Inputs; nullopt if it has none,
// or their sizes leave no choice.
std::optional<PagedRows> FindPagedRows(const Graph& graph, const Expr::Env& dims) {
  for (const Node& node : graph.nodes) {
    if (!IsPagedAttention(node.op)) continue;
    PagedRows rows{.table = node.inputs[3], .sequence = node.inputs[4], .position = node.inputs[5]};
    const auto given = [&](NodeId id) { return IsInput(graph.node(id).op); };
    if (!given(rows.table) || !given(rows.sequence) || !given(rows.position)) continue;
    const Shape& table = graph.node(rows.table).type.shape;
    rows.rows = SizeOf(graph.node(rows.position).type.shape[0], dims);
    rows.sequences = SizeOf(table[0], dims);
    rows.blocks_of_each = SizeOf(table[1], dims);
    rows.block = GetAttr<int64_t>(node.attrs, "block");
    rows.blocks = SizeOf(graph.node(node.inputs[1]).type.shape[0], dims) / rows.block;
    if (std::min({rows.rows, rows.sequences, rows.blocks_of_each, rows.blocks}) < 1) continue;
    if (rows.rows > kMaxDistinct || rows.sequences > kMaxDistinct / rows.blocks_of_each) continue;
    return rows;
  }
  return std::nullopt;
}

// Draws the three together, so that a row has its own slot, as long as there are enough, and sees
// none but its sequence's: each sequence has blocks of its own, and rows at positions that follow
// each other.
class PagedFiller {
 public:
  PagedFiller(const PagedRows& rows, uint64_t seed, const DrawOptions& options)
      : rows_(rows), random_(seed), full_(options.full_contexts) {}

  void Draw(Tensor* table, Tensor* sequence, Tensor* position) {
    const int64_t most = std::min({rows_.sequences, rows_.rows, rows_.blocks});
    used_ = full_ || random_.Bits() % 4 != 0 ? most : random_.Between(1, most);
    // Fewer sequences have more blocks each.
    const auto slots = [&] { return used_ * BlocksOfEach() * rows_.block; };
    while (used_ > 1 && slots() < rows_.rows) --used_;
    while (used_ < most && slots() < rows_.rows) ++used_;
    per_ = BlocksOfEach();
    const std::vector<int64_t> lines = Some(used_, rows_.sequences);
    const std::vector<int64_t> blocks = Some(used_ * per_, rows_.blocks);
    *table = Tensor::Zeros(DType::kI32, {rows_.sequences * rows_.blocks_of_each});
    for (int64_t u = 0; u < used_; ++u) {
      for (int64_t j = 0; j < per_; ++j) {
        Put(lines[u] * rows_.blocks_of_each + j, blocks[u * per_ + j], table);
      }
    }
    std::vector<std::pair<int64_t, int64_t>> drawn;  // sequence and position of a row
    const std::vector<int64_t> counts = Counts();
    for (int64_t u = 0; u < used_; ++u) {
      const int64_t room = per_ * rows_.block, first = FirstPosition(counts[u], room);
      for (int64_t i = 0; i < counts[u]; ++i) drawn.emplace_back(lines[u], (first + i) % room);
    }
    if (!full_ && random_.Bits() % 4 == 0) {  // rows of many sequences mixed
      for (int64_t i = 0; i < rows_.rows; ++i) {
        std::swap(drawn[i], drawn[random_.Between(i, rows_.rows - 1)]);
      }
    }
    *sequence = Tensor::Zeros(DType::kI32, {rows_.rows});
    *position = Tensor::Zeros(DType::kI32, {rows_.rows});
    for (int64_t i = 0; i < rows_.rows; ++i) {
      Put(i, drawn[i].first, sequence);
      Put(i, drawn[i].second, position);
    }
  }

 private:
  int64_t BlocksOfEach() const { return std::min(rows_.blocks_of_each, rows_.blocks / used_); }

  // Returns so many of [0, limit), no two alike, in any order.
  std::vector<int64_t> Some(int64_t count, int64_t limit) {
    Tensor tensor = Tensor::Zeros(DType::kI64, {count});
    Filler(random_.Bits(), DrawOptions()).Distinct(limit, &tensor);
    std::vector<int64_t> some;
    for (int64_t i = 0; i < count; ++i) some.push_back(LoadScalar(tensor, i).i);
    return some;
  }

  // Returns the rows of each used sequence: alike, or one has most, like a prompt beside others.
  std::vector<int64_t> Counts() {
    std::vector<int64_t> counts(used_);
    for (int64_t u = 0; u < used_; ++u) {
      counts[u] = rows_.rows / used_ + (u < rows_.rows % used_ ? 1 : 0);
    }
    if (full_ || random_.Bits() % 2 == 0) return counts;
    int64_t& prompt = counts[random_.Between(0, used_ - 1)];
    for (int64_t& count : counts) {
      const int64_t moved = std::min(count - 1, per_ * rows_.block - prompt);
      if (&count == &prompt || moved <= 0) continue;
      count -= moved;
      prompt += moved;
    }
    return counts;
  }

  int64_t FirstPosition(int64_t count, int64_t room) {
    if (count >= room) return 0;
    if (full_) return room - count;
    return random_.Bits() % 4 == 0 ? 0 : random_.Between(0, room - count);
  }

  static void Put(int64_t at, int64_t value, Tensor* tensor) {
    StoreScalar(*tensor, at, Scalar::Signed(tensor->dtype, value));
  }

  const PagedRows& rows_;
  Random random_;
  const bool full_;
  int64_t used_ = 0, per_ = 0;  // sequences that have rows, and blocks of each
};

}  // namespace

absl::StatusOr<std::vector<DrawnInput>> DrawInputs(const Graph& graph, const Expr::Env& dims,
                                                   uint64_t seed, const DrawOptions& options) {
  const std::vector<Role> roles = FindRoles(graph, dims);
  std::vector<NodeId> ids;
  if (options.inputs) ids = graph.InputIds();
  if (options.parameters) {
    const std::vector<NodeId> parameters = graph.ParameterIds();
    ids.insert(ids.end(), parameters.begin(), parameters.end());
  }
  if (options.inputs) {
    for (NodeId state : graph.StateIds()) ids.push_back(state);
  }
  const std::optional<PagedRows> rows = options.inputs ? FindPagedRows(graph, dims) : std::nullopt;
  std::map<NodeId, Tensor> paged;
  if (rows.has_value()) {
    PagedFiller(*rows, seed * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(rows->table), options)
        .Draw(&paged[rows->table], &paged[rows->sequence], &paged[rows->position]);
  }
  std::vector<DrawnInput> inputs;
  for (NodeId id : ids) {
    const TensorType& type = graph.node(id).type;
    absl::StatusOr<std::vector<int64_t>> shape = ConcreteShape(type.shape, dims);
    if (!shape.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(graph.Describe(id), ": ", shape.status().message()));
    }
    int64_t elements = 1;
    for (int64_t size : *shape) {
      if (!__builtin_mul_overflow(elements, size, &elements)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(graph.Describe(id), ": more elements than an integer counts"));
    }
    if (roles[id].offsets_of && elements > kMaxBags) {
      return absl::ResourceExhaustedError(absl::StrCat(
          graph.Describe(id), ": offsets of ", elements, " bags; a check has at most ", kMaxBags));
    }
    // Each tensor has its own generator, so that one more input changes no other.
    Filler filler(seed * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(id), options);
    const bool parameter = IsParameter(graph.node(id).op);
    if (const auto found = paged.find(id); found != paged.end()) {
      inputs.push_back({*std::move(shape), std::move(found->second)});
      continue;
    }
    // The declared value of an input is its only value.
    const Tensor* value = ValueOf(graph.node(id));
    Tensor drawn = value == nullptr ? filler.Draw(roles[id], type.dtype, elements, parameter)
                                    : Tensor{type.dtype, {elements}, value->bytes};
    inputs.push_back({*std::move(shape), std::move(drawn)});
  }
  return inputs;
}

absl::StatusOr<std::vector<Tensor>> RandomInputs(const Graph& graph, const Expr::Env& dims,
                                                 uint64_t seed, IndexChoice choice) {
  ASSIGN_OR_RETURN(std::vector<DrawnInput> inputs, DrawInputs(graph, dims, seed, choice));
  std::vector<Tensor> tensors;
  for (DrawnInput& input : inputs) {
    Tensor tensor = std::move(input.drawn);
    const size_t drawn = tensor.bytes.size();
    tensor.shape = std::move(input.shape);
    const auto bytes = static_cast<double>(tensor.elements()) * DTypeBytes(tensor.dtype);
    if (bytes > static_cast<double>(kMaxCheckBytes)) {
      return absl::InvalidArgumentError(absl::StrCat("input ", tensors.size(), " of \"", graph.name,
                                                     "\": ", bytes, " bytes are more than the ",
                                                     kMaxCheckBytes, " that a check may hold"));
    }
    tensor.bytes.resize(static_cast<size_t>(bytes));
    for (size_t i = drawn; i < tensor.bytes.size(); i += drawn) {
      std::memcpy(tensor.bytes.data() + i, tensor.bytes.data(),
                  std::min(drawn, tensor.bytes.size() - i));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace athanor
