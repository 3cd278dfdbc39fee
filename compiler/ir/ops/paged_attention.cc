// Attention over keys and values that lie in blocks of slots. The blocks of each sequence are
// listed in a row of a table, as in "Efficient Memory Management for Large Language Model Serving
// with PagedAttention" (Kwon et al., 2023).
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/ops/cutter.h"
#include "compiler/ir/ops/family.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

enum Operand { kQ, kK, kV, kTable, kSequence, kPosition, kSink };
constexpr std::string_view kWhat[] = {
    "q, operand 0,",        "k, operand 1,",        "v, operand 2,",   "table, operand 3,",
    "sequence, operand 4,", "position, operand 5,", "sink, operand 6,"};
constexpr int kRanks[] = {3, 3, 3, 2, 1, 1, 1};

constexpr int64_t kLanes = 16;  // a block is whole groups of so many slots, which lie together
constexpr int64_t kMaxBlock = 1 << 16;
constexpr int64_t kMaxWindow = std::numeric_limits<int32_t>::max();

absl::Status CheckSettings(const Attrs& attrs) {
  const int64_t block = GetAttr<int64_t>(attrs, "block");
  if (block < kLanes || block > kMaxBlock || block % kLanes != 0) {
    return Invalid("block=", block, " must be a multiple of ", kLanes, " of at most ", kMaxBlock);
  }
  const int64_t window = GetAttrOr<int64_t>(attrs, "window", kMaxWindow);
  if (window < 1 || window > kMaxWindow) {
    return Invalid("window=", window, " must be in [1, ", kMaxWindow, "]");
  }
  const double scale = GetAttrOr<double>(attrs, "scale", 1);
  if (!std::isfinite(scale)) return Invalid("scale=", scale, " must be finite");
  const double softcap = GetAttrOr<double>(attrs, "softcap", 1);
  if (!std::isfinite(softcap) || softcap <= 0) {
    return Invalid("softcap=", softcap, " must be finite and above 0");
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const Expr& heads, const Expr& groups) {
  const std::optional<int64_t> h = heads.constant(), g = groups.constant();
  if (h && g && *g >= 1 && *h >= *g && *h % *g == 0) return absl::OkStatus();
  return Invalid("q has ", heads.ToString(), " heads, axis 1, and k has ", groups.ToString(),
                 "; both must be constant, and q's a multiple of k's");
}

absl::StatusOr<TensorType> InferPagedAttention(TypeSpan inputs, const Attrs& attrs,
                                               const Bounds& bounds) {
  RETURN_IF_ERROR(CheckSettings(attrs));
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    const bool index = i == kTable || i == kSequence || i == kPosition;
    const DType real = inputs[kQ].dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    const DType wanted = index ? DType::kI32 : real;
    if (inputs[i].dtype != wanted) {
      return Unimplemented(kWhat[i], " has dtype ", DTypeName(inputs[i].dtype),
                           ", but the op takes ", DTypeName(wanted),
                           ": convert it with Cast(dtype=", DTypeName(wanted), ")");
    }
    RETURN_IF_ERROR(CheckRank(kWhat[i], inputs[i].shape, kRanks[i]));
  }
  const auto same = [&](int a, int axis_a, int b, int axis_b) {
    return CheckSameSize(kWhat[a], axis_a, inputs[a].shape[axis_a], kWhat[b], axis_b,
                         inputs[b].shape[axis_b], bounds);
  };
  absl::Status s = CheckHeads(inputs[kQ].shape[1], inputs[kK].shape[1]);
  if (s.ok()) s = same(kQ, 2, kK, 2);
  if (s.ok()) s = same(kK, 0, kV, 0);
  if (s.ok()) s = same(kK, 1, kV, 1);
  if (s.ok()) s = same(kQ, 0, kSequence, 0);
  if (s.ok()) s = same(kQ, 0, kPosition, 0);
  if (s.ok() && inputs.size() > kSink) s = same(kQ, 1, kSink, 0);
  if (!s.ok()) return s;
  TensorType result = inputs[kQ];
  result.shape[2] = inputs[kV].shape[2];
  return result;
}

// The sizes and settings of one evaluation.
struct Setting {
  // Shapes of q, k, the table, in this order.
  Setting(absl::Span<const int64_t> q, absl::Span<const int64_t> k, absl::Span<const int64_t> table,
          const Attrs& attrs)
      : depth(q[2]),
        group(q[1] / k[1]),
        slots(k[0]),
        sequences(table[0]),
        blocks(table[1]),
        block(GetAttr<int64_t>(attrs, "block")),
        window(GetAttrOr<int64_t>(attrs, "window", kMaxWindow)),
        scale(attrs.contains("scale") ? GetAttr<double>(attrs, "scale")
                                      : 1 / std::sqrt(static_cast<double>(q[2]))),
        softcap(GetAttrOr<double>(attrs, "softcap", 0)) {}

  int64_t depth, group, slots, sequences, blocks, block, window;
  double scale, softcap;  // softcap 0: none

  absl::Status CheckRow(int64_t row, int64_t sequence, int64_t position) const {
    if (sequence < 0 || sequence >= sequences) {
      return absl::OutOfRangeError(absl::StrCat("sequence ", sequence, " of row ", row,
                                                " is outside the table, which has ", sequences,
                                                " rows"));
    }
    if (position < 0 || position >= blocks * block) {
      return absl::OutOfRangeError(absl::StrCat("position ", position, " of row ", row,
                                                " is outside the table's ", blocks, " blocks of ",
                                                block));
    }
    return absl::OkStatus();
  }
  // The first key that a row sees; the last is that at its position.
  int64_t FirstKey(int64_t position) const { return std::max<int64_t>(0, position - window + 1); }
  absl::StatusOr<int64_t> SlotOf(int64_t key, int64_t entry) const {
    const int64_t slot = entry * block + key % block;
    if (entry >= 0 && slot < slots) return slot;
    return absl::OutOfRangeError(absl::StrCat("block ", entry, " of the table is outside the ",
                                              slots, " slots, for key ", key));
  }
};

// The values of k or v of one head: those of a slot are `stride` elements behind the one before's.
template <typename Real>
struct HeadOfPool {
  const Real* first;
  int64_t stride, width;

  const Real* At(int64_t slot) const { return first + slot * stride; }
};

// Keys that a row does not see are skipped entirely: neither their scores nor their values are
// read.
template <typename Real>
void AttendSlots(const Setting& setting, const Real* q, const HeadOfPool<Real>& k,
                 const HeadOfPool<Real>& v, absl::Span<const int64_t> slots, const Real* sink,
                 Real* out) {
  std::vector<Real> weights;
  for (int64_t slot : slots) {
    Real score = 0;
    for (int64_t d = 0; d < k.width; ++d) score += q[d] * k.At(slot)[d];
    score *= setting.scale;
    if (setting.softcap > 0) score = setting.softcap * std::tanh(score / setting.softcap);
    weights.push_back(score);
  }
  if (sink != nullptr) weights.push_back(*sink);
  SoftmaxRow(weights.data(), static_cast<int64_t>(weights.size()), 1);
  for (int64_t e = 0; e < v.width; ++e) {
    Real sum = 0;
    for (size_t i = 0; i < slots.size(); ++i) sum += weights[i] * v.At(slots[i])[e];
    out[e] = sum;
  }
}

ATHANOR_REFERENCE(PagedAttention) {
  const Setting setting(inputs[kQ]->shape, inputs[kK]->shape, inputs[kTable]->shape, attrs);
  const int64_t heads = inputs[kQ]->shape[1], groups = inputs[kK]->shape[1];
  const int64_t columns = inputs[kV]->shape[2];
  return WithReal(result->dtype, [&](auto zero) -> absl::Status {
    using Real = decltype(zero);
    const std::vector<Real> q = LoadReals<Real>(*inputs[kQ]), k = LoadReals<Real>(*inputs[kK]),
                            v = LoadReals<Real>(*inputs[kV]);
    const bool has_sink = inputs.size() > kSink;
    const std::vector<Real> sink = has_sink ? LoadReals<Real>(*inputs[kSink]) : std::vector<Real>();
    std::vector<Real> out(result->elements());
    std::vector<int64_t> slots;
    for (int64_t t = 0; t < inputs[kQ]->shape[0]; ++t) {
      const int64_t sequence = LoadIndex(*inputs[kSequence], t),
                    position = LoadIndex(*inputs[kPosition], t);
      RETURN_IF_ERROR(setting.CheckRow(t, sequence, position));
      slots.clear();
      for (int64_t key = setting.FirstKey(position); key <= position; ++key) {
        const int64_t entry =
            LoadIndex(*inputs[kTable], sequence * setting.blocks + key / setting.block);
        ASSIGN_OR_RETURN(int64_t slot, setting.SlotOf(key, entry));
        slots.push_back(slot);
      }
      for (int64_t row = t * heads; row < (t + 1) * heads; ++row) {
        const int64_t h = row - t * heads, g = h / setting.group;
        const HeadOfPool<Real> keys{k.data() + g * setting.depth, groups * setting.depth,
                                    setting.depth};
        const HeadOfPool<Real> values{v.data() + g * columns, groups * columns, columns};
        AttendSlots(setting, q.data() + row * setting.depth, keys, values, slots,
                    has_sink ? &sink[h] : nullptr, out.data() + row * columns);
      }
    }
    StoreReals(out, result);
    return absl::OkStatus();
  });
}

// Rows are those of q; each reads any row of k, v and the table.
AxisFlow PagedFlow(const Graph& graph, const Node& node) {
  AxisFlow flow = AlikeFlow(graph, node);
  for (std::vector<int>& axes : flow) std::fill(axes.begin(), axes.end(), kMixed);
  for (int operand : {kQ, kSequence, kPosition}) flow[operand][0] = 0;
  return flow;
}

// A pool of slots of the part, in which each wanted element has a sequence of its own. Its blocks
// are the smallest there are, whatever those of the whole: sequences may be short.
struct PartPool {
  int64_t blocks;       // of kLanes slots, of each sequence
  Positions slots;      // by slot of the part: one of the whole; -1: none
  Positions positions;  // by element
};

int64_t BlocksOf(const std::vector<Positions>& seen) {
  int64_t blocks = 0;
  for (const Positions& slots : seen) {
    blocks = std::max(blocks, (Count(slots) + kLanes - 1) / kLanes);
  }
  return blocks;
}

PartPool PoolOf(const std::vector<Positions>& seen) {
  PartPool pool{BlocksOf(seen), {}, {}};
  for (const Positions& slots : seen) {
    pool.positions.push_back(Count(slots) - 1);
    pool.slots.insert(pool.slots.end(), slots.begin(), slots.end());
    pool.slots.resize(pool.slots.size() + pool.blocks * kLanes - slots.size(), -1);
  }
  return pool;
}

absl::StatusOr<NodeId> I32Literal(Cutter& cutter, std::vector<int64_t> shape,
                                  const Positions& values) {
  return cutter.Literal(Tensor::Of<int32_t>(DType::kI32, std::move(shape),
                                            std::vector<int32_t>(values.begin(), values.end())));
}

// Computes wanted elements of one head: each has a row of its own, a sequence of its own with only
// the keys that it sees, and its column of their values.
Cutter::Recipe HeadRecipe(Cutter& cutter, NodeId n, const Setting& setting,
                          const Positions& elements, const std::vector<Positions>& seen) {
  const Node& node = cutter.graph().node(n);
  const absl::Span<const int64_t> q = cutter.ShapeOf(node.inputs[kQ]),
                                  v = cutter.ShapeOf(node.inputs[kV]);
  const int64_t count = Count(elements), heads = q[1], groups = v[1], columns = v[2];
  const PartPool pool = PoolOf(seen);
  const int64_t each = pool.blocks * kLanes, all = Count(pool.slots);
  Positions q_bases, keys, values;
  for (int64_t p : elements) q_bases.push_back(p / columns * setting.depth);
  for (int64_t i = 0; i < all; ++i) {
    const int64_t p = elements[i / each], slot = pool.slots[i];
    const int64_t group = p / columns % heads / setting.group;
    for (int64_t d = 0; d < setting.depth; ++d) {
      keys.push_back(slot < 0 ? -1 : (slot * groups + group) * setting.depth + d);
    }
    values.push_back(slot < 0 ? -1 : (slot * groups + group) * columns + p % columns);
  }
  const Tensor zero = Tensor::Zeros(node.type.dtype, {});
  std::vector<Cutter::Recipe> operands;
  const auto pull = [&](Operand operand, std::vector<int64_t> shape, Positions positions) {
    operands.push_back(
        cutter.PullOr(node.inputs[operand], std::move(shape), std::move(positions), zero));
  };
  pull(kQ, {count, 1, setting.depth}, Sums(q_bases, UpTo(setting.depth)));
  pull(kK, {all, 1, setting.depth}, std::move(keys));
  pull(kV, {all, 1, 1}, std::move(values));
  const bool sink = node.inputs.size() > kSink;
  if (sink) pull(kSink, {1}, {elements[0] / columns % heads});
  return [&cutter, n, count, pool, operands, sink]() -> absl::StatusOr<NodeId> {
    std::vector<NodeId> ids;
    const auto add = [&](absl::StatusOr<NodeId> id) {
      if (id.ok()) ids.push_back(*id);
      return id.status();
    };
    for (int i : {kQ, kK, kV}) RETURN_IF_ERROR(add(operands[i]()));
    RETURN_IF_ERROR(add(I32Literal(cutter, {count, pool.blocks}, UpTo(count * pool.blocks))));
    RETURN_IF_ERROR(add(I32Literal(cutter, {count}, UpTo(count))));
    RETURN_IF_ERROR(add(I32Literal(cutter, {count}, pool.positions)));
    if (sink) RETURN_IF_ERROR(add(operands.back()()));
    Attrs attrs = cutter.graph().node(n).attrs;
    attrs["block"] = kLanes;
    attrs.erase("window");  // only keys inside are there
    return cutter.Flatten(
        cutter.builder().Add(Op::kPagedAttention, std::move(ids), std::move(attrs)), {count, 1, 1});
  };
}

absl::Status SamplePagedAttention(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  const Setting setting(cutter.ShapeOf(node.inputs[kQ]), cutter.ShapeOf(node.inputs[kK]),
                        cutter.ShapeOf(node.inputs[kTable]), node.attrs);
  const int64_t heads = cutter.ShapeOf(n)[1], columns = cutter.ShapeOf(n)[2];
  const int64_t count = Count(cutter.Wanted(n));
  RETURN_IF_ERROR(cutter.Spend(n, count, setting.depth + 3));
  Positions rows;
  for (int64_t p : cutter.Wanted(n)) rows.push_back(p / columns / heads);
  ASSIGN_OR_RETURN(Positions sequences, cutter.IndexValues(node.inputs[kSequence], rows));
  ASSIGN_OR_RETURN(Positions positions, cutter.IndexValues(node.inputs[kPosition], rows));
  // By the head if each has a sink, else all together: the elements, their places, their slots.
  struct Part {
    Positions elements, places;
    std::vector<Positions> seen;
  };
  std::map<int64_t, Part> parts;
  Positions entries;  // of the table, that decide
  for (int64_t w = 0; w < count; ++w) {
    RETURN_IF_ERROR(setting.CheckRow(rows[w], sequences[w], positions[w]));
    const int64_t first = setting.FirstKey(positions[w]), keys = positions[w] + 1 - first;
    RETURN_IF_ERROR(cutter.Spend(n, keys, setting.depth + 2));
    const int64_t first_block = first / setting.block;
    const int64_t blocks = positions[w] / setting.block + 1 - first_block;
    Positions row = UpTo(blocks);
    for (int64_t& at : row) at += sequences[w] * setting.blocks + first_block;
    ASSIGN_OR_RETURN(Positions table, cutter.IndexValues(node.inputs[kTable], row));
    entries.insert(entries.end(), row.begin(), row.end());
    Positions slots;
    for (int64_t key = first; key <= positions[w]; ++key) {
      ASSIGN_OR_RETURN(int64_t slot, setting.SlotOf(key, table[key / setting.block - first_block]));
      slots.push_back(slot);
    }
    const int64_t p = cutter.Wanted(n)[w];
    Part& part = parts[node.inputs.size() > kSink ? p / columns % heads : 0];
    part.elements.push_back(p);
    part.places.push_back(w);
    part.seen.push_back(std::move(slots));
  }
  const Cutter::Handle of_sequence = cutter.PullIfInexact(node.inputs[kSequence], rows);
  const Cutter::Handle of_position = cutter.PullIfInexact(node.inputs[kPosition], rows);
  const Cutter::Handle of_table = cutter.PullIfInexact(node.inputs[kTable], entries);
  std::vector<std::pair<Positions, Cutter::Recipe>> heads_of;
  for (auto& [head, part] : parts) {
    // Sequences are filled up to the longest one's blocks.
    const int64_t each = BlocksOf(part.seen) * kLanes;
    RETURN_IF_ERROR(cutter.Spend(n, Count(part.elements), each * (setting.depth + 2)));
    heads_of.emplace_back(std::move(part.places),
                          HeadRecipe(cutter, n, setting, part.elements, part.seen));
  }
  cutter.RecipeOf(n) = [&cutter, n, count, of_sequence, of_position, of_table, heads_of] {
    absl::StatusOr<NodeId> all =
        cutter.Literal(Tensor::Zeros(cutter.graph().node(n).type.dtype, {count}));
    for (const auto& [places, recipe] : heads_of) {
      all = cutter.Add(Op::kScatter, {all, cutter.IndexLiteral({Count(places)}, places), recipe()},
                       {{"axis", int64_t{0}}, {"mode", std::string("set")}});
    }
    return cutter.Guarded(all, {of_sequence, of_position, of_table});
  };
  return absl::OkStatus();
}

}  // namespace

void AddPagedAttention(Rows* rows) {
  ATHANOR_ROW(
      PagedAttention, kComposite, 6, 7,
      ATHANOR_ATTRS(
          Required("block", AttrType::kInt, "slots of a block, a multiple of 16"),
          Optional("scale", AttrType::kFloat, "factor of the scores; absent means 1/sqrt(D)"),
          Optional("window", AttrType::kInt, "keys that a row sees; absent means all before it"),
          Optional("softcap", AttrType::kFloat,
                   "bound c of the scores, which become c * tanh(score / c); absent means none")),
      InferPagedAttention, 8,
      "Operands q [T, H, D], k [N, G, D], v [N, G, Dv], table i32[S, B], sequence i32[T], position "
      "i32[T], optional sink [H]; result [T, H, Dv]; f32 or f64. Key j of sequence s lies in slot "
      "table[s, "
      "j / block] * block + j % block of k and v. Row t sees the keys j of its sequence with "
      "position[t] - window < j <= position[t]. Head h reads head h / (H / G) of k and v. The "
      "result is softmax of scale * sum(q * k), bounded by softcap, over the keys seen, times v. A "
      "sink is one more score of its head, without a value. Slots that a row does not see have no "
      "influence, whatever they hold; values that it sees must be finite, else the result is "
      "unspecified. NaN in a score gives NaN. A sequence outside the table, a position outside its "
      "blocks, or a block of a key seen outside the slots is an error as in Gather; other entries "
      "of the table may be anything. Computes in f32 throughout.",
      .form = OpForm::kAttention, .errors = ErrorRule::kDecomposed,
      .roles = {OperandRole::kNone, OperandRole::kNone, OperandRole::kNone, OperandRole::kBlocks,
                OperandRole::kSequences, OperandRole::kPositions},
      .rows = {PagedFlow, "attends across"}, .sample = SamplePagedAttention);
}

}  // namespace athanor
