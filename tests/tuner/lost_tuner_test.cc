// Loses the tuner process again and again while a graph is lowered: the error says what to do next,
// and doing that works.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/search/tuner_backend.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

// Takes much longer to lower than the killer needs for one pass: forty contractions of forty
// widths.
Graph Model() {
  Graph graph;
  graph.name = "g";
  graph.dims = {{"b", 1, 64}};
  GraphBuilder builder(&graph);
  NodeId n = *builder.Input("x", {DType::kF32, {Expr::Symbol("b"), 64}});
  for (int width = 65; width < 105; ++width) {
    const NodeId w =
        *builder.Parameter(absl::StrCat("w", width), {DType::kF32, {width - 1, width}});
    n = *builder.Add(Op::kContract, {n, w}, {{"spec", std::string("mk,kn->mn")}});
  }
  builder.Output("y", n);
  return graph;
}

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
  const std::unique_ptr<CompileBackend> backend = (*backends)->New();
  const Graph graph = Model();
  ASSERT_TRUE(backend->Lower(graph, /*plain=*/false).ok());

  std::atomic<bool> killing = false, stop = false;
  std::thread killer([&] {
    while (!stop) {
      KillChildren();
      killing = true;
    }
  });
  while (!killing) std::this_thread::yield();
  const auto lost = backend->Lower(graph, /*plain=*/false);
  stop = true;
  killer.join();
  EXPECT_EQ(lost.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(lost.status().message()), HasSubstr("SIGKILL"));
  EXPECT_THAT(std::string(lost.status().message()), HasSubstr("StartCompile makes another"));
  EXPECT_TRUE(backend->Lower(graph, /*plain=*/false).ok());
}

}  // namespace
}  // namespace athanor
