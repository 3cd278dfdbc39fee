#include "server/repository/bundle_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

std::string Number(uint64_t value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, 8);
  return bytes;
}

std::string Bundle(const std::string& graph = "graph") {
  return "ATHANOR1" + Number(graph.size()) + Number(2) + std::string(32, 'a') + Number(3) +
         std::string(32, 'b') + Number(0) + graph + "xyz";
}

absl::StatusOr<BundleHead> Read(const std::string& bytes, BundleLimits limits = {100, 10}) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) /
      testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "b", std::ios::binary) << bytes;
  const RepositoryFolder open = RepositoryFolder::Open(folder).value();
  return ReadBundle(open.OpenFile("b").value(), limits);
}

TEST(BundleFileTest, ReadsTheGraphAndWhereTensorsAre) {
  const auto head = Read(Bundle());
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->graph, "graph");
  ASSERT_EQ(head->tensors.size(), 2u);
  EXPECT_EQ(head->tensors[0].hash, std::string(32, 'a'));
  EXPECT_EQ(head->tensors[0].offset, 24 + 80 + 5);
  EXPECT_EQ(head->tensors[0].bytes, 3);
  EXPECT_EQ(head->tensors[1].bytes, 0);
}

TEST(BundleFileTest, EveryCutIsNoticed) {
  const std::string whole = Bundle();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const absl::Status status = Read(whole.substr(0, bytes)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bytes;
    EXPECT_THAT(std::string(status.message()), HasSubstr("ends inside")) << bytes;
  }
  EXPECT_THAT(std::string(Read(whole + "1").status().message()),
              HasSubstr("1 bytes after the last tensor"));
}

TEST(BundleFileTest, SizesThatLieAreRefused) {
  std::string bytes = Bundle();
  EXPECT_THAT(std::string(Read("BTHANOR1" + bytes.substr(8)).status().message()),
              HasSubstr("not an Athanor bundle"));
  EXPECT_EQ(Read(bytes, {4, 10}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Read(bytes, {100, 1}).status().code(), absl::StatusCode::kResourceExhausted);
  bytes.replace(16, 8, Number(~uint64_t{0}));
  EXPECT_EQ(Read(bytes).status().code(), absl::StatusCode::kResourceExhausted);
  bytes = Bundle();
  bytes.replace(24 + 32, 8, Number(~uint64_t{0}));
  EXPECT_THAT(std::string(Read(bytes).status().message()), HasSubstr("ends inside tensor 0"));
}

}  // namespace
}  // namespace athanor
