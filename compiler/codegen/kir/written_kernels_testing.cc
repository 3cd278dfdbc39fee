#include "compiler/codegen/kir/written_kernels_testing.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_split.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"

namespace athanor {

using kir::Emitter;
using kir::Mask;
using kir::Var;

namespace {

Expr Lane(int lanes) { return lanes == 1 ? 0 : Expr::Symbol(kir::kLane); }

// Adds results to a kernel of ops.
class OpsWriter {
 public:
  OpsWriter(DType dtype, int lanes, bool f64)
      : dtype_(dtype),
        f64_(f64),
        lane_(Lane(lanes)),
        condition_(e_.Global(DType::kBool, false)),
        in_(e_.Global(dtype, false)) {
    choice_ = e_.Load(condition_, lane_, lanes, {});
    for (int at : {0, 100, 200}) values_.push_back(e_.Load(in_, lane_ + at, lanes, {}));
  }

  WrittenOps Write() && {
    for (const OpRow& row : OpTable()) {
      if (row.op_class != OpClass::kElementwise) continue;
      if (row.attrs.empty()) {
        Add(row, {});
      } else if (kir::HasDirection(row.op)) {
        Add(row, {{"direction", std::string("left")}}, true);
        Add(row, {{"direction", std::string("right")}});
      } else {
        for (const DTypeRow& to : kDTypes) {
          if (f64_ || to.dtype != DType::kF64) Add(row, {{"dtype", to.dtype}});
        }
      }
    }
    if (Computes(dtype_) && dtype_ != DType::kBool) AddNumeric();
    for (Op op : {Op::kAdd, Op::kMul, Op::kMin, Op::kMax, Op::kAnd, Op::kOr}) {
      const std::vector<TensorType> types(2, {dtype_, {8}});
      if (!OpInfo(op).infer(types, {}, Bounds()).ok()) continue;
      e_.Store(e_.Global(dtype_, true), 0, e_.Reduce(op, values_[0]), {});
    }
    written_.kernel = std::move(e_).Finish("ops", 1);
    return std::move(written_);
  }

 private:
  void Add(const OpRow& row, Attrs attrs, bool left = false) {
    std::vector<Var> args(values_.begin(), values_.begin() + row.min_inputs);
    std::vector<int> operands = {0, 1, 2};
    operands.resize(row.min_inputs);
    std::vector<TensorType> types(row.min_inputs, {dtype_, {8}});
    if (IsSelect(row.op)) {
      args = {choice_, values_[0], values_[1]};
      operands = {WrittenOps::kCondition, 0, 1};
      types[0].dtype = DType::kBool;
    }
    const absl::StatusOr<TensorType> type = row.infer(types, attrs, Bounds());
    if (!type.ok()) return;
    Store(row.op, std::move(attrs), operands, type->dtype, args, left);
  }

  void AddNumeric() {
    written_.fma = e_.Global(dtype_, true);
    e_.Store(written_.fma, lane_, e_.Fma(values_[0], values_[1], values_[2]), {});
    // A constant that is no NaN makes minima and maxima one comparison.
    const Var two =
        e_.Const(IsFloat(dtype_) ? Scalar::Float(dtype_, 2) : Scalar::Unsigned(dtype_, 2));
    for (Op op : {Op::kMin, Op::kMax}) {
      Store(op, {}, {WrittenOps::kTwo, 0}, dtype_, {two, values_[0]}, false);
      Store(op, {}, {0, WrittenOps::kTwo}, dtype_, {values_[0], two}, false);
    }
  }

  void Store(Op op, Attrs attrs, const std::vector<int>& operands, DType dtype,
             const std::vector<Var>& args, bool left) {
    const int buffer = e_.Global(dtype, true);
    e_.Store(buffer, lane_, e_.Compute(op, dtype, args, left), {});
    written_.results.push_back({op, std::move(attrs), operands, dtype, buffer});
  }

  Emitter e_{Bounds()};
  const DType dtype_;
  const bool f64_;
  const Expr lane_;
  const int condition_, in_;
  Var choice_;
  std::vector<Var> values_;
  WrittenOps written_;
};

std::vector<uint64_t> EdgeBits(DType dtype) {
  std::vector<uint64_t> bits;
  if (IsFloat(dtype)) {
    const double inf = std::numeric_limits<double>::infinity();
    for (double v :
         {0.0,  1.0,   0.5,     1.5,     2.0,   2.5,   3.0,          7.0,          100.25,
          1e-3, 255.5, 65519.0, 65520.0, 88.5,  1e4,   2147483648.0, 4294967296.0, 9.3e18,
          1e38, 1e300, 1e-40,   1e-310,  464.0, 470.0, 0x1.8p-127,   inf}) {
      bits.push_back(EncodeFloat(dtype, v));
      bits.push_back(EncodeFloat(dtype, -v));
    }
    // Adds the smallest and largest subnormal and normal values, and NaN.
    const int width = 8 * DTypeBytes(dtype);
    bits.push_back(1);
    bits.push_back(EncodeFloat(dtype, inf) - 1);
    bits.push_back(uint64_t{1} << (width - 1) | 1);
    bits.push_back(EncodeFloat(dtype, std::nan("")));
    return bits;
  }
  if (dtype == DType::kBool) return {0, 1};
  const uint64_t top = uint64_t{1} << (8 * DTypeBytes(dtype) - 1);
  for (uint64_t v : {0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100}) {
    bits.push_back(v);
    bits.push_back(0 - v);
  }
  for (uint64_t v : {top, top - 1, top + 1, top >> 1, top / 3}) bits.push_back(v);
  if (DTypeBytes(dtype) == 8) {  // values that nearly round to a tie of a float
    for (uint64_t v : {(1ull << 53) + 1, (1ull << 60) + 1, (1ull << 24) + 1, (0x180ull << 50) + 1,
                       (0x101ull << 50) + 1}) {
      bits.push_back(v);
    }
  }
  return bits;
}

void AddKernelsOf(const std::filesystem::path& path, std::map<std::string, kir::Kernel>* kernels) {
  std::vector<std::string> texts;
  const std::vector<std::string> lines = absl::StrSplit(ReadFile(path), '\n');
  for (const std::string& line : lines) {
    if (line.starts_with("kernel")) texts.emplace_back();
    if (!line.starts_with("//")) texts.back() += Cat(line, "\n");
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    const absl::StatusOr<kir::Kernel> kernel = kir::ParseKernel(texts[i]);
    EXPECT_TRUE(kernel.ok()) << path << ": " << kernel.status();
    if (kernel.ok()) (*kernels)[Cat(path.stem().string(), "_", i)] = *kernel;
  }
}

}  // namespace

WrittenOps WriteOps(DType dtype, int lanes, bool f64) {
  return OpsWriter(dtype, lanes, f64).Write();
}

std::vector<Expr> WrittenPlaces(const Expr& n, const Expr& lane, const Expr& place) {
  return {3 * n,    lane + n,     2 * lane, 3 * lane + n, 4 * lane,
          5 * lane, n * lane + 1, n - lane, place,        FloorDiv(lane, 2) + n};
}

std::vector<Mask> WrittenMasks(const Expr& n, Var on, Var some) {
  return {{},
          {.count = n},
          {.predicate = on},
          {.predicate = some},
          {.count = n, .predicate = on},
          {.count = n, .predicate = some}};
}

kir::Kernel WriteMemory(DType dtype, int lanes) {
  Emitter e{Bounds()};
  const Expr n = Expr::Symbol("n"), lane = Lane(lanes);
  const int in = e.Global(dtype, false), out = e.Global(dtype, true);
  const int places = e.Global(DType::kI64, false), bools = e.Global(DType::kBool, false);
  const Var place = e.Load(places, lane, lanes, {});
  const Var some = e.Load(bools, lane, lanes, {}), on = e.Load(bools, 0, 1, {});
  for (const Expr& index : WrittenPlaces(n, lane, e.Symbol(place))) {
    for (const Mask& mask : WrittenMasks(n, on, some)) {
      e.Store(out, index, e.Broadcast(e.Load(in, index, lanes, mask), lanes), mask);
    }
  }
  e.Prefetch(in, n);
  return std::move(e).Finish("memory", 1);
}

std::vector<Expr> WrittenIndices(const Expr& n, const Expr& lane, const Expr& at) {
  return {FloorDiv(at, 8), FloorDiv(at, 3),      FloorDiv(at, n), MaxOf(at, n),
          MinOf(at, 5),    Mod(lane + 7 * n, 6), FloorDiv(n, 4),  at * n - 4};
}

kir::Kernel WriteIndices(int lanes) {
  Emitter e{Bounds()};
  const Expr n = Expr::Symbol("n"), lane = Lane(lanes);
  const int places = e.Global(DType::kI64, false), seeds = e.Global(DType::kU64, false);
  const int ok = e.Global(DType::kBool, true), bits = e.Global(DType::kU32, true);
  const int out = e.Global(DType::kI64, true);
  const Var place = e.Load(places, lane, lanes, {});
  const Var some = e.Load(ok, lane, lanes, {}), on = e.Load(ok, 0, 1, {});
  const std::vector<Mask> masks = {
      {}, {.count = n}, {.predicate = on}, {.predicate = some}, {.count = n, .predicate = on}};
  for (const Mask& mask : masks) e.Store(ok, lane, e.CheckIndex(place, n + 1, mask), {});
  e.Store(ok, lane, e.LaneMask(n, lanes), {});
  e.Store(bits, lane, e.RandomBits(e.Index(lane + n, lanes), e.Load(seeds, 0, 1, {})), {});
  const Expr at = lanes == 1 ? e.Symbol(place) : e.Symbol(place) + 8 * lane;
  for (const Expr& index : WrittenIndices(n, lane, at)) {
    e.Store(out, lane, e.Broadcast(e.Index(index, lanes), lanes), {});
  }
  for (const DTypeRow& row : kDTypes) {
    std::vector<Scalar> constants;
    if (IsFloat(row.dtype)) {
      for (double v : {0.0, -0.0, 1.5, -3.25, 1e30, HUGE_VAL, -HUGE_VAL}) {
        constants.push_back(Scalar::Float(row.dtype, v));
      }
    } else {
      for (uint64_t v : {0, 1, -1}) constants.push_back(Scalar::Unsigned(row.dtype, v));
    }
    const int written = e.Global(row.dtype, true);
    for (const Scalar& value : constants) {
      e.Store(written, lane, e.Broadcast(e.Const(value), lanes), {});
    }
  }
  return std::move(e).Finish("indices", 1);
}

std::map<std::string, kir::Kernel> WrittenKernels(const std::vector<int>& lanes, bool f64) {
  std::map<std::string, kir::Kernel> kernels;
  for (int n : lanes) {
    kernels[Cat("indices_x", n)] = WriteIndices(n);
    for (const DTypeRow& row : kDTypes) {
      kernels[Cat("ops_", row.name, "x", n)] = WriteOps(row.dtype, n, f64).kernel;
      kernels[Cat("memory_", row.name, "x", n)] = WriteMemory(row.dtype, n);
    }
  }
  return kernels;
}

Tensor EdgeOperand(DType dtype, int which) {
  const std::vector<uint64_t> edges = EdgeBits(dtype);
  const size_t pairs = edges.size() * edges.size();
  const size_t n = (pairs + 300) / 64 * 64 + 7;
  Tensor t = Tensor::Zeros(dtype, {static_cast<int64_t>(n)});
  std::mt19937_64 random(which + 1);
  std::uniform_real_distribution<double> uniform(-20, 20);
  for (size_t i = 0; i < n; ++i) {
    uint64_t bits = random();
    if (i < pairs) {
      bits = edges[which == 0 ? i / edges.size() : i % edges.size()];
    } else if (IsFloat(dtype) && i % 2 == 0) {
      // Every second value lies in the domain of arcsine and the like.
      bits = EncodeFloat(dtype, uniform(random) / (i % 4 == 0 ? 16 : 1));
    }
    if (dtype == DType::kBool) bits &= 1;
    std::memcpy(t.bytes.data() + i * DTypeBytes(dtype), &bits, DTypeBytes(dtype));
  }
  return t;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::map<std::string, kir::Kernel> KernelsIn(const std::vector<std::string>& folders) {
  std::map<std::string, kir::Kernel> kernels;
  for (const std::string& folder : folders) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() == ".kir") AddKernelsOf(file.path(), &kernels);
    }
  }
  return kernels;
}

void ExpectSameLines(const std::string& got, const std::string& golden) {
  const std::vector<std::string> lines = absl::StrSplit(got, '\n'),
                                 want = absl::StrSplit(golden, '\n');
  ASSERT_EQ(lines.size(), want.size());
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i], want[i]);
}

}  // namespace athanor
