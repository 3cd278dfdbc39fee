#include "tests/bench/arguments.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

struct Read {
  std::string graph = "none";
  int64_t threads = 7;
  absl::Status status;
};

Read ReadFrom(std::vector<const char*> values) {
  Read read;
  values.insert(values.begin(), "program");
  read.status = ReadArguments(static_cast<int>(values.size()), values.data(),
                              {{"--graph", {.set = AsText(&read.graph), .needed = true}},
                               {"--threads", {AsNumber(&read.threads, int64_t{1})}}});
  return read;
}

TEST(ArgumentsTest, AreReadInAnyOrder) {
  const Read both = ReadFrom({"--threads", "3", "--graph", "a.pb"});
  EXPECT_TRUE(both.status.ok()) << both.status;
  EXPECT_EQ(both.graph, "a.pb");
  EXPECT_EQ(both.threads, 3);
  const Read one = ReadFrom({"--graph", "--threads"});
  EXPECT_TRUE(one.status.ok()) << one.status;
  EXPECT_EQ(one.graph, "--threads");
  EXPECT_EQ(one.threads, 7);
}

TEST(ArgumentsTest, ErrorsNameTheArgument) {
  const struct {
    std::vector<const char*> values;
    const char* message;
  } rows[] = {
      {{}, "--graph is needed"},
      {{"--threads", "2"}, "--graph is needed"},
      {{"--graph", "g", "--threads"}, "--threads needs a value"},
      {{"--graph", "g", "--threads", "0"}, "--threads cannot be 0"},
      {{"--graph", "g", "--threads", "two"}, "--threads cannot be two"},
      {{"--graph", "g", "--rounds", "2"}, "there is no --rounds; there are --graph --threads"},
  };
  for (const auto& row : rows) {
    const Read read = ReadFrom(row.values);
    EXPECT_TRUE(absl::IsInvalidArgument(read.status)) << row.message;
    EXPECT_THAT(std::string(read.status.message()), HasSubstr(row.message));
  }
}

TEST(ArgumentsTest, AnErrorIsNoSuccess) {
  EXPECT_EQ(ExitStatus("program", absl::OkStatus()), 0);
  EXPECT_NE(ExitStatus("program", absl::InvalidArgumentError("why")), 0);
}

}  // namespace
}  // namespace athanor
