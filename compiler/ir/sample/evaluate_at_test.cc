#include "compiler/ir/sample/evaluate_at.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/ops/reference_testing.h"

namespace athanor {
namespace {

using Positions = std::vector<int64_t>;
constexpr int64_t kNoLimit = int64_t{1} << 40;

std::vector<absl::string_view> BytesOf(const std::vector<Tensor>& tensors) {
  std::vector<absl::string_view> bytes;
  for (const Tensor& t : tensors) bytes.push_back(t.bytes);
  return bytes;
}

Positions Elements(const Tensor& t) {
  Positions all(t.elements());
  std::iota(all.rbegin(), all.rend(), 0);
  return all;
}

// Checks every element of every output at once, then some, with repetitions: bit for bit as
// Evaluate.
void ExpectSame(const Graph& graph, const std::vector<Tensor>& inputs, const Expr::Env& dims,
                std::mt19937& rng) {
  const absl::StatusOr<std::vector<Tensor>> whole = Evaluate(graph, inputs, &dims);
  ASSERT_TRUE(whole.ok()) << whole.status();
  std::vector<Positions> all, some;
  for (const Tensor& t : *whole) {
    all.push_back(Elements(t));
    some.emplace_back();
    for (int i = 0; i < 3 && t.elements() > 0; ++i) {
      const auto p = static_cast<int64_t>(rng() % t.elements());
      some.back().insert(some.back().end(), i + 1, p);
    }
  }
  for (const std::vector<Positions>& positions : {all, some}) {
    const auto values = EvaluateAt(graph, dims, positions, BytesOf(inputs), kNoLimit);
    ASSERT_TRUE(values.ok()) << values.status() << "\n" << ToText(graph);
    for (size_t o = 0; o < whole->size(); ++o) {
      const Tensor& t = (*whole)[o];
      std::string wanted;
      for (int64_t p : positions[o]) {
        wanted += t.bytes.substr(p * DTypeBytes(t.dtype), DTypeBytes(t.dtype));
      }
      const Tensor& got = (*values)[o];
      EXPECT_EQ(got.dtype, t.dtype);
      EXPECT_EQ(got.bytes, wanted) << graph.outputs[o].name << "\n" << ToText(graph);
    }
  }
}

Tensor Random(DType dtype, std::vector<int64_t> shape, std::mt19937& rng) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  for (int64_t i = 0; i < t.elements(); ++i) {
    const auto bits = static_cast<int64_t>(rng());
    StoreScalar(t, i,
                IsFloat(dtype) ? Scalar::Float(dtype, static_cast<double>(bits % 4096) / 1000 - 2)
                : dtype == DType::kBool ? Scalar::Unsigned(dtype, bits & 1)
                                        : Scalar::Unsigned(dtype, bits % 23 - 11));
  }
  return t;
}

Tensor Indices(DType dtype, std::vector<int64_t> shape, int64_t limit, std::mt19937& rng) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  for (int64_t i = 0; i < t.elements(); ++i) {
    StoreScalar(t, i, Scalar::Unsigned(dtype, rng() % limit));
  }
  return t;
}

// An operand: by default values of the case's dtype; else of another dtype, or given.
struct Operand {
  std::vector<int64_t> shape;
  int64_t index_limit = 0;  // not 0: the operand holds indices, i32
  std::vector<double> given = {};
  std::vector<DType> dtype = {};
};

struct OpCase {
  Op op;
  std::vector<Operand> operands;
  Attrs attrs = {};
};

IndexMap Window() {
  const Expr a = Expr::Axis(0), b = Expr::Axis(1);
  return {{5, 4}, {b - 1, Mod(a + b, Expr(6))}};
}

Attrs Windowed(std::vector<int64_t> strides, std::vector<int64_t> dilations, Shape begin, Shape out,
               int64_t group) {
  return {{"strides", std::move(strides)},
          {"dilations", std::move(dilations)},
          {"begin", std::move(begin)},
          {"out", std::move(out)},
          {"group", group}};
}

Attrs Pooled(const char* mode, std::vector<int64_t> kernel, Shape begin, Shape counted = {}) {
  Attrs attrs = Windowed({2, 1}, {1, 2}, std::move(begin), {3, 4}, 1);
  attrs.erase("group");
  attrs["mode"] = std::string(mode);
  attrs["kernel"] = std::move(kernel);
  if (!counted.empty()) attrs["counted"] = std::move(counted);
  return attrs;
}

// Cases for every op; shapes that the op does not care about are small and uneven.
std::vector<OpCase> Cases() {
  const Operand x{{3, 5}};
  std::vector<OpCase> cases = {
      {Op::kIota, {}, {{"shape", Shape{4, 3}}, {"axis", int64_t{0}}}},
      {Op::kRandomBits, {{{}, 0, {7}, {DType::kU64}}}, {{"shape", Shape{3, 5}}}},
      {Op::kSelect, {{{3, 5}, 0, {}, {DType::kBool}}, x, x}},
      {Op::kIndexMap, {{{3, 6}}}, {{"map", IndexMap{{6, 2}, {Expr::Axis(1) + 1, Expr::Axis(0)}}}}},
      {Op::kIndexMap, {{{3, 6}}}, {{"map", Window()}}},  // gets its fill below
      {Op::kIndexMap, {{{0, 6}}}, {{"map", Window()}}},
      {Op::kGather, {{{4, 3, 5}}, {{2, 3}, 3}}, {{"axis", int64_t{1}}}},
      {Op::kSumReduce, {{{3, 2, 5}}}, {{"axes", std::vector<int64_t>{0, 2}}}},
      {Op::kSumReduce, {{{3, 0}}}, {{"axes", std::vector<int64_t>{1}}}},
      {Op::kSumReduce, {{{3, 2}}}, {{"axes", std::vector<int64_t>{}}}},
      {Op::kMaxReduce, {{{3, 2, 5}}}, {{"axes", std::vector<int64_t>{1}}}},
      {Op::kMaxReduce, {{{3, 0}}}, {{"axes", std::vector<int64_t>{1}}}},
      {Op::kMulReduce, {{{3, 2, 5}}}, {{"axes", std::vector<int64_t>{0, 2}}}},
      {Op::kMulReduce, {{{3, 0}}}, {{"axes", std::vector<int64_t>{1}}}},
      {Op::kContract, {{{2, 3, 4}}, {{2, 4, 5}}}, {{"spec", std::string("bmk,bkn->bnm")}}},
      {Op::kContract, {{{2, 3}}, {{4, 3, 5}}}, {{"spec", std::string("ak,bkc->bc")}}},
      {Op::kContract, {{{2, 0}}, {{0, 3}}}, {{"spec", std::string("mk,kn->mn")}}},
      {Op::kConv, {{{2, 4, 5, 3}}, {{6, 2, 2, 3}}}, Windowed({2, 1}, {1, 2}, {1, -1}, {3, 4}, 2)},
      {Op::kConv, {{{2, 3, 5}}, {{3, 1, 2}}}, Windowed({1}, {1}, {9}, {3}, 3)},
      {Op::kConv, {{{2, 3, 0}}, {{2, 3, 2}}}, Windowed({1}, {1}, {1}, {2}, 1)},
      {Op::kConv, {{{2, 0, 3}}, {{2, 0, 2}}}, Windowed({1}, {1}, {0}, {2}, 1)},
      {Op::kSoftmax, {{{3, 4, 2}}}, {{"axis", int64_t{1}}}},
      {Op::kLayerNorm, {{{2, 3, 5}}, {{5}}, {{5}}}, {{"epsilon", 1e-5}}},
      {Op::kRmsNorm, {{{4, 5}}, {{5}}}, {{"epsilon", 1e-5}}},
      {Op::kSort, {{{3, 4, 2}}}, {{"axis", int64_t{1}}, {"descending", true}}},
      {Op::kTopK, {{{3, 5, 2}}}, {{"axis", int64_t{1}}, {"k", Shape{3}}}},
      {Op::kTopK, {{{3, 5}}}, {{"axis", int64_t{0}}, {"k", Shape{2}}, {"largest", false}}},
      {Op::kTopK, {{{3, 5}}}, {{"axis", int64_t{1}}, {"k", Shape{0}}}},
      {Op::kRotary, {{{2, 3, 7}}, {{3, 2}}, {{3, 2}}}},
      {Op::kRotary, {{{2, 3, 6}}, {{1, 3, 3}}, {{1, 3, 3}}}, {{"interleaved", true}}},
      {Op::kRotary, {{{2, 3, 4}}, {{2, 3, 1}}, {{2, 3, 1}}}},
      {Op::kRotary, {{{3, 4}}, {{3, 0}}, {{3, 0}}}},
      {Op::kScan, {{{3}}, {{4, 3}}}},
      {Op::kDequantize, {{{3, 5}}, {{}, 0, {0.5}, {DType::kF32}}}, {{"dtype", DType::kF32}}},
      {Op::kDequantize,
       {{{3, 5}, 0, {}, {DType::kU8}}, {{3}}, {{3}, 0, {}, {DType::kU8}}},
       {{"dtype", DType::kF16}}},
      {Op::kDequantize,
       {{{3, 4}, 0, {}, {DType::kI8}}, {{3, 3}}, {{3, 3}, 0, {}, {DType::kI8}}},
       {{"dtype", DType::kF32},
        {"bits", int64_t{4}},
        {"axis", int64_t{1}},
        {"block", int64_t{3}},
        {"size", Shape{7}}}},
      {Op::kDequantize,
       {{{3, 4}, 0, {}, {DType::kU8}}, {{2, 15}}},
       {{"dtype", DType::kF64}, {"bits", int64_t{2}}, {"block", int64_t{2}}, {"size", Shape{15}}}},
      {Op::kDequantize, {{{}, 0, {}, {DType::kI16}}, {{}}}, {{"dtype", DType::kF32}}},
      {Op::kCumulate, {{{3, 4, 2}}}, {{"axis", int64_t{1}}, {"op", std::string("add")}}},
      {Op::kCumulate,
       {{{3, 4}}},
       {{"axis", int64_t{0}}, {"op", std::string("mul")}, {"exclusive", true}, {"reverse", true}}},
      {Op::kGelu, {x}, {{"approximate", std::string("tanh")}}},
      {Op::kEmbeddingBag,
       {{{6, 3}}, {{7}, 6}, {{4}, 0, {0, 2, 2, 5}, {DType::kI64}}},
       {{"mode", std::string("mean")}}},
      {Op::kEmbeddingBag,
       {{{6, 3}}, {{7}, 6}, {{2}, 0, {0, 4}, {DType::kI64}}},
       {{"mode", std::string("max")}}},
      {Op::kEmbeddingBag,
       {{{6, 3}}, {{0}, 6}, {{2}, 0, {0, 0}, {DType::kI64}}},
       {{"mode", std::string("sum")}}},
  };
  for (const char* mode : {"set", "add", "mul", "max", "min"}) {
    cases.push_back({Op::kScatter,
                     {{{2, 4, 3}}, {{5}, 4}, {{2, 5, 3}}},
                     {{"axis", int64_t{1}}, {"mode", std::string(mode)}}});
  }
  for (const char* mode : {"max", "sum", "mean"}) {
    cases.push_back({Op::kPool, {{{2, 3, 5, 4}}}, Pooled(mode, {2, 2}, {1, 2})});
    cases.push_back({Op::kPool, {{{2, 3, 5, 4}}}, Pooled(mode, {1, 3}, {0, 0})});
    cases.push_back({Op::kPool, {{{2, 3, 5, 4}}}, Pooled(mode, {2, 1}, {9, -9})});  // all outside
    cases.push_back({Op::kPool, {{{2, 3, 0, 4}}}, Pooled(mode, {2, 2}, {0, 0})});
  }
  cases.push_back({Op::kPool, {{{2, 3, 5, 4}}}, Pooled("mean", {2, 3}, {1, 2}, {6, 9})});
  cases.push_back({Op::kPool, {{{2, 3, 5, 4}}}, Pooled("mean", {2, 3}, {1, 2}, {2, -1})});
  for (bool causal : {false, true}) {
    const Operand q{{2, 3, 4}}, k{{2, 5, 4}}, v{{2, 5, 3}};
    const Attrs attrs = {{"causal", causal}};
    cases.push_back({Op::kAttention, {q, k, v}, attrs});
    cases.push_back({Op::kAttention, {q, k, v, {{3, 5}}}, attrs});
    cases.push_back({Op::kAttention, {q, k, v, {{1, 3, 5}, 0, {}, {DType::kBool}}}, attrs});
    cases.push_back({Op::kAttention, {q, {{2, 1, 4}}, {{2, 1, 3}}}, attrs});
    cases.push_back({Op::kAttention, {q, {{2, 0, 4}}, {{2, 0, 3}}}, attrs});
  }
  cases.push_back({Op::kAttention, {{{3, 4}}, {{5, 4}}, {{5, 3}}}, {{"scale", 0.25}}});
  cases.push_back({Op::kStateWrite, {{{4, 3, 2}}, {{5}, 4}, {{5, 3, 2}}}});
  cases.push_back({Op::kStateWrite, {{{4, 3}}, {{0}, 4}, {{0, 3}}}});
  const std::vector<Operand> paged = {{{7, 4, 5}}, {{48, 2, 5}}, {{48, 2, 3}},
                                      {{2, 3}, 3}, {{7}, 2},     {{7}, 48}};
  cases.push_back({Op::kPagedAttention, paged, {{"block", int64_t{16}}}});
  std::vector<Operand> sunk = paged;
  sunk.push_back({{4}});
  cases.push_back(
      {Op::kPagedAttention,
       sunk,
       {{"block", int64_t{16}}, {"scale", 0.25}, {"softcap", 3.0}, {"window", int64_t{19}}}});
  for (const OpRow& row : OpTable()) {
    const bool activation =
        row.name == "Sigmoid" || row.name == "Gelu" || row.name == "Silu" || row.name == "Relu";
    if ((row.op_class != OpClass::kElementwise && !activation) || row.op == Op::kSelect) continue;
    for (const char* direction : {"left", "right"}) {
      OpCase c{row.op, std::vector<Operand>(row.min_inputs, x)};
      if (row.op == Op::kShift) c.attrs["direction"] = std::string(direction);
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

// A Scan whose state is replaced by each slice, and stacked.
Attrs ScanOf(DType dtype) {
  Graph body;
  GraphBuilder builder(&body);
  builder.Input("step", {DType::kI64, {}}).value();
  const NodeId h = builder.Input("h", {dtype, {3}}).value();
  builder.Output("h", builder.Input("x", {dtype, {3}}).value());
  builder.Output("y", h);
  return {{"body", SubGraph(body)},
          {"length", Shape{4}},
          {"result", int64_t{1}},
          {"scanned", int64_t{1}},
          {"states", int64_t{1}}};
}

// Tries the case in one dtype (and for Cast, Bitcast and Iota, to another). Returns false if the op
// does not take the dtype. `moved`: no operand is an input.
bool TryCase(const OpCase& c, DType dtype, DType to, bool moved, std::mt19937& rng) {
  Graph graph;
  GraphBuilder builder(&graph);
  std::vector<NodeId> ids;
  std::vector<Tensor> inputs;
  Attrs attrs = c.attrs;
  const bool typed = c.op == Op::kCast || c.op == Op::kBitcast || c.op == Op::kIota;
  if (typed) attrs["dtype"] = to;
  if (c.op == Op::kScan) attrs = ScanOf(dtype);
  if (c.op == Op::kIndexMap && c.attrs.size() == 1 &&
      GetAttr<IndexMap>(c.attrs, "map").coordinates == Window().coordinates) {
    attrs["fill"] = Random(dtype, {}, rng);
  }
  for (const Operand& operand : c.operands) {
    const DType own = operand.dtype.empty() ? dtype : operand.dtype[0];
    Tensor t = !operand.given.empty() ? Of(own, operand.shape, operand.given)
               : operand.index_limit > 0
                   ? Indices(DType::kI32, operand.shape, operand.index_limit, rng)
                   : Random(own, operand.shape, rng);
    const std::string name = absl::StrCat("x", ids.size());
    NodeId id = builder.Input(name, {t.dtype, Shape(t.shape.begin(), t.shape.end())}).value();
    if (moved) {
      IndexMap same{Shape(t.shape.begin(), t.shape.end()), {}};
      for (size_t i = 0; i < t.shape.size(); ++i) same.coordinates.push_back(Expr::Axis(i));
      id = builder.Add(Op::kIndexMap, {id}, {{"map", same}}).value();
    }
    ids.push_back(id);
    inputs.push_back(std::move(t));
  }
  const absl::StatusOr<NodeId> y = builder.Add(c.op, ids, attrs);
  if (!y.ok()) return false;
  builder.Output("y", *y);
  ExpectSame(graph, inputs, {}, rng);
  return true;
}

TEST(EvaluateAtTest, EveryOpInEveryDType) {
  std::mt19937 rng(1);
  std::map<Op, std::set<DType>> seen;
  for (const OpCase& c : Cases()) {
    int accepted = 0;
    for (const DTypeRow& from : kDTypes) {
      for (const DTypeRow& to : kDTypes) {
        const bool typed = c.op == Op::kCast || c.op == Op::kBitcast || c.op == Op::kIota;
        if (!typed && to.dtype != from.dtype) continue;
        for (bool moved : {false, true}) {
          if (!TryCase(c, from.dtype, to.dtype, moved, rng)) continue;
          ++accepted;
          seen[c.op].insert(from.dtype);
        }
      }
    }
    EXPECT_GT(accepted, 0) << OpName(c.op);
    ASSERT_FALSE(HasFailure()) << OpName(c.op);
  }
  for (const OpRow& row : OpTable()) {
    const bool leaf = IsDeclared(row.op) || IsConstant(row.op);
    EXPECT_TRUE(leaf || seen.contains(row.op)) << row.name;
  }
  EXPECT_GE(seen[Op::kGather].size(), 15u);  // among the ops that take any dtype
}

// A graph of f32[rows, columns] and index nodes; ops and operands are picked at random.
class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : rng_(seed), builder_(Start(&graph_)) {
    for (const char* name : {"x", "z"}) {
      values_.push_back(builder_.Input(name, {DType::kF32, Sizes()}).value());
    }
    values_.push_back(builder_.Input("w", {DType::kF32, Sizes()}).value());
    for (int i = 0; i < 12; ++i) values_.push_back(Next());
    for (int i = 0; i < 2; ++i) {
      builder_.Output(absl::StrCat("y", i), values_[values_.size() - 1 - i]);
    }
  }

  void Check() {
    const int64_t rows = 1 + rng_() % 5, columns = 1 + rng_() % 5;
    std::vector<Tensor> inputs;
    for (int i = 0; i < 3; ++i) inputs.push_back(Random(DType::kF32, {rows, columns}, rng_));
    ExpectSame(graph_, inputs, {{"r", rows}, {"c", columns}}, rng_);
  }

 private:
  static Graph* Start(Graph* graph) {
    graph->dims = {{"r", 1, 5}, {"c", 1, 5}};
    return graph;
  }
  static Shape Sizes() { return {Expr::Symbol("r"), Expr::Symbol("c")}; }
  NodeId Any() { return values_[rng_() % values_.size()]; }
  NodeId Add(Op op, std::vector<NodeId> inputs, Attrs attrs = {}) {
    return builder_.Add(op, std::move(inputs), std::move(attrs)).value();
  }
  NodeId Spread(NodeId vector, int axis) {
    return Add(Op::kIndexMap, {vector}, {{"map", IndexMap{Sizes(), {Expr::Axis(axis)}}}});
  }
  // Row numbers from a rounded value: |x| truncated, modulo the number of rows.
  NodeId Rows() {
    const NodeId index = Add(Op::kCast, {Add(Op::kExp, {Any()})}, {{"dtype", DType::kI32}});
    const NodeId by_row = Add(Op::kMaxReduce, {index}, {{"axes", std::vector<int64_t>{1}}});
    const NodeId numbers =
        Add(Op::kIota, {},
            {{"shape", Shape{Sizes()[0]}}, {"axis", int64_t{0}}, {"dtype", DType::kI32}});
    const NodeId last =
        Spread1(Add(Op::kMaxReduce, {numbers}, {{"axes", std::vector<int64_t>{0}}}));
    return Add(Op::kMin, {by_row, last});
  }
  NodeId Spread1(NodeId scalar) {
    return Add(Op::kIndexMap, {scalar}, {{"map", IndexMap{{Sizes()[0]}, {}}}});
  }
  NodeId Next() {
    switch (rng_() % 10) {
      case 0:
        return Add(Op::kAdd, {Any(), Any()});
      case 1:
        return Add(Op::kTanh, {Any()});
      case 2:
        return Add(Op::kSoftmax, {Any()}, {{"axis", static_cast<int64_t>(rng_() % 2)}});
      case 3:
        return Spread(Add(Op::kSumReduce, {Any()}, {{"axes", std::vector<int64_t>{1}}}), 0);
      case 4:
        return Add(
            Op::kContract,
            {Add(Op::kContract, {Any(), Any()}, {{"spec", std::string("ak,bk->ab")}}), Any()},
            {{"spec", std::string("ab,bk->ak")}});
      case 5:
        return Add(Op::kGather, {Any(), Rows()}, {{"axis", int64_t{0}}});
      case 6:
        return Add(Op::kScatter, {Any(), Rows(), Any()},
                   {{"axis", int64_t{0}}, {"mode", std::string("add")}});
      case 7:
        return Add(Op::kIndexMap, {Any()},
                   {{"map", IndexMap{Sizes(), {Expr::Axis(0) - 1, Expr::Axis(1)}}},
                    {"fill", Of(DType::kF32, {}, {-7})}});
      case 8:
        return Add(Op::kSelect, {Add(Op::kLessThan, {Any(), Any()}), Any(), Any()});
      default:
        return Add(Op::kAttention, {Any(), Any(), Any()}, {{"causal", true}});
    }
  }

  std::mt19937 rng_;
  Graph graph_;
  GraphBuilder builder_;
  std::vector<NodeId> values_;
};

TEST(EvaluateAtTest, RandomGraphs) {
  for (uint32_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph(seed).Check();
  }
}

constexpr char kTable[] = R"(graph "g" { dim n in [1, 9] %0 = Input "ids" : i64[n]
  %1 = Parameter "t" : f32[30, 8] %2 = Gather(%1, %0) {axis=0} %3 = SumReduce(%2) {axes=[1]}
  output "y" = %3 output "e" = %2 })";

std::vector<Tensor> TableInputs(double id) {
  std::mt19937 rng(2);
  return {Of(DType::kI64, {2}, {3, id}), Random(DType::kF32, {30, 8}, rng)};
}

TEST(EvaluateAtTest, WorkIsCountedAndBounded) {
  const Graph graph = ParseGraph(kTable).value();
  const Expr::Env dims = {{"n", 2}};
  const std::vector<Tensor> inputs = TableInputs(29);
  const auto part = CutElements(graph, dims, {{1}, {}}, BytesOf(inputs), kNoLimit);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_GE(part->visited, 9);
  EXPECT_LE(part->visited, 40);
  EXPECT_TRUE(CutElements(graph, dims, {{1}, {}}, BytesOf(inputs), part->visited).ok());
  const auto less = CutElements(graph, dims, {{1}, {}}, BytesOf(inputs), part->visited - 1);
  EXPECT_EQ(less.status().code(), absl::StatusCode::kResourceExhausted) << less.status();
  EXPECT_NE(std::string(less.status().message()).find(absl::StrCat(part->visited - 1)),
            std::string::npos);
}

// A tensor of 10^11 elements, too large for any memory: only the needed elements are touched.
TEST(EvaluateAtTest, SizesBeyondMemory) {
  const Graph graph = ParseGraph(R"(graph "g" { dim n in [1, 100000]
    %0 = Iota {shape=shape[n, 1000000], axis=0, dtype=i64} %1 = Iota {shape=shape[n, 1000000],
    axis=1, dtype=i64} %2 = Mul(%0, %1) %3 = SumReduce(%2) {axes=[0, 1]} output "y" = %2
    output "s" = %3 })")
                          .value();
  const Expr::Env dims = {{"n", 100'000}};
  const auto values = EvaluateAt(graph, dims, {{99'999'999'999, 3'000'005}, {}}, {}, 100);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0].data<int64_t>()[0], int64_t{99'999} * 999'999);
  EXPECT_EQ((*values)[0].data<int64_t>()[1], 15);
  EXPECT_EQ(EvaluateAt(graph, dims, {{}, {0}}, {}, 1'000'000).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// Blocks are as large as an upload says, but a sample takes no more than the keys that it reads.
TEST(EvaluateAtTest, SizesOfBlocksCostNothing) {
  for (const bool sunk : {false, true}) {
    Graph graph;
    GraphBuilder builder(&graph);
    constexpr int64_t kBlock = 1 << 16;
    const auto input = [&](const char* name, DType dtype, Shape shape) {
      return builder.Input(name, {dtype, std::move(shape)}).value();
    };
    std::vector<NodeId> ids = {
        input("q", DType::kF32, {2, 1, 4}),      input("k", DType::kF32, {kBlock, 1, 4}),
        input("v", DType::kF32, {kBlock, 1, 4}), input("table", DType::kI32, {1, 1}),
        input("sequence", DType::kI32, {2}),     input("position", DType::kI32, {2})};
    if (sunk) ids.push_back(input("sink", DType::kF32, {1}));
    builder.Output(
        "y", builder.Add(Op::kPagedAttention, ids, {{"block", kBlock}, {"window", int64_t{17}}})
                 .value());
    std::mt19937 rng(8);
    std::vector<Tensor> inputs = {Random(DType::kF32, {2, 1, 4}, rng),
                                  Random(DType::kF32, {kBlock, 1, 4}, rng),
                                  Random(DType::kF32, {kBlock, 1, 4}, rng),
                                  Of(DType::kI32, {1, 1}, {0}),
                                  Of(DType::kI32, {2}, {0, 0}),
                                  Of(DType::kI32, {2}, {3, kBlock - 1})};
    if (sunk) inputs.push_back(Random(DType::kF32, {1}, rng));
    const std::vector<Positions> some = {{1, 7}};
    const auto part = CutElements(graph, {}, some, BytesOf(inputs), kNoLimit);
    ASSERT_TRUE(part.ok()) << part.status();
    int64_t elements = 0;
    for (const Tensor& t : part->inputs) elements += t.elements();
    for (const Node& node : part->graph.nodes) {
      int64_t size = 1;
      for (const Expr& e : node.type.shape) size *= e.constant().value();
      elements += size;
    }
    EXPECT_LE(elements, 20'000);
    EXPECT_LE(part->visited, 20'000);
    const auto values = EvaluateAt(graph, {}, some, BytesOf(inputs), kNoLimit);
    const auto whole = Evaluate(graph, inputs);
    ASSERT_TRUE(values.ok() && whole.ok()) << values.status() << whole.status();
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ((*values)[0].data<float>()[i], (*whole)[0].data<float>()[some[0][i]]);
    }
  }
}

// A sequence that is short among long ones is filled up, which is paid for.
TEST(EvaluateAtTest, FilledSequencesAreCounted) {
  Graph graph;
  GraphBuilder builder(&graph);
  const auto input = [&](const char* name, DType dtype, Shape shape) {
    return builder.Input(name, {dtype, std::move(shape)}).value();
  };
  const std::vector<NodeId> ids = {
      input("q", DType::kF32, {9, 1, 8}),    input("k", DType::kF32, {1024, 1, 8}),
      input("v", DType::kF32, {1024, 1, 8}), input("table", DType::kI32, {1, 64}),
      input("sequence", DType::kI32, {9}),   input("position", DType::kI32, {9})};
  builder.Output("y", builder.Add(Op::kPagedAttention, ids, {{"block", int64_t{16}}}).value());
  std::mt19937 rng(8);
  std::vector<double> table(64);
  std::iota(table.begin(), table.end(), 0);
  const std::vector<Tensor> inputs = {Random(DType::kF32, {9, 1, 8}, rng),
                                      Random(DType::kF32, {1024, 1, 8}, rng),
                                      Random(DType::kF32, {1024, 1, 8}, rng),
                                      Of(DType::kI32, {1, 64}, table),
                                      Of(DType::kI32, {9}, {0, 0, 0, 0, 0, 0, 0, 0, 0}),
                                      Of(DType::kI32, {9}, {1023, 0, 0, 0, 0, 0, 0, 0, 0})};
  Positions rows(9);
  for (int i = 0; i < 9; ++i) rows[i] = i * 8;
  const auto part = CutElements(graph, {}, {rows}, BytesOf(inputs), kNoLimit);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_GE(part->visited, 9 * 1024 * (8 + 2));
}

TEST(EvaluateAtTest, Errors) {
  const Graph graph = ParseGraph(kTable).value();
  const Expr::Env dims = {{"n", 2}};
  const std::vector<Tensor> outside = TableInputs(30), inside = TableInputs(0);
  const auto at = [&](const std::vector<Tensor>& inputs, std::vector<Positions> positions) {
    return EvaluateAt(graph, dims, positions, BytesOf(inputs), kNoLimit).status();
  };
  EXPECT_EQ(at(outside, {{1}, {}}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(at(outside, {{0}, {}}).ok());  // does not look at the wrong index
  EXPECT_TRUE(at(inside, {{1}, {15}}).ok());
  EXPECT_EQ(at(inside, {{2}, {}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(at(inside, {{-1}, {}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(at(inside, {{0}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(at({inside[0]}, {{0}, {}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(at({inside[0], inside[0]}, {{0}, {}}).code(), absl::StatusCode::kInvalidArgument);
  Graph pinned = graph;
  pinned.nodes[0].attrs["value"] = inside[0];
  EXPECT_TRUE(EvaluateAt(pinned, dims, {{1}, {}}, BytesOf(inside), kNoLimit).ok());
  EXPECT_EQ(EvaluateAt(pinned, dims, {{1}, {}}, BytesOf(TableInputs(1)), kNoLimit).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(EvaluateAt(graph, {}, {{0}, {}}, BytesOf(inside), kNoLimit).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace athanor
