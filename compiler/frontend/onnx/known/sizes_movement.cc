// Known contents: ops that only move elements.
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string_view>

#include "compiler/frontend/onnx/known/sizes_internal.h"

namespace athanor::onnx {
namespace {

constexpr std::string_view kOps[] = {"Gather",    "Slice",     "Concat",  "Split",
                                     "Squeeze",   "Unsqueeze", "Reshape", "Flatten",
                                     "Transpose", "Expand",    "Tile",    "ScatterND"};

// A result whose element i is element `from[i].second` of operand `from[i].first`.
struct Moved {
  Shape64 shape;
  std::vector<std::pair<int, int64_t>> from;
};

// Moves bytes if all operands are literals, otherwise expressions.
std::optional<Value> Move(const SizeCall& call, const Moved& moved,
                          const std::vector<int>& operands) {
  const Elem elem = call.c.In(operands.front()).elem;
  const bool literal = std::all_of(operands.begin(), operands.end(),
                                   [&](int i) { return call.known(i).literal.has_value(); });
  if (literal) {
    const auto bytes = static_cast<size_t>(DTypeBytes(CarrierOf(elem)));
    Tensor result = Tensor::Zeros(CarrierOf(elem), moved.shape);
    for (size_t e = 0; e < moved.from.size(); ++e) {
      const auto& [operand, at] = moved.from[e];
      std::memcpy(result.bytes.data() + e * bytes,
                  call.known(operand).literal->bytes.data() + static_cast<size_t>(at) * bytes,
                  bytes);
    }
    return WithKnown(elem, KnownOf(std::move(result)));
  }
  std::vector<std::optional<Cells>> cells(call.c.inputs());
  int64_t divisor = 1;
  for (int i : operands) {
    cells[i] = CellsOf(call.c.In(i));
    if (!cells[i]) return std::nullopt;
    divisor = std::max(divisor, cells[i]->divisor);  // powers of two
  }
  Cells result{elem, moved.shape, {}, divisor};
  for (const auto& [operand, at] : moved.from) {
    result.sizes.push_back(cells[operand]->sizes[at] * Expr(divisor / cells[operand]->divisor));
  }
  return FromCells(std::move(result), call.bounds);
}

// Returns operand 0's elements at the given positions, one per element of the result.
Values Picked(const SizeCall& call, Shape64 shape, const std::vector<int64_t>& at) {
  Moved moved{std::move(shape), {}};
  for (int64_t position : at) moved.from.emplace_back(0, position);
  return One(Move(call, moved, {0}));
}

Values Reshaped(const SizeCall& call, Shape64 shape) {
  const std::optional<int64_t> count = CountOf(shape, call.most);
  if (!count || count != CountOf(call.shape(0))) return std::nullopt;
  std::vector<int64_t> at(*count);
  std::iota(at.begin(), at.end(), 0);
  return Picked(call, std::move(shape), at);
}

Values KnownGather(const SizeCall& call) {
  const Shape64& data = call.shape(0);
  const std::optional<std::vector<int64_t>> indices = Numbers(call, 1);
  const std::optional<int> axis = AxisOf(call.c.Int("axis"), data.size());
  if (!indices || !axis) return std::nullopt;
  Shape64 shape(data.begin(), data.begin() + *axis);
  shape.insert(shape.end(), call.shape(1).begin(), call.shape(1).end());
  shape.insert(shape.end(), data.begin() + *axis + 1, data.end());
  const std::optional<int64_t> count = CountOf(shape, call.most);
  if (!count) return std::nullopt;
  const int64_t inner = StridesOf(data)[*axis];
  const auto chosen = static_cast<int64_t>(indices->size());
  std::vector<int64_t> at;
  for (int64_t e = 0; e < *count; ++e) {
    int64_t index = (*indices)[e / inner % chosen];
    if (index < 0) index += data[*axis];
    if (index < 0 || index >= data[*axis]) return std::nullopt;
    at.push_back((e / inner / chosen * data[*axis] + index) * inner + e % inner);
  }
  return Picked(call, std::move(shape), at);
}

// Returns the elements begin, begin + step, ... of each axis.
Values Strided(const SizeCall& call, const Shape64& begin, const Shape64& step, Shape64 shape) {
  const std::optional<int64_t> count = CountOf(shape, call.most);
  if (!count) return std::nullopt;
  const Shape64 strides = StridesOf(call.shape(0));
  const Shape64 places = StridesOf(shape);
  std::vector<int64_t> at(*count);
  for (int64_t e = 0; e < *count; ++e) {
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      at[e] += (begin[axis] + e / places[axis] % shape[axis] * step[axis]) * strides[axis];
    }
  }
  return Picked(call, std::move(shape), at);
}

Values KnownSlice(const SizeCall& call) {
  const HandlerContext& c = call.c;
  const Shape64& data = call.shape(0);
  std::optional<std::vector<int64_t>> starts, ends, axes, steps;
  if (call.version() < 10) {
    starts = c.Ints("starts");
    ends = c.Ints("ends");
    if (c.Given("axes")) axes = c.Ints("axes");
  } else {
    starts = Numbers(call, 1);
    ends = Numbers(call, 2);
    if (c.Has(3) && !(axes = Numbers(call, 3))) return std::nullopt;
    if (c.Has(4) && !(steps = Numbers(call, 4))) return std::nullopt;
  }
  if (!starts || !ends || starts->size() != ends->size()) return std::nullopt;
  if (axes && (axes->size() != starts->size() || !AxesOf(*axes, data.size()))) return std::nullopt;
  if (steps && steps->size() != starts->size()) return std::nullopt;
  if (starts->size() > data.size()) return std::nullopt;
  Shape64 begin(data.size(), 0), step(data.size(), 1), shape = data;
  for (size_t i = 0; i < starts->size(); ++i) {
    const std::optional<int> axis =
        axes ? AxisOf((*axes)[i], data.size()) : std::optional(static_cast<int>(i));
    if (!axis) return std::nullopt;
    const int64_t n = data[*axis], by = steps ? (*steps)[i] : 1;
    if (by == 0 || by == std::numeric_limits<int64_t>::min()) return std::nullopt;
    // As in the schema: going backwards, a start before the first element becomes the first
    // element.
    const int64_t first = by < 0 && n == 0 ? -1 : 0, last = by > 0 ? n : n - 1;
    const auto clamped = [&](int64_t at, int64_t low) {
      return std::clamp<int64_t>(at < 0 ? at + n : at, low, last);
    };
    const int64_t from = clamped((*starts)[i], first);
    const int64_t to = clamped((*ends)[i], by > 0 ? 0 : -1);
    const int64_t distance = by > 0 ? to - from : from - to;
    begin[*axis] = from;
    step[*axis] = by;
    const int64_t length = by > 0 ? by : -by;
    shape[*axis] = distance <= 0 ? 0 : (distance - 1) / length + 1;
  }
  return Strided(call, begin, step, std::move(shape));
}

Values KnownConcat(const SizeCall& call) {
  const HandlerContext& c = call.c;
  if (c.inputs() == 0) return std::nullopt;
  Shape64 shape = call.shape(0);
  // The default in version 1 is 1.
  const std::optional<int> axis = AxisOf(c.Int("axis"), shape.size());
  if (!axis || (call.version() < 4 && !c.Given("axis"))) return std::nullopt;
  shape[*axis] = 0;
  std::vector<int> operands;
  for (int i = 0; i < c.inputs(); ++i) {
    if (!c.Has(i)) return std::nullopt;
    operands.push_back(i);
    Shape64 part = call.shape(i);
    if (part.size() != shape.size()) return std::nullopt;
    shape[*axis] += part[*axis];
    part[*axis] = shape[*axis];
    if (part != shape) return std::nullopt;
  }
  const std::optional<int64_t> count = CountOf(shape, call.most);
  if (!count) return std::nullopt;
  Moved moved{shape, {}};
  // If the result is empty, the other axes may be of any size.
  int64_t outer = *count == 0 ? 0 : 1;
  for (int i = 0; i < *axis && outer > 0; ++i) outer *= shape[i];
  for (int64_t o = 0; o < outer; ++o) {
    for (int i : operands) {
      const int64_t piece = *CountOf(call.shape(i)) / outer;
      for (int64_t e = 0; e < piece; ++e) moved.from.emplace_back(i, o * piece + e);
    }
  }
  return One(Move(call, moved, operands));
}

Values KnownSplit(const SizeCall& call) {
  const HandlerContext& c = call.c;
  const Shape64& data = call.shape(0);
  const std::optional<int> axis = AxisOf(c.Int("axis"), data.size());
  if (!axis || call.version() < 2) return std::nullopt;
  const int64_t n = data[*axis];
  std::optional<std::vector<int64_t>> parts;
  if (call.version() >= 18 && c.Has(1) == c.Given("num_outputs")) return std::nullopt;
  if (call.version() < 13) {
    if (c.Given("split")) parts = c.Ints("split");
  } else if (c.Has(1)) {
    parts = Numbers(call, 1);
    if (!parts) return std::nullopt;
  }
  if (!parts) {
    const int64_t count = c.node().output_size();
    if (call.version() >= 18 && c.Int("num_outputs") != count) return std::nullopt;
    if (count == 0 || (call.version() < 18 && n % count != 0)) return std::nullopt;
    const int64_t piece = (n + count - 1) / count;
    parts.emplace(count, piece);
    parts->back() = n - piece * (count - 1);  // negative: the results are not known
  }
  int64_t left = n;
  for (int64_t part : *parts) {
    if (part < 0 || part > left) return std::nullopt;
    left -= part;
  }
  if (left != 0) return std::nullopt;
  if (static_cast<int>(parts->size()) != c.node().output_size()) return std::nullopt;
  std::vector<Value> results;
  Shape64 begin(data.size(), 0);
  for (int64_t part : *parts) {
    Shape64 shape = data;
    shape[*axis] = part;
    Values one = Strided(call, begin, Shape64(data.size(), 1), std::move(shape));
    if (!one) return std::nullopt;
    results.push_back(std::move(one->front()));
    begin[*axis] += part;
  }
  results.resize(c.outputs());
  return results;
}

Values KnownSqueeze(const SizeCall& call, bool squeeze) {
  const HandlerContext& c = call.c;
  const Shape64& data = call.shape(0);
  std::optional<std::vector<int64_t>> given;
  if (call.version() < 13) {
    if (c.Given("axes")) given = c.Ints("axes");
  } else if (c.Has(1)) {
    given = Numbers(call, 1);
    if (!given) return std::nullopt;
  }
  Shape64 shape;
  if (squeeze && !given) {
    for (int64_t size : data) {
      if (size != 1) shape.push_back(size);
    }
    return Reshaped(call, std::move(shape));
  }
  if (!given) return std::nullopt;
  const size_t rank = squeeze ? data.size() : data.size() + given->size();
  const std::optional<std::vector<int>> axes = AxesOf(*given, rank);
  if (!axes) return std::nullopt;
  size_t next = 0;
  for (size_t i = 0; i < rank; ++i) {
    const bool named = std::binary_search(axes->begin(), axes->end(), static_cast<int>(i));
    if (squeeze && named && data[i] != 1) return std::nullopt;
    if (squeeze && !named) shape.push_back(data[i]);
    if (!squeeze) shape.push_back(named ? 1 : data[next++]);
  }
  return Reshaped(call, std::move(shape));
}

Values KnownReshape(const SizeCall& call) {
  const Shape64& data = call.shape(0);
  std::optional<std::vector<int64_t>> shape =
      call.version() < 5 ? std::optional(call.c.Ints("shape")) : Numbers(call, 1);
  if (!shape) return std::nullopt;
  const bool copies = call.version() < 14 || call.c.Int("allowzero") == 0;
  int64_t* open = nullptr;
  int64_t others = 1;
  for (size_t i = 0; i < shape->size(); ++i) {
    int64_t& size = (*shape)[i];
    if (size == 0 && copies) {
      if (i >= data.size()) return std::nullopt;
      size = data[i];
    }
    if (size == -1) {
      if (open != nullptr) return std::nullopt;
      open = &size;
    } else if (size < 0 || (size > 0 && others > kMaxKnownElements / size)) {
      return std::nullopt;
    } else {
      others *= size;
    }
  }
  if (open != nullptr) {
    const std::optional<int64_t> count = CountOf(data);
    if (!count || others == 0 || *count % others != 0) return std::nullopt;
    *open = *count / others;
  }
  return Reshaped(call, *std::move(shape));
}

Values KnownFlatten(const SizeCall& call) {
  const Shape64& data = call.shape(0);
  const auto rank = static_cast<int64_t>(data.size());
  int64_t axis = call.c.Int("axis");
  if (axis < 0) axis += rank;
  if (axis < 0 || axis > rank || !CountOf(data)) return std::nullopt;
  Shape64 shape = {1, 1};
  for (int64_t i = 0; i < rank; ++i) shape[i < axis ? 0 : 1] *= data[i];
  return Reshaped(call, std::move(shape));
}

Values KnownTranspose(const SizeCall& call) {
  const Shape64& data = call.shape(0);
  std::vector<int64_t> perm = call.c.Ints("perm");
  if (!call.c.Given("perm")) {
    for (size_t i = data.size(); i-- > 0;) perm.push_back(static_cast<int64_t>(i));
  }
  if (perm.size() != data.size() || !AxesOf(perm, data.size())) return std::nullopt;
  Shape64 shape, strides;
  const Shape64 of_data = StridesOf(data);
  for (int64_t axis : perm) {
    if (axis < 0) return std::nullopt;
    shape.push_back(data[axis]);
    strides.push_back(of_data[axis]);
  }
  const Shape64 places = StridesOf(shape);
  std::vector<int64_t> at(*CountOf(shape));
  for (size_t e = 0; e < at.size(); ++e) {
    for (size_t i = 0; i < shape.size(); ++i) {
      at[e] += static_cast<int64_t>(e) / places[i] % shape[i] * strides[i];
    }
  }
  return Picked(call, std::move(shape), at);
}

Values KnownExpand(const SizeCall& call) {
  const std::optional<std::vector<int64_t>> wanted = Numbers(call, 1);
  if (!wanted) return std::nullopt;
  const std::optional<Shape64> shape = Broadcast(call.shape(0), *wanted, call.most);
  if (!shape) return std::nullopt;
  return Picked(call, *shape, BroadcastIndex(call.shape(0), *shape));
}

Values KnownTile(const SizeCall& call) {
  const Shape64& data = call.shape(0);
  const std::optional<std::vector<int64_t>> repeats = Numbers(call, 1);
  if (call.version() < 6 || !repeats || repeats->size() != data.size()) return std::nullopt;
  Shape64 shape = data;
  for (size_t i = 0; i < data.size(); ++i) {
    if ((*repeats)[i] < 0 || (*repeats)[i] > kMaxKnownElements) return std::nullopt;
    shape[i] *= (*repeats)[i];
  }
  const std::optional<int64_t> count = CountOf(shape, call.most);
  if (!count) return std::nullopt;
  const Shape64 strides = StridesOf(data), places = StridesOf(shape);
  std::vector<int64_t> at(*count);
  for (int64_t e = 0; e < *count; ++e) {
    for (size_t i = 0; i < data.size(); ++i) {
      at[e] += e / places[i] % shape[i] % data[i] * strides[i];
    }
  }
  return Picked(call, std::move(shape), at);
}

Values KnownScatterND(const SizeCall& call) {
  if (call.version() >= 16 && call.c.String("reduction") != "none") return std::nullopt;
  const Shape64& data = call.shape(0);
  const Shape64& at = call.shape(1);
  const std::optional<std::vector<int64_t>> indices = Numbers(call, 1);
  const std::optional<int64_t> count = CountOf(data);
  if (!indices || !count || at.empty() || at.back() < 1) return std::nullopt;
  const auto depth = static_cast<size_t>(at.back());
  if (depth > data.size()) return std::nullopt;
  Shape64 expected(at.begin(), at.end() - 1);
  expected.insert(expected.end(), data.begin() + static_cast<std::ptrdiff_t>(depth), data.end());
  if (call.shape(2) != expected) return std::nullopt;
  const Shape64 strides = StridesOf(data);
  const int64_t slice = strides[depth - 1];
  Moved moved{data, {}};
  for (int64_t e = 0; e < *count; ++e) moved.from.emplace_back(0, e);
  for (size_t row = 0; row * depth < indices->size(); ++row) {
    int64_t base = 0;
    for (size_t i = 0; i < depth; ++i) {
      int64_t index = (*indices)[row * depth + i];
      if (index < 0) index += data[i];
      if (index < 0 || index >= data[i]) return std::nullopt;
      base += index * strides[i];
    }
    for (int64_t e = 0; e < slice; ++e) {
      moved.from[base + e] = {2, static_cast<int64_t>(row) * slice + e};
    }
  }
  return One(Move(call, moved, {0, 2}));
}

}  // namespace

Values KnownMovement(const SizeCall& call) {
  const std::string_view op = call.c.node().op_type();
  if (op == "Gather") return KnownGather(call);
  if (op == "Slice") return KnownSlice(call);
  if (op == "Concat") return KnownConcat(call);
  if (op == "Split") return KnownSplit(call);
  if (op == "Squeeze") return KnownSqueeze(call, true);
  if (op == "Unsqueeze") return KnownSqueeze(call, false);
  if (op == "Reshape") return KnownReshape(call);
  if (op == "Flatten") return KnownFlatten(call);
  if (op == "Transpose") return KnownTranspose(call);
  if (op == "Expand") return KnownExpand(call);
  if (op == "Tile") return KnownTile(call);
  if (op == "ScatterND") return KnownScatterND(call);
  return std::nullopt;
}

absl::Span<const std::string_view> MovementOps() { return kOps; }

}  // namespace athanor::onnx
