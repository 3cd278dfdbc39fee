// After a start with a missing or empty registry.db, every tensor counted as unused and was
// deleted. Also tests a start with each file of the state directory missing, empty, a directory or
// garbage.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/log.h"
#include "server/storage/storage_testing.h"
#include "server/testing/core_testing.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RegistryLostTest : public CoreTest {
 protected:
  void SetUp() override {
    CoreTest::SetUp();
    Store("m", model_);
    tensor_ = TensorPath(options_.state_dir, model_.tensors.begin()->first);
    core_.reset();
  }

  std::string Path(const std::string& name) const { return options_.state_dir + "/" + name; }
  void RemoveRegistry() const {
    for (const char* name : {"registry.db", "registry.db-wal", "registry.db-shm"}) {
      fs::remove(Path(name));
    }
  }
  absl::Status Start() {
    auto core = ServerCore::Create(options_, EvaluatorFactory(control_));
    if (!core.ok()) return core.status();
    core_ = *std::move(core);
    return absl::OkStatus();
  }
  // Returns what the start writes to the log.
  std::string LogOfStart() {
    // Only once: a replaced logger is never freed.
    static const bool logs = (InitLog("info", "text"), true);
    EXPECT_TRUE(logs);
    testing::internal::CaptureStderr();
    const absl::Status started = Start();
    std::string log = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(started.ok()) << started;
    return log;
  }
  void ExpectServes() {
    const auto version = core_->registry().Find("m", "");
    ASSERT_TRUE(version.ok()) << version.status();
    ASSERT_TRUE(Await(**version).ok());
    EXPECT_EQ(Run(**version, 3).value(), 6);
  }

  const TestModel model_ = ScaleModel({2});
  std::string tensor_;
};

TEST_F(RegistryLostTest, WeightsAreKeptWhereItIsMissing) {
  RemoveRegistry();
  const std::string log = LogOfStart();
  EXPECT_FALSE(fs::exists(tensor_));
  const std::vector<std::string> kept = FilesBelow(Path("aside"));
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(fs::file_size(kept[0]), sizeof(float));
  EXPECT_THAT(log, AllOf(HasSubstr("registry.db is missing or empty, but there are weights"),
                         HasSubstr("files=1"), HasSubstr("put the registry.db back"),
                         HasSubstr("rm -r " + Path("aside/"))));
}

TEST_F(RegistryLostTest, WeightsAreKeptWhereItIsEmpty) {
  RemoveRegistry();
  WriteFile(Path("registry.db"), "");
  const std::string log = LogOfStart();
  EXPECT_EQ(FilesBelow(Path("aside")).size(), 1u);
  EXPECT_THAT(log, HasSubstr("registry.db is missing or empty"));
}

TEST_F(RegistryLostTest, ThoseThatTheRegistryNamesAgainAreTakenBack) {
  fs::rename(Path("registry.db"), Path("saved.db"));
  RemoveRegistry();
  ASSERT_TRUE(Start().ok());
  EXPECT_FALSE(fs::exists(tensor_));
  core_.reset();
  RemoveRegistry();
  fs::rename(Path("saved.db"), Path("registry.db"));
  EXPECT_THAT(LogOfStart(), HasSubstr("put aside were taken back"));
  EXPECT_TRUE(fs::exists(tensor_));
  EXPECT_TRUE(FilesBelow(Path("aside")).empty());
  ExpectServes();
}

// An older copy of the registry does not hold the later models.
TEST_F(RegistryLostTest, WeightsOfLaterModelsAreKeptUnderAnOlderRegistry) {
  fs::copy_file(Path("registry.db"), Path("saved.db"));
  ASSERT_TRUE(Start().ok());
  Store("later", ScaleModel({5}));
  core_.reset();
  RemoveRegistry();
  fs::rename(Path("saved.db"), Path("registry.db"));
  EXPECT_THAT(LogOfStart(), HasSubstr("no model in registry.db names"));
  EXPECT_EQ(FilesBelow(Path("aside")).size(), 1u);
  ExpectServes();
}

TEST_F(RegistryLostTest, EachStartHasAFolderOfItsOwn) {
  for (size_t starts = 1; starts <= 3; ++starts) {
    fs::create_directories(Path("tensors/ff"));
    WriteFile(Path("tensors/ff/0123"), "bytes");
    ASSERT_TRUE(Start().ok());
    core_.reset();
    EXPECT_EQ(FilesBelow(Path("aside")).size(), starts);
  }
  ASSERT_TRUE(Start().ok());
  ExpectServes();
}

// A disk that refuses to move files out of the folders of tensors.
class StuckDisk final : public Disk {
 public:
  absl::Status Rename(const std::string&, const std::string& to) override {
    return DiskError(EROFS, "rename to", to);
  }
};

TEST_F(RegistryLostTest, WhatCannotBePutAsideStays) {
  RemoveRegistry();
  StuckDisk disk;
  core_ = ServerCore::Create(options_, EvaluatorFactory(control_), &disk).value();
  EXPECT_TRUE(fs::exists(tensor_));
  core_.reset();
}

TEST_F(RegistryLostTest, ADamagedOneIsRefusedAndStays) {
  const auto size = fs::file_size(Path("registry.db"));
  std::string bytes(size, '\0');
  std::ifstream(Path("registry.db"), std::ios::binary)
      .read(bytes.data(), static_cast<std::streamsize>(size));
  std::string torn = bytes, shuffled = bytes;
  torn.resize(size / 2 / 4096 * 4096);
  for (size_t at = 4096; at < size; at += 4096)
    shuffled[at] = '\x7f';  // changes the type byte of each page
  for (const std::string& damaged : {std::string("no database at all"), torn, shuffled}) {
    RemoveRegistry();
    WriteFile(Path("registry.db"), damaged);
    const absl::Status started = Start();
    EXPECT_EQ(started.code(), absl::StatusCode::kFailedPrecondition) << started;
    EXPECT_THAT(std::string(started.message()),
                AllOf(HasSubstr(Path("registry.db")), HasSubstr("put a copy of it back")));
    EXPECT_TRUE(fs::exists(tensor_));
    EXPECT_EQ(fs::file_size(Path("registry.db")), damaged.size());
  }
  RemoveRegistry();
  WriteFile(Path("registry.db"), bytes);
  ASSERT_TRUE(Start().ok());
  ExpectServes();
}

// SQLite deletes the log of a missing file.
TEST_F(RegistryLostTest, ItsLogIsKept) {
  RemoveRegistry();
  WriteFile(Path("registry.db-wal"), "all that is left");
  ASSERT_TRUE(Start().ok());
  core_.reset();
  int kept = 0;
  for (const auto& entry : fs::directory_iterator(options_.state_dir)) {
    const bool aside = entry.path().filename().string().starts_with("registry.db-wal.aside-");
    if (aside) EXPECT_EQ(fs::file_size(entry.path()), 16u);
    kept += aside ? 1 : 0;
  }
  EXPECT_EQ(kept, 1);
}

TEST_F(RegistryLostTest, WhatIsADirectoryIsRefusedByName) {
  for (const char* name : {"registry.db", "lock"}) {
    fs::rename(Path(name), Path("saved"));
    fs::create_directory(Path(name));
    const absl::Status started = Start();
    EXPECT_EQ(started.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(std::string(started.message()), HasSubstr(Path(name)));
    fs::remove(Path(name));
    fs::rename(Path("saved"), Path(name));
  }
  EXPECT_TRUE(fs::exists(tensor_));
  ASSERT_TRUE(Start().ok());
  ExpectServes();
}

TEST_F(RegistryLostTest, WhatIsNoDirectoryIsRefusedByName) {
  for (const char* name : {"tensors", "blobs", "tmp"}) {
    fs::rename(Path(name), Path("saved"));
    WriteFile(Path(name), "a file");
    const absl::Status started = Start();
    EXPECT_EQ(started.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(std::string(started.message()), HasSubstr(Path(name)));
    fs::remove(Path(name));
    fs::rename(Path("saved"), Path(name));
  }
  ASSERT_TRUE(Start().ok());
  ExpectServes();
}

TEST_F(RegistryLostTest, WhatHoldsNothingThatLastsIsMadeAnew) {
  fs::create_directories(Path("tmp/folder/inner"));
  WriteFile(Path("tmp/folder/inner/file"), "left");
  WriteFile(Path("lock"), "no number");
  WriteFile(Path("plans"), "a file");
  fs::remove_all(Path("blobs"));
  ASSERT_TRUE(Start().ok());
  EXPECT_TRUE(fs::is_empty(Path("tmp")));
  EXPECT_TRUE(fs::is_directory(Path("blobs")));
  ExpectServes();
}

}  // namespace
}  // namespace athanor
