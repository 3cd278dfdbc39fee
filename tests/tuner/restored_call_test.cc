// Library calls of a server's GPU: searches find them, and a started server uses what an earlier one
// stored of them, unless its library is another: then the plan stays, and its object is made anew.
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>

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

}  // namespace
}  // namespace athanor
