// The server dies while some calls are out and others due.
#include <algorithm>
#include <thread>

#include "clients/bench/load/fake_server.h"
#include "clients/bench/load/load.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

int64_t Answered(const LoadResult& result) {
  return std::count_if(result.calls.begin(), result.calls.end(),
                       [](const CallRecord& record) { return record.answered(); });
}

TEST(ServerDeathTest, AServerThatDiesInTheMiddleEndsItsCalls) {
  for (Arrival arrival : {Arrival::kClosed, Arrival::kPoisson}) {
    FakeServer server;
    LoadOptions options = LoadOf(server);
    options.arrival = arrival;
    options.phases = {{2, 100, 100, 3}};
    std::thread killer([&] {
      while (server.service().calls < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      server.Stop();
    });
    const auto result = RunLoad(options);
    killer.join();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_GE(Answered(*result), 1);
    EXPECT_TRUE(result->messages.contains(static_cast<int>(absl::StatusCode::kUnavailable)));
    EXPECT_LT(Answered(*result), static_cast<int64_t>(result->calls.size()));
  }
}

}  // namespace
}  // namespace athanor::bench
