// Measures in a real child process next to requests: measuring waits for them, says when there was
// no gap, and a replacement child sees the same requests.
#include "server/base/traffic.h"

#include <signal.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "compiler/cache/cache.h"
#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/child/tuner_process.h"
#include "server/search/machine_limits.h"
#include "server/search/tuner_backend.h"
#include "server/search/tuner_plan_search.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

constexpr char kModel[] = R"(graph "g" { dim b in [1, 64]
  %0 = Input "x" : f32[b, 64] %1 = Tanh(%0) output "y" = %1 })";

class TrafficTest : public ::testing::Test {
 protected:
  std::unique_ptr<TunerProcess> StartTuner() {
    TunerOptions options;
    options.binary = "server/athanor-tuner";
    options.traffic = traffic_.get();
    auto tuner = TunerProcess::Start(options);
    EXPECT_TRUE(tuner.ok()) << tuner.status();
    return *std::move(tuner);
  }

  // Requests a measurement of the model's baseline with all cores, so that any request disturbs it.
  internal::MeasureRequest Request(TunerProcess& tuner) {
    internal::MeasureRequest request;
    request.set_graph_text(kModel);
    request.set_threads(static_cast<int>(std::thread::hardware_concurrency()));
    request.add_sizes()->add_values(8);
    auto machine = tuner.Target();
    EXPECT_TRUE(machine.ok()) << machine.status();
    machine->mutable_target()->set_threads(request.threads());
    auto lowered = tuner.Lower(*ParseGraph(kModel), machine->target());
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    internal::MeasuredPlan* plan = request.add_plans();
    *plan->mutable_plan() = lowered->plan();
    for (const v1::Kernel& kernel : lowered->plan().kernels()) {
      auto object = tuner.Compile(kernel.source(), machine->target());
      EXPECT_TRUE(object.ok()) << object.status();
      plan->add_objects(*std::move(object));
    }
    return request;
  }

  std::unique_ptr<Traffic> traffic_ = Traffic::Create().value();
};

void ExpectNoGaps(const absl::StatusOr<internal::MeasureReply>& reply) {
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kAborted) << reply.status();
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("no gaps to measure in"));
}

TEST_F(TrafficTest, MeasuringWaitsForARequestAndThenSaysWhyItCannot) {
  auto tuner = StartTuner();
  const internal::MeasureRequest request = Request(*tuner);
  EXPECT_TRUE(tuner->Measure(request).ok());
  {
    Traffic::Request running(traffic_.get());
    ExpectNoGaps(tuner->Measure(request));
  }
  EXPECT_TRUE(tuner->Measure(request).ok());
  EXPECT_EQ(tuner->starts(), 1);
}

TEST_F(TrafficTest, AWaitForGapsEndsWithTheSearchsTime) {
  auto tuner = StartTuner();
  const internal::MeasureRequest request = Request(*tuner);
  Traffic::Request running(traffic_.get());
  const TunerProcess::Background background(
      tuner.get(), std::chrono::steady_clock::now() + std::chrono::milliseconds(500));
  const auto reply = tuner->Measure(request);
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kAborted) << reply.status();
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("the search's time is up"));
}

TEST_F(TrafficTest, TheNextChildSeesTheSameRequests) {
  auto tuner = StartTuner();
  const internal::MeasureRequest request = Request(*tuner);
  Traffic::Request running(traffic_.get());
  kill(tuner->pid(), SIGKILL);
  EXPECT_FALSE(tuner->Measure(request).ok());
  ExpectNoGaps(tuner->Measure(request));
  EXPECT_EQ(tuner->starts(), 2);
}

TEST_F(TrafficTest, SeveralChildrenShareThePage) {
  auto first = StartTuner(), second = StartTuner();
  const internal::MeasureRequest request = Request(*first);
  {
    Traffic::Request running(traffic_.get());
    std::thread beside([&] { ExpectNoGaps(first->Measure(request)); });
    ExpectNoGaps(second->Measure(request));
    beside.join();
  }
  EXPECT_TRUE(first->Measure(request).ok());
  EXPECT_TRUE(second->Measure(request).ok());
}

TEST_F(TrafficTest, GapsBetweenRequestsAreEnough) {
  auto tuner = StartTuner();
  const internal::MeasureRequest request = Request(*tuner);
  std::atomic<bool> stop = false;
  std::thread client([&] {
    while (!stop) {
      {
        Traffic::Request running(traffic_.get());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  auto reply = tuner->Measure(request);
  stop = true;
  client.join();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_GE(reply->plans(0).sizes(0).rounds(), 5);
}

TEST_F(TrafficTest, WorkInTheBackgroundGivesTheSameReplies) {
  auto tuner = StartTuner();
  const internal::MeasureRequest request = Request(*tuner);
  const TunerProcess::Background background(tuner.get());
  auto machine = tuner->Target();
  ASSERT_TRUE(machine.ok()) << machine.status();
  {
    Traffic::Request ran(traffic_.get());
  }  // lowers the priority of later work
  auto lowered = tuner->Lower(*ParseGraph(kModel), machine->target());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->plan().kernels_size(), request.plans(0).plan().kernels_size());
  for (const internal::KernelCheck& check : lowered->checks()) {
    internal::CheckRequest with_objects = check.request();
    for (const v1::Kernel& kernel : check.request().plan().kernels()) {
      auto object = tuner->Compile(kernel.source(), machine->target());
      ASSERT_TRUE(object.ok()) << object.status();
      with_objects.add_objects(*std::move(object));
    }
    EXPECT_TRUE(tuner->Check(with_objects).ok()) << tuner->Check(with_objects);
  }
  EXPECT_TRUE(tuner->Measure(request).ok());
  EXPECT_EQ(tuner->starts(), 1);
}

TEST_F(TrafficTest, TheMachineIsMeasuredBesideRequestsToo) {
  auto tuner = StartTuner();
  auto target = tuner->Target();
  ASSERT_TRUE(target.ok()) << target.status();
  Traffic::Request running(traffic_.get());
  auto machine =
      tuner->Machine(target->target(), static_cast<int>(std::thread::hardware_concurrency()));
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_GT(machine->f32_flops_per_second(), 1e8);
  EXPECT_GT(machine->read_bytes_per_second(), 1e8);
}

// Builds count as requests, so that searches yield to them and discard measurements taken next to
// them.
TEST_F(TrafficTest, WhatIsBuiltCountsAsARequest) {
  ServerOptions server;
  server.threads = 1;
  TunerOptions options;
  options.binary = "server/athanor-tuner";
  auto backends = TunerBackends::Create(server, options);
  ASSERT_TRUE(backends.ok()) << backends.status();
  const std::unique_ptr<CompileBackend> backend = (*backends)->New();
  const auto counted = [&] {
    EXPECT_EQ((*backends)->traffic()->Read().running, 0u);
    return (*backends)->traffic()->Read().started;
  };
  const Graph graph = *ParseGraph(kModel);
  EXPECT_EQ(counted(), 0u);
  absl::StatusOr<internal::LowerReply> lowered = backend->Lower(graph, /*plain=*/false);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(counted(), 1u);
  const v1::Plan& plan = lowered->plan();
  ASSERT_EQ(plan.kernels_size(), 1);
  absl::StatusOr<KernelObject> object = backend->CompileKernel(plan, 0);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(counted(), 2u);
  ASSERT_EQ(lowered->checks_size(), 1);
  ASSERT_TRUE(backend->CheckKernel(plan, lowered->checks(0), {*object}).ok());
  EXPECT_EQ(counted(), 3u);
  ASSERT_TRUE((*backends)->Load("", graph, plan, {*object}, {}, nullptr).ok());
  EXPECT_EQ(counted(), 4u);
}

TEST_F(TrafficTest, ASearchTriesAgainUntilItsTimeIsUp) {
  auto tuner = StartTuner();
  auto machine = tuner->Target();
  ASSERT_TRUE(machine.ok()) << machine.status();
  machine->mutable_target()->set_threads(static_cast<int>(std::thread::hardware_concurrency()));
  const internal::MeasureRequest baseline = Request(*tuner);
  CompiledPlan serving{baseline.plans(0).plan(), {}};
  for (const std::string& object : baseline.plans(0).objects()) {
    serving.objects.push_back({.object = object});
  }
  // Limits out of reach, so that there is always something to measure.
  internal::MachineReply unreachable;
  unreachable.set_read_bytes_per_second(1e15);
  unreachable.set_cache_bytes_per_second(1e15);
  unreachable.set_near_bytes_per_second(1e15);
  unreachable.set_f32_flops_per_second(1e18);
  MachineLimits limits(unreachable);
  auto cache = Cache::Open({.path = ""}, [](absl::string_view) {});
  TunerPlanSearch search(1, *ParseGraph(kModel), serving,
                         KernelMaker(cache.get(), tuner.get(), *machine), tuner.get(), *machine,
                         &limits, PlanSearchOptions{1, 16});
  auto running = std::make_unique<Traffic::Request>(traffic_.get());
  for (int steps = 0; steps < 2; ++steps) {
    auto step = search.Next();
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_FALSE(step->stop.has_value());
  }
  // A candidate that could not be measured has not failed.
  EXPECT_EQ(search.progress().failures_size(), 0);
  running.reset();
  ASSERT_TRUE(search.Next().ok());
  EXPECT_EQ(search.progress().failures_size(), 0);
  running = std::make_unique<Traffic::Request>(traffic_.get());
  search.Finish();
  // Measures again: a build may have disturbed the first time.
  ASSERT_TRUE(search.Next().ok());
  EXPECT_EQ(search.progress().failures_size(), 0);
  bool stopped = false;
  for (int steps = 0; steps < 50 && !stopped; ++steps) {
    auto step = search.Next();
    ASSERT_TRUE(step.ok()) << step.status();
    stopped = step->stop.has_value();
    if (step->found) search.Taken(absl::AbortedError("not wanted"));
  }
  EXPECT_TRUE(stopped);
}

}  // namespace
}  // namespace athanor
