// A started server uses what an earlier one stored: it knows the machine without a child process,
// loads a plan without one, and verifies a plan whose kernels were compiled again.
#include <stdlib.h>
#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/search/tuner_backend.h"

namespace athanor {
namespace {

std::vector<pid_t> Children() {
  std::vector<pid_t> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(task.path() / "children");
    for (pid_t pid; children >> pid;) found.push_back(pid);
  }
  return found;
}

Graph Model(const std::string& op) {
  return *ParseGraph(R"(graph "g" { dim b in [1, 32]
    %0 = Input "x" : f32[b, 48] %1 = )" +
                     op + R"((%0) output "y" = %1 })");
}

class RestoredPlanTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/restored-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }

  std::shared_ptr<TunerBackends> Start() {
    ServerOptions options;
    options.threads = 1;
    options.cache = folder_ + "/cache.db";
    TunerOptions tuner;
    tuner.binary = "server/athanor-tuner";
    auto backends = TunerBackends::Create(options, tuner);
    EXPECT_TRUE(backends.ok()) << backends.status();
    return *backends;
  }

  // As a search would have found it.
  static CompiledPlan Found(CompileBackend& backend, const Graph& graph) {
    CompiledPlan found;
    const internal::LowerReply lowered = backend.Lower(graph, /*plain=*/false).value();
    found.plan = lowered.plan();
    for (int i = 0; i < found.plan.kernels_size(); ++i) {
      found.objects.push_back(backend.CompileKernel(found.plan, i).value());
    }
    for (const internal::KernelCheck& check : lowered.checks()) {
      EXPECT_TRUE(backend.CheckKernel(found.plan, check, found.objects).ok());
    }
    found.how.set_budget("1s");
    return found;
  }

  std::string folder_;
};

TEST_F(RestoredPlanTest, ItNeedsNoChildUnlessSomethingIsMissing) {
  const Graph graph = Model("Tanh");
  CompiledPlan found;
  internal::TargetReply asked;
  {
    const auto backends = Start();
    EXPECT_FALSE(backends->known_machine("").has_value());
    const auto backend = backends->New();
    found = Found(*backend, graph);
    asked = backends->known_machine("").value();
    EXPECT_EQ(asked.rule_set().size(), 32u);
    EXPECT_FALSE(Children().empty());
  }
  const auto backends = Start();
  const auto backend = backends->New();
  ASSERT_TRUE(backends->known_machine("").has_value());
  EXPECT_EQ(backends->known_machine("")->SerializeAsString(), asked.SerializeAsString());
  EXPECT_EQ(backend->Machine()->SerializeAsString(), asked.SerializeAsString());
  EXPECT_TRUE(backends->Load("", graph, found.plan, found.objects, {}, nullptr).ok());
  EXPECT_TRUE(backends->RuleNames().ok());
  EXPECT_THAT(Children(), testing::IsEmpty());
  const auto again = backend->CompileKernel(found.plan, 0);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->from_cache);
}

TEST_F(RestoredPlanTest, OnlyARightPlanPasses) {
  const auto backends = Start();
  const auto backend = backends->New();
  const Graph graph = Model("Tanh");
  const CompiledPlan right = Found(*backend, graph);
  EXPECT_TRUE(backend->Verify(graph, right).ok());
  // The plan of another function of the same inputs.
  const CompiledPlan wrong = Found(*backend, Model("Exp"));
  EXPECT_EQ(backend->Verify(graph, wrong).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace athanor
