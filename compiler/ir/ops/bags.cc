// Rows of a table reduced by bag: EmbeddingBag.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/ir/ops/cutter.h"
#include "compiler/ir/ops/family.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

absl::StatusOr<TensorType> InferEmbeddingBag(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  const std::string& mode = GetAttr<std::string>(attrs, "mode");
  if (mode != "sum" && mode != "mean" && mode != "max") {
    return Invalid("mode=", Quoted(mode), " must be \"sum\", \"mean\" or \"max\"");
  }
  absl::Status s = CheckDType("table, operand 0,", inputs[0].dtype, DTypeClass::kFloats);
  if (s.ok()) s = CheckRank("table, operand 0,", inputs[0].shape, 2);
  if (s.ok()) s = CheckDType("ids, operand 1,", inputs[1].dtype, DTypeClass::kIntegers);
  if (s.ok()) s = CheckRank("ids, operand 1,", inputs[1].shape, 1);
  if (s.ok()) s = CheckDType("offsets, operand 2,", inputs[2].dtype, DTypeClass::kIntegers);
  if (s.ok()) s = CheckRank("offsets, operand 2,", inputs[2].shape, 1);
  if (!s.ok()) return s;
  return TensorType{inputs[0].dtype, {inputs[2].shape[0], inputs[0].shape[1]}};
}

// The ids of one bag are those in [first, last).
struct Bag {
  int64_t first, last;
};

absl::Status CheckOffsets(const Tensor& offsets, int64_t ids) {
  int64_t previous = 0;
  for (int64_t i = 0; i < offsets.elements(); ++i) {
    const int64_t offset = LoadIndex(offsets, i);
    std::string must;
    if (i == 0 && offset != 0) {
      must = "must be 0";
    } else if (offset < 0 || offset > ids) {
      must = absl::StrFormat("is outside [0, %d], the number of ids", ids);
    } else if (offset < previous) {
      must = absl::StrFormat("is less than %d before it; offsets must not decrease", previous);
    }
    if (!must.empty()) {
      return absl::OutOfRangeError(
          absl::StrFormat("offset %d at position [%d] of the offsets %s", offset, i, must));
    }
    previous = offset;
  }
  if (ids > 0 && offsets.elements() == 0) {
    return absl::OutOfRangeError(
        absl::StrFormat("there are %d ids but no offsets, so no bag holds them", ids));
  }
  return absl::OkStatus();
}

Bag BagAt(const Tensor& offsets, int64_t bag, int64_t ids) {
  return {LoadIndex(offsets, bag),
          bag + 1 < offsets.elements() ? LoadIndex(offsets, bag + 1) : ids};
}

absl::Status CheckIds(const Tensor& table, const Tensor& ids) {
  for (int64_t i = 0; i < ids.elements(); ++i) {
    const int64_t id = LoadIndex(ids, i);
    if (id >= 0 && id < table.shape[0]) continue;
    return absl::OutOfRangeError(
        absl::StrFormat("id %d at position [%d] of the ids is outside the table, which has %d rows",
                        id, i, table.shape[0]));
  }
  return absl::OkStatus();
}

template <typename Real>
Real ReduceBag(const Tensor& table, const Tensor& ids, Bag bag, int64_t column,
               const std::string& mode) {
  if (bag.first == bag.last) return 0;
  Real sum = 0;
  Real maximum = -std::numeric_limits<Real>::infinity();
  for (int64_t i = bag.first; i < bag.last; ++i) {
    const Real value = LoadScalar(table, LoadIndex(ids, i) * table.shape[1] + column).f;
    sum += value;
    maximum = MaxOfReals(maximum, value);
  }
  if (mode == "max") return maximum;
  return mode == "mean" ? sum / (bag.last - bag.first) : sum;
}

ATHANOR_REFERENCE(EmbeddingBag) {
  const Tensor& table = *inputs[0];
  const Tensor& ids = *inputs[1];
  const Tensor& offsets = *inputs[2];
  const auto& mode = GetAttr<std::string>(attrs, "mode");
  RETURN_IF_ERROR(CheckIds(table, ids));
  RETURN_IF_ERROR(CheckOffsets(offsets, ids.elements()));
  const int64_t columns = table.shape[1];
  for (int64_t b = 0; b < offsets.elements(); ++b) {
    const Bag bag = BagAt(offsets, b, ids.elements());
    WithReal(result->dtype, [&](auto zero) {
      for (int64_t column = 0; column < columns; ++column) {
        StoreReal(result, b * columns + column,
                  ReduceBag<decltype(zero)>(table, ids, bag, column, mode));
      }
    });
  }
  return absl::OkStatus();
}

// Offsets are positions among the ids of all bags, and a bag ends where the next begins.
AxisFlow EmbeddingBagFlow(const Graph&, const Node&) { return {{kMixed, 1}, {kMixed}, {kMixed}}; }

absl::Status SampleEmbeddingBag(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  const int64_t rows = cutter.ShapeOf(node.inputs[0])[0],
                columns = cutter.ShapeOf(node.inputs[0])[1];
  const int64_t ids = Product(cutter.ShapeOf(node.inputs[1])),
                bags = Product(cutter.ShapeOf(node.inputs[2]));
  const int64_t count = Count(cutter.Wanted(n));
  RETURN_IF_ERROR(cutter.Spend(n, count, 2));
  Positions begin_at, end_at;  // in the offsets; the last bag ends with the ids
  for (int64_t p : cutter.Wanted(n)) {
    begin_at.push_back(p / columns);
    end_at.push_back(std::min(p / columns + 1, bags - 1));
  }
  ASSIGN_OR_RETURN(Positions begins, cutter.IndexValues(node.inputs[2], begin_at));
  ASSIGN_OR_RETURN(Positions ends, cutter.IndexValues(node.inputs[2], end_at));
  // members: positions in the ids. member_of: the wanted element of each. offsets: positions in
  // members.
  Positions members, member_of, offsets;
  for (int64_t w = 0; w < count; ++w) {
    const int64_t first = begins[w];
    const int64_t last = begin_at[w] + 1 < bags ? ends[w] : ids;
    if (first < 0 || first > last || last > ids || (begin_at[w] == 0 && first != 0)) {
      return absl::OutOfRangeError(absl::StrCat("the offsets give bag ", begin_at[w], " the ids [",
                                                first, ", ", last, "), not a range of the ", ids,
                                                " ids that continues the bag before"));
    }
    RETURN_IF_ERROR(cutter.Spend(n, last - first, 2));
    offsets.push_back(Count(members));
    for (int64_t i = first; i < last; ++i) {
      members.push_back(i);
      member_of.push_back(w);
    }
  }
  ASSIGN_OR_RETURN(Positions chosen, cutter.IndexValues(node.inputs[1], members));
  Positions sources;
  for (size_t m = 0; m < members.size(); ++m) {
    const int64_t id = chosen[m];
    if (id < 0 || id >= rows) return OutsideAxis(id, 0, rows);
    sources.push_back(id * columns + cutter.Wanted(n)[member_of[m]] % columns);
  }
  const Cutter::Handle guard_ids = cutter.PullIfInexact(node.inputs[1], members);
  const Cutter::Handle guard_offsets = cutter.PullIfInexact(node.inputs[2], begin_at);
  const int64_t total = Count(sources);
  const Cutter::Handle table = cutter.Pull(node.inputs[0], {total, 1}, std::move(sources));
  cutter.RecipeOf(n) = [&cutter, n, table, guard_ids, guard_offsets, total, count,
                        offsets = std::move(offsets)] {
    return cutter.Guarded(
        cutter.Flatten(cutter.Add(Op::kEmbeddingBag,
                                  {cutter.Get(table), cutter.IndexLiteral({total}, UpTo(total)),
                                   cutter.IndexLiteral({count}, offsets)},
                                  cutter.graph().node(n).attrs),
                       {count, 1}),
        {guard_ids, guard_offsets});
  };
  return absl::OkStatus();
}

}  // namespace

void AddBags(Rows* rows) {
  ATHANOR_ROW(
      EmbeddingBag, kComposite, 3, 3,
      ATHANOR_ATTRS(Required("mode", AttrType::kString, "\"sum\", \"mean\" or \"max\"")),
      InferEmbeddingBag, 1,
      "Operands table [V, D], ids [N], offsets [B] (any integer dtypes); result [B, D]. Bag "
      "b holds table[id] for id in ids[offsets[b] : offsets[b + 1]], with offsets[B] = N. "
      "`max` propagates NaN; an empty bag gives zeros in every mode. f16 and bf16 "
      "accumulate in f32 and round once. offsets start with 0, never decrease and stay in "
      "[0, N], ids are in [0, V); anything else is an error as in Gather, and nothing "
      "outside the table is read. N > 0 needs B > 0.",
      .form = OpForm::kBags, .rounding = Rounding::kByMode, .errors = ErrorRule::kBags,
      .roles = {OperandRole::kNone, OperandRole::kIndex, OperandRole::kOffsets},
      .rows = {EmbeddingBagFlow, "its offsets count ids across"}, .sample = SampleEmbeddingBag);
}

}  // namespace athanor
