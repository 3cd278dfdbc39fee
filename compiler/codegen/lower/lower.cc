#include "compiler/codegen/lower/lower.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/kir/barriers.h"
#include "compiler/codegen/lower/axes.h"
#include "compiler/search/kernels/access.h"
#include "compiler/search/kernels/extents.h"

namespace athanor {

namespace {

// Longest row that keeps its intermediate values in scratch.
constexpr int64_t kMaxCachedRow = 16384;

// Reports whether all coordinates lie inside `shape`. Behind a map with `fill` they may not; such a
// node must be read only where the map tests it.
bool IsInside(const Shape& shape, const Coordinates& at, const Bounds& bounds) {
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!bounds.NonNegative(at[i]) || !bounds.Less(at[i], shape[i])) return false;
  }
  return true;
}

// Computes reductions that do not depend on the element within the row before the row.
void HoistReductions(KernelBuilder& b, const Axes& axes, const Coordinates& outer) {
  Coordinates at = outer;
  const std::string inner = axes.symbols.back();
  at.push_back(Expr::Symbol(inner));
  Bounds bounds = b.emitter.bounds();
  bounds.SetExtent(inner, axes.extents.back());
  Accesses a =
      CollectAccesses(b.input.graph, b.input.has_memory, b.choice.root, Place(axes, at), bounds);
  // Sorted by node, so that a row's maximum comes before the sum that needs it.
  std::map<NodeId, Coordinates> hoisted;
  for (const Access& r : a.reductions) {
    std::set<std::string> symbols;
    for (const Expr& c : r.coordinates) c.CollectSymbols(&symbols);
    bool free = std::none_of(symbols.begin(), symbols.end(), [&](const std::string& s) {
      return s == inner || s.starts_with("$r");
    });
    const Shape& shape = b.input.graph.node(r.node).type.shape;
    if (free && IsInside(shape, r.coordinates, bounds)) hoisted.emplace(r.node, r.coordinates);
  }
  for (const auto& [node, coordinates] : hoisted) b.at.At(node, coordinates);
}

// Bytes of scratch that stay near: a block's shared memory is parted among its teams.
int64_t NearBytes(const KernelBuilder& b) {
  constexpr int64_t kBlockBytes = 40 << 10;
  return b.choice.team == 1 ? std::numeric_limits<int64_t>::max()
                            : kBlockBytes * b.choice.team / kir::kBlockThreads;
}

// Returns scratch for the nodes worth keeping between passes: of the root's shape, costly, and used
// more than once. Scalars are computed again: a device without vectors has too many threads for
// scratch of that size.
std::map<NodeId, int> RowScratch(KernelBuilder& b, const Expr& length, int lanes) {
  std::map<NodeId, int> scratch;
  std::optional<int64_t> elements = b.emitter.bounds().Maximum(length);
  if (lanes == 1 || !elements || *elements > kMaxCachedRow) return scratch;
  const Graph& graph = b.input.graph;
  std::vector<int> users(graph.nodes.size());
  std::vector<bool> inlined(graph.nodes.size());
  inlined[b.choice.root] = true;
  int64_t left = NearBytes(b);
  for (NodeId n = b.choice.root; n >= 0; --n) {
    if (!inlined[n]) continue;
    for (NodeId input : graph.node(n).inputs) {
      ++users[input];
      if (!b.input.has_memory[input]) inlined[input] = true;
    }
  }
  for (NodeId n = 0; n < b.choice.root; ++n) {
    const Node& node = graph.node(n);
    bool costly = OpInfo(node.op).op_class == OpClass::kElementwise && OpInfo(node.op).ulp > 0;
    if (!inlined[n] || users[n] < 2 || !costly || node.type.shape != b.root.type.shape) continue;
    left -= *elements * DTypeBytes(node.type.dtype);
    if (left < 0) break;
    scratch[n] = b.emitter.Scratch(node.type.dtype, *elements);
  }
  return scratch;
}

absl::Status LowerRow(KernelBuilder& b) {
  Axes axes = RootAxes(b.root);
  const Expr length = axes.extents.back();
  std::vector<Expr> outer(axes.extents.begin(), axes.extents.end() - 1);
  Coordinates at = b.SplitItem(outer);
  int lanes = b.LanesFor(WidestBytes(b.input, b.choice.root, axes.root, b.emitter.bounds()));
  b.at.SetUnroll(b.choice.walk.unroll);
  PointLowering::Context row(&b.at, lanes, std::nullopt);
  Coordinates prefix = at;
  prefix.push_back(0);
  prefix = Place(axes, prefix);
  if (!b.root.type.shape.empty() && b.root.type.shape.back() == length) {
    prefix.pop_back();
    b.at.SetRow(prefix, length, RowScratch(b, length, lanes));
  }
  HoistReductions(b, axes, at);
  b.emitter.VectorFor(0, length, lanes, [&](const Expr& i, const std::optional<Expr>& count) {
    PointLowering::Context context(&b.at, lanes, count);
    b.at.BeginRowPass(i);
    Coordinates element = at;
    element.push_back(i + b.emitter.Lane(lanes));
    b.StoreRoot(Place(axes, element));
  });
  b.at.EndRowPass();
  return absl::OkStatus();
}

absl::Status LowerPoint(KernelBuilder& b) {
  Axes axes = RootAxes(b.root);
  Coordinates at = b.SplitItem(axes.extents);
  int lanes = b.LanesFor(WidestBytes(b.input, b.choice.root, axes.root, b.emitter.bounds()));
  b.at.SetUnroll(b.choice.walk.unroll);
  PointLowering::Context context(&b.at, lanes, std::nullopt);
  b.StoreRoot(Place(axes, at));
  return absl::OkStatus();
}

// Copies the operand, then applies the updates in order. Items own disjoint slices across the
// indexed axis, so that duplicates need no atomics.
absl::Status LowerScatter(KernelBuilder& b) {
  const Graph& graph = b.input.graph;
  const Shape& data = b.root.type.shape;
  const Shape& indices = graph.node(b.root.inputs[1]).type.shape;
  const size_t axis = static_cast<size_t>(GetAttr<int64_t>(b.root.attrs, "axis"));
  const std::string& mode = GetAttr<std::string>(b.root.attrs, "mode");
  const bool vector = axis + 1 < data.size();
  constexpr int64_t kChunk = 512;
  std::vector<Expr> outer;
  for (size_t a = 0; a + (vector ? 1 : 0) < data.size(); ++a) {
    if (a != axis) outer.push_back(data[a]);
  }
  if (vector) outer.push_back(CeilDiv(data.back(), kChunk));
  b.SetGrid(Product(outer));
  Coordinates item = Delinearize(b.Item(), outer);
  Expr begin = 0, end = 1;
  if (vector) {
    begin = b.emitter.Simplify(item.back() * kChunk);
    end = MinOf(data.back(), begin + kChunk);
    item.pop_back();
  }
  int lanes = vector ? b.LanesFor(DTypeBytes(AccumulatorOf(b.root.type.dtype))) : 1;
  auto place = [&](const Coordinates& at_axis, const Expr& last) {
    Coordinates c(item.begin(), item.begin() + static_cast<std::ptrdiff_t>(axis));
    c.insert(c.end(), at_axis.begin(), at_axis.end());
    c.insert(c.end(), item.begin() + static_cast<std::ptrdiff_t>(axis), item.end());
    if (vector) c.push_back(last);
    return c;
  };
  auto each_slice = [&](absl::FunctionRef<void(const Expr& last)> body) {
    b.emitter.VectorFor(begin, end, lanes, [&](const Expr& i, const std::optional<Expr>& count) {
      PointLowering::Context context(&b.at, lanes, count);
      body(vector ? i + b.emitter.Lane(lanes) : Expr(0));
    });
  };
  b.emitter.For(0, data[axis], 1, [&](const Expr& i) {
    each_slice([&](const Expr& last) {
      Coordinates c = place({i}, last);
      kir::Var value = b.at.At(b.root.inputs[0], c);
      b.emitter.Store(b.out, b.at.Offset(b.choice.root, c), b.emitter.Broadcast(value, lanes),
                      b.at.mask());
    });
  });
  b.emitter.For(0, Product(indices), 1, [&](const Expr& n) {
    Coordinates position = Delinearize(n, indices);
    kir::Var index = b.emitter.Cast(b.at.At(b.root.inputs[1], position), DType::kI64);
    kir::Var inside = b.emitter.CheckIndex(index, data[axis], {});
    b.emitter.bounds().SetExtent(b.emitter.Symbol(index).ToString(), data[axis]);
    b.emitter.If(inside, [&] {
      each_slice([&](const Expr& last) {
        Expr to = b.at.Offset(b.choice.root, place({b.emitter.Symbol(index)}, last));
        kir::Var value = b.at.At(b.root.inputs[2], place(position, last));
        if (mode != "set") {
          Op op = mode == "add"   ? Op::kAdd
                  : mode == "mul" ? Op::kMul
                  : mode == "max" ? Op::kMax
                                  : Op::kMin;
          kir::Var old = b.emitter.Load(b.out, to, lanes, b.at.mask());
          value = b.emitter.Compute(op, b.root.type.dtype, {old, value});
        }
        b.emitter.Store(b.out, to, b.emitter.Broadcast(value, lanes), b.at.mask());
      });
    });
  });
  return absl::OkStatus();
}

std::string KernelName(const LowerInput& in, const KernelChoice& choice) {
  std::string name(OpName(in.graph.node(choice.root).op));
  if (choice.anchor >= 0 && choice.anchor != choice.root) {
    name = std::string(OpName(in.graph.node(choice.anchor).op)) + "_" + name;
  }
  if (IsLibraryProduct(choice)) name = "openblas_" + name;
  if (IsCall(choice)) name = "cublaslt_" + name;
  return name;
}

}  // namespace

Coordinates Delinearize(const Expr& flat, const std::vector<Expr>& extents) {
  Coordinates c(extents.size());
  Expr stride = 1;
  for (size_t i = extents.size(); i-- > 0;) {
    c[i] = FloorDiv(flat, stride);
    if (i > 0) c[i] = Mod(c[i], extents[i]);
    stride = stride * extents[i];
  }
  return c;
}

KernelBuilder::KernelBuilder(const LowerInput& in, const KernelChoice& c)
    : input(in),
      choice(c),
      root(in.graph.node(c.root)),
      emitter(in.graph.DimBounds()),
      at(in.graph, in.has_memory, &emitter) {
  if (in.target.device() == "cuda") emitter.NarrowIndices();
  at.SetRoot(c.root);
  out = at.BufferOf(c.root, /*written=*/true);
}

Coordinates KernelBuilder::SplitItem(const std::vector<Expr>& extents, bool registers) {
  SetGrid(Product(extents));
  Coordinates item = Delinearize(Item(), extents);
  for (size_t i = 0; i < item.size(); ++i) {
    item[i] = emitter.Simplify(item[i]);
    if (registers && !item[i].symbol()) item[i] = emitter.Coordinate(item[i], extents[i]);
  }
  return item;
}

absl::Status KernelBuilder::CheckEpilogue() const {
  return IsEpilogue(input.graph, input.has_memory, choice.root, choice.anchor) ? absl::OkStatus()
                                                                               : NoEpilogue();
}

absl::Status KernelBuilder::NoEpilogue() const {
  return absl::InternalError(absl::StrCat(input.graph.Describe(choice.root),
                                          " is not an epilogue of ",
                                          input.graph.Describe(choice.anchor)));
}

absl::Status KernelBuilder::StoreEpilogue(const Coordinates& coordinates,
                                          const std::function<kir::Var()>& value) {
  at.Provide(choice.anchor, [value](const Coordinates&) { return value(); });
  const auto root_at = RootCoordinates(input.graph, input.has_memory, choice.root, choice.anchor,
                                       coordinates, emitter.bounds());
  if (!root_at) return NoEpilogue();
  StoreRoot(*root_at);
  return absl::OkStatus();
}

void KernelBuilder::StoreRoot(const Coordinates& coordinates) {
  kir::Var v = at.At(choice.root, coordinates);
  Expr offset = at.Offset(choice.root, coordinates);
  kir::Mask mask = at.mask();
  if (emitter.UsesLane(offset)) {
    v = emitter.Broadcast(v, at.lanes());
  } else if (const int lanes = emitter.type(v).lanes; choice.team > 1 && lanes > 1) {
    // The only element is the first thread's.
    mask.count = mask.count ? emitter.Simplify(MinOf(*mask.count, 1)) : Expr(1);
    offset += emitter.Lane(lanes);
  }
  emitter.Store(out, offset, v, mask);
}

LoweredKernel KernelBuilder::Finish() && {
  LoweredKernel lowered;
  lowered.buffers = at.buffers();
  lowered.kernel = std::move(emitter).Finish(KernelName(input, choice), grid);
  lowered.kernel.team = choice.team;
  lowered.buffers.resize(lowered.buffers.size() + lowered.kernel.LaunchBuffers(), -1);
  return lowered;
}

namespace {

// The form of the op that a kind's kernel is about, if it is about one.
std::optional<OpForm> AnchorForm(KernelKind kind) {
  switch (kind) {
    case KernelKind::kContract:
      return OpForm::kContract;
    case KernelKind::kAttention:
    case KernelKind::kPaged:
      return OpForm::kAttention;
    case KernelKind::kScatter:
      return OpForm::kScatter;
    case KernelKind::kStateWrite:
      return OpForm::kStateWrite;
    case KernelKind::kSort:
      return OpForm::kOrder;
    default:
      return std::nullopt;
  }
}

// Reports whether the choice's kind is about the op that the choice is about.
bool IsAbout(const Graph& graph, const KernelChoice& choice) {
  const std::optional<OpForm> wanted = AnchorForm(choice.kind);
  const bool root = choice.kind == KernelKind::kScatter || choice.kind == KernelKind::kSort ||
                    choice.kind == KernelKind::kStateWrite;
  const NodeId about = root ? choice.root : choice.anchor;
  const bool paged = choice.kind == KernelKind::kPaged;
  if (about >= 0 && paged != IsPagedAttention(graph.node(about).op)) return false;
  return !wanted || (about >= 0 && FormOf(graph.node(about).op) == *wanted);
}

// Reports whether a team of the choice's threads can compute it on the target.
bool TakesTeam(const v1::Target& target, const KernelChoice& choice) {
  const bool alone = choice.kind == KernelKind::kSort || choice.kind == KernelKind::kPaged ||
                     IsCall(choice) || IsLibraryProduct(choice);
  const bool block =
      choice.kind == KernelKind::kContract && std::holds_alternative<TileSchedule>(choice.contract);
  if (block && choice.team != kir::kBlockThreads) return false;
  return choice.team == 1 || (IsTeam(choice.team) && LanesOf(target, 1) == 1 && !alone);
}

}  // namespace

absl::StatusOr<LoweredKernel> LowerKernel(const LowerInput& input, const KernelChoice& choice) {
  if (!IsAbout(input.graph, choice)) {
    return absl::InternalError(absl::StrCat("kernel for ", input.graph.Describe(choice.root),
                                            " has a kernel kind that cannot compute this op"));
  }
  if (!TakesTeam(input.target, choice)) {
    return absl::InternalError(absl::StrCat(
        "kernel for ", input.graph.Describe(choice.root), " has a team of ", choice.team,
        " threads, which cannot compute it on device '", input.target.device(), "'"));
  }
  KernelBuilder b(input, choice);
  absl::Status status;
  switch (choice.kind) {
    case KernelKind::kMap:
      status = LowerMap(b);
      break;
    case KernelKind::kRow:
      status = LowerRow(b);
      break;
    case KernelKind::kPoint:
      status = LowerPoint(b);
      break;
    case KernelKind::kContract:
      status = LowerContract(b);
      break;
    case KernelKind::kAttention:
      status = LowerAttention(b);
      break;
    case KernelKind::kPaged:
      status = LowerPaged(b);
      break;
    case KernelKind::kScatter:
      status = LowerScatter(b);
      break;
    case KernelKind::kStateWrite:
      status = LowerStateWrite(b);
      break;
    case KernelKind::kSort:
      status = LowerSort(b);
      break;
    case KernelKind::kLoop:
      status = absl::InternalError(
          absl::StrCat(input.graph.Describe(choice.root), " is a loop, not one kernel"));
      break;
  }
  if (!status.ok()) return status;
  LoweredKernel lowered = std::move(b).Finish();
  kir::PlaceBarriers(&lowered.kernel);
  if (absl::Status valid = kir::Verify(lowered.kernel); !valid.ok()) {
    return absl::InternalError(
        absl::StrCat("kernel for ", input.graph.Describe(choice.root), ": ", valid.message()));
  }
  return lowered;
}

}  // namespace athanor
