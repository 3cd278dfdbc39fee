// Tests that plans of all boxes of a decoder have one signature, and that it tells orders apart.
#include "compiler/search/kernels/signature.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/frontend/checkpoint/import_testing.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/pipeline/prepare.h"
#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/space.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Target TargetOf(int vector_bytes) {
  v1::Target t;
  t.set_device("cpu");
  t.set_vector_bytes(vector_bytes);
  t.set_vector_registers(vector_bytes == 64 ? 32 : 16);
  t.set_l1_bytes(32 << 10);
  t.set_l2_bytes(1 << 20);
  t.set_threads(2);
  return t;
}

// A decoder of one layer, whose rows have these bounds and whose hidden width is `hidden`.
std::string Decoder(const std::string& rows, int width = 576, int hidden = 1536) {
  return absl::StrReplaceAll(
      R"(graph "decoder" {
  dim T in @rows dim R in [0, 512] dim S in [1, 64] dim B in [1, 512] dim N in [1, 40000]
  %0 = Input "ids" : i32[T]
  %1 = Input "sequence" : i32[T]
  %2 = Input "position" : i32[T]
  %3 = Input "table" : i32[S, B]
  %4 = Input "wanted" : i32[R]
  %5 = Parameter "embedding" : f32[5000, @w]
  %6 = Parameter "gain" : f32[@w]
  %7 = Parameter "wq" : f32[9, 64, @w]
  %8 = Parameter "wk" : f32[3, 64, @w]
  %9 = Parameter "wo" : f32[9, 64, @w]
  %40 = Parameter "wg" : f32[@h, @w]
  %41 = Parameter "wu" : f32[@h, @w]
  %42 = Parameter "wd" : f32[@w, @h]
  %10 = StateRead "k" {role="keys"} : f32[16*N, 3, 64]
  %11 = StateRead "v" {role="values"} : f32[16*N, 3, 64]
  %12 = Gather(%5, %0) {axis=0}
  %13 = RmsNorm(%12, %6) {epsilon=1e-5}
  %14 = Contract(%13, %7) {spec="tk,hdk->thd"}
  %15 = Contract(%13, %8) {spec="tk,hdk->thd"}
  %16 = Constant {value=i32[] {16}}
  %17 = IndexMap(%16) {map=map[T]()}
  %18 = FloorDiv(%2, %17)
  %19 = Iota {axis=1, dtype=i32, shape=shape[T, B]}
  %20 = IndexMap(%18) {map=map[T, B]($0)}
  %21 = LessThan(%19, %20)
  %22 = LessThan(%20, %19)
  %23 = Or(%21, %22)
  %24 = Gather(%3, %1) {axis=0}
  %25 = Constant {value=i32[] {0}}
  %26 = IndexMap(%25) {map=map[T, B]()}
  %27 = Select(%23, %26, %24)
  %28 = SumReduce(%27) {axes=[1]}
  %29 = Mul(%28, %17)
  %30 = Mod(%2, %17)
  %31 = Add(%29, %30)
  %32 = StateWrite(%10, %31, %15)
  %33 = StateWrite(%11, %31, %15)
  %34 = PagedAttention(%14, %32, %33, %3, %1, %2) {block=16}
  %35 = Contract(%34, %9) {spec="thd,hdk->tk"}
  %36 = Add(%12, %35)
  %43 = RmsNorm(%36, %6) {epsilon=1e-5}
  %44 = Contract(%43, %40) {spec="tk,hk->th"}
  %45 = Contract(%43, %41) {spec="tk,hk->th"}
  %46 = Silu(%44)
  %47 = Mul(%46, %45)
  %48 = Contract(%47, %42) {spec="th,kh->tk"}
  %49 = Add(%36, %48)
  %37 = Gather(%49, %4) {axis=0}
  %38 = RmsNorm(%37, %6) {epsilon=1e-5}
  %39 = Contract(%38, %5) {spec="rk,vk->rv"}
  output "logits" = %39
  update %32
  update %33
})",
      {{"@rows", rows}, {"@w", absl::StrCat(width)}, {"@h", absl::StrCat(hidden)}});
}

constexpr const char* kBoxes[] = {"[1, 512]", "[1, 1]",   "[2, 4]",
                                  "[5, 16]",  "[17, 64]", "[65, 512]"};

std::string Narrowed(std::string text, const std::string& rows) {
  // R and S end with T.
  const std::string end = rows.substr(rows.find(' ') + 1);
  if (rows == "[1, 512]" || rows == "[65, 512]") return text;
  return absl::StrReplaceAll(
      text, {{"R in [0, 512]", "R in [0, " + end}, {"S in [1, 64]", "S in [1, " + end}});
}

TEST(SignatureTest, AllBoxesOfADecoderHaveOne) {
  for (int vector_bytes : {64, 32}) {
    for (const auto& [width, hidden] : std::vector<std::pair<int, int>>{{576, 1536}, {40, 100}}) {
      std::set<std::string> found;
      for (const char* rows : kBoxes) {
        const Graph graph = ParseGraph(Narrowed(Decoder(rows, width, hidden), rows)).value();
        const absl::StatusOr<v1::Plan> plan = BuildBaselinePlan(graph, TargetOf(vector_bytes));
        ASSERT_TRUE(plan.ok()) << plan.status();
        EXPECT_EQ(plan->signature().size(), 16u);
        found.insert(plan->signature());
      }
      EXPECT_EQ(found.size(), 1u) << "width " << width << ", vectors of " << vector_bytes;
    }
  }
}

// Holds what an upload of a checkpoint makes.
TEST(SignatureTest, AllBoxesOfAnImportedDecoderHaveOne) {
  for (const char* family : {"llama", "qwen3"}) {
    checkpoint::Checkpoint checkpoint = checkpoint::Checkpoint::Hf(family);
    checkpoint.options.form = checkpoint::DecoderForm::kPaged;
    const auto imported = checkpoint.Import();
    ASSERT_TRUE(imported.ok()) << imported.status();
    for (int vector_bytes : {64, 32, 16}) {
      std::set<std::string> found;
      for (const auto& [least, most] : std::vector<std::pair<int, int>>{
               {1, 512}, {1, 1}, {2, 4}, {5, 16}, {17, 64}, {65, 512}}) {
        Graph graph = imported->graph;
        for (Dim& dim : graph.dims) {
          if (dim.name == "T") dim.min = least;
          if (dim.name == "T" || dim.name == "R" || dim.name == "S") {
            dim.max = std::min<int64_t>(dim.max, most);
          }
        }
        const absl::StatusOr<v1::Plan> plan = BuildBaselinePlan(graph, TargetOf(vector_bytes));
        ASSERT_TRUE(plan.ok()) << plan.status();
        found.insert(plan->signature());
      }
      EXPECT_EQ(found.size(), 1u) << family << ", vectors of " << vector_bytes;
    }
  }
}

TEST(SignatureTest, GraphsWithoutStatesHaveNone) {
  const Graph graph = ParseGraph(R"(graph "g" { dim b in [1, 8] %0 = Input "x" : f32[b, 64]
      %1 = Softmax(%0) {axis=1} output "y" = %1 })")
                          .value();
  EXPECT_EQ(BuildBaselinePlan(graph, TargetOf(64))->signature(), "");
}

struct Chosen {
  Graph graph = Prepare(ParseGraph(Decoder("[1, 4]")).value())->graph;
  Genome genome = ChooseKernels(graph, TargetOf(64), {.rules = {.one_panel = true}});

  std::string Signature(int vector_bytes = 64) const {
    return SignatureOf(graph, genome, TargetOf(vector_bytes));
  }
  // Changes the schedules of the kernels of this kind; returns how many there are.
  template <typename Change>
  int ForKind(KernelKind kind, Change change) {
    int count = 0;
    for (KernelChoice& k : genome.kernels) {
      if (k.kind != kind) continue;
      change(k);
      ++count;
    }
    return count;
  }
};

TEST(SignatureTest, TilesItemsAndPiecesChangeNothing) {
  Chosen other;
  ASSERT_GT(other.ForKind(KernelKind::kContract,
                          [](KernelChoice& k) {
                            auto& s = std::get<PanelSchedule>(k.contract);
                            EXPECT_EQ(s.columns, ColumnAccess::kAhead);
                            s.mr = 3;
                            s.nv = 1;
                            s.rows_per_item = 6;
                            s.panels_per_item = 2;
                            s.kc = 128;
                            s.copy_rows = true;
                          }),
            3);
  other.ForKind(KernelKind::kMap, [](KernelChoice& k) { k.walk.elements = 17; });
  EXPECT_EQ(other.Signature(), Chosen().Signature());
}

TEST(SignatureTest, OrdersOfSumsDiffer) {
  const std::string usual = Chosen().Signature();
  std::set<std::string> all = {usual, Chosen().Signature(32)};
  Chosen unrolled;
  ASSERT_GT(unrolled.ForKind(KernelKind::kRow, [](KernelChoice& k) { k.walk.unroll *= 2; }), 0);
  all.insert(unrolled.Signature());
  Chosen dots;
  dots.ForKind(KernelKind::kContract, [](KernelChoice& k) {
    std::get<PanelSchedule>(k.contract).columns = ColumnAccess::kDots;
  });
  all.insert(dots.Signature());
  Chosen panels;
  panels.ForKind(KernelKind::kContract,
                 [](KernelChoice& k) { std::get<PanelSchedule>(k.contract).panel = 0; });
  all.insert(panels.Signature());
  Chosen library;
  library.ForKind(KernelKind::kContract, [](KernelChoice& k) { k.contract = LibrarySchedule(); });
  all.insert(library.Signature());
  EXPECT_EQ(all.size(), 6u);
}

// Counts, of a wave of the search's schedules of each kernel, those that keep its orders and
// others. Those that do keep the signature; no others do, where it has sums or functions.
void CountSameOrders(const Graph& graph, const Genome& genome, int* same, int* others) {
  const v1::Target target = TargetOf(64);
  const std::vector<bool> memory = MemoryOf(graph, genome);
  const std::vector<bool> weights = WeightsOf(graph);
  for (const KernelChoice& kernel : genome.kernels) {
    if (weights[kernel.root]) continue;
    const KernelTask task = CutTask(graph, memory, weights, kernel);
    const std::string expected = SignatureOf(task.graph, {{task.choice}}, target);
    const std::vector<KernelChoice> all = Schedules(task, target);
    const bool sums =
        !OrdersOf(task.graph, MemoryOf(task.graph, {{task.choice}}), task.choice, target).empty();
    const KernelKind kind = task.choice.kind;
    const SameOrders same_orders(task, target);
    for (size_t i = 0; i < all.size(); i += 1 + all.size() / 40) {
      const std::string signature = SignatureOf(task.graph, {{all[i]}}, target);
      if (same_orders(all[i])) {
        EXPECT_EQ(signature, expected) << ScheduleText(all[i]);
        ++*same;
      } else if (sums && (kind == KernelKind::kContract || kind == KernelKind::kMap)) {
        EXPECT_NE(signature, expected) << ScheduleText(all[i]);
        ++*others;
      }
    }
  }
}

TEST(SignatureTest, SameOrdersAreSameSignatures) {
  const Chosen usual;
  int same = 0, others = 0;
  CountSameOrders(usual.graph, usual.genome, &same, &others);
  EXPECT_GT(same, 10);
  EXPECT_GT(others, 10);
}

// A map's schedule decides whether a short sum of products is one of multiply-adds.
TEST(SignatureTest, AMapOfShortSumsKeepsItsSchedule) {
  for (const bool stored : {false, true}) {
    const Graph graph = ParseGraph(R"(graph "g" { dim t in [1, 64] %0 = Input "x" : f32[t, 100, 4]
        %1 = Mul(%0, %0) %2 = SumReduce(%1) {axes=[2]} %3 = Tanh(%2) output "y" = %3 })")
                            .value();
    const Fusion fusion = {.nodes = {{1, stored ? Fuse::kMemory : Fuse::kInline}}};
    int same = 0, others = 0;
    CountSameOrders(graph, ChooseKernels(graph, TargetOf(64), fusion), &same, &others);
    EXPECT_GT(same, stored ? 10 : 0);
    if (stored) {
      EXPECT_EQ(others, 0);
    } else {
      EXPECT_EQ(same, 1);
      EXPECT_GT(others, 5);
    }
  }
}

// The order of node `node` in a kernel of `root`; what is in `stored` lies in memory.
std::string OrderIn(const std::string& body, NodeId node, NodeId root, KernelKind kind,
                    const std::set<NodeId>& stored) {
  const Graph graph = ParseGraph("graph \"g\" { dim t in [1, 64] " + body + "}").value();
  std::vector<bool> memory;
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    const Op op = graph.node(n).op;
    memory.push_back(op == Op::kInput || IsState(op) || n == root || stored.contains(n));
  }
  const auto orders = OrdersOf(graph, memory, {.root = root, .kind = kind}, TargetOf(64));
  const auto found = orders.find(node);
  return found == orders.end() ? "" : found->second.substr(found->second.rfind(": ") + 2);
}

TEST(SignatureTest, ShortSumsOfProductsThatAreNotStoredDiffer) {
  const auto order = [](int terms, bool stored) {
    const std::string body = absl::StrReplaceAll(
        R"(%0 = Input "x" : f32[t, 100, @] %1 = Mul(%0, %0) %2 = SumReduce(%1) {axes=[2]}
           output "y" = %2 )",
        {{"@", absl::StrCat(terms)}});
    return OrderIn(body, 2, 2, KernelKind::kMap, stored ? std::set<NodeId>{1} : std::set<NodeId>());
  };
  EXPECT_EQ(order(32, true), "lane");
  EXPECT_EQ(order(32, false).substr(0, 19), "lane, of products, ");
  EXPECT_EQ(order(33, false), "lane");
}

// A value that all lanes need is computed by one.
TEST(SignatureTest, FunctionsCountByTheLanesThatHaveTheirOwn) {
  constexpr char kRows[] = R"(%0 = Input "x" : f32[t] %1 = Exp(%0) %2 = Input "z" : f32[t, 64]
      %3 = IndexMap(%1) {map=map[t, 64]($0)} %4 = Mul(%2, %3) %5 = Exp(%4) output "y" = %5 )";
  EXPECT_EQ(OrderIn(kRows, 1, 1, KernelKind::kMap, {}), "lanes 16");
  EXPECT_NE(OrderIn(kRows, 1, 5, KernelKind::kMap, {}), "lanes 16");
  EXPECT_EQ(OrderIn(kRows, 5, 5, KernelKind::kMap, {1}), "lanes 16");
  EXPECT_EQ(OrderIn(kRows, 1, 5, KernelKind::kMap, {1}), "");
}

TEST(SignatureTest, WritesHaveTheLanesOfWhatTheyCompute) {
  const auto order = [](const char* dtype, bool vectors) {
    const std::string body = absl::StrReplaceAll(
        R"(%0 = StateRead "s" : f32[96@] %1 = Input "i" : i32[t] %2 = Input "x" : $[t@]
           %3 = Exp(%2) %4 = Cast(%3) {dtype=f32} %5 = StateWrite(%0, %1, %4)
           output "y" = %1 update %5 )",
        {{"@", vectors ? ", 64" : ""}, {"$", dtype}});
    return OrderIn(body, 3, 5, KernelKind::kStateWrite, {});
  };
  EXPECT_EQ(order("f32", true), "lanes 16");
  EXPECT_EQ(order("f64", true), "lanes 8");
  EXPECT_EQ(order("f32", false), "lanes 1");
}

// Returns the signature of a kernel for each root, whose sums are unrolled as `unrolls` says.
std::string SignatureOfPoints(const Graph& graph, const std::map<NodeId, int>& unrolls) {
  Genome genome;
  for (const auto& [root, unroll] : unrolls) {
    KernelChoice& choice = genome.kernels.emplace_back();
    choice.root = root;
    choice.kind = KernelKind::kPoint;
    choice.walk.unroll = unroll;
  }
  return SignatureOf(graph, genome, TargetOf(64));
}

TEST(SignatureTest, NodesThatAreAlikeDoNotSwapOrders) {
  const Graph graph = ParseGraph(R"(graph "g" { dim t in [1, 64] %0 = Input "x" : f32[t, 100]
      %1 = Input "z" : f32[t, 100] %2 = SumReduce(%0) {axes=[1]} %3 = SumReduce(%1) {axes=[1]}
      output "y" = %2 output "w" = %3 })")
                          .value();
  const auto signature = [&](int first, int second) {
    return SignatureOfPoints(graph, {{2, first}, {3, second}});
  };
  EXPECT_NE(signature(1, 2), signature(2, 1));
  EXPECT_EQ(signature(2, 2), signature(2, 2));
  EXPECT_NE(signature(2, 2), signature(1, 1));
}

TEST(SignatureTest, KernelsThatComputeTheSameNodeDoNotSwapOrders) {
  const Graph graph = ParseGraph(R"(graph "g" { dim t in [1, 64] %0 = Input "x" : f32[t, 100]
      %1 = SumReduce(%0) {axes=[1]} %2 = Input "y" : f32[t] %3 = Input "z" : f32[t]
      %4 = Mul(%1, %2) %5 = Mul(%1, %3) output "y" = %4 output "z" = %5 })")
                          .value();
  const auto signature = [&](int first, int second) {
    return SignatureOfPoints(graph, {{4, first}, {5, second}});
  };
  EXPECT_NE(signature(1, 2), signature(2, 1));
  EXPECT_NE(signature(1, 2), signature(1, 1));
  // How many kernels compute it in one order is all the same.
  EXPECT_EQ(SignatureOf(graph, NodeOrders{{1, {{"a", 4}, {"a", 5}}}}, TargetOf(64)),
            SignatureOf(graph, NodeOrders{{1, {{"a", 4}}}}, TargetOf(64)));
}

TEST(SignatureTest, OrdersBelongToTheirNodes) {
  const Graph graph = ParseGraph(R"(graph "g" { dim t in [1, 64] %0 = Input "x" : f32[t, 100]
      %1 = Input "z" : f32[t, 100] %2 = SumReduce(%0) {axes=[1]} %3 = SumReduce(%1) {axes=[1]}
      output "y" = %2 output "w" = %3 })")
                          .value();
  const v1::Target target = TargetOf(64);
  EXPECT_NE(SignatureOf(graph, NodeOrders{{2, {{"a", 2}, {"b", 2}}}, {3, {{"c", 2}}}}, target),
            SignatureOf(graph, NodeOrders{{2, {{"a", 2}}}, {3, {{"b", 2}, {"c", 2}}}}, target));
  EXPECT_NE(
      SignatureOf(graph, NodeOrders{{2, {{"a", 2}, {"b", 2}, {"c", 2}}}, {3, {{"d", 2}, {"e", 2}}}},
                  target),
      SignatureOf(graph, NodeOrders{{2, {{"a", 2}, {"b", 2}}}, {3, {{"c", 2}, {"d", 2}, {"e", 2}}}},
                  target));
}

}  // namespace
}  // namespace athanor
