// The kernel of PagedAttention (KernelKind::kPaged) against the op's reference, and its bits: those
// of a row follow from its own sequence alone, whatever else the item, the batch, the table and the
// pool hold. Kernels run as the compiler makes them, on every kind of CPU, in guarded memory. Slots
// that no row sees hold NaN, and entries of the table that none needs are no blocks.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cpu/dialect.h"
#include "compiler/codegen/lower/lower.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/search/kernels/paged_schedule.h"
#include "compiler/search/kernels/state_layout.h"
#include "deploy/bazel/libs/status_macros.h"
#include "gtest/gtest.h"
#include "runtime/cpu/module.h"
#include "runtime/device/kernel_abi.h"
#include "tests/conformance/devices.h"
#include "tests/conformance/guarded.h"
#include "tests/conformance/kernel_runner.h"

namespace athanor {
namespace {

struct Problem {
  int64_t block = 16, heads = 1, group = 1, depth = 16, width = 16;
  double scale = 0, softcap = 0;  // 0: absent
  int64_t window = 0;             // 0: absent
  bool sink = false, states = true;
  DType dtype = DType::kF32;

  std::string Attributes() const {
    std::string text = absl::StrCat("{block=", block);
    if (scale != 0) absl::StrAppend(&text, ", scale=", scale);
    if (softcap != 0) absl::StrAppend(&text, ", softcap=", softcap);
    if (window != 0) absl::StrAppend(&text, ", window=", window);
    return text + "}";
  }
  std::string Text(bool as_states) const {
    const std::string t(DTypeName(dtype)), pool = as_states ? "StateRead" : "Input";
    const auto role = [&](const char* name) {
      return as_states ? absl::StrCat(" {role=\"", name, "\"}") : "";
    };
    return absl::StrCat(
        "graph \"\" { dim t in [0, 4096] dim n in [0, 4096] dim s in [0, 64] dim b in [0, 4096]\n",
        "%0 = Input \"q\" : ", t, "[t, ", heads * group, ", ", depth, "]\n%1 = ", pool, " \"k\"",
        role("keys"), " : ", t, "[16*n, ", heads, ", ", depth, "]\n%2 = ", pool, " \"v\"",
        role("values"), " : ", t, "[16*n, ", heads, ", ", width, "]\n",
        "%3 = Input \"table\" : i32[s, b] %4 = Input \"sequence\" : i32[t]\n",
        "%5 = Input \"position\" : i32[t]\n", "%6 = Input \"sink\" : ", t, "[", heads * group,
        "]\n%7 = PagedAttention(%0, %1, %2, %3, %4, %5", sink ? ", %6" : "", ") ", Attributes(),
        "\noutput \"y\" = %7 }");
  }
};

Expr::Env DimsOf(const std::vector<Tensor>& inputs) {
  return {{"t", inputs[0].shape[0]},
          {"n", inputs[1].shape[0] / 16},
          {"s", inputs[3].shape[0]},
          {"b", inputs[3].shape[1]}};
}

// A kernel as it is compiled for a machine.
class PagedKernel {
 public:
  static absl::StatusOr<PagedKernel> Make(const Problem& op, const Machine& machine,
                                          const AttentionSchedule& schedule) {
    PagedKernel k;
    ASSIGN_OR_RETURN(k.graph_, ParseGraph(op.Text(op.states)));
    KernelChoice choice{.root = 7, .kind = KernelKind::kPaged, .anchor = 7};
    choice.attention = schedule;
    const std::vector<bool> memory(k.graph_.nodes.size(), true);
    ASSIGN_OR_RETURN(k.lowered_, LowerKernel({k.graph_, memory, machine.target}, choice));
    ASSIGN_OR_RETURN(const std::string code,
                     CpuCode(PrintCpuKernel(k.lowered_.kernel, machine.target), machine.target,
                             /*opt_level=*/1));
    ASSIGN_OR_RETURN(k.module_, CpuModule::Load(code));
    ASSIGN_OR_RETURN(void* symbol, k.module_->Symbol(kCpuKernelSymbol));
    k.function_ = reinterpret_cast<CpuKernel>(symbol);
    return k;
  }

  // Runs items in two calls, the later ones first. `inputs` by node.
  absl::StatusOr<Tensor> Run(const std::vector<Tensor>& inputs, Tensor result) const {
    std::map<NodeId, std::unique_ptr<Guarded>> memory;
    std::vector<void*> buffers;
    for (const NodeId n : lowered_.buffers) {
      memory[n] = std::make_unique<Guarded>(n == 7 ? result : inputs[n]);
      buffers.push_back(memory[n]->data());
    }
    const Expr::Env dims = DimsOf(inputs);
    std::vector<int64_t> sizes;
    Expr::Env env;
    for (const std::string& dim : lowered_.kernel.sizes) {
      env[absl::StrCat("s", sizes.size())] = dims.at(dim);
      sizes.push_back(dims.at(dim));
    }
    const int64_t items = lowered_.kernel.grid.Evaluate(env).value();
    // NaN in every lane that the kernel does not write itself.
    std::string scratch(lowered_.kernel.ScratchBytes() + 64, '\xff');
    char* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
    KernelError error;
    function_(buffers.data(), sizes.data(), items / 2, items, aligned, &error);
    function_(buffers.data(), sizes.data(), 0, items / 2, aligned, &error);
    if (error.code != 0) {
      return absl::OutOfRangeError(absl::StrCat("index ", error.index, " of ", error.extent));
    }
    for (const auto& [n, guarded] : memory) {
      if (!guarded->Intact()) return absl::InternalError(absl::StrCat("wrote beside node ", n));
      if (n == 7) result.bytes.assign(guarded->data(), result.bytes.size());
    }
    return result;
  }

 private:
  Graph graph_;
  LoweredKernel lowered_;
  std::unique_ptr<CpuModule> module_;
  CpuKernel function_ = nullptr;
};

struct Row {
  int sequence;
  int64_t position;
};

// A step's inputs. Keys, values and queries follow from sequence and position alone, so equal rows
// have equal bits in any batch.
class Batch {
 public:
  // `extra`: blocks of the pool, and of a row of the table, beyond those needed.
  Batch(const Problem& op, std::vector<Row> rows, int64_t extra, uint64_t seed)
      : op_(op), rows_(std::move(rows)), rng_(seed) {
    for (const Row& row : rows_) {
      if (std::find(names_.begin(), names_.end(), row.sequence) == names_.end()) {
        names_.push_back(row.sequence);
      }
    }
    std::shuffle(names_.begin(), names_.end(), rng_);
    const auto t = static_cast<int64_t>(rows_.size());
    const int64_t heads = op.heads * op.group, all = Blocks() + extra;
    q_ = Tensor::Zeros(op.dtype, {t, heads, op.depth});
    sink_ = Tensor::Zeros(op.dtype, {heads});
    sequence_ = Tensor::Zeros(DType::kI32, {t});
    position_ = Tensor::Zeros(DType::kI32, {t});
    for (int64_t h = 0; h < heads; ++h) Set(&sink_, h, Value(-1, 0, h));
    for (int64_t i = 0; i < t; ++i) {
      sequence_.data<int32_t>()[i] = static_cast<int32_t>(PlaceOf(rows_[i].sequence));
      position_.data<int32_t>()[i] = static_cast<int32_t>(rows_[i].position);
      for (int64_t d = 0; d < heads * op.depth; ++d) {
        Set(&q_, i * heads * op.depth + d, Value(rows_[i].sequence, -1 - rows_[i].position, d));
      }
    }
    PlaceKeys(all, Longest() + extra);
  }

  // As Inputs of the graph; states laid out by their roles if `as_states`.
  std::vector<Tensor> Inputs(bool as_states) const {
    std::vector<Tensor> inputs = {q_, k_, v_, table_, sequence_, position_, sink_};
    if (!as_states) return inputs;
    const char* const layouts[] = {"", "keys16", "values16"};
    for (int n : {1, 2}) {
      const Tensor& from = n == 1 ? k_ : v_;
      const int64_t bytes = DTypeBytes(from.dtype);
      for (int64_t i = 0; i < from.elements(); ++i) {
        const int64_t to = StatePlace(layouts[n], from.shape, i);
        std::copy_n(from.bytes.data() + i * bytes, bytes, inputs[n].bytes.data() + to * bytes);
      }
    }
    return inputs;
  }
  Tensor Result() const { return Tensor::Zeros(op_.dtype, {q_.shape[0], q_.shape[1], op_.width}); }
  Tensor* table() { return &table_; }
  Tensor* sequence() { return &sequence_; }
  Tensor* position() { return &position_; }

 private:
  int64_t PlaceOf(int sequence) const {
    return std::find(names_.begin(), names_.end(), sequence) - names_.begin();
  }
  int64_t FirstKey(const Row& row) const {
    return op_.window == 0 ? 0 : std::max<int64_t>(0, row.position + 1 - op_.window);
  }
  bool Seen(int sequence, int64_t key) const {
    return std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) {
      return row.sequence == sequence && FirstKey(row) <= key && key <= row.position;
    });
  }
  int64_t Length(int sequence) const {
    int64_t length = 0;
    for (const Row& row : rows_) {
      if (row.sequence == sequence) length = std::max(length, row.position + 1);
    }
    return length;
  }
  int64_t BlocksOf(int64_t keys) const { return (keys + op_.block - 1) / op_.block; }
  int64_t Blocks() const {
    int64_t blocks = 0;
    for (int s : names_) blocks += BlocksOf(Length(s));
    return blocks;
  }
  int64_t Longest() const {
    int64_t blocks = 0;
    for (int s : names_) blocks = std::max(blocks, BlocksOf(Length(s)));
    return blocks;
  }
  // In [-1, 1), by a hash.
  static double Value(int64_t a, int64_t b, int64_t c) {
    uint64_t x = static_cast<uint64_t>(a) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(b);
    for (const int64_t more : {c, int64_t{7}}) {
      x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9 + static_cast<uint64_t>(more) * 0x94d049bb133111eb;
    }
    x ^= x >> 29;
    return static_cast<double>(static_cast<int64_t>(x)) * 0x1p-63;
  }
  static void Set(Tensor* t, int64_t i, double value) {
    StoreScalar(*t, i, Scalar::Float(t->dtype, value));
  }

  void PlaceKeys(int64_t blocks, int64_t columns) {
    k_ = Tensor::Zeros(op_.dtype, {blocks * op_.block, op_.heads, op_.depth});
    v_ = Tensor::Zeros(op_.dtype, {blocks * op_.block, op_.heads, op_.width});
    for (Tensor* pool : {&k_, &v_}) {
      for (int64_t i = 0; i < pool->elements(); ++i) Set(pool, i, std::nan(""));
    }
    table_ = Tensor::Zeros(DType::kI32, {static_cast<int64_t>(names_.size()), columns});
    for (int64_t i = 0; i < table_.elements(); ++i) {
      constexpr int32_t kNoBlocks[] = {-1, 1 << 30, std::numeric_limits<int32_t>::min()};
      table_.data<int32_t>()[i] = kNoBlocks[rng_() % 3];
    }
    std::vector<int32_t> order(blocks);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng_);
    for (const int s : names_) {
      for (int64_t key = 0; key < Length(s); ++key) {
        if (!Seen(s, key)) continue;
        int32_t& block = table_.data<int32_t>()[PlaceOf(s) * columns + key / op_.block];
        if (block < 0 || block >= blocks) {
          block = order.back();
          order.pop_back();
        }
        const int64_t slot = block * op_.block + key % op_.block;
        for (int64_t i = 0; i < op_.heads * op_.depth; ++i) {
          Set(&k_, slot * op_.heads * op_.depth + i, Value(s, key, i));
        }
        for (int64_t i = 0; i < op_.heads * op_.width; ++i) {
          Set(&v_, slot * op_.heads * op_.width + i, Value(s, key, 10000 + i));
        }
      }
    }
  }

  const Problem op_;
  const std::vector<Row> rows_;
  std::vector<int> names_;  // of sequences, by place in the table
  std::mt19937_64 rng_;
  Tensor q_, k_, v_, table_, sequence_, position_, sink_;
};

std::vector<Machine> Cpus() {
  std::vector<Machine> cpus = Machines();
  std::erase_if(cpus, [](const Machine& m) { return m.target.device() != "cpu"; });
  for (Machine& m : cpus) m.target.set_vector_registers(m.target.vector_bytes() == 64 ? 32 : 16);
  return cpus;
}

AttentionSchedule Schedule(int mr, int nv, int row_tile) {
  AttentionSchedule s;
  s.mr = mr;
  s.nv = nv;
  s.row_tile = row_tile;
  return s;
}

// A prompt's rows [begin, end).
std::vector<Row> Prompt(int sequence, int64_t begin, int64_t end) {
  std::vector<Row> rows;
  for (int64_t p = begin; p < end; ++p) rows.push_back({sequence, p});
  return rows;
}

std::vector<Row> Joined(std::vector<std::vector<Row>> parts) {
  std::vector<Row> rows;
  for (const auto& part : parts) rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

// Rows of many sequences at the edges of groups and splits, and pieces of prompts over them.
std::vector<Row> MixedRows() {
  std::vector<Row> rows;
  for (const int64_t context : {1, 15, 16, 17, 255, 256, 257, 600}) {
    rows.push_back({static_cast<int>(context), context - 1});
  }
  return Joined({rows,
                 Prompt(1000, 0, 40),
                 Prompt(1001, 250, 263),
                 {{1002, 3}, {1002, 4}},
                 Prompt(1003, 590, 601),
                 {{1004, 600}, {1004, 5}, {1004, 6}}});
}

void ExpectReference(const Problem& op, const Batch& batch, const PagedKernel& kernel) {
  const absl::StatusOr<Graph> plain = ParseGraph(op.Text(/*as_states=*/false));
  ASSERT_TRUE(plain.ok()) << plain.status();
  std::vector<Tensor> inputs = batch.Inputs(false);
  const Expr::Env dims = DimsOf(inputs);
  const auto want = Evaluate(*plain, inputs, &dims);
  ASSERT_TRUE(want.ok()) << want.status();
  const absl::StatusOr<Tensor> got = kernel.Run(batch.Inputs(op.states), batch.Result());
  ASSERT_TRUE(got.ok()) << got.status();
  const double bound = op.dtype == DType::kF64 ? 1e-13 : 4e-6;
  const absl::Status same = CompareTensors(*got, (*want)[0], bound, bound);
  EXPECT_TRUE(same.ok()) << same;
}

std::vector<Problem> Ops() {
  std::vector<Problem> ops;
  ops.push_back({.heads = 3, .group = 3, .depth = 64, .width = 64});
  ops.push_back({.block = 32, .heads = 1, .group = 1, .depth = 16, .width = 21, .scale = 0.7});
  ops.push_back({.heads = 2, .group = 8, .depth = 24, .width = 16, .softcap = 1.5, .sink = true});
  ops.push_back({.heads = 1, .group = 3, .depth = 17, .width = 40, .window = 5});
  ops.push_back({.block = 32, .heads = 2, .group = 2, .depth = 16, .width = 16, .window = 300});
  ops.push_back({.heads = 1, .group = 1, .depth = 128, .width = 96, .window = 1, .sink = true});
  ops.push_back(
      {.heads = 2, .group = 3, .depth = 16, .width = 5, .window = 16, .dtype = DType::kF64});
  ops.push_back(
      {.block = 48, .heads = 2, .group = 2, .depth = 8, .width = 3, .sink = true, .states = false});
  return ops;
}

TEST(PagedTest, IsTheReferenceOnEveryCpu) {
  const std::vector<Machine> cpus = Cpus();
  ASSERT_FALSE(cpus.empty());
  size_t turn = 0;
  for (const Problem& op : Ops()) {
    const Batch batch(op, MixedRows(), /*extra=*/2, /*seed=*/turn);
    for (const AttentionSchedule& s :
         {Schedule(3, 4, 1), Schedule(12, 2, 16), Schedule(5, 3, 16)}) {
      const Machine& machine = cpus[turn++ % cpus.size()];
      SCOPED_TRACE(absl::StrCat(op.Attributes(), " rows ", s.row_tile, " on ", machine.name));
      auto kernel = PagedKernel::Make(op, machine, s);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      ExpectReference(op, batch, *kernel);
      ExpectReference(op, Batch(op, {{0, 37}}, 0, turn), *kernel);
      ExpectReference(op, Batch(op, {}, 1, turn), *kernel);
    }
  }
}

// Returns a row's bytes of a result.
std::string RowOf(const Tensor& result, size_t row) {
  const size_t bytes = result.bytes.size() / result.shape[0];
  return result.bytes.substr(row * bytes, bytes);
}

TEST(PagedTest, BitsOfARowAreItsSequencesAlone) {
  const Machine machine = Cpus()[0];
  std::mt19937_64 rng(5);
  for (const Problem& op : Ops()) {
    SCOPED_TRACE(op.Attributes());
    std::vector<PagedKernel> kernels;
    for (const AttentionSchedule& s :
         {Schedule(12, 2, 16), Schedule(op.group, 1, 1), Schedule(2, 4, 1), Schedule(6, 4, 16)}) {
      auto kernel = PagedKernel::Make(op, machine, s);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      kernels.push_back(*std::move(kernel));
    }
    std::vector<Row> rows = MixedRows();
    std::map<std::pair<int, int64_t>, std::string> bits;  // alone
    for (const Row& row : rows) {
      const Batch alone(op, {row}, /*extra=*/0, /*seed=*/1);
      const auto got = kernels[1].Run(alone.Inputs(op.states), alone.Result());
      ASSERT_TRUE(got.ok()) << got.status();
      bits[{row.sequence, row.position}] = RowOf(*got, 0);
    }
    // Batches: all in order, shuffled, and of some rows.
    for (int round = 0; round < 6; ++round) {
      if (round > 0) {
        // Moves whole pieces: prompts stay together in half of the rounds.
        std::rotate(rows.begin(), rows.begin() + static_cast<int64_t>(rng() % rows.size()),
                    rows.end());
        if (round % 2 == 0) std::shuffle(rows.begin(), rows.end(), rng);
      }
      const auto count = static_cast<int64_t>(round < 3 ? rows.size() : 1 + rng() % rows.size());
      const std::vector<Row> some(rows.begin(), rows.begin() + count);
      const Batch batch(op, some, static_cast<int64_t>(rng() % 5), rng());
      for (const PagedKernel& kernel : kernels) {
        const auto got = kernel.Run(batch.Inputs(op.states), batch.Result());
        ASSERT_TRUE(got.ok()) << got.status();
        for (size_t r = 0; r < some.size(); ++r) {
          ASSERT_TRUE(RowOf(*got, r) == bits.at({some[r].sequence, some[r].position}))
              << "row " << r << ", sequence " << some[r].sequence << " at " << some[r].position
              << ", kernel " << &kernel - kernels.data() << ", round " << round;
        }
      }
    }
  }
}

// Every height of a tile, with each of its widths in turn.
TEST(PagedTest, SchedulesGiveTheSameBits) {
  const Problem op{.heads = 2, .group = 3, .depth = 16, .width = 20, .window = 290};
  const Machine machine = Cpus()[0];
  const absl::StatusOr<Graph> graph = ParseGraph(op.Text(op.states));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Batch batch(op, MixedRows(), /*extra=*/1, /*seed=*/4);
  std::map<std::pair<int, int>, std::vector<AttentionSchedule>> by_height;
  for (const AttentionSchedule& s : PagedSchedules(*graph, 7, machine.target)) {
    by_height[{s.row_tile, s.mr}].push_back(s);
  }
  // Registers allow 15 with AVX-512, 9 with AVX2, 4 with less.
  ASSERT_GE(by_height.size(), machine.target.vector_bytes() == 64 ? 15u : 4u);
  std::string bits;
  size_t turn = 0;
  for (const auto& [height, schedules] : by_height) {
    const AttentionSchedule& s = schedules[turn++ % schedules.size()];
    SCOPED_TRACE(absl::StrCat("mr ", s.mr, " nv ", s.nv, " rows ", s.row_tile));
    auto kernel = PagedKernel::Make(op, machine, s);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const auto got = kernel->Run(batch.Inputs(op.states), batch.Result());
    ASSERT_TRUE(got.ok()) << got.status();
    if (bits.empty()) bits = got->bytes;
    EXPECT_TRUE(got->bytes == bits);
  }
}

TEST(PagedTest, IndicesOutsideAreErrors) {
  const Problem op{.block = 32, .heads = 2, .group = 2};
  for (const AttentionSchedule& s : {Schedule(2, 2, 1), Schedule(12, 2, 16)}) {
    auto kernel = PagedKernel::Make(op, Cpus()[0], s);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const auto expect_refused = [&](Tensor* (Batch::*tensor)(), int64_t at, int32_t value) {
      Batch batch(op, Joined({Prompt(0, 30, 50), Prompt(1, 0, 3)}), /*extra=*/1, /*seed=*/3);
      ASSERT_TRUE(kernel->Run(batch.Inputs(true), batch.Result()).ok());
      (batch.*tensor)()->data<int32_t>()[at] = value;
      const absl::Status status = kernel->Run(batch.Inputs(true), batch.Result()).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << at << ": " << value;
    };
    const Batch sizes(op, Joined({Prompt(0, 30, 50), Prompt(1, 0, 3)}), 1, 3);
    const std::vector<Tensor> inputs = sizes.Inputs(true);
    const auto sequences = static_cast<int32_t>(inputs[3].shape[0]);
    const auto blocks = static_cast<int32_t>(inputs[3].shape[1]);
    const int64_t columns = blocks, first = inputs[4].data<int32_t>()[0] * columns;
    for (const int32_t value : {-1, sequences, std::numeric_limits<int32_t>::max()}) {
      expect_refused(&Batch::sequence, 22, value);
    }
    for (const int32_t value : {-1, blocks * 32, std::numeric_limits<int32_t>::min()}) {
      expect_refused(&Batch::position, 7, value);
    }
    const auto pool = static_cast<int32_t>(inputs[1].shape[0] / 32);
    for (const int32_t value :
         {-1, pool, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
      expect_refused(&Batch::table, first, value);
      expect_refused(&Batch::table, first + 1, value);
    }
  }
}

// Infinite and NaN scores: what the op says, whatever the other splits hold.
TEST(PagedTest, ScoresThatAreNotFinite) {
  const Problem op{.heads = 1, .group = 2, .depth = 16, .width = 4};
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const AttentionSchedule& s : {Schedule(2, 2, 1), Schedule(12, 2, 16)}) {
    auto kernel = PagedKernel::Make(op, Cpus()[0], s);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const auto graph = ParseGraph(op.Text(false));
    ASSERT_TRUE(graph.ok()) << graph.status();
    const Batch batch(op, Prompt(0, 280, 300), 0, 9);
    for (const double value : {std::nan(""), kInf, -kInf}) {
      for (const int64_t keys : {1, 256}) {  // that have this value, from the first on
        std::vector<Tensor> plain = batch.Inputs(false);
        for (int64_t i = 0; i < plain[0].elements(); ++i) plain[0].data<float>()[i] = 1;
        for (int64_t key = 0; key < keys; ++key) {
          const int64_t slot = plain[3].data<int32_t>()[key / 16] * 16 + key % 16;
          plain[1].data<float>()[slot * 16 + 3] = static_cast<float>(value);
        }
        std::vector<Tensor> inputs = plain;
        for (int64_t i = 0; i < plain[1].elements(); ++i) {
          inputs[1].data<float>()[StatePlace("keys16", plain[1].shape, i)] =
              plain[1].data<float>()[i];
        }
        inputs[2] = batch.Inputs(true)[2];
        const Expr::Env dims = DimsOf(plain);
        const auto want = Evaluate(*graph, plain, &dims);
        const auto got = kernel->Run(inputs, batch.Result());
        ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
        const absl::Status same = CompareTensors(*got, (*want)[0], 4e-6, 4e-6);
        EXPECT_TRUE(same.ok()) << value << " of " << keys << " keys: " << same;
        EXPECT_EQ(std::isnan(got->data<float>()[0]), value != -kInf);
      }
    }
  }
}

}  // namespace
}  // namespace athanor
