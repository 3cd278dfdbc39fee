// A tuner process that is lost again and again while a graph is lowered: the error says what comes
// next, and what comes next works.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "compiler/ir/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tuner_backend.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

constexpr char kModel[] = R"(graph "g" { dim b in [1, 64]
  %0 = Input "x" : f32[b, 64] %1 = Tanh(%0) output "y" = %1 })";

// Kills every child process of this one.
void KillChildren() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(task.path() / "children");
    for (pid_t pid; children >> pid;) kill(pid, SIGKILL);
  }
}

TEST(LostTunerTest, TheErrorSaysThatAnotherTryIsPossible) {
  ServerOptions options;
  options.cache = ::testing::TempDir() + "/lost_tuner_cache.db";
  TunerOptions tuner;
  tuner.binary = "server/athanor-tuner";
  auto backends = TunerBackends::Create(options, tuner);
  ASSERT_TRUE(backends.ok()) << backends.status();
  const std::unique_ptr<CompileBackend> backend = (*backends)->New(nullptr);
  const Graph graph = *ParseGraph(kModel);
  ASSERT_TRUE(backend->Lower(graph).ok());

  std::atomic<bool> stop = false;
  std::thread killer([&] {
    while (!stop) {
      KillChildren();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const auto lost = backend->Lower(graph);
  stop = true;
  killer.join();
  EXPECT_EQ(lost.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(lost.status().message()), HasSubstr("SIGKILL"));
  EXPECT_THAT(std::string(lost.status().message()), HasSubstr("StartCompile makes another"));
  EXPECT_TRUE(backend->Lower(graph).ok());
}

}  // namespace
}  // namespace athanor
