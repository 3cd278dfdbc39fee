// Pins the C text of kernels, because compiled kernels are cached by its hash:
// testdata/printed_c.txt has one hash for each kernel of //compiler/pipeline's golden plans, of
// codegen's testdata, and for each kernel that is written here from every op, load, store and
// dtype, over all targets below. After an intended change, run the test with
// ATHANOR_GOLDEN_OUT=<folder>: it writes the list and the texts there, for a comparison with those
// of the commit before.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "compiler/codegen/cpu/dialect.h"
#include "compiler/codegen/emitter.h"
#include "compiler/ir/value/digest.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using kir::Emitter;
using kir::Mask;
using kir::Var;

constexpr int kLanes[] = {1, 2, 4, 8, 16, 32, 64};

v1::Target Target(const std::string& triple, int bytes, const std::vector<std::string>& features) {
  v1::Target target;
  target.set_triple(triple);
  target.set_vector_bytes(bytes);
  for (const std::string& f : features) target.add_features(f);
  return target;
}

std::map<std::string, v1::Target> Targets() {
  const std::string linux = "x86_64-pc-linux-gnu";
  std::vector<std::string> avx2 = {"+sse4.1", "+avx2", "+fma"}, avx512 = avx2;
  avx512.insert(avx512.end(), {"+avx512f", "+avx512bw", "+avx512vl"});
  return {{"arm", Target("aarch64-unknown-linux-gnu", 16, {})},
          {"sse", Target("x86_64-pc-windows-msvc", 16, {})},
          {"avx2", Target(linux, 32, avx2)},
          {"avx512f", Target(linux, 64, {"+avx2", "+avx512f"})},
          {"avx512", Target(linux, 64, avx512)}};
}

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Expr Lane(int lanes) { return lanes == 1 ? 0 : Expr::Symbol(kir::kLane); }

// Stores what each elementwise op makes of operands of `dtype`.
kir::Kernel Ops(DType dtype, int lanes) {
  Emitter e{Bounds()};
  const Expr lane = Lane(lanes);
  const int condition = e.Global(DType::kBool, false), in = e.Global(dtype, false);
  const auto load = [&](int buffer, int at) { return e.Load(buffer, lane + at, lanes, {}); };
  const Var choice = load(condition, 0);
  const std::vector<Var> values = {load(in, 0), load(in, 100), load(in, 200)};
  const auto add = [&](const OpRow& row, Attrs attrs, bool left = false) {
    std::vector<Var> args(values.begin(), values.begin() + row.min_inputs);
    std::vector<TensorType> types(row.min_inputs, {dtype, {8}});
    if (IsSelect(row.op)) {
      args = {choice, values[0], values[1]};
      types[0].dtype = DType::kBool;
    }
    const absl::StatusOr<TensorType> type = row.infer(types, attrs, Bounds());
    if (!type.ok()) return;
    e.Store(e.Global(type->dtype, true), lane, e.Compute(row.op, type->dtype, args, left), {});
  };
  for (const OpRow& row : OpTable()) {
    if (row.op_class != OpClass::kElementwise) continue;
    if (row.attrs.empty()) {
      add(row, {});
    } else if (kir::HasDirection(row.op)) {
      add(row, {{"direction", std::string("left")}}, true);
      add(row, {{"direction", std::string("right")}});
    } else {
      for (const DTypeRow& to : kDTypes) add(row, {{"dtype", to.dtype}});
    }
  }
  if (Computes(dtype) && dtype != DType::kBool) {
    e.Store(e.Global(dtype, true), lane, e.Fma(values[0], values[1], values[2]), {});
    // A constant that is no NaN makes minima and maxima one comparison.
    const Var two = e.Const(IsFloat(dtype) ? Scalar::Float(dtype, 2) : Scalar::Unsigned(dtype, 2));
    for (Op op : {Op::kMin, Op::kMax}) {
      e.Store(e.Global(dtype, true), lane, e.Compute(op, dtype, {two, values[0]}), {});
      e.Store(e.Global(dtype, true), lane, e.Compute(op, dtype, {values[0], two}), {});
    }
  }
  for (Op op : {Op::kAdd, Op::kMul, Op::kMin, Op::kMax, Op::kAnd, Op::kOr}) {
    const std::vector<TensorType> types(2, {dtype, {8}});
    if (!OpInfo(op).infer(types, {}, Bounds()).ok()) continue;
    e.Store(e.Global(dtype, true), 0, e.Reduce(op, values[0]), {});
  }
  return std::move(e).Finish("ops", 1);
}

// Loads and stores `dtype` in every pattern under every kind of mask.
kir::Kernel Memory(DType dtype, int lanes) {
  Emitter e{Bounds()};
  const Expr n = Expr::Symbol("n"), lane = Lane(lanes);
  const int in = e.Global(dtype, false), out = e.Global(dtype, true);
  const int places = e.Global(DType::kI64, false), bools = e.Global(DType::kBool, false);
  const Var place = e.Load(places, lane, lanes, {});
  const Var some = e.Load(bools, lane, lanes, {}), on = e.Load(bools, 0, 1, {});
  const std::vector<Expr> at = {
      3 * n,    lane + n,     2 * lane, 3 * lane + n,    4 * lane,
      5 * lane, n * lane + 1, n - lane, e.Symbol(place), FloorDiv(lane, 2) + n};
  const std::vector<Mask> masks = {{},
                                   {.count = n},
                                   {.predicate = on},
                                   {.predicate = some},
                                   {.count = n, .predicate = on},
                                   {.count = n, .predicate = some}};
  for (const Expr& index : at) {
    for (const Mask& mask : masks) {
      e.Store(out, index, e.Broadcast(e.Load(in, index, lanes, mask), lanes), mask);
    }
  }
  e.Prefetch(in, n);
  return std::move(e).Finish("memory", 1);
}

// Checks positions, draws random bits and divides indices; writes constants of every dtype.
kir::Kernel Indices(int lanes) {
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
  for (const Expr& index : {FloorDiv(at, 8), FloorDiv(at, 3), FloorDiv(at, n), MaxOf(at, n),
                            MinOf(at, 5), Mod(lane + 7 * n, 6), FloorDiv(n, 4), at * n - 4}) {
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

std::map<std::string, kir::Kernel> Kernels() {
  std::map<std::string, kir::Kernel> kernels;
  for (int lanes : kLanes) {
    kernels[Cat("indices_x", lanes)] = Indices(lanes);
    for (const DTypeRow& row : kDTypes) {
      kernels[Cat("ops_", row.name, "x", lanes)] = Ops(row.dtype, lanes);
      kernels[Cat("memory_", row.name, "x", lanes)] = Memory(row.dtype, lanes);
    }
  }
  for (const char* folder : {"compiler/codegen/testdata", "compiler/codegen/cpu/testdata",
                             "compiler/pipeline/testdata"}) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() != ".kir") continue;
      std::vector<std::string> texts;
      for (const std::string& line :
           std::vector<std::string>(absl::StrSplit(Read(file.path()), '\n'))) {
        if (line.starts_with("kernel")) texts.emplace_back();
        if (!line.starts_with("//")) texts.back() += Cat(line, "\n");
      }
      for (size_t i = 0; i < texts.size(); ++i) {
        const absl::StatusOr<kir::Kernel> kernel = kir::ParseKernel(texts[i]);
        EXPECT_TRUE(kernel.ok()) << file.path() << ": " << kernel.status();
        if (kernel.ok()) kernels[Cat(file.path().stem().string(), "_", i)] = *kernel;
      }
    }
  }
  return kernels;
}

TEST(PrintedC, IsThatOfTheCachedKernels) {
  const char* folder = std::getenv("ATHANOR_GOLDEN_OUT");
  std::string list;
  for (const auto& [name, kernel] : Kernels()) {
    ASSERT_TRUE(kir::Verify(kernel).ok()) << name << ": " << kir::Verify(kernel);
    std::string all;
    for (const auto& [target, features] : Targets()) {
      const std::string text = PrintCpuKernel(kernel, features);
      all += Cat(target, "\n", text);
      if (folder != nullptr) std::ofstream(Cat(folder, "/", name, ".", target, ".c")) << text;
    }
    list += Cat(name, " ", Sha256Hex(all).substr(0, 16), "\n");
  }
  if (folder != nullptr) std::ofstream(Cat(folder, "/printed_c.txt")) << list;
  const std::string golden = Read("compiler/codegen/cpu/testdata/printed_c.txt");
  const std::vector<std::string> want = absl::StrSplit(golden, '\n'),
                                 got = absl::StrSplit(list, '\n');
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i]);
}

}  // namespace
}  // namespace athanor
