// Library calls of a server's GPU: searches find them, and a started server uses what an earlier
// one stored of them, unless its library is another: then the plan stays, and its object is made
// anew.
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/search/tuner_backend.h"
#include "tests/tuner/gpu_calls.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

class RestoredCallTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/restored-call-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    const std::string emulator = std::filesystem::absolute("tests/emulator");
    setenv("LD_LIBRARY_PATH", emulator.c_str(), 1);  // of children
  }

  // Starts a server that finds the library in this folder of the emulator's. This process opens one
  // once, whose version is a variable's; device workers get no such variable.
  void Start(const std::string& folder, const char* version) {
    UseCublaslt(folder);
    setenv("ATHANOR_EMULATOR_CUBLASLT", version, 1);
    backend_.reset();
    backends_.reset();
    ServerOptions options;
    options.threads = 1;
    options.device = "cuda:0";
    options.nvrtc = std::filesystem::absolute("tests/emulator");
    options.cache = folder_ + "/cache.db";
    TunerOptions tuner;
    tuner.binary = "server/athanor-tuner";
    auto backends = TunerBackends::Create(options, tuner);
    ASSERT_TRUE(backends.ok()) << backends.status();
    backends_ = *std::move(backends);
    backend_ = backends_->New();
    const auto machine = backend_->Machine();
    ASSERT_TRUE(machine.ok()) << machine.status();
    machine_ = *machine;
  }

  // As a search would have found it.
  CompiledPlan Call() const {
    CompiledPlan plan;
    plan.plan = CallPlan(CallText(0), 0);
    *plan.plan.mutable_target() = machine_.target();
    plan.objects.resize(1);
    plan.how.set_budget("1s");
    return plan;
  }

  std::string folder_;
  std::shared_ptr<TunerBackends> backends_;
  std::unique_ptr<CompileBackend> backend_;
  internal::TargetReply machine_;
};

TEST_F(RestoredCallTest, AnObjectIsOfOneVersionOfTheLibrary) {
  const Graph graph = *ParseGraph(kCallGraph);
  // Without a library there are calls in no search, and those in the cache are refused by name.
  ASSERT_NO_FATAL_FAILURE(Start("nowhere", "130100"));
  EXPECT_EQ(machine_.target().blas(), "");
  const absl::Status none = backend_->CompileKernel(Call().plan, 0).status();
  EXPECT_EQ(none.code(), Code::kFailedPrecondition) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("this machine has no library"));
  EXPECT_TRUE(backend_->Lower(graph, /*plain=*/false).ok());

  ASSERT_NO_FATAL_FAILURE(Start("", "130100"));
  EXPECT_EQ(machine_.target().blas(), "cuBLASLt 13.1.0");
  CompiledPlan plan = Call();
  const auto load = [&] {
    return backends_->Load("", graph, plan.plan, plan.objects, {}, nullptr).status();
  };
  const auto compile = [&](bool from_cache) {
    const auto object = backend_->CompileKernel(plan.plan, 0);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(object->from_cache, from_cache);
    plan.objects[0] = *object;
  };
  ASSERT_NO_FATAL_FAILURE(compile(false));
  EXPECT_EQ(load(), absl::OkStatus());
  EXPECT_EQ(backend_->Verify(graph, plan), absl::OkStatus());

  ASSERT_NO_FATAL_FAILURE(Start("", "130100"));
  ASSERT_NO_FATAL_FAILURE(compile(true));
  EXPECT_EQ(load(), absl::OkStatus());

  // The library was updated between two starts.
  ASSERT_NO_FATAL_FAILURE(Start("newer", "130200"));
  EXPECT_EQ(machine_.target().blas(), "cuBLASLt 13.2.0");
  EXPECT_EQ(load().code(), Code::kFailedPrecondition);
  ASSERT_NO_FATAL_FAILURE(compile(false));
  EXPECT_EQ(load(), absl::OkStatus());
  EXPECT_EQ(backend_->Verify(graph, plan), absl::OkStatus());

  // It was updated while the server runs, which a new device worker finds.
  ASSERT_NO_FATAL_FAILURE(Start("newer", "130100"));
  ASSERT_NO_FATAL_FAILURE(compile(true));
  plan.plan.mutable_kernels(0)->set_source(CallText(1));
  const absl::Status other = backend_->CompileKernel(plan.plan, 0).status();
  EXPECT_EQ(other.code(), Code::kFailedPrecondition) << other;
}

// `spec` is of a product of w and x, whose columns are the result's last dim or its first: a call
// computes the one of swapped operands.
std::string ModelOf(const std::string& spec) {
  return absl::StrCat(R"(graph "g" { %0 = Input "x" : f32[64, 64] %1 = Parameter "w" : f32[64, 64]
    %2 = Contract(%1, %0) {spec=")",
                      spec, R"("} output "y" = %2 })");
}

class CallSearchTest : public RestoredCallTest {
 protected:
  // Returns the plan that the search ends with.
  CompiledPlan Search(const Graph& graph, bool library = true) {
    CompiledPlan serving;
    serving.plan = backend_->Lower(graph, /*plain=*/false).value().plan();
    for (int i = 0; i < serving.plan.kernels_size(); ++i) {
      serving.objects.push_back(backend_->CompileKernel(serving.plan, i).value());
    }
    // A contraction in pieces would be tried first.
    PlanSearchOptions options{.max_candidates = 8, .disabled_rules = {"decompose"}};
    if (!library) options.disabled_rules.push_back("cublaslt");
    const std::unique_ptr<PlanSearch> search = backend_->NewSearch(graph, serving, options).value();
    bool stopped = false;
    for (int steps = 0; steps < 400 && !stopped; ++steps) {
      auto step = search->Next();
      EXPECT_TRUE(step.ok()) << step.status();
      if (!step.ok()) break;
      stopped = step->stop.has_value();
      if (!step->found) continue;
      serving = *step->found;
      search->Taken(absl::OkStatus());
    }
    EXPECT_TRUE(stopped);
    progress_ = search->progress();
    return serving;
  }
  static bool Calls(const CompiledPlan& plan) {
    return absl::c_any_of(plan.plan.kernels(), [](const auto& k) { return k.library_call(); });
  }

  v1::SearchProgress progress_;
};

TEST_F(CallSearchTest, ASearchTakesACall) {
  for (const char* spec : {"mk,kn->mn", "km,nk->nm"}) {
    ASSERT_NO_FATAL_FAILURE(SetUp());  // both find the same kernel
    ASSERT_NO_FATAL_FAILURE(Start("", "130100"));
    const Graph graph = *ParseGraph(ModelOf(spec));
    const CompiledPlan found = Search(graph);
    EXPECT_TRUE(Calls(found)) << progress_.ShortDebugString();
    EXPECT_EQ(backend_->Verify(graph, found), absl::OkStatus());
    EXPECT_FALSE(Calls(Search(graph, /*library=*/false)));
    // A server that is started again finds its times and objects.
    ASSERT_NO_FATAL_FAILURE(Start("", "130100"));
    EXPECT_TRUE(Calls(Search(graph)));
    EXPECT_GT(progress_.candidates_from_cache(), 0);
    for (int i = 0; i < found.plan.kernels_size(); ++i) {
      EXPECT_TRUE(backend_->CompileKernel(found.plan, i)->from_cache);
    }
    // With another version of the library it finds the plan, but neither object nor times.
    ASSERT_NO_FATAL_FAILURE(Start("newer", "130200"));
    for (int i = 0; i < found.plan.kernels_size(); ++i) {
      const auto object = backend_->CompileKernel(found.plan, i);
      ASSERT_TRUE(object.ok()) << object.status();
      EXPECT_EQ(object->from_cache, !found.plan.kernels(i).library_call());
    }
    EXPECT_TRUE(Calls(Search(graph)));
  }
}

}  // namespace
}  // namespace athanor
