// Plans that write and read states, step after step, against the reference evaluator, which is
// given what its own last step left. The states' memory is NaN at first, so whoever reads a slot
// that nothing wrote gives himself away.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "compiler/ir/sample/compare.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

Graph Parsed(const std::string& body) {
  absl::StatusOr<Graph> graph = ParseGraph(absl::StrCat("graph \"g\" {\n", body, "\n}"));
  EXPECT_TRUE(graph.ok()) << graph.status() << "\n" << body;
  if (!graph.ok()) return {};
  EXPECT_TRUE(Verify(*graph).ok()) << Verify(*graph);
  return *std::move(graph);
}

Tensor Indices(std::vector<int64_t> shape, const std::vector<int32_t>& values) {
  return Tensor::Of<int32_t>(DType::kI32, std::move(shape), values);
}

// Runs of one plan beside evaluations of its graph.
class Beside {
 public:
  Beside(const Graph& graph, const std::vector<Tensor>& parameters, int64_t slots,
         absl::StatusOr<Compiled> compiled)
      : graph_(graph), parameters_(parameters), compiled_(std::move(compiled)) {
    EXPECT_TRUE(compiled_.ok()) << compiled_.status() << "\n" << ToText(graph);
    if (!compiled_.ok()) return;
    const absl::Status made = compiled_->MakeStates(slots);
    EXPECT_TRUE(made.ok()) << made;
    states_ = compiled_->States().value();
  }
  bool ok() const { return compiled_.ok() && !states_.empty(); }
  Compiled& compiled() { return *compiled_; }

  // Expects equal outputs, and equal states behind the step.
  void Step(const std::vector<Tensor>& inputs, double bound) {
    std::vector<Tensor> all = inputs;
    all.insert(all.end(), parameters_.begin(), parameters_.end());
    all.insert(all.end(), states_.begin(), states_.end());
    const absl::StatusOr<std::vector<Tensor>> want = Evaluate(graph_, all);
    ASSERT_TRUE(want.ok()) << want.status();
    absl::StatusOr<std::vector<Tensor>> got = compiled_->Run(inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    const std::vector<Tensor> left = compiled_->States().value();
    got->insert(got->end(), left.begin(), left.end());
    ASSERT_EQ(got->size(), want->size());
    for (size_t i = 0; i < want->size(); ++i) {
      const absl::Status same = CompareTensors((*got)[i], (*want)[i], bound, bound);
      EXPECT_TRUE(same.ok()) << "output or state " << i << ": " << same;
    }
    states_.assign(want->end() - static_cast<std::ptrdiff_t>(left.size()), want->end());
  }

 private:
  const Graph& graph_;
  const std::vector<Tensor>& parameters_;
  absl::StatusOr<Compiled> compiled_;
  std::vector<Tensor> states_;
};

// --- A decoder ---

constexpr int64_t kWidth = 24, kHeads = 4, kGroups = 2, kDepth = 20, kValueDepth = 16, kWords = 13;
constexpr int64_t kBlock = 16, kSequences = 2, kBlocks = 3;

// Two heads of queries share one of keys, which turn with their positions; values are narrower.
class DecoderWriter {
 public:
  std::string Write(int layers) {
    body_ = "dim T in [0, 48] dim S in [1, 4] dim B in [1, 4] dim R in [0, 48] dim n in [1, 16]\n";
    const int ids = Node("Input \"ids\" : i32[T]"), sequence = Node("Input \"sequence\" : i32[T]");
    const int position = Node("Input \"position\" : i32[T]");
    const int table = Node("Input \"table\" : i32[S, B]"),
              wanted = Node("Input \"wanted\" : i32[R]");
    const int embedding = Parameter(absl::StrCat("f32[", kWords, ", ", kWidth, "]"));
    const std::string angles = absl::StrCat("f32[64, ", kDepth / 2, "]");
    cos_ = Node("Gather(@0, @1) {axis=0}", {Parameter(angles), position});
    sin_ = Node("Gather(@0, @1) {axis=0}", {Parameter(angles), position});
    const int slots = Slots(sequence, position, table);
    int x = Node("Gather(@0, @1) {axis=0}", {embedding, ids});
    for (int layer = 0; layer < layers; ++layer) {
      const int norm = Norm(x);
      const int q = Rotated(Projected(norm, kHeads, kDepth), kHeads);
      const int k = Rotated(Projected(norm, kGroups, kDepth), kGroups);
      const int keys = Written(layer, "keys", kDepth, slots, k);
      const int values =
          Written(layer, "values", kValueDepth, slots, Projected(norm, kGroups, kValueDepth));
      const int a = Node("PagedAttention(@0, @1, @2, @3, @4, @5) {block=16}",
                         {q, keys, values, table, sequence, position});
      const int out = Parameter(absl::StrCat("f32[", kHeads, ", ", kValueDepth, ", ", kWidth, "]"));
      x = Node("Add(@0, @1)", {x, Node("Contract(@0, @1) {spec=\"thd,hdk->tk\"}", {a, out})});
    }
    const int rows = Norm(Node("Gather(@0, @1) {axis=0}", {x, wanted}));
    const int logits = Node("Contract(@0, @1) {spec=\"rk,vk->rv\"}", {rows, embedding});
    absl::StrAppend(&body_, "output \"logits\" = %", logits, updates_);
    return body_;
  }

 private:
  // `@0`, `@1`, ... in `text` are the given nodes.
  int Node(const std::string& text, const std::vector<int>& nodes = {}) {
    std::vector<std::pair<std::string, std::string>> names;
    for (size_t i = 0; i < nodes.size(); ++i) {
      names.emplace_back(absl::StrCat("@", i), absl::StrCat("%", nodes[i]));
    }
    absl::StrAppend(&body_, "%", next_, " = ", absl::StrReplaceAll(text, names), "\n");
    return next_++;
  }
  int Parameter(const std::string& type) {
    return Node(absl::StrCat("Parameter \"p", next_, "\" : ", type));
  }
  int Norm(int x) {
    return Node("RmsNorm(@0, @1) {epsilon=1e-5}",
                {x, Parameter(absl::StrCat("f32[", kWidth, "]"))});
  }
  int Projected(int x, int64_t heads, int64_t depth) {
    const int w = Parameter(absl::StrCat("f32[", heads, ", ", depth, ", ", kWidth, "]"));
    return Node("Contract(@0, @1) {spec=\"tk,hdk->thd\"}", {x, w});
  }
  int Rotated(int x, int64_t heads) {
    const auto swapped = [&](int of, const std::string& shape) {
      return Node(absl::StrCat("IndexMap(@0) {map=map[", shape, "](", "$1, $0, $2)}"), {of});
    };
    const int heads_first = swapped(x, absl::StrCat(heads, ", T, ", kDepth));
    const int turned = Node("Rotary(@0, @1, @2)", {heads_first, cos_, sin_});
    return swapped(turned, absl::StrCat("T, ", heads, ", ", kDepth));
  }
  int Written(int layer, const std::string& role, int64_t depth, int slots, int update) {
    const int state = Node(absl::StrCat("StateRead \"", role, layer, "\" {role=\"", role,
                                        "\"} : f32[16*n, ", kGroups, ", ", depth, "]"));
    const int write = Node("StateWrite(@0, @1, @2)", {state, slots, update});
    absl::StrAppend(&updates_, "\nupdate %", write);
    return write;
  }
  // table[sequence, position / 16] * 16 + position % 16
  int Slots(int sequence, int position, int table) {
    const int block = Node("IndexMap(@0) {map=map[T]()}", {Node("Constant {value=i32[] {16}}")});
    const int page =
        Node("IndexMap(@0) {map=map[T, B]($0)}", {Node("FloorDiv(@0, @1)", {position, block})});
    const int column = Node("Iota {axis=1, dtype=i32, shape=shape[T, B]}");
    const int other = Node("Or(@0, @1)", {Node("LessThan(@0, @1)", {column, page}),
                                          Node("LessThan(@0, @1)", {page, column})});
    const int none = Node("IndexMap(@0) {map=map[T, B]()}", {Node("Constant {value=i32[] {0}}")});
    const int rows = Node("Gather(@0, @1) {axis=0}", {table, sequence});
    const int chosen =
        Node("SumReduce(@0) {axes=[1]}", {Node("Select(@0, @1, @2)", {other, none, rows})});
    return Node("Add(@0, @1)",
                {Node("Mul(@0, @1)", {chosen, block}), Node("Mod(@0, @1)", {position, block})});
  }

  std::string body_, updates_;
  int next_ = 0, cos_ = 0, sin_ = 0;
};

// Rows of a step: how many of each sequence, by turns as long as both have some; and how many of
// the step's last rows are wanted.
struct Rows {
  int64_t first, second, wanted;
};
// Chunks within a block and beyond, rows of both sequences in one step, decoding, a step without
// logits, and one without rows.
constexpr Rows kSteps[] = {{5, 0, 1},  {7, 3, 2}, {0, 14, 0}, {1, 1, 2},
                           {20, 1, 5}, {0, 0, 0}, {1, 0, 1},  {6, 20, 26}};

// Returns the inputs of the step; `at` are the sequences' lengths, which grow.
std::vector<Tensor> InputsOf(const Rows& rows, int64_t* at, std::mt19937& rng) {
  std::vector<int32_t> ids, sequences, positions, wanted;
  int64_t left[] = {rows.first, rows.second};
  while (left[0] + left[1] > 0) {
    for (int32_t s = 0; s < kSequences; ++s) {
      if (left[s] == 0) continue;
      --left[s];
      ids.push_back(static_cast<int32_t>(rng() % kWords));
      sequences.push_back(s);
      positions.push_back(static_cast<int32_t>(at[s]++));
    }
  }
  const auto t = static_cast<int64_t>(ids.size());
  for (int64_t r = t - rows.wanted; r < t; ++r) wanted.push_back(static_cast<int32_t>(r));
  // Blocks in no order; those behind the sequences' ends are given too.
  const std::vector<int32_t> table = {5, 1, 6, 3, 0, 2};
  return {Indices({t}, ids), Indices({t}, sequences), Indices({t}, positions),
          Indices({kSequences, kBlocks}, table), Indices({rows.wanted}, wanted)};
}

std::vector<Tensor> ParametersOf(const Graph& graph) {
  std::mt19937 rng(7);
  std::vector<Tensor> parameters;
  for (const NodeId p : graph.ParameterIds()) {
    const TensorType& type = graph.node(p).type;
    parameters.push_back(RandomTensor(type.dtype, ConcreteShape(type.shape, {}).value(), rng, 0.5));
  }
  return parameters;
}

void ExpectDecodes(const Graph& graph, const std::vector<Tensor>& parameters,
                   absl::StatusOr<Compiled> compiled) {
  std::mt19937 rng(8);
  Beside beside(graph, parameters, 8 * kBlock, std::move(compiled));
  ASSERT_TRUE(beside.ok());
  int64_t at[] = {0, 0};
  for (const Rows& rows : kSteps) {
    SCOPED_TRACE(absl::StrCat("rows up to ", at[0], " and ", at[1], ", then ", rows.first, " and ",
                              rows.second));
    beside.Step(InputsOf(rows, at, rng), 1e-4);
  }
}

TEST(StatesTest, ADecoderInSteps) {
  const Graph graph = Parsed(DecoderWriter().Write(2));
  const std::vector<Tensor> parameters = ParametersOf(graph);
  for (const v1::Target& target : TestTargets()) {
    SCOPED_TRACE(absl::StrCat(target.device(), ", vectors of ", target.vector_bytes(), " bytes"));
    ExpectDecodes(graph, parameters, Compile(graph, parameters, target));
  }
}

TEST(StatesTest, ADecoderInStepsMadePlain) {
  const Graph graph = Parsed(DecoderWriter().Write(1));
  const std::vector<Tensor> parameters = ParametersOf(graph);
  ExpectDecodes(graph, parameters, CompilePlain(graph, parameters));
}

// Each state is one buffer of the plan, which one step writes.
TEST(StatesTest, ADecodersPlan) {
  const Graph graph = Parsed(DecoderWriter().Write(2));
  const absl::StatusOr<Compiled> compiled = Compile(graph, ParametersOf(graph));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  std::vector<std::string> states;
  for (const v1::Buffer& buffer : compiled->plan().buffers()) {
    if (buffer.kind() == v1::Buffer::STATE) {
      states.push_back(absl::StrCat(buffer.name(), " ", buffer.layout()));
    }
  }
  EXPECT_EQ(states, (std::vector<std::string>{"keys0 keys16", "values0 values16", "keys1 keys16",
                                              "values1 values16"}));
  int writes = 0;
  for (const v1::Step& step : compiled->plan().run()) {
    const v1::Buffer& root = compiled->plan().buffers(static_cast<int>(step.buffers(0)));
    writes += root.kind() == v1::Buffer::STATE ? 1 : 0;
  }
  EXPECT_EQ(writes, 4);
}

// --- Single writes and reads ---

struct Case {
  const char* state;   // shape and attributes of the state
  const char* update;  // shape of the update
  const char* read;    // of the write, %3; `$0` is the dtype
};
constexpr Case kCases[] = {
    {"{role=\"\"} : $0[16*n]", "[t]", "IndexMap(%3) {map=map[16*n](16*n - 1 - $$0)}"},
    {"{role=\"\"} : $0[16*n, 5]", "[t, 5]", "Gather(%3, %1) {axis=0}"},
    {"{role=\"\"} : $0[16*n, 2, 3, 4]", "[t, 2, 3, 4]",
     "IndexMap(%3) {map=map[4, 16*n, 3, 2]($$1, $$3, $$2, $$0)}"},
    {"{role=\"keys\"} : $0[16*n, 3, 20]", "[t, 3, 20]",
     "IndexMap(%3) {map=map[16*n, 3, 20](16*n - 1 - $$0, $$1, $$2)}"},
    {"{role=\"keys\"} : $0[16*n, 2, 1]", "[t, 2, 1]", "Gather(%3, %1) {axis=0}"},
    {"{role=\"keys\"} : $0[16*n, 1, 33]", "[t, 1, 33]",
     "IndexMap(%3) {map=map[33, 16*n]($$1, 0, $$0)}"},
    {"{role=\"values\"} : $0[16*n, 3, 20]", "[t, 3, 20]",
     "IndexMap(%3) {map=map[3, 16*n, 20]($$1, $$0, $$2)}"},
    {"{role=\"values\"} : $0[16*n, 1, 33]", "[t, 1, 33]", "Gather(%3, %1) {axis=0}"},
    {"{role=\"values\"} : $0[16*n, 2, 16]", "[t, 2, 16]",
     "IndexMap(%3) {map=map[16*n, 16, 2]($$0, $$2, $$1)}"},
};

TEST(StatesTest, EveryLayoutAndDType) {
  std::mt19937 rng(3);
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI8}) {
      const std::string name(DTypeName(dtype));
      const Graph graph = Parsed(absl::StrCat(
          "dim t in [0, 40] dim n in [1, 4]\n%0 = Input \"x\" : ", name, c.update,
          "\n%1 = Input \"i\" : i64[t]\n%2 = StateRead \"s\" ", absl::Substitute(c.state, name),
          "\n%3 = StateWrite(%2, %1, %0)\n%4 = ", absl::Substitute(c.read, ""),
          "\noutput \"y\" = %4 update %3"));
      SCOPED_TRACE(ToText(graph));
      for (const v1::Target& target : TestTargets({0, 1})) {
        const std::vector<Tensor> none;
        Beside beside(graph, none, 48, Compile(graph, none, target));
        ASSERT_TRUE(beside.ok());
        for (const int64_t t : {1, 0, 17, 40}) {
          std::vector<int64_t> slots(48);
          for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int64_t>(i);
          std::shuffle(slots.begin(), slots.end(), rng);
          slots.resize(t);
          std::vector<int64_t> shape = {t};
          const Shape& update = graph.node(0).type.shape;
          for (size_t a = 1; a < update.size(); ++a) shape.push_back(*update[a].constant());
          beside.Step(
              {RandomTensor(dtype, shape, rng), Tensor::Of<int64_t>(DType::kI64, {t}, slots)}, 0);
        }
      }
    }
  }
}

// Products and attention walk operands in ways of their own; these read whole states.
TEST(StatesTest, ProductsAndAttentionOfStates) {
  std::mt19937 rng(4);
  for (const char* role : {"keys", "values"}) {
    const Graph graph = Parsed(absl::Substitute(R"(dim t in [1, 40] dim n in [1, 4]
      %0 = Input "x" : f32[t, 2, 24] %1 = Input "i" : i32[t] %2 = Input "q" : f32[t, 24]
      %3 = StateRead "s" {role="$0"} : f32[16*n, 2, 24]
      %4 = StateWrite(%3, %1, %0)
      %5 = Contract(%2, %4) {spec="tk,ngk->tng"}
      %6 = Contract(%2, %4) {spec="tk,ngj->tkngj"}
      %7 = IndexMap(%4) {map=map[2, 16*n, 24]($$1, $$0, $$2)}
      %8 = IndexMap(%0) {map=map[2, t, 24]($$1, $$0, $$2)}
      %9 = Attention(%8, %7, %7)
      %10 = SumReduce(%4) {axes=[0]}
      %11 = Softmax(%4) {axis=2}
      %12 = Contract(%5, %4) {spec="tng,ngk->tgk"}
      output "a" = %5 output "b" = %6 output "c" = %9 output "d" = %10 output "e" = %11
      output "f" = %12 update %4)",
                                                role));
    for (const v1::Target& target : TestTargets()) {
      SCOPED_TRACE(absl::StrCat(role, ", vectors of ", target.vector_bytes(), " bytes"));
      const std::vector<Tensor> none;
      Beside beside(graph, none, 32, Compile(graph, none, target));
      ASSERT_TRUE(beside.ok());
      // The first step writes every slot: sums over NaN would hide what they read.
      for (const int64_t t : {32, 5}) {
        std::vector<int32_t> slots;
        for (int64_t i = 0; i < t; ++i) slots.push_back(static_cast<int32_t>((i * 13) % 32));
        beside.Step({RandomTensor(DType::kF32, {t, 2, 24}, rng), Indices({t}, slots),
                     RandomTensor(DType::kF32, {t, 24}, rng)},
                    1e-4);
      }
    }
  }
}

// A slot outside is an error of the run, and the slots before and behind the state stay as they
// are.
TEST(StatesTest, ASlotOutsideIsAnError) {
  const Graph graph = Parsed(R"(dim t in [1, 8] dim n in [1, 4]
      %0 = Input "x" : f32[t, 1, 4] %1 = Input "i" : i32[t]
      %2 = StateRead "s" {role="keys"} : f32[16*n, 1, 4] %3 = StateWrite(%2, %1, %0)
      %4 = Gather(%3, %1) {axis=0} output "y" = %4 update %3)");
  std::mt19937 rng(5);
  const std::vector<Tensor> none;
  Beside beside(graph, none, 32, Compile(graph, none));
  ASSERT_TRUE(beside.ok());
  beside.Step({RandomTensor(DType::kF32, {2, 1, 4}, rng), Indices({2}, {31, 0})}, 0);
  const std::vector<Tensor> before = beside.compiled().States().value();
  for (const int32_t slot : {32, -1, 1 << 30}) {
    const absl::Status status =
        beside.compiled()
            .Run({RandomTensor(DType::kF32, {1, 1, 4}, rng), Indices({1}, {slot})})
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << slot << ": " << status;
    const std::vector<Tensor> after = beside.compiled().States().value();
    EXPECT_TRUE(CompareTensors(after[0], before[0], 0, 0).ok()) << slot;
  }
  beside.Step({RandomTensor(DType::kF32, {1, 1, 4}, rng), Indices({1}, {16})}, 0);
}

TEST(StatesTest, ALoopOverAStateIsRefusedByName) {
  const Graph graph = Parsed(R"(dim t in [1, 8] dim n in [1, 4]
      %0 = Input "x" : f32[t, 4] %1 = Input "i" : i32[t] %2 = Input "h" : f32[4]
      %3 = StateRead "s" {role=""} : f32[16*n, 4] %4 = StateWrite(%3, %1, %0)
      %5 = Scan(%2, %4) {body=graph "b" {%0 = Input "step" : i64[] %1 = Input "h" : f32[4]
        %2 = Input "x" : f32[4] %3 = Add(%1, %2) : f32[4]
        output "h" = %3}, length=shape[16*n], result=0,
        scanned=1, states=1}
      output "y" = %5 update %4)");
  const absl::Status status = Compile(graph).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_NE(status.message().find("reads the state"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace athanor
