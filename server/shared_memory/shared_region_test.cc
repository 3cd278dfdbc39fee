#include "server/shared_memory/shared_region.h"

#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shared_memory/shared_object_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

absl::Status FindStatus(const std::string& key, int64_t offset, int64_t byte_size) {
  return SharedRegion::Find({.name = "r", .key = key, .offset = offset, .byte_size = byte_size})
      .status();
}

std::string ReadAll(const SharedRegion& region, int64_t offset, int64_t bytes) {
  std::string read(bytes, '?');
  const absl::Status status = region.Read(offset, bytes, read.data());
  return status.ok() ? read : std::string(status.message());
}

TEST(SharedRegionTest, ReadsAndWritesItsPartOnly) {
  SharedObject object("rw", 16);
  std::memcpy(object.data(), "0123456789abcdef", 16);
  const auto region = SharedRegion::Find({"r", object.key(), 4, 8});
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(ReadAll(*region, 0, 8), "456789ab");
  EXPECT_EQ(ReadAll(*region, 7, 1), "b");
  EXPECT_EQ(ReadAll(*region, 8, 0), "");
  ASSERT_TRUE(region->Write(6, "XY").ok());
  EXPECT_EQ(std::string(object.data(), 16), "0123456789XYcdef");
  for (const auto [offset, bytes] : {std::pair<int64_t, int64_t>{0, 9},
                                     {8, 1},
                                     {-1, 2},
                                     {2, -1},
                                     {std::numeric_limits<int64_t>::max(), 2}}) {
    const absl::Status status = region->Read(offset, bytes, nullptr);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << offset << " " << bytes;
    EXPECT_THAT(status.message(), HasSubstr("region \"r\", which has 8 bytes"));
  }
  EXPECT_EQ(region->Write(5, "1234").code(), Code::kInvalidArgument);
  EXPECT_EQ(std::string(object.data(), 16), "0123456789XYcdef");
}

TEST(SharedRegionTest, RefusesWhatIsNoRegion) {
  SharedObject object("refuses", 16);
  EXPECT_TRUE(FindStatus(object.key(), 0, 16).ok());
  EXPECT_TRUE(FindStatus(object.key().substr(1), 15, 1).ok()) << "without the slash";
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const auto [offset, size] : {std::pair<int64_t, int64_t>{0, 17},
                                    {16, 1},
                                    {0, 0},
                                    {0, -1},
                                    {-1, 4},
                                    {most, most},
                                    {1, most}}) {
    EXPECT_EQ(FindStatus(object.key(), offset, size).code(), Code::kInvalidArgument)
        << offset << " " << size;
  }
  EXPECT_THAT(FindStatus(object.key(), 8, 9).message(), HasSubstr("has 16 bytes"));
  EXPECT_EQ(FindStatus(object.key() + "-absent", 0, 1).code(), Code::kNotFound);
  for (const std::string& key : {std::string(), std::string("/"), std::string("/.."),
                                 std::string("/a/b"), std::string("//a"), std::string("../x"),
                                 std::string("a\0b", 3), "/" + std::string(256, 'k')}) {
    const absl::Status status = FindStatus(key, 0, 1);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << key;
    EXPECT_THAT(status.message(), HasSubstr("shm_open"));
  }
}

// Only regular files are objects: a link could lead anywhere, and a pipe could hold the server up.
TEST(SharedRegionTest, RefusesLinksAndPipes) {
  SharedObject object("target", 16);
  const std::string link = object.key() + "-link", pipe = object.key() + "-pipe";
  ASSERT_EQ(symlink(("/dev/shm" + object.key()).c_str(), ("/dev/shm" + link).c_str()), 0);
  ASSERT_EQ(mkfifo(("/dev/shm" + pipe).c_str(), 0600), 0);
  EXPECT_EQ(FindStatus(link, 0, 1).code(), Code::kFailedPrecondition);
  EXPECT_EQ(FindStatus(pipe, 0, 1).code(), Code::kFailedPrecondition);
  shm_unlink(link.c_str());
  shm_unlink(pipe.c_str());
}

TEST(SharedRegionTest, WhatBecameOfItsObject) {
  SharedObject object("changes", 1 << 20);
  const auto region = SharedRegion::Find({"r", object.key(), 0, 1 << 20});
  ASSERT_TRUE(region.ok()) << region.status();
  const auto refused = [&](const std::string& why) {
    for (const absl::Status& status : {region->Write(0, "x"), [&] {
                                         char to;
                                         return region->Read(0, 1, &to);
                                       }()}) {
      EXPECT_EQ(status.code(), Code::kFailedPrecondition);
      EXPECT_THAT(status.message(), HasSubstr(why));
      EXPECT_THAT(status.message(), HasSubstr("register"));
    }
  };
  object.Truncate(100);
  refused("was truncated");
  object.Truncate(0);
  refused("was truncated");
  object.Truncate(1 << 20);
  EXPECT_EQ(ReadAll(*region, 0, 1), std::string(1, '\0')) << "it has its bytes again";
  object.Replace();
  refused("was replaced");
  object.Unlink();
  refused("was unlinked");
}

// A client that truncates its object in the middle of copies costs no more than errors.
TEST(SharedRegionTest, TruncatedWhileItIsRead) {
  constexpr int64_t kBytes = 1 << 20;
  SharedObject object("races", kBytes);
  const auto region = SharedRegion::Find({"r", object.key(), 0, kBytes});
  ASSERT_TRUE(region.ok()) << region.status();
  std::atomic<bool> stop{false};
  std::thread truncates([&] {
    while (!stop) {
      object.Truncate(0);
      object.Truncate(kBytes);
    }
  });
  std::string buffer(kBytes, '\0');
  int good = 0;
  for (int i = 0; i < 300 || good == 0; ++i) {
    const absl::Status read = region->Read(0, kBytes, buffer.data());
    const absl::Status written = region->Write(0, buffer);
    if (read.ok()) ++good;
    if (!read.ok()) EXPECT_EQ(read.code(), Code::kFailedPrecondition);
    if (!written.ok()) EXPECT_EQ(written.code(), Code::kFailedPrecondition);
  }
  stop = true;
  truncates.join();
}

}  // namespace
}  // namespace athanor
