#include "compiler/codegen/lower/point.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/search/kernels/access.h"
#include "compiler/search/kernels/extents.h"
#include "compiler/search/kernels/state_layout.h"

namespace athanor {

using kir::kNoVar;
using kir::Var;

namespace {

std::string Key(NodeId node, const Coordinates& coordinates, int lanes, const kir::Mask& mask) {
  return absl::StrCat("at ", node, " ", lanes, " ", mask.predicate, " ",
                      mask.count ? mask.count->ToString() : "", " ",
                      absl::StrJoin(coordinates, ";", [](std::string* out, const Expr& e) {
                        absl::StrAppend(out, e.ToString());
                      }));
}

// Most terms of a reduction that are written one after the other.
constexpr int64_t kMostUnrolled = 32;

// -0 is not zero here.
bool IsZero(const Scalar& value) {
  return IsFloat(value.dtype) ? value.f == 0 && !std::signbit(value.f) : value.u == 0;
}

Scalar Integer(DType dtype, int64_t value) {
  return IsSigned(dtype) ? Scalar::Signed(dtype, value)
                         : Scalar::Unsigned(dtype, static_cast<uint64_t>(value));
}

}  // namespace

Scalar IdentityOf(Op op, DType dtype) {
  if (op == Op::kMul) return IsFloat(dtype) ? Scalar::Float(dtype, 1.0) : Integer(dtype, 1);
  if (IsFloat(dtype)) {
    return Scalar::Float(dtype, op == Op::kAdd ? 0.0 : -std::numeric_limits<double>::infinity());
  }
  if (op == Op::kAdd || !IsSigned(dtype)) return Integer(dtype, 0);
  return Scalar::Signed(dtype, std::numeric_limits<int64_t>::min() >> (64 - 8 * DTypeBytes(dtype)));
}

Scalar ZeroOf(DType dtype) { return IdentityOf(Op::kAdd, dtype); }

Var PointLowering::At(NodeId node, const Coordinates& given) {
  Coordinates coordinates;
  coordinates.reserve(given.size());
  for (const Expr& c : given) coordinates.push_back(e_.Simplify(c));
  if (auto it = provided_.find(node); it != provided_.end()) return it->second(coordinates);
  // A value that is uniform across lanes is the same for any number of lanes: a row's maximum is
  // not computed again for the row's last, partial vector.
  const bool uniform =
      mask_.predicate == kNoVar && std::none_of(coordinates.begin(), coordinates.end(),
                                                [&](const Expr& c) { return e_.UsesLane(c); });
  std::string key = uniform ? Key(node, coordinates, 1, {}) : Key(node, coordinates, lanes_, mask_);
  if (std::optional<Var> known = e_.Recall(key)) return *known;
  Var v;
  bool cached = row_.index && node != root_ && row_.scratch_of.contains(node);
  v = cached ? FromRowCache(node, coordinates) : Compute(node, coordinates);
  e_.Remember(key, v);
  return v;
}

Var PointLowering::Compute(NodeId id, const Coordinates& coordinates) {
  const Node& node = graph_.node(id);
  if (id != root_ && has_memory_[id]) return FromMemory(id, coordinates);
  switch (FormOf(node.op)) {
    case OpForm::kLiteral:
      return e_.Const(LoadScalar(GetAttr<Tensor>(node.attrs, "value"), 0));
    case OpForm::kCount:
      return e_.Cast(e_.Index(coordinates[GetAttr<int64_t>(node.attrs, "axis")], lanes_),
                     node.type.dtype);
    case OpForm::kRandom:
      return e_.RandomBits(e_.Index(Offset(id, coordinates), lanes_), At(node.inputs[0], {}));
    case OpForm::kView:
      return Movement(node, coordinates);
    case OpForm::kGather:
      return Gather(node, coordinates);
    case OpForm::kReduce:
      return Reduction(node, coordinates);
    case OpForm::kContract:
      return Contraction(node, coordinates);
    case OpForm::kBags:
      return Bag(node, coordinates);
    default:
      return Elementwise(node, coordinates);
  }
}

Var PointLowering::Elementwise(const Node& node, const Coordinates& coordinates) {
  if (const auto choice = ChoiceOf(graph_, has_memory_, node, coordinates, e_.bounds())) {
    const std::optional<int> taken = Decided(*choice, e_.bounds());
    if (taken) return At(node.inputs[*taken], coordinates);
  }
  std::vector<Var> args;
  args.reserve(node.inputs.size());
  for (NodeId input : node.inputs) args.push_back(At(input, coordinates));
  bool left = kir::HasDirection(node.op) && GetAttr<std::string>(node.attrs, "direction") == "left";
  return e_.Compute(node.op, node.type.dtype, std::move(args), left);
}

Var PointLowering::Inside(const Expr& coordinate, const Expr& extent) {
  const bool below = !e_.bounds().Less(coordinate, extent),
             above = !e_.bounds().NonNegative(coordinate);
  if (!below && !above) return kNoVar;
  const std::string key =
      absl::StrCat("inside ", lanes_, " ", coordinate.ToString(), " ", extent.ToString());
  if (std::optional<Var> known = e_.Recall(key)) return *known;
  const auto negated = [&](Var v) { return e_.Compute(Op::kNot, DType::kBool, {v}); };
  Var inside = kNoVar;
  const std::optional<Expr::Affine> affine = coordinate.AsAffine(kir::kLane);
  const bool along = affine && !e_.UsesLane(affine->base) && affine->stride.constant() > 0;
  if (along && e_.UsesLane(coordinate) && lanes_ > 1) {
    // Active lanes reach from a first to a last one.
    const auto first = [&](const Expr& at) {
      return e_.LaneMask(e_.Simplify(CeilDiv(at - affine->base, affine->stride)), lanes_);
    };
    if (above) inside = negated(first(0));
    if (below) inside = e_.And(inside, first(extent));
  } else {
    const Var index = e_.Index(coordinate, lanes_);
    const auto less = [&](Var bound) {
      return e_.Compute(Op::kLessThan, DType::kBool, {index, bound});
    };
    if (above) inside = negated(less(e_.Const(Scalar::Signed(DType::kI64, 0))));
    if (below) inside = e_.And(inside, less(e_.Index(extent, 1)));
  }
  e_.Remember(key, inside);
  return inside;
}

bool PointLowering::IsZeroOutside(NodeId id) const {
  if (provided_.contains(id) || (row_.index && row_.scratch_of.contains(id))) return false;
  if (id != root_ && has_memory_[id]) return true;
  const Node& node = graph_.node(id);
  if (IsIndexMap(node.op) && node.attrs.contains("fill")) {
    return IsZero(LoadScalar(GetAttr<Tensor>(node.attrs, "fill"), 0)) &&
           IsZeroOutside(node.inputs[0]);
  }
  return (IsIndexMap(node.op) || node.op == Op::kCast) && IsZeroOutside(node.inputs[0]);
}

Var PointLowering::OrZero(NodeId node, const Coordinates& coordinates,
                          const std::vector<Limit>& limits) {
  Var inside = kNoVar;
  for (const Limit& l : limits) inside = e_.And(inside, Inside(l.index, l.extent));
  const Var outer = mask_.predicate;
  mask_.predicate = e_.And(outer, inside);
  const Var value = At(node, coordinates);
  mask_.predicate = outer;
  if (inside == kNoVar || IsZeroOutside(node)) return value;
  return e_.Compute(Op::kSelect, e_.type(value).dtype,
                    {inside, value, e_.Const(ZeroOf(e_.type(value).dtype))});
}

Var PointLowering::Movement(const Node& node, const Coordinates& coordinates) {
  const IndexMap& map = GetAttr<IndexMap>(node.attrs, "map");
  const TensorType& operand = graph_.node(node.inputs[0]).type;
  const Coordinates source = MapCoordinates(map, coordinates, e_.bounds());
  Var inside = kNoVar;
  if (node.attrs.contains("fill")) {
    for (size_t i = 0; i < source.size(); ++i) {
      inside = e_.And(inside, Inside(source[i], operand.shape[i]));
    }
  }
  // Every coordinate is proved to be inside: no test is needed.
  if (inside == kNoVar) return At(node.inputs[0], source);
  Var outer = mask_.predicate;
  mask_.predicate = e_.And(outer, inside);
  Var value = At(node.inputs[0], source);
  mask_.predicate = outer;
  const Scalar fill = LoadScalar(GetAttr<Tensor>(node.attrs, "fill"), 0);
  if (IsZero(fill) && IsZeroOutside(node.inputs[0])) return value;
  return e_.Compute(Op::kSelect, node.type.dtype, {inside, value, e_.Const(fill)});
}

Var PointLowering::Gather(const Node& node, const Coordinates& coordinates) {
  const TensorType& data = graph_.node(node.inputs[0]).type;
  const TensorType& indices = graph_.node(node.inputs[1]).type;
  int64_t axis = GetAttr<int64_t>(node.attrs, "axis");
  auto first = coordinates.begin() + axis;
  auto last = first + static_cast<int64_t>(indices.shape.size());
  Var index = e_.Cast(At(node.inputs[1], Coordinates(first, last)), DType::kI64);
  Var inside = e_.CheckIndex(index, data.shape[axis], mask_);
  e_.bounds().SetExtent(e_.Symbol(index).ToString(), data.shape[axis]);
  Coordinates source(coordinates.begin(), first);
  source.push_back(e_.Symbol(index));
  source.insert(source.end(), last, coordinates.end());
  Var outer = mask_.predicate;
  mask_.predicate = e_.And(outer, inside);
  Var value = At(node.inputs[0], source);
  mask_.predicate = outer;
  // A predicated load gives zero already if the index is outside.
  if (has_memory_[node.inputs[0]]) return value;
  Scalar zero = ZeroOf(node.type.dtype);
  return e_.Compute(Op::kSelect, node.type.dtype, {inside, value, e_.Const(zero)});
}

bool PointLowering::LanesFree(const Coordinates& coordinates) const {
  for (const Expr& c : coordinates) {
    if (e_.UsesLane(c)) return false;
  }
  return mask_.predicate == kNoVar || e_.type(mask_.predicate).lanes == 1;
}

Var PointLowering::Combine(Op op, DType accumulator, const std::vector<Expr>& extents,
                           bool free_lanes, const std::function<Var(const Coordinates&)>& term) {
  // Adds the only term once, not once per lane.
  if (extents.empty()) {
    return e_.Compute(op, accumulator,
                      {e_.Const(IdentityOf(op, accumulator)), e_.Cast(term({}), accumulator)});
  }
  const int lanes = lanes_;
  std::vector<Var> sums;
  for (int i = 0; i < (free_lanes ? unroll_ : 1); ++i) {
    sums.push_back(e_.Mutable(e_.Broadcast(e_.Const(IdentityOf(op, accumulator)), lanes)));
  }
  auto accumulate = [&](Var value, const std::optional<Expr>& count, int part) {
    value = e_.Broadcast(e_.Cast(value, accumulator), lanes);
    if (count) {
      Var identity = e_.Const(IdentityOf(op, accumulator));
      value = e_.Compute(Op::kSelect, accumulator, {e_.LaneMask(*count, lanes), value, identity});
    }
    e_.Assign(sums[part], e_.Compute(op, accumulator, {sums[part], value}));
  };
  Coordinates indices;
  auto vector_pass = [&](const Expr& extent) {
    bool row_pass = !row_.index && extents.size() == 1 && extent == row_.length;
    e_.VectorFor(0, extent, lanes, static_cast<int>(sums.size()),
                 [&](const Expr& i, const std::optional<Expr>& count, int part) {
                   // Scalars have no remainder; the mask around the reduction is theirs, too.
                   std::optional<Context> context;
                   if (lanes > 1) context.emplace(this, lanes, count);
                   if (row_pass) BeginRowPass(i);
                   indices.push_back(i + e_.Lane(lanes));
                   accumulate(term(indices), count, part);
                   indices.pop_back();
                 });
    if (row_pass) EndRowPass();
  };
  std::function<void(size_t)> nest = [&](size_t axis) {
    if (axis == extents.size()) {
      accumulate(term(indices), std::nullopt, 0);
    } else if (axis + 1 == extents.size() && free_lanes) {
      vector_pass(extents[axis]);
    } else {
      e_.For(0, extents[axis], 1, [&](const Expr& i) {
        indices.push_back(i);
        nest(axis + 1);
        indices.pop_back();
      });
    }
  };
  nest(0);
  for (; sums.size() > 1; sums.pop_back()) {
    sums[0] = e_.Compute(op, accumulator, {sums[0], sums.back()});
  }
  return free_lanes ? e_.Reduce(op, sums[0]) : sums[0];
}

Var PointLowering::Unrolled(Op op, DType accumulator, const std::vector<Expr>& extents,
                            const std::function<Var(const Coordinates&, Var)>& term) {
  Var sum = e_.Const(IdentityOf(op, accumulator));
  Coordinates indices;
  std::function<void(size_t)> nest = [&](size_t axis) {
    if (axis == extents.size()) {
      sum = term(indices, sum);
      return;
    }
    for (int64_t i = 0; i < *extents[axis].constant(); ++i) {
      indices.push_back(i);
      nest(axis + 1);
      indices.pop_back();
    }
  };
  nest(0);
  return sum;
}

Var PointLowering::Reduction(const Node& node, const Coordinates& coordinates) {
  const TensorType& operand = graph_.node(node.inputs[0]).type;
  const std::vector<int64_t>& axes = GetAttr<std::vector<int64_t>>(node.attrs, "axes");
  std::vector<Expr> extents;
  for (int64_t a : axes) extents.push_back(operand.shape[a]);
  auto place = [&](const Coordinates& indices) {
    Coordinates point;
    size_t kept = 0;
    for (size_t a = 0; a < operand.shape.size(); ++a) {
      auto reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(a));
      point.push_back(reduced == axes.end() ? coordinates[kept++]
                                            : indices[reduced - axes.begin()]);
    }
    return point;
  };
  Op op = node.op == Op::kSumReduce ? Op::kAdd : node.op == Op::kMulReduce ? Op::kMul : Op::kMax;
  DType accumulator = op == Op::kMax ? node.type.dtype : AccumulatorOf(node.type.dtype);
  if (node.type.dtype == DType::kBool) op = Op::kOr;
  const bool free_lanes = LanesFree(coordinates);
  const std::optional<int64_t> terms = Product(extents).constant();
  Var v;
  if (hoists_ && terms && *terms <= kMostUnrolled && (!free_lanes || lanes_ == 1)) {
    const NodeId operand = node.inputs[0];
    const Node& product = graph_.node(operand);
    const bool fused = op == Op::kAdd && product.op == Op::kMul && IsFloat(accumulator) &&
                       product.type.dtype == accumulator && !has_memory_[operand];
    v = Unrolled(op, accumulator, extents, [&](const Coordinates& indices, Var sum) {
      const Coordinates at = place(indices);
      if (fused) return e_.Fma(At(product.inputs[0], at), At(product.inputs[1], at), sum);
      return e_.Compute(op, accumulator, {sum, e_.Cast(At(operand, at), accumulator)});
    });
  } else {
    v = Combine(op, accumulator, extents, free_lanes,
                [&](const Coordinates& indices) { return At(node.inputs[0], place(indices)); });
  }
  return e_.Cast(v, node.type.dtype);
}

Var PointLowering::Contraction(const Node& node, const Coordinates& coordinates) {
  ContractSpec spec = *ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec"));
  std::map<char, Expr> at;
  for (size_t i = 0; i < spec.result.size(); ++i) at[spec.result[i]] = coordinates[i];
  std::string summed;
  std::vector<Expr> extents;
  for (int side = 0; side < 2; ++side) {
    const std::string& letters = side == 0 ? spec.lhs : spec.rhs;
    for (size_t i = 0; i < letters.size(); ++i) {
      if (at.contains(letters[i]) || summed.find(letters[i]) != std::string::npos) continue;
      summed += letters[i];
      extents.push_back(graph_.node(node.inputs[side]).type.shape[i]);
    }
  }
  DType accumulator = AccumulatorOf(node.type.dtype);
  auto term = [&](const Coordinates& indices) {
    for (size_t i = 0; i < summed.size(); ++i) at[summed[i]] = indices[i];
    Coordinates lhs, rhs;
    for (char c : spec.lhs) lhs.push_back(at[c]);
    for (char c : spec.rhs) rhs.push_back(at[c]);
    Var a = e_.Cast(At(node.inputs[0], lhs), accumulator);
    Var b = e_.Cast(At(node.inputs[1], rhs), accumulator);
    return e_.Compute(Op::kMul, accumulator, {a, b});
  };
  Var v = Combine(Op::kAdd, accumulator, extents, LanesFree(coordinates), term);
  return e_.Cast(v, node.type.dtype);
}

Var PointLowering::Bag(const Node& node, const Coordinates& coordinates) {
  const Shape& ids = graph_.node(node.inputs[1]).type.shape;
  const Shape& offsets = graph_.node(node.inputs[2]).type.shape;
  const Expr& bag = coordinates[0];
  kir::Mask always;
  auto bound = [&](const Expr& at) {
    Var v = e_.Cast(At(node.inputs[2], {at}), DType::kI64);
    e_.bounds().Set(e_.Symbol(v).ToString(), 0, ids[0]);
    return v;
  };
  // A bag ends where the next begins, the last one at the end of `ids`. Both ends are checked, so
  // that no offset from outside reaches memory.
  Var first = bound(bag);
  Var ok = e_.CheckIndex(first, ids[0] + 1, always);
  Var end = e_.Mutable(e_.Index(ids[0], 1));
  Var is_inner =
      e_.Compute(Op::kLessThan, DType::kBool, {e_.Index(bag + 1, 1), e_.Index(offsets[0], 1)});
  e_.If(is_inner, [&] { e_.Assign(end, bound(bag + 1)); });
  ok = e_.And(ok, e_.CheckIndex(end, ids[0] + 1, always));
  Var none_before = e_.Const(Scalar::Signed(DType::kI64, 0));
  auto guarded = [&](Var v) {
    Var safe = e_.Compute(Op::kSelect, DType::kI64, {ok, v, none_before});
    e_.bounds().Set(e_.Symbol(safe).ToString(), 0, ids[0]);
    return safe;
  };
  first = guarded(first);
  Var last = guarded(end);
  // Decreasing offsets are an error, not an empty bag.
  e_.CheckIndex(e_.Index(e_.Symbol(last) - e_.Symbol(first), 1), ids[0] + 1, always);
  const std::string& mode = GetAttr<std::string>(node.attrs, "mode");
  DType accumulator = mode == "max" ? node.type.dtype : AccumulatorOf(node.type.dtype);
  Op op = mode == "max" ? Op::kMax : Op::kAdd;
  Var sum = e_.Mutable(e_.Broadcast(e_.Const(IdentityOf(op, accumulator)), lanes_));
  e_.For(e_.Symbol(first), e_.Symbol(last), 1, [&](const Expr& i) {
    const Expr& rows = graph_.node(node.inputs[0]).type.shape[0];
    Var id = e_.Cast(At(node.inputs[1], {i}), DType::kI64);
    Var inside = e_.CheckIndex(id, rows, always);
    e_.bounds().SetExtent(e_.Symbol(id).ToString(), rows);
    Var outer = mask_.predicate;
    mask_.predicate = e_.And(outer, inside);
    Var value = At(node.inputs[0], {e_.Symbol(id), coordinates[1]});
    mask_.predicate = outer;
    e_.Assign(
        sum, e_.Compute(op, accumulator, {sum, e_.Broadcast(e_.Cast(value, accumulator), lanes_)}));
  });
  Var length = e_.Index(e_.Symbol(last) - e_.Symbol(first), 1);
  Var none =
      e_.Compute(Op::kLessThan, DType::kBool, {length, e_.Const(Scalar::Signed(DType::kI64, 1))});
  Var zero = e_.Const(ZeroOf(accumulator));
  Var value = sum;
  if (mode == "mean")
    value = e_.Compute(Op::kDiv, accumulator, {sum, e_.Cast(length, accumulator)});
  return e_.Cast(e_.Compute(Op::kSelect, accumulator, {none, zero, value}), node.type.dtype);
}

int PointLowering::BufferOf(NodeId node, bool written) {
  auto [it, added] = buffer_of_.try_emplace(node, 0);
  if (added) it->second = AddBuffer(node, written);
  return it->second;
}

int PointLowering::AddBuffer(NodeId node, bool written) {
  buffer_nodes_.push_back(node);
  return e_.Global(graph_.node(node).type.dtype, written);
}

Expr PointLowering::Offset(NodeId node, const Coordinates& coordinates) const {
  return e_.Simplify(MemoryOffset(graph_, node, coordinates));
}

Var PointLowering::FromMemory(NodeId node, const Coordinates& coordinates) {
  const int buffer = BufferOf(node, /*written=*/false);
  const Expr offset = Offset(node, coordinates);
  const bool all = mask_.predicate == kNoVar && !e_.UsesLane(offset);
  if (!hoists_ || !all || !IsInsideAlways(node, coordinates)) {
    return e_.Load(buffer, offset, lanes_, mask_);
  }
  const std::string key = absl::StrCat("load ", buffer, " ", offset.ToString());
  if (std::optional<Var> known = e_.Recall(key)) return *known;
  Var v;
  e_.Hoist(offset, [&] {
    v = e_.Load(buffer, offset, 1, {});
    e_.Remember(key, v);
  });
  return v;
}

bool PointLowering::IsInsideAlways(NodeId node, const Coordinates& coordinates) const {
  const Shape& shape = graph_.node(node).type.shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    const Expr& c = coordinates[i];
    if (!e_.IsPlace(c) || !e_.bounds().NonNegative(c) || !e_.bounds().Less(c, shape[i])) {
      return false;
    }
  }
  return true;
}

void PointLowering::SetRow(Coordinates prefix, Expr length, std::map<NodeId, int> scratch_of) {
  row_ = {std::move(prefix), std::move(length), std::move(scratch_of), {}, {}, std::nullopt};
}

Var PointLowering::FromRowCache(NodeId node, const Coordinates& coordinates) {
  Expr r = e_.Simplify(*row_.index + e_.Lane(lanes_));
  Coordinates whole = row_.prefix;
  whole.push_back(r);
  if (coordinates != whole || mask_.predicate != kNoVar) return Compute(node, coordinates);
  int buffer = row_.scratch_of[node];
  if (row_.filled.contains(node)) return e_.Load(buffer, r, lanes_, mask_);
  Var v = e_.Broadcast(Compute(node, coordinates), lanes_);
  e_.Store(buffer, r, v, mask_);
  row_.filling.insert(node);
  return v;
}

void PointLowering::EndRowPass() {
  row_.index.reset();
  row_.filled.merge(row_.filling);
  row_.filling.clear();
}

}  // namespace athanor
