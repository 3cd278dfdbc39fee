#include "server/generate/plan_step_runner.h"

#include <atomic>
#include <map>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/executor/executor_testing.h"
#include "server/plans/bucket_grid.h"

namespace athanor {
namespace {

constexpr int64_t kVocabulary = 3, kSlotBytes = 8;

// Shows the step runner what it needs of a decoder: dims and inputs, not in the order it knows.
Graph DecoderGraph() {
  Graph graph;
  graph.dims = {{"N", 1, 18}, {"R", 0, 8}, {"T", 1, 8}, {"B", 1, 4}, {"S", 1, 4}};
  GraphBuilder b(&graph);
  const auto add = [&](const char* name, Shape shape) {
    return b.Input(name, {DType::kI32, std::move(shape)}).value();
  };
  const Expr t = Expr::Symbol("T");
  add("table", {Expr::Symbol("S"), Expr::Symbol("B")});
  const NodeId wanted = add("wanted", {Expr::Symbol("R")});
  add("position", {t});
  add("ids", {t});
  add("sequence", {t});
  b.Output("logits", wanted);
  return graph;
}

struct Call {
  std::vector<int64_t> dims;
  std::map<std::string, std::vector<int32_t>> inputs;
};

// The logits of row r are 10 * its token + 0, 1, 2.
class FakeRunner final : public PlanRunner {
 public:
  struct Context final : RunContext {
    explicit Context(std::atomic<int>* alive) : alive(*alive) { ++this->alive; }
    ~Context() override { --alive; }
    std::atomic<int>& alive;
  };

  absl::StatusOr<std::unique_ptr<RunContext>> NewContext() override {
    return absl::FailedPreconditionError("has states");
  }
  absl::StatusOr<std::unique_ptr<StateMemory>> NewStates(int64_t slots, int64_t block,
                                                         StateMemory::Order order) override {
    if (!refusal.ok()) return refusal;
    return StateMemory::Create(device_.get(), nullptr, specs, slots, block, order);
  }
  absl::StatusOr<std::unique_ptr<RunContext>> NewContextOver(const StateMemory& states) override {
    over = &states;
    return std::make_unique<Context>(&contexts);
  }
  absl::Status Run(RunContext&, absl::Span<const int64_t> dims,
                   absl::Span<const std::string_view> inputs, absl::Span<const RunOutput> outputs,
                   const RunLimits&) override {
    if (!error.ok()) return error;
    Call& call = calls.emplace_back();
    call.dims.assign(dims.begin(), dims.end());
    const Graph graph = DecoderGraph();
    const std::vector<NodeId> ids = graph.InputIds();
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto* data = reinterpret_cast<const int32_t*>(inputs[i].data());
      call.inputs[graph.node(ids[i]).name] = {data, data + inputs[i].size() / sizeof(int32_t)};
    }
    auto* logits = static_cast<float*>(outputs[0].data);
    const std::vector<int32_t>& wanted = call.inputs["wanted"];
    EXPECT_EQ(outputs[0].bytes, static_cast<int64_t>(wanted.size() * kVocabulary * sizeof(float)));
    for (int32_t row : wanted) {
      for (int i = 0; i < kVocabulary; ++i) *logits++ = 10 * call.inputs["ids"][row] + i;
    }
    return absl::OkStatus();
  }
  int64_t prepared_bytes() const override { return 0; }
  int64_t arena_bytes() const override { return 0; }
  int64_t EstimateMicroseconds(absl::Span<const int64_t>) const override { return 1; }

  std::vector<StateMemory::Spec> specs = {{"keys.0", "keys16", kSlotBytes}};
  absl::Status refusal, error;
  std::atomic<int> contexts{0};  // that live
  const StateMemory* over = nullptr;
  std::vector<Call> calls;

 private:
  const std::unique_ptr<FunctionDevice> device_ = FunctionDevice::Make(1);
};

std::shared_ptr<const ServedPlan> PlanOf(const std::string& id,
                                         std::shared_ptr<FakeRunner> runner) {
  auto compiled = std::make_shared<CompiledPlan>();
  compiled->plan.set_plan_id(id);
  compiled->plan.set_signature("by " + id);
  auto plan = std::make_shared<ServedPlan>();
  plan->compiled = std::move(compiled);
  plan->runner = std::move(runner);
  return plan;
}

class PlanStepRunnerTest : public testing::Test {
 protected:
  absl::StatusOr<std::vector<float>> Run(const Step& step,
                                         const std::vector<std::vector<int32_t>>& tables) {
    const std::vector<absl::Span<const int32_t>> spans(tables.begin(), tables.end());
    const absl::StatusOr<absl::Span<const float>> logits = runner_.Run(step, spans);
    if (!logits.ok()) return logits.status();
    return std::vector<float>(logits->begin(), logits->end());
  }
  // A step of one row.
  absl::Status RunOne() { return Run({{{0, 0, 1, true}}, {7}}, {{1}}).status(); }

  const Graph graph_ = DecoderGraph();
  std::shared_ptr<FakeRunner> fake_ = std::make_shared<FakeRunner>();
  Plans plans_;
  PlanStepRunner runner_{
      &plans_, graph_, {.block = 16, .blocks = 5, .table_blocks = 3, .vocabulary = kVocabulary}};
};

TEST_F(PlanStepRunnerTest, SignatureIsOfThePlanThatWillRun) {
  EXPECT_EQ(runner_.signature(), "");
  plans_.Publish(PlanOf("p", fake_));
  EXPECT_EQ(runner_.signature(), "by p/0");
  plans_.Publish(PlanOf("q", fake_));
  EXPECT_EQ(runner_.signature(), "by q/0");
  // Weights that were damaged gave wrong keys and values, whatever computes those of now.
  auto healed = std::make_shared<ServedPlan>(*PlanOf("q", fake_));
  healed->withdrawals = 1;
  plans_.Publish(healed);
  EXPECT_EQ(runner_.signature(), "by q/1");
  plans_.Withdraw(absl::DataLossError("damaged"));
  EXPECT_EQ(runner_.signature(), "by q/1") << "of the last one, while there is none";
}

TEST_F(PlanStepRunnerTest, FillsInputsAndSizes) {
  plans_.Publish(PlanOf("p", fake_));
  EXPECT_EQ(runner_.plan_id(), "");
  const Step step = {{{0, 17, 5, true}, {1, 0, 6, false}, {1, 1, 7, false}, {1, 2, 8, true}},
                     {40, 41}};
  EXPECT_EQ(*Run(step, {{4, 2}, {3}}), (std::vector<float>{50, 51, 52, 80, 81, 82}));
  EXPECT_EQ(runner_.plan_id(), "p");
  ASSERT_EQ(fake_->calls.size(), 1);
  Call& call = fake_->calls[0];
  EXPECT_EQ(call.dims, (std::vector<int64_t>{5, 2, 4, 2, 2}));
  EXPECT_EQ(call.inputs["ids"], (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(call.inputs["sequence"], (std::vector<int32_t>{0, 1, 1, 1}));
  EXPECT_EQ(call.inputs["position"], (std::vector<int32_t>{17, 0, 1, 2}));
  EXPECT_EQ(call.inputs["wanted"], (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(call.inputs["table"], (std::vector<int32_t>{4, 2, 3, 0}));
  // Nothing of that step is in the next, of which no row is wanted.
  EXPECT_TRUE(Run({{{0, 9, 2, false}}, {42}}, {{1}})->empty());
  EXPECT_EQ(fake_->calls[1].dims, (std::vector<int64_t>{5, 0, 1, 1, 1}));
  EXPECT_EQ(fake_->calls[1].inputs["table"], (std::vector<int32_t>{1}));
  EXPECT_EQ(fake_->calls[1].inputs["wanted"], std::vector<int32_t>());
  // A power of two, but no more than a sequence may have.
  ASSERT_TRUE(Run({{{0, 40, 2, false}}, {42}}, {{1, 2, 3}}).ok());
  EXPECT_EQ(fake_->calls[2].inputs["table"], (std::vector<int32_t>{1, 2, 3}));
}

TEST_F(PlanStepRunnerTest, CountsBlocksAsTheStatesLie) {
  fake_->specs.push_back({"values.0", "values16", kSlotBytes});
  plans_.Publish(PlanOf("p", fake_));
  const Step step = {{{0, 17, 5, false}, {1, 0, 6, false}}, {40, 41}};
  ASSERT_TRUE(Run(step, {{4, 2}, {3}}).ok());
  EXPECT_EQ(fake_->calls[0].dims, (std::vector<int64_t>{5, 0, 2, 2, 2}));
  EXPECT_EQ(fake_->calls[0].inputs["table"], (std::vector<int32_t>{4, 2, 3, 0}));
  PlanStepRunner side_by_side(&plans_, graph_,
                              {.block = 16,
                               .blocks = 5,
                               .table_blocks = 3,
                               .vocabulary = kVocabulary,
                               .order = StateMemory::Order::kByBlock});
  const int32_t first[] = {4, 2}, second[] = {3};
  const absl::Span<const int32_t> tables[] = {first, second};
  ASSERT_TRUE(side_by_side.Run(step, tables).ok());
  EXPECT_EQ(fake_->calls[1].dims, (std::vector<int64_t>{2 * 5, 0, 2, 2, 2}));
  EXPECT_EQ(fake_->calls[1].inputs["table"], (std::vector<int32_t>{2 * 4, 2 * 2, 2 * 3, 0}));
}

TEST_F(PlanStepRunnerTest, CommitsBlocks) {
  EXPECT_EQ(runner_.committed_bytes(), 0);
  runner_.Decommit(1);  // there are no states yet
  plans_.Publish(PlanOf("p", fake_));
  ASSERT_TRUE(runner_.Commit(4).ok());
  const int64_t bytes = runner_.committed_bytes();
  EXPECT_GT(bytes, 0);
  ASSERT_TRUE(RunOne().ok());
  EXPECT_EQ(fake_->over->slots(), 5 * 16);
  runner_.Decommit(4);
  EXPECT_LE(runner_.committed_bytes(), bytes);
}

TEST_F(PlanStepRunnerTest, WaitsForAPlan) {
  for (const bool commits : {true, false}) {
    Plans plans;
    PlanStepRunner runner(&plans, graph_, {.vocabulary = kVocabulary});
    absl::Status status = absl::UnknownError("");
    std::thread engine([&] {
      const int32_t table[] = {1};
      status = commits
                   ? runner.Commit(1)
                   : runner.Run({{{0, 0, 1, true}}, {7}}, {absl::MakeConstSpan(table)}).status();
    });
    plans.Publish(PlanOf("p", fake_));
    engine.join();
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_F(PlanStepRunnerTest, EndsWithTheErrorOfTheSlot) {
  absl::Status status;
  std::thread engine([&] { status = RunOne(); });
  plans_.full().Fail(absl::InternalError("no kernel"));
  engine.join();
  EXPECT_EQ(status, absl::InternalError("no kernel"));
  EXPECT_EQ(runner_.Commit(1), absl::InternalError("no kernel"));
  // A version that is deleted while its engine runs.
  plans_.Publish(PlanOf("p", fake_));
  EXPECT_TRUE(RunOne().ok());
  EXPECT_EQ(fake_->contexts, 1);
  plans_.Close(absl::NotFoundError("deleted"));
  EXPECT_EQ(RunOne(), absl::NotFoundError("deleted"));
  EXPECT_EQ(fake_->contexts, 0) << "plans that serve no more are let go";
}

TEST_F(PlanStepRunnerTest, WaitsForNoPlanThatIsMadeAnew) {
  plans_.Publish(PlanOf("p", fake_));
  ASSERT_TRUE(RunOne().ok());
  plans_.Withdraw(absl::DataLossError("damaged"));
  EXPECT_EQ(RunOne(), absl::DataLossError("damaged"));
  plans_.full().SetJob("j-2", true);
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = RunOne();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  }
  EXPECT_EQ(fake_->contexts, 0);
  EXPECT_TRUE(runner_.Commit(1).ok()) << "the states stay";
  plans_.Publish(PlanOf("q", fake_));
  EXPECT_TRUE(RunOne().ok());
  EXPECT_EQ(runner_.plan_id(), "q");
}

TEST_F(PlanStepRunnerTest, AnotherPlanTakesOverBetweenSteps) {
  plans_.Publish(PlanOf("p", fake_));
  ASSERT_TRUE(RunOne().ok());
  ASSERT_TRUE(RunOne().ok());
  EXPECT_EQ(fake_->contexts, 1);
  const StateMemory* const states = fake_->over;
  const auto next = std::make_shared<FakeRunner>();
  plans_.Publish(PlanOf("q", next));
  ASSERT_TRUE(RunOne().ok());
  EXPECT_EQ(runner_.plan_id(), "q");
  EXPECT_EQ(fake_->contexts, 0);
  EXPECT_EQ(next->contexts, 1);
  EXPECT_EQ(next->over, states) << "all plans have the same states";
}

TEST_F(PlanStepRunnerTest, TrimsContextsOfPlansThatServeNoMore) {
  EXPECT_FALSE(runner_.Trim());
  plans_.Publish(PlanOf("p", fake_));
  ASSERT_TRUE(RunOne().ok());
  EXPECT_TRUE(runner_.Trim());
  EXPECT_EQ(fake_->contexts, 1) << "it serves";
  const auto next = std::make_shared<FakeRunner>();
  plans_.Publish(PlanOf("q", next));
  EXPECT_FALSE(runner_.Trim()) << "of the next plan there is no context yet";
  EXPECT_EQ(fake_->contexts, 0);
  ASSERT_TRUE(RunOne().ok());
  EXPECT_EQ(next->contexts, 1);
  plans_.Withdraw(absl::DataLossError("damaged"));
  EXPECT_FALSE(runner_.Trim());
  EXPECT_EQ(next->contexts, 0);
}

TEST_F(PlanStepRunnerTest, TakesThePlanOfTheSizes) {
  BucketGrid::Ranges ranges;
  v1::DimBuckets& rows = *ranges.Add();
  rows.set_dim("T");
  for (const auto& [min, max] : {std::pair{1, 1}, {2, 8}}) {
    v1::DimBuckets::Range& range = *rows.add_ranges();
    range.set_min(min);
    range.set_max(max);
  }
  const auto grid =
      std::make_shared<const BucketGrid>(BucketGrid::Create(graph_, ranges, 64).value());
  Plans plans(grid);
  PlanStepRunner runner(&plans, graph_, {.vocabulary = kVocabulary});
  const auto single = std::make_shared<FakeRunner>();
  plans.Publish(PlanOf("all", fake_));
  const int64_t one_row[] = {2, 1, 1, 1, 1};
  ASSERT_TRUE(plans.Set(grid, grid->Find(one_row), PlanOf("single", single)));
  const int32_t table[] = {1};
  const absl::Span<const int32_t> tables[] = {table};
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(runner.Run({{{0, 0, 1, true}}, {7}}, tables).ok());
    EXPECT_EQ(runner.plan_id(), "single");
    ASSERT_TRUE(runner.Run({{{0, 0, 1, false}, {0, 1, 1, true}}, {7}}, tables).ok());
    EXPECT_EQ(runner.plan_id(), "all");
  }
  EXPECT_EQ(single->contexts, 1) << "each plan keeps its context";
  EXPECT_EQ(fake_->contexts, 1);
}

TEST_F(PlanStepRunnerTest, ErrorsLeaveItUsable) {
  fake_->refusal = absl::ResourceExhaustedError("no memory");
  plans_.Publish(PlanOf("p", fake_));
  EXPECT_EQ(runner_.Commit(1), fake_->refusal);
  EXPECT_EQ(RunOne(), fake_->refusal);
  fake_->refusal = absl::OkStatus();
  fake_->error = absl::InvalidArgumentError("index 9");
  EXPECT_EQ(RunOne(), fake_->error);
  EXPECT_EQ(runner_.plan_id(), "");
  fake_->error = absl::OkStatus();
  EXPECT_TRUE(RunOne().ok());
}

}  // namespace
}  // namespace athanor
