// Sort and TopK: one work item per row. A row's elements become unsigned keys of the same order,
// which are sorted in scratch together with their positions. If few of many are wanted, scratch has
// room for a little more than twice as many: an element that is not below the last of the best so
// far is skipped, and full scratch is sorted and cut off.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/lower/lower.h"
#include "compiler/search/kernels/extents.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

using kir::Var;

namespace {

// Up to kFew wanted elements get little room, which is sorted by insertion. For more, each sort has
// a fixed price, so there is kMoreRoom beyond twice the wanted number, to sort less often.
constexpr int64_t kFew = 8, kRoomOfFew = 32, kMoreRoom = 512;
// Bytes per thread.
constexpr int64_t kMostScratch = int64_t{1} << 40;

DType Unsigned(int bytes) {
  return bytes == 1   ? DType::kU8
         : bytes == 2 ? DType::kU16
         : bytes == 4 ? DType::kU32
                      : DType::kU64;
}

DType Signed(int bytes) {
  return bytes == 2 ? DType::kI16 : bytes == 4 ? DType::kI32 : DType::kI64;
}

class SortLowering {
 public:
  explicit SortLowering(KernelBuilder& b)
      : b_(b),
        e_(b.emitter),
        operand_(b.root.inputs[0]),
        type_(b.input.graph.node(operand_).type),
        axis_(GetAttr<int64_t>(b.root.attrs, "axis")),
        descending_(b.root.op == Op::kSort ? GetAttrOr<bool>(b.root.attrs, "descending", false)
                                           : GetAttrOr<bool>(b.root.attrs, "largest", true)),
        length_(type_.shape[axis_]),
        wanted_(b.root.type.shape[axis_]),
        bytes_(DTypeBytes(type_.dtype)),
        key_(Unsigned(bytes_)),
        // Positions are vectors too: lanes of at least 4 bytes limit the registers that these take.
        lanes_(b.LanesFor(std::max(4, bytes_))) {}

  absl::Status Lower();

 private:
  absl::Status FindRoom();
  Coordinates Place(const Expr& at) const;
  Var Key(const Expr& at);
  Var OrderOfFloats(Var v);
  Var Position(const Expr& at, int lanes) { return e_.Cast(e_.Index(at, lanes), position_); }
  void Sort(const Expr& count) { e_.Sort(keys_, places_, other_keys_, other_places_, count); }
  // Returns the key of the last wanted element; any key if none is wanted.
  Var Limit() { return e_.Load(keys_, e_.Simplify(MaxOf(wanted_, 1) - 1), 1, {}); }
  void Fill();
  void Scan();
  void Store();

  KernelBuilder& b_;
  kir::Emitter& e_;
  const NodeId operand_;
  const TensorType& type_;
  const int64_t axis_;
  const bool descending_;
  const Expr length_, wanted_;
  const int bytes_;
  const DType key_;
  const int lanes_;
  DType position_ = DType::kI64;
  Expr room_;
  Coordinates row_;  // without the sorted axis
  int keys_ = -1, places_ = -1, other_keys_ = -1, other_places_ = -1;
};

absl::Status SortLowering::Lower() {
  RETURN_IF_ERROR(FindRoom());
  Shape rows = type_.shape;
  rows.erase(rows.begin() + axis_);
  row_ = b_.SplitItem(rows);
  Fill();
  if (room_ == length_) {
    Sort(length_);
  } else {
    Scan();
  }
  Store();
  return absl::OkStatus();
}

absl::Status SortLowering::FindRoom() {
  const Bounds& bounds = e_.bounds();
  const bool few = bounds.NonNegative(kFew - wanted_);
  const Expr room = few ? Expr(kRoomOfFew) : 2 * wanted_ + kMoreRoom;
  const bool all = wanted_ == length_ || bounds.NonNegative(room - length_);
  room_ = all ? length_ : e_.Simplify(MinOf(length_, room));
  const std::optional<int64_t> longest = bounds.Maximum(length_);
  if (longest && *longest <= std::numeric_limits<int32_t>::max()) position_ = DType::kI32;
  const std::optional<int64_t> most = bounds.Maximum(room_);
  const int64_t bytes = 2 * (bytes_ + DTypeBytes(position_));
  if (!most || *most > kMostScratch / bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        b_.input.graph.Describe(b_.choice.root), ": axis ", axis_, " of ", length_.ToString(),
        " elements takes ", bytes, " bytes of scratch for each of up to ",
        most ? absl::StrCat(*most) : "more than 2^63", "; at most 2^40 bytes are right: lower a ",
        "dim's max"));
  }
  keys_ = e_.Scratch(key_, *most);
  places_ = e_.Scratch(position_, *most);
  other_keys_ = e_.Scratch(key_, *most);
  other_places_ = e_.Scratch(position_, *most);
  return absl::OkStatus();
}

Coordinates SortLowering::Place(const Expr& at) const {
  Coordinates c = row_;
  c.insert(c.begin() + axis_, at);
  return c;
}

Var SortLowering::Key(const Expr& at) {
  const Var element = e_.Broadcast(b_.at.At(operand_, Place(at)), lanes_);
  const DType dtype = type_.dtype;
  if (dtype == DType::kBool && !descending_) return e_.Cast(element, key_);
  const uint64_t all = ~uint64_t{0} >> (64 - 8 * bytes_), sign = all ^ (all >> 1);
  uint64_t flipped = descending_ ? all : 0;
  Var key = element;
  if (IsFloat(dtype) || IsSigned(dtype)) {
    const Var order = IsFloat(dtype) ? OrderOfFloats(element) : element;
    key = e_.Compute(Op::kBitcast, key_, {order});
    flipped ^= sign;
  } else {
    key = e_.Cast(element, key_);
  }
  if (flipped == 0) return key;
  return e_.Compute(Op::kXor, key_, {key, e_.Const(Scalar::Unsigned(key_, flipped))});
}

// Returns signed integers in the order of the floats: a magnitude's bits with its sign. Both zeros
// are equal, and NaN is the largest.
Var SortLowering::OrderOfFloats(Var v) {
  const DType t = Signed(bytes_);
  const auto number = [&](int64_t n) { return e_.Const(Scalar::Signed(t, n)); };
  const int64_t most = static_cast<int64_t>(~uint64_t{0} >> (65 - 8 * bytes_));
  const Var bits = e_.Compute(Op::kBitcast, t, {v});
  const Var magnitude = e_.Compute(Op::kAnd, t, {bits, number(most)});
  const Var negative = e_.Compute(Op::kLessThan, DType::kBool, {bits, number(0)});
  const Var minus = e_.Compute(Op::kAdd, t, {e_.Compute(Op::kNot, t, {magnitude}), number(1)});
  const Var order = e_.Compute(Op::kSelect, t, {negative, minus, magnitude});
  const auto infinity =
      static_cast<int64_t>(EncodeFloat(type_.dtype, std::numeric_limits<double>::infinity()));
  const Var nan = e_.Compute(Op::kLessThan, DType::kBool, {number(infinity), magnitude});
  return e_.Compute(Op::kSelect, t, {nan, number(most), order});
}

void SortLowering::Fill() {
  e_.VectorFor(0, room_, lanes_, [&](const Expr& i, const std::optional<Expr>& count) {
    PointLowering::Context context(&b_.at, lanes_, count);
    const Expr at = i + e_.Lane(lanes_);
    e_.Store(keys_, at, Key(at), b_.at.mask());
    e_.Store(places_, at, Position(at, lanes_), b_.at.mask());
  });
}

void SortLowering::Scan() {
  const int block = e_.Scratch(key_, lanes_);
  Sort(room_);
  const Var limit = e_.Mutable(Limit());
  const Var found = e_.Mutable(e_.Index(wanted_, 1));
  const Expr end = e_.Symbol(found);
  e_.VectorFor(room_, length_, lanes_, [&](const Expr& i, const std::optional<Expr>& count) {
    PointLowering::Context context(&b_.at, lanes_, count);
    const Var key = Key(i + e_.Lane(lanes_));
    Var below = e_.Compute(Op::kLessThan, DType::kBool, {key, limit});
    if (count) below = e_.And(below, e_.LaneMask(*count, lanes_));
    // Equal keys are left out: the lower position goes first.
    e_.If(e_.Reduce(Op::kOr, below), [&] {
      e_.Store(block, e_.Lane(lanes_), key, {});
      e_.For(0, count ? *count : Expr(lanes_), 1, [&](const Expr& l) {
        // Stores every element; one that is not below is overwritten by the next.
        const Var one = e_.Load(block, l, 1, {});
        e_.Store(keys_, end, one, {});
        e_.Store(places_, end, Position(i + l, 1), {});
        const Var taken = e_.Compute(Op::kLessThan, DType::kBool, {one, limit});
        e_.Assign(found, e_.Compute(Op::kAdd, DType::kI64, {found, e_.Cast(taken, DType::kI64)}));
      });
      const Var full =
          e_.Compute(Op::kLessThan, DType::kBool, {e_.Index(room_ - lanes_, 1), found});
      e_.If(full, [&] {
        Sort(end);
        e_.Assign(limit, Limit());
        e_.Assign(found, e_.Index(wanted_, 1));
      });
    });
  });
  e_.If(e_.Compute(Op::kLessThan, DType::kBool, {e_.Index(wanted_, 1), found}), [&] { Sort(end); });
}

void SortLowering::Store() {
  const int lanes = b_.LanesFor(DTypeBytes(DType::kI64));
  e_.VectorFor(0, wanted_, lanes, [&](const Expr& i, const std::optional<Expr>& count) {
    PointLowering::Context context(&b_.at, lanes, count);
    const Expr at = i + e_.Lane(lanes);
    const Var position = e_.Cast(e_.Load(places_, at, lanes, b_.at.mask()), DType::kI64);
    e_.Store(b_.out, b_.at.Offset(b_.choice.root, Place(at)), position, b_.at.mask());
  });
}

}  // namespace

absl::Status LowerSort(KernelBuilder& b) { return SortLowering(b).Lower(); }

}  // namespace athanor
