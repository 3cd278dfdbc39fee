// Tests the check of a state directory without a server.
#include "server/storage/fsck.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/storage/storage_testing.h"
#include "server/testing/core_testing.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class FsckTest : public CoreTest {
 protected:
  void SetUp() override {
    CoreTest::SetUp();
    Store("m", model_);
    Store("n", model_);
    hash_ = model_.tensors.begin()->first;
    path_ = TensorPath(options_.state_dir, hash_);
  }

  std::string Path(const std::string& name) const { return options_.state_dir + "/" + name; }
  // Returns a line such as "damaged tensor ab12: why" for each finding.
  std::vector<std::string> Check() {
    core_.reset();
    std::vector<std::string> lines;
    const absl::Status done = CheckStateDirectory(options_.state_dir, [&](const FsckFinding& f) {
      lines.push_back(
          absl::StrCat(VerdictText(f.verdict), " ", f.kind, " ", f.name, ": ", f.detail));
    });
    EXPECT_TRUE(done.ok()) << done;
    return lines;
  }

  const TestModel model_ = ScaleModel({2, 3});
  std::string hash_, path_;
};

TEST_F(FsckTest, WhatIsWholeIsListed) {
  EXPECT_THAT(Check(), testing::ElementsAre(
                           StartsWith(absl::StrCat("ok registry ", Path("registry.db"))),
                           StartsWith("ok version m/1: 1 tensors"), StartsWith("ok version n/1"),
                           absl::StrCat("ok tensor ", absl::BytesToHexString(hash_), ": 8 bytes")));
}

TEST_F(FsckTest, ADirectoryInUseIsLeftAlone) {
  const absl::Status status =
      CheckStateDirectory(options_.state_dir, [](const FsckFinding&) { FAIL(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is used by another server"));
  const absl::Status none = CheckStateDirectory(Path("none"), [](const FsckFinding&) { FAIL(); });
  EXPECT_THAT(std::string(none.message()), HasSubstr("is not a directory"));
}

TEST_F(FsckTest, DamagedWeightsAreNamedWithTheirModels) {
  WriteFile(path_, "12345678");
  const std::string tensor = absl::StrCat("damaged tensor ", absl::BytesToHexString(hash_), ": ");
  EXPECT_THAT(Check(), Contains(AllOf(StartsWith(tensor), HasSubstr(path_), HasSubstr("m/1, n/1"),
                                      HasSubstr(Sha256Hex("12345678")))));
  EXPECT_TRUE(fs::exists(path_)) << "nothing is moved";
  WriteFile(path_, "123");
  EXPECT_THAT(Check(), Contains(AllOf(StartsWith(tensor), HasSubstr("has 3 bytes"))));
  fs::remove(path_);
  EXPECT_THAT(Check(), Contains(AllOf(StartsWith(tensor), HasSubstr("No such file"))));
}

TEST_F(FsckTest, AWrongSealIsNoted) {
  ASSERT_TRUE(core_->registry().db().Execute("UPDATE tensor_seals SET seal=zeroblob(32)").ok());
  const std::vector<std::string> lines = Check();
  const std::string hex = absl::BytesToHexString(hash_);
  EXPECT_THAT(lines, Contains(StartsWith("ok tensor " + hex)));
  EXPECT_THAT(lines,
              Contains(AllOf(StartsWith("note seal " + hex), HasSubstr("--verify_weights"))));
}

TEST_F(FsckTest, ADamagedRowIsNamed) {
  ASSERT_TRUE(
      core_->registry().db().Execute("UPDATE versions SET graph=x'00' WHERE name='m'").ok());
  const std::vector<std::string> lines = Check();
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("damaged version m/1: "), HasSubstr("SHA-256"))));
  EXPECT_THAT(lines, Contains(StartsWith("ok version n/1")));
}

TEST_F(FsckTest, WeightsWithoutARegistryAreDamage) {
  core_.reset();
  fs::rename(Path("registry.db"), Path("saved"));
  EXPECT_THAT(Check(),
              Contains(AllOf(StartsWith("damaged registry "), HasSubstr("1 files, 8 bytes"),
                             HasSubstr("missing or empty, but there are weights"))));
  EXPECT_FALSE(fs::exists(Path("registry.db"))) << "none is made";
  WriteFile(Path("registry.db"), "no database");
  EXPECT_THAT(Check(),
              Contains(AllOf(StartsWith("damaged registry "), HasSubstr("put a copy of it back"))));
  EXPECT_TRUE(fs::exists(path_));
}

TEST_F(FsckTest, WhatLiesBesideIsNoted) {
  WriteFile(Path("tensors/ff/0123"), "x");
  WriteFile(Path("aside/20261122T000000Z/tensors/ff/0123"), "xy");
  WriteFile(Path("quarantine/ff0123-20261122T000000Z"), "xyz");
  const std::string rest = "the rest of a pinned plan";
  WriteFile(Path("plans/right"), Sha256Of(rest) + rest);
  WriteFile(Path("plans/wrong"), Sha256Of("other") + rest);
  WriteFile(Path("plans/half.new"), "x");
  const std::vector<std::string> lines = Check();
  EXPECT_THAT(lines, Contains(StartsWith("note file " + Path("tensors/ff/0123"))));
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("note aside "), HasSubstr("1 files, 2 bytes"))));
  EXPECT_THAT(lines,
              Contains(AllOf(StartsWith("note quarantine "), HasSubstr("1 files, 3 bytes"))));
  EXPECT_THAT(lines, Contains(StartsWith("ok pinned plan " + Path("plans/right"))));
  EXPECT_THAT(lines, Contains(StartsWith("damaged pinned plan " + Path("plans/wrong"))));
  EXPECT_THAT(lines, Contains(StartsWith("note pinned plan " + Path("plans/half.new"))));
}

}  // namespace
}  // namespace athanor
