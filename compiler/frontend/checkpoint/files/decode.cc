#include "compiler/frontend/checkpoint/files/decode.h"

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/value/message.h"

namespace athanor::checkpoint {
namespace {

// Elements that are computed together: all of them, or one for each group of a block.
struct Grid {
  Shape shape;               // rows, then columns, or blocks and groups
  std::vector<Expr> blocks;  // coordinates of an element's block
  Expr within;               // its place in the block, in elements or groups
  int64_t group;             // elements that one point of the grid stands for
};

// Adds nodes for the blocks of one tensor. Keeps the status of the first step that fails; later
// ones do nothing.
class BlockDecoder {
 public:
  BlockDecoder(GraphBuilder* b, NodeId stored, const Shape& shape, const StoredRow& row)
      : b_(*b), stored_(stored), shape_(shape), row_(row), all_(Elements()) {}

  absl::StatusOr<NodeId> Decode();

 private:
  Grid Elements() const;
  Grid Groups(int64_t group) const;

  NodeId Add(Op op, std::vector<NodeId> inputs, Attrs attrs = {});
  NodeId Map(NodeId of, Shape shape, std::vector<Expr> at) {
    return Add(Op::kIndexMap, {of}, {{"map", IndexMap{std::move(shape), std::move(at)}}});
  }
  NodeId Cast(NodeId x, DType dtype) { return Add(Op::kCast, {x}, {{"dtype", dtype}}); }
  NodeId Bitcast(NodeId x, DType dtype) { return Add(Op::kBitcast, {x}, {{"dtype", dtype}}); }
  NodeId Shift(NodeId x, NodeId by, std::string direction) {
    return Add(Op::kShift, {x, by}, {{"direction", std::move(direction)}});
  }
  NodeId Right(NodeId x, NodeId by) { return Shift(x, by, "right"); }
  NodeId And(NodeId x, NodeId y) { return Add(Op::kAnd, {x, y}); }
  NodeId Or(NodeId x, NodeId y) { return Add(Op::kOr, {x, y}); }
  NodeId Mul(NodeId x, NodeId y) { return Add(Op::kMul, {x, y}); }
  NodeId Sum(NodeId x, NodeId y) { return Add(Op::kAdd, {x, y}); }

  NodeId Literal(Tensor value);
  template <typename T>
  NodeId Splat(const Grid& grid, DType dtype, T value) {
    return Map(Literal(Tensor::Of<T>(dtype, {}, {value})), grid.shape, {});
  }
  NodeId Byte(const Grid& grid, uint8_t value) { return Splat(grid, DType::kU8, value); }
  // Returns u8 that follow each other as `values`, each for `run` places, then start again.
  NodeId Cycle(const Grid& grid, int64_t run, std::initializer_list<uint8_t> values);

  // Returns the byte at offset `at` of each block.
  NodeId At(const Grid& grid, const Expr& at);
  // Returns the f16 at bytes `at` and `at` + 1 of each block as f32.
  NodeId Half(const Grid& grid, int64_t at);
  // Repeats values of groups for their elements.
  NodeId Spread(NodeId values, const Grid& groups);
  // Returns codes of 4 bits that begin at byte `at`: of 2 * `run` elements, the first half are the
  // low bits of `run` bytes, the second half the high ones.
  NodeId Nibbles(int64_t at, int64_t run);
  // Returns the codes as f32, less `zero`.
  NodeId Codes(NodeId codes, float zero = 0);
  NodeId WithFifthBits(NodeId low, NodeId bytes, NodeId places);
  // Returns the scales of groups of 32 elements, or their offsets: codes of 6 bits.
  NodeId SixBits(const Grid& groups, bool offsets);

  NodeId Scaled(NodeId codes) { return Mul(Half(all_, 0), codes); }
  NodeId ScaledWithOffset(NodeId codes) { return Sum(Scaled(codes), Half(all_, 2)); }
  NodeId FifthBitsOf32(NodeId low, int64_t at);
  NodeId ByGroups(NodeId codes);
  NodeId Q6K();
  NodeId Element();

  GraphBuilder& b_;
  const NodeId stored_;
  const Shape shape_;
  const StoredRow& row_;
  const Grid all_;
  absl::Status status_;
};

Grid BlockDecoder::Elements() const {
  Grid grid{Shape(shape_.begin(), shape_.end() - 2), {}, 0, 1};
  const int rows = static_cast<int>(grid.shape.size());
  for (int i = 0; i < rows; ++i) grid.blocks.push_back(Expr::Axis(i));
  const Expr column = Expr::Axis(rows);
  grid.shape.push_back(shape_[rows] * row_.elements);
  grid.blocks.push_back(FloorDiv(column, row_.elements));
  grid.within = Mod(column, row_.elements);
  return grid;
}

Grid BlockDecoder::Groups(int64_t group) const {
  Grid grid{Shape(shape_.begin(), shape_.end() - 1), {}, 0, group};
  const int axes = static_cast<int>(grid.shape.size());
  for (int i = 0; i < axes; ++i) grid.blocks.push_back(Expr::Axis(i));
  grid.shape.emplace_back(row_.elements / group);
  grid.within = Expr::Axis(axes);
  return grid;
}

NodeId BlockDecoder::Add(Op op, std::vector<NodeId> inputs, Attrs attrs) {
  if (!status_.ok()) return -1;
  const absl::StatusOr<NodeId> node = b_.Add(op, std::move(inputs), std::move(attrs));
  status_ = node.status();
  return node.ok() ? *node : -1;
}

NodeId BlockDecoder::Literal(Tensor value) {
  if (!status_.ok()) return -1;
  const absl::StatusOr<NodeId> node = b_.Constant(std::move(value));
  status_ = node.status();
  return node.ok() ? *node : -1;
}

NodeId BlockDecoder::Cycle(const Grid& grid, int64_t run, std::initializer_list<uint8_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  const NodeId table = Literal(
      Tensor::Of<uint8_t>(DType::kU8, {count}, absl::MakeConstSpan(values.begin(), values.size())));
  return Map(table, grid.shape, {Mod(FloorDiv(grid.within, run), count)});
}

NodeId BlockDecoder::At(const Grid& grid, const Expr& at) {
  std::vector<Expr> coordinates = grid.blocks;
  coordinates.push_back(at);
  return Map(stored_, grid.shape, std::move(coordinates));
}

NodeId BlockDecoder::Half(const Grid& grid, int64_t at) {
  const Grid blocks = Groups(row_.elements);
  const NodeId low = Cast(At(blocks, at), DType::kU16);
  const NodeId high = Cast(At(blocks, at + 1), DType::kU16);
  const NodeId eight = Splat<uint16_t>(blocks, DType::kU16, 8);
  const NodeId bits = Or(low, Shift(high, eight, "left"));
  const NodeId half = Cast(Bitcast(bits, DType::kF16), DType::kF32);
  std::vector<Expr> coordinates = grid.blocks;
  coordinates.emplace_back(0);
  return Map(half, grid.shape, std::move(coordinates));
}

NodeId BlockDecoder::Spread(NodeId values, const Grid& groups) {
  std::vector<Expr> coordinates = all_.blocks;
  coordinates.push_back(FloorDiv(all_.within, groups.group));
  return Map(values, all_.shape, std::move(coordinates));
}

NodeId BlockDecoder::Nibbles(int64_t at, int64_t run) {
  const Expr of_run = Mod(all_.within, run);
  const NodeId bytes = At(all_, at + FloorDiv(all_.within, 2 * run) * run + of_run);
  return And(Right(bytes, Cycle(all_, run, {0, 4})), Byte(all_, 0x0f));
}

NodeId BlockDecoder::Codes(NodeId codes, float zero) {
  const NodeId numbers = Cast(codes, DType::kF32);
  return zero == 0 ? numbers : Sum(numbers, Splat(all_, DType::kF32, -zero));
}

NodeId BlockDecoder::WithFifthBits(NodeId low, NodeId bytes, NodeId places) {
  const NodeId bit = And(Right(bytes, places), Byte(all_, 1));
  return Or(low, Shift(bit, Byte(all_, 4), "left"));
}

// Bit i of the 4 bytes at `at` belongs to element i.
NodeId BlockDecoder::FifthBitsOf32(NodeId low, int64_t at) {
  return WithFifthBits(low, At(all_, at + FloorDiv(all_.within, 8)),
                       Cycle(all_, 1, {0, 1, 2, 3, 4, 5, 6, 7}));
}

// Bytes 4 to 15 of a block hold 8 scales and 8 offsets. The first 4 scales are the low bits of
// bytes 4 to 7, the first 4 offsets those of bytes 8 to 11. The last 4 have their low bits in the
// halves of bytes 12 to 15, and above them the two high bits of bytes 4 to 7 or 8 to 11.
NodeId BlockDecoder::SixBits(const Grid& groups, bool offsets) {
  const Expr& group = groups.within;
  const NodeId low = offsets ? Right(At(groups, 8 + group), Cycle(groups, 4, {0, 4}))
                             : At(groups, 4 + group + FloorDiv(group, 4) * 4);
  const NodeId high = At(groups, (offsets ? 8 : 4) + Mod(group, 4));
  return Or(And(low, Cycle(groups, 4, {0x3f, 0x0f})),
            And(Right(high, Byte(groups, 2)), Cycle(groups, 4, {0, 0x30})));
}

// Returns (d * scale) * code - (dmin * offset), of Q4_K and Q5_K.
NodeId BlockDecoder::ByGroups(NodeId codes) {
  const Grid groups = Groups(32);
  const auto times = [&](int64_t half, bool offsets) {
    return Mul(Half(groups, half), Cast(SixBits(groups, offsets), DType::kF32));
  };
  const NodeId offset = Mul(times(2, true), Splat(groups, DType::kF32, -1.0f));
  return Sum(Mul(Spread(times(0, false), groups), codes), Spread(offset, groups));
}

NodeId BlockDecoder::Q6K() {
  const Grid groups = Groups(16);
  const NodeId high_bytes = At(all_, 128 + FloorDiv(all_.within, 128) * 32 + Mod(all_.within, 32));
  const NodeId high = And(Right(high_bytes, Cycle(all_, 32, {0, 2, 4, 6})), Byte(all_, 3));
  const NodeId codes = Or(Nibbles(0, 64), Shift(high, Byte(all_, 4), "left"));
  const NodeId scale = Cast(Bitcast(At(groups, 192 + groups.within), DType::kI8), DType::kF32);
  return Mul(Spread(Mul(Half(groups, 208), scale), groups), Codes(codes, 32));
}

NodeId BlockDecoder::Element() {
  switch (row_.stored) {
    case Stored::kQ4_0:
      return Scaled(Codes(Nibbles(2, 16), 8));
    case Stored::kQ4_1:
      return ScaledWithOffset(Codes(Nibbles(4, 16)));
    case Stored::kQ5_0:
      return Scaled(Codes(FifthBitsOf32(Nibbles(6, 16), 2), 16));
    case Stored::kQ5_1:
      return ScaledWithOffset(Codes(FifthBitsOf32(Nibbles(8, 16), 4)));
    case Stored::kQ8_0:
      return Scaled(Codes(Bitcast(At(all_, 2 + all_.within), DType::kI8)));
    case Stored::kQ4_K:
      return ByGroups(Codes(Nibbles(16, 32)));
    case Stored::kQ5_K:
      return ByGroups(Codes(WithFifthBits(Nibbles(48, 32), At(all_, 16 + Mod(all_.within, 32)),
                                          Cycle(all_, 32, {0, 1, 2, 3, 4, 5, 6, 7}))));
    case Stored::kQ6_K:
      return Q6K();
    case Stored::kF32:
    case Stored::kF16:
    case Stored::kBF16:
    case Stored::kI64:
      break;
  }
  return -1;
}

absl::StatusOr<NodeId> BlockDecoder::Decode() {
  const NodeId element = Element();
  if (!status_.ok()) return status_;
  return element;
}

}  // namespace

absl::StatusOr<NodeId> Decode(GraphBuilder& b, const Graph& graph, NodeId stored, Stored how) {
  const StoredRow& row = StoredInfo(how);
  if (!HoldsWeights(how)) return Unimplemented(row.name, " is no form of weights");
  const TensorType type = graph.node(stored).type;
  if (type.dtype != row.dtype) {
    return Invalid(row.name, " is held in ", DTypeName(row.dtype), ", not in ", TypeToString(type));
  }
  if (!row.quantised()) {
    if (type.dtype == DType::kF32) return stored;
    return b.Add(Op::kCast, {stored}, {{"dtype", DType::kF32}});
  }
  if (type.shape.size() < 2 || !type.shape.back().IsConstant(row.bytes)) {
    return Invalid(row.name, " is held in blocks, [rows.., blocks, ", row.bytes, "], not in ",
                   TypeToString(type));
  }
  return BlockDecoder(&b, stored, type.shape, row).Decode();
}

}  // namespace athanor::checkpoint
