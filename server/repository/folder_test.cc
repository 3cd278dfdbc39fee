#include "server/repository/folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    base_ = fs::path(testing::TempDir()) /
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(base_);
    fs::create_directories(base_ / "models");
  }
  void Write(const std::string& path, const std::string& bytes) const {
    fs::create_directories((base_ / path).parent_path());
    std::ofstream(base_ / path, std::ios::binary) << bytes;
  }
  void Link(const std::string& target, const std::string& path) const {
    fs::create_directories((base_ / path).parent_path());
    fs::create_symlink(target, base_ / path);
  }
  RepositoryFolder Open() const { return RepositoryFolder::Open(base_ / "models").value(); }
  std::vector<std::string> Paths(const std::string& folder) const {
    std::vector<std::string> paths;
    const FolderListing listing = Open().Files(folder, 100).value();
    for (const FolderFile& file : listing.files) {
      paths.push_back(file.path + " " + std::to_string(file.bytes));
    }
    return paths;
  }
  std::string FilesError(const std::string& folder) const {
    return std::string(Open().Files(folder, 100).status().message());
  }

  fs::path base_;
};

TEST_F(FolderTest, ListsFoldersAndFilesInOrder) {
  Write("models/b/1/model.onnx", "12345");
  Write("models/b/1/data/w.bin", "123");
  Write("models/b/1/.hidden", "");
  Write("models/a/config.pbtxt", "");
  Write("models/.git/config", "");
  Write("models/README", "");
  EXPECT_THAT(Open().Folders("").value(), ElementsAre("a", "b"));
  EXPECT_THAT(Open().Folders("b").value(), ElementsAre("1"));
  EXPECT_THAT(Paths("b/1"), ElementsAre("data/w.bin 3", "model.onnx 5"));
  EXPECT_EQ(Open().ReadText("b/1/model.onnx", 5).value(), "12345");
}

TEST_F(FolderTest, ErrorsNameThePath) {
  Write("models/m/1/a", "1");
  Write("models/m/1/b", "1");
  const RepositoryFolder folder = Open();
  EXPECT_EQ(RepositoryFolder::Open(base_ / "none").status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(RepositoryFolder::Open(base_ / "models/m/1/a").status().message()),
              HasSubstr("m/1/a"));
  EXPECT_EQ(folder.Files("m/2", 100).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(folder.ReadText("m/config.pbtxt", 100).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(folder.Files("m/1", 1).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(folder.ReadText("m/1/a", 0).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(folder.OpenFile("m/1/a")->ReadAt(0, 2).status().message()),
              HasSubstr("ends at 1"));
  EXPECT_FALSE(folder.OpenFile("m/1").ok());
}

TEST_F(FolderTest, LinksStayInTheRepository) {
  Write("models/store/w.bin", "weights");
  Write("secret", "a key");
  Link("../../store/w.bin", "models/m/1/model.onnx");
  EXPECT_THAT(Paths("m/1"), ElementsAre("model.onnx 7"));
  EXPECT_EQ(Open().ReadText("m/1/model.onnx", 100).value(), "weights");
  Link((base_ / "secret").string(), "models/out/1/model.onnx");
  EXPECT_THAT(FilesError("out/1"), HasSubstr("link out of the model repository"));
  EXPECT_FALSE(Open().OpenFile("out/1/model.onnx").ok());
  Link("..", "models/up");
  EXPECT_THAT(std::string(Open().Folders("up").status().message()), HasSubstr("link out"));
  Link("nowhere", "models/broken/1/model.onnx");
  EXPECT_THAT(FilesError("broken/1"), HasSubstr("there is no \"broken/1/model.onnx\""));
  Link("nowhere", "models/lost");
  EXPECT_THAT(Open().Folders("").value(), ElementsAre("broken", "lost", "m", "out", "store", "up"));
  Link(".", "models/round/1/again");
  EXPECT_THAT(FilesError("round/1"), HasSubstr("a link leads to a folder that is listed already"));
}

TEST_F(FolderTest, LinksMakeNoWalkLong) {
  // Each folder holds two links to the next: 2^7 ways to the last.
  for (int i = 0; i < 7; ++i) {
    const std::string next = "../" + std::to_string(i + 1);
    fs::create_directories(base_ / "models/chain" / std::to_string(i + 1));
    Link(next, "models/chain/" + std::to_string(i) + "/a");
    Link(next, "models/chain/" + std::to_string(i) + "/b");
  }
  Write("models/chain/7/w.bin", "123");
  EXPECT_THAT(FilesError("chain/0"), HasSubstr("a link leads to a folder that is listed already"));
  EXPECT_THAT(Paths("chain/7"), ElementsAre("w.bin 3"));
  Link("../../chain/7", "models/m/1/data");  // a folder that is there once is followed
  EXPECT_THAT(Paths("m/1"), ElementsAre("data/w.bin 3"));
  for (int i = 0; i < 3; ++i) fs::create_directories(base_ / "models/n/1" / std::to_string(i));
  EXPECT_TRUE(Open().Files("n/1", 3).ok());
  EXPECT_EQ(Open().Files("n/1", 2).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(FolderTest, FoldersInsideEachOtherAreBounded) {
  Write("models/m/1/a/b/c/d/e/f/g/h/w.bin", "123");
  EXPECT_THAT(Paths("m/1"), ElementsAre("a/b/c/d/e/f/g/h/w.bin 3"));
  Write("models/m/1/a/b/c/d/e/f/g/h/i/w.bin", "123");
  EXPECT_THAT(FilesError("m/1"), HasSubstr("folders inside each other"));
}

TEST_F(FolderTest, OtherThanFilesIsRefused) {
  fs::create_directories(base_ / "models/m/1");
  ASSERT_EQ(mkfifo((base_ / "models/m/1/model.onnx").c_str(), 0600), 0);
  EXPECT_THAT(FilesError("m/1"), HasSubstr("neither a file nor a folder"));
  EXPECT_THAT(std::string(Open().OpenFile("m/1/model.onnx").status().message()),
              HasSubstr("it is no file"));
}

TEST_F(FolderTest, UnreadableIsNamed) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads everything";
  Write("models/m/1/model.onnx", "1");
  fs::permissions(base_ / "models/m/1", fs::perms::none);
  EXPECT_THAT(FilesError("m/1"), HasSubstr("Permission denied"));
  fs::permissions(base_ / "models/m/1", fs::perms::owner_all);
}

TEST_F(FolderTest, StampsChangeWithFiles) {
  Write("models/m/1/a", "123");
  const auto stamp = [&] { return Open().Files("m/1", 100).value().stamp; };
  std::string last = stamp();
  EXPECT_EQ(stamp(), last);
  const auto changes = [&](const char* what) {
    EXPECT_NE(stamp(), last) << what;
    last = stamp();
  };
  Write("models/m/1/a", "1234");
  changes("size");
  fs::last_write_time(base_ / "models/m/1/a",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  changes("time");
  fs::rename(base_ / "models/m/1/a", base_ / "models/m/1/b");
  changes("name");
  Write("models/m/1/.c", "1");
  EXPECT_EQ(stamp(), last);
}

}  // namespace
}  // namespace athanor
