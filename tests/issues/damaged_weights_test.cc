// Weights whose file had changed were served unchecked, and uploading the right bytes again did
// nothing, because the tensor was "there already". A graph whose bytes had changed in registry.db
// was served, too.
#include <sqlite3.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/storage/file_stamp.h"
#include "server/storage/storage_testing.h"
#include "server/testing/onnx_testing.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string HexOf(const TestModel& model) {
  return absl::BytesToHexString(model.tensors.begin()->first);
}

class DamagedWeightsTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return test_.options.state_dir + "/" + name; }
  std::string PathOf(const TestModel& model) const {
    return TensorPath(test_.options.state_dir, model.tensors.begin()->first);
  }
  // Returns the tensors that an upload would have to send after proving that it has the bytes.
  std::vector<std::string> Missing(const TestModel& model) {
    const std::string& hash = model.tensors.begin()->first;
    if (test_.server->core().registry().Pin({hash}).ok()) return {};
    return {hash};
  }
  // Waits until the version's job has ended.
  v1::Model Settled(const std::string& name, const std::string& version = "") {
    test_.WaitForJob(test_.Get(name, version).compile_job_id());
    return test_.Get(name, version);
  }
  void ExpectRefused(const std::string& name, const std::string& version,
                     const testing::Matcher<std::string>& message) {
    const v1::Model model = Settled(name, version);
    EXPECT_EQ(model.state(), v1::Model::FAILED);
    EXPECT_EQ(model.plan_id(), "");
    EXPECT_THAT(model.error(), message);
    inference::ModelInferRequest request = FloatRequest(name, {1});
    request.set_model_version(version);
    const grpc::Status status = test_.Infer(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(), message);
  }
  void ExpectServes(const std::string& name, const std::string& version, float x, float y) {
    EXPECT_EQ(Settled(name, version).state(), v1::Model::READY) << name;
    inference::ModelInferRequest request = FloatRequest(name, {x});
    request.set_model_version(version);
    inference::ModelInferResponse reply;
    const grpc::Status status = test_.Infer(request, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(reply.raw_output_contents(0), FloatBytes({y}));
  }
  // Executes SQL while no server runs.
  void Execute(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(Path("registry.db").c_str(), &db), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_free(error);
    sqlite3_close(db);
  }

  const TestModel model_ = ScaleModel({2});
  PausedDisk disk_;
  TestServer test_{{}, &disk_};
};

TEST_F(DamagedWeightsTest, AreRefusedByNameAndHealedByAnUpload) {
  test_.Upload("m", model_);
  test_.Upload("other", ScaleModel({5}));
  const std::string path = PathOf(model_), right = ReadFile(path);
  test_.server.reset();
  DamageFile(path);
  const std::string wrong = ReadFile(path);
  test_.Restart();
  ExpectRefused("m", "1",
                AllOf(HasSubstr("model \"m\", version 1, is damaged"), HasSubstr("parameter \"w\""),
                      HasSubstr(path), HasSubstr("has SHA-256 " + Sha256Hex(wrong)),
                      HasSubstr("expected " + HexOf(model_)), HasSubstr("upload the model again")));
  ExpectServes("other", "1", 2, 10);
  EXPECT_FALSE(fs::exists(path));
  const std::vector<std::string> quarantined = FilesBelow(Path("quarantine"));
  ASSERT_EQ(quarantined.size(), 1u);
  EXPECT_EQ(ReadFile(quarantined[0]), wrong);
  EXPECT_THAT(Missing(model_), ElementsAre(model_.tensors.begin()->first));

  test_.Upload("m", model_);
  EXPECT_EQ(ReadFile(path), right);
  ExpectServes("m", "1", 3, 6);
  ExpectServes("m", "2", 3, 6);
  EXPECT_THAT(Missing(model_), IsEmpty());
  test_.Restart();
  ExpectServes("m", "1", 3, 6);
  ExpectServes("m", "2", 3, 6);
}

// A client sends bytes that the server believed to have.
TEST_F(DamagedWeightsTest, OfAModelThatServesAreHealedByAnUpload) {
  test_.Upload("m", model_);
  DamageFile(PathOf(model_));
  test_.Upload("again", model_);
  ExpectServes("m", "1", 3, 6);
  ExpectServes("again", "1", 3, 6);
  EXPECT_EQ(FilesBelow(Path("quarantine")).size(), 1u);
}

TEST_F(DamagedWeightsTest, AreMissingToWhoAsksBeforeAnUpload) {
  test_.Upload("m", model_);
  EXPECT_THAT(Missing(model_), IsEmpty());
  DamageFile(PathOf(model_));
  EXPECT_THAT(Missing(model_), ElementsAre(model_.tensors.begin()->first));
  ExpectRefused("m", "1", HasSubstr("parameter \"w\""));
}

TEST_F(DamagedWeightsTest, ModelsThatShareThemAreRefusedAndHealedTogether) {
  test_.Upload("a", model_);
  test_.Upload("b", model_);
  test_.server.reset();
  DamageFile(PathOf(model_));
  test_.Restart();
  ExpectRefused("a", "1", HasSubstr("model \"a\", version 1"));
  ExpectRefused("b", "1", HasSubstr("model \"b\", version 1"));
  test_.Upload("c", model_);
  for (const char* name : {"a", "b", "c"}) ExpectServes(name, "1", 3, 6);
}

TEST_F(DamagedWeightsTest, ADamagedModelCanBeDeletedAndUploadedAnew) {
  test_.Upload("m", model_);
  test_.server.reset();
  DamageFile(PathOf(model_));
  test_.Restart();
  ExpectRefused("m", "1", HasSubstr("is damaged"));
  ASSERT_TRUE(test_.server->core().registry().Delete("m", "").ok());
  test_.Upload("m", model_);
  ExpectServes("m", "2", 3, 6);
}

TEST_F(DamagedWeightsTest, OfEveryKindAreRefusedAndHealed) {
  const std::string path = PathOf(model_);
  const std::vector<std::pair<std::function<void()>, std::string>> kinds = {
      {[&] { fs::remove(path); }, "No such file"},
      {[&] { fs::resize_file(path, 3); }, "has 3 bytes, the tensor has 4"},
      {[&] { fs::resize_file(path, 5); }, "has 5 bytes, the tensor has 4"},
      {[&] { fs::resize_file(path, 0); }, "has 0 bytes, the tensor has 4"},
      {[&] { EXPECT_TRUE(fs::remove(path) && fs::create_directory(path)); },
       "is not a regular file"},
      {[&] { EXPECT_TRUE(fs::remove(path) && mkfifo(path.c_str(), 0600) == 0); },
       "is not a regular file"},
      {[&] { fs::remove(path), fs::create_symlink("nowhere", path); }, "No such file"}};
  int version = 0;
  for (const auto& [damage, message] : kinds) {
    test_.Upload("m", model_);
    test_.server.reset();
    damage();
    test_.Restart();
    const std::string number = std::to_string(++version);
    ExpectRefused("m", number, AllOf(HasSubstr(path), HasSubstr(message)));
    test_.Upload("m", model_);
    ExpectServes("m", number, 3, 6);
    ExpectServes("m", std::to_string(++version), 3, 6);
  }
}

TEST_F(DamagedWeightsTest, TapsDoNotServeThemEither) {
  const TestModel chain = ChainModel({2});
  test_.Upload("m", chain);
  inference::ModelInferRequest request = FloatRequest("m", {3});
  (*request.mutable_parameters())["taps"].set_string_param("hidden");
  ASSERT_TRUE(test_.Infer(request).ok());
  DamageFile(PathOf(chain));
  EXPECT_EQ(Missing(chain).size(), 1u);
  EXPECT_EQ(test_.Infer(request).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  test_.Upload("m", chain);
  ExpectServes("m", "1", 3, 12);
  request.set_model_version("1");
  const grpc::Status tapped = test_.Infer(request);
  EXPECT_TRUE(tapped.ok()) << tapped.error_message();
}

TEST_F(DamagedWeightsTest, AFileThatIsAsItWasIsNotReadAgain) {
  test_.Upload("m", model_);
  const std::string path = PathOf(model_);
  for (int start = 0; start < 2; ++start) {
    const auto verified = test_.server->core().registry().db().ReadVerified().value();
    ASSERT_EQ(verified.size(), 1u);
    EXPECT_EQ(verified[0].stamp, StampOf(path).value());
    test_.Restart();
    ExpectServes("m", "1", 3, 6);
  }
  // A copy has another inode, so it is read once.
  test_.server.reset();
  fs::copy_file(path, path + "x");
  fs::rename(path + "x", path);
  test_.Restart();
  ExpectServes("m", "1", 3, 6);
  const auto verified = test_.server->core().registry().db().ReadVerified().value();
  EXPECT_EQ(verified[0].stamp, StampOf(path).value());
}

// The disk damages a file by itself: its row still says that the file was checked.
TEST_F(DamagedWeightsTest, UnderAStampThatDidNotChangeAreFoundByTheFlag) {
  test_.Upload("m", model_);
  test_.server.reset();
  DamageFile(PathOf(model_));
  const FileStamp stamp = StampOf(PathOf(model_)).value();
  Execute(absl::StrCat("UPDATE verified_tensors SET changed_ns=", stamp.changed_ns,
                       ", modified_ns=", stamp.modified_ns));
  test_.Restart();
  EXPECT_EQ(Settled("m").state(), v1::Model::READY);
  test_.server.reset();
  test_.options.verify_weights = true;
  test_.Restart();
  ExpectRefused("m", "1", HasSubstr("is damaged"));
  test_.Upload("m", model_);
  ExpectServes("m", "1", 3, 6);
}

// The server was killed just after it had moved the file.
TEST_F(DamagedWeightsTest, AQuarantineThatWasCutOffIsGoneOnWith) {
  test_.Upload("m", model_);
  test_.server.reset();
  fs::create_directory(Path("quarantine"));
  fs::rename(PathOf(model_), Path("quarantine/moved"));
  test_.Restart();
  ExpectRefused("m", "1", HasSubstr("No such file"));
  test_.Upload("m", model_);
  ExpectServes("m", "1", 3, 6);
}

// The server was killed when the right bytes had their name, but before it acknowledged the upload.
TEST_F(DamagedWeightsTest, AHealingThatWasCutOffHasHealed) {
  test_.Upload("m", model_);
  const std::string right = ReadFile(PathOf(model_));
  test_.server.reset();
  DamageFile(PathOf(model_));
  test_.Restart();
  ExpectRefused("m", "1", HasSubstr("is damaged"));
  test_.server.reset();
  std::ofstream(PathOf(model_), std::ios::binary) << right;
  test_.Restart();
  ExpectServes("m", "1", 3, 6);
}

TEST_F(DamagedWeightsTest, ADiskThatFailsWhileTheyAreHealedLeavesThemRefused) {
  test_.Upload("m", model_);
  test_.server.reset();
  DamageFile(PathOf(model_));
  test_.Restart();
  ExpectRefused("m", "1", HasSubstr("is damaged"));
  disk_.before = [] { return DiskError(ENOSPC, "rename", "tensor"); };
  EXPECT_EQ(test_.Send(UploadMessages("m", model_)).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  ExpectRefused("m", "1", HasSubstr("is damaged"));
  test_.Upload("m", model_);
  ExpectServes("m", "1", 3, 6);
}

TEST_F(DamagedWeightsTest, ThatCannotBePutIntoQuarantineAreRefusedToo) {
  test_.Upload("m", model_);
  test_.server.reset();
  DamageFile(PathOf(model_));
  disk_.before = [] { return DiskError(EROFS, "rename", "quarantine"); };
  test_.Restart();
  ExpectRefused("m", "1", AllOf(HasSubstr("is damaged"), HasSubstr("Read-only file system")));
  test_.Upload("m", model_);
  ExpectServes("m", "1", 3, 6);
}

class DamagedBlobsTest : public DamagedWeightsTest {
 protected:
  static std::vector<float> Numbers(size_t count, float first) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i);
    return values;
  }
  void Upload(const std::string& name, const OnnxFiles& model) {
    v1::UploadModelResponse reply;
    const grpc::Status status = test_.Send(OnnxMessages(name, model), &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    test_.WaitForJob(reply.compile_job_id());
  }
  void ExpectOutputs(const std::string& name, const std::string& version,
                     const std::map<std::string, std::vector<float>>& weights) {
    EXPECT_EQ(Settled(name, version).state(), v1::Model::READY) << name << version;
    inference::ModelInferRequest request = FloatRequest(name, {1});
    request.set_model_version(version);
    inference::ModelInferResponse reply;
    const grpc::Status status = test_.Infer(request, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    for (int i = 0; i < reply.outputs_size(); ++i) {
      const auto weight = weights.find(reply.outputs(i).name());
      if (weight == weights.end()) continue;
      EXPECT_EQ(reply.raw_output_contents(i), FloatBytes(weight->second)) << weight->first;
    }
  }

  // Stores models "m" of both tensors and "a" of the first alone in one file, and damages the
  // second tensor.
  void DamageTheSecond(size_t first, size_t second) {
    const std::vector<float> a = Numbers(first, 1), b = Numbers(second, 50'000);
    Upload("m", OnnxModelOf({{"a", a}, {"b", b}}));
    Upload("a", OnnxModelOf({{"a", a}}));
    ASSERT_EQ(FilesBelow(Path("blobs")).size(), 1u);
    ASSERT_THAT(FilesBelow(Path("tensors")), IsEmpty());
    const std::string blob = FilesBelow(Path("blobs"))[0];
    const size_t at = ReadFile(blob).find(FloatBytes(b));
    test_.server.reset();
    DamageFile(blob, static_cast<int64_t>(at) + 5);
    test_.Restart();
    ExpectRefused("m", "1",
                  AllOf(HasSubstr("parameter \"b\""), HasSubstr(blob),
                        HasSubstr(absl::StrCat("from byte ", at))));
    ExpectOutputs("a", "1", {{"a", a}});
    EXPECT_TRUE(fs::exists(blob)) << "other tensors lie in it";
    EXPECT_EQ(FilesBelow(Path("quarantine")).size(), 1u);
    Upload("m", OnnxModelOf({{"a", a}, {"b", b}}));
    for (int start = 0; start < 2; ++start) {
      ExpectOutputs("a", "1", {{"a", a}});
      ExpectOutputs("m", "1", {{"a", a}, {"b", b}});
      ExpectOutputs("m", "2", {{"a", a}, {"b", b}});
      test_.Restart();
    }
    EXPECT_THAT(FilesBelow(Path("aside")), IsEmpty());
  }
};

// Most of the file is damaged, so the replacement becomes a range of the file again.
TEST_F(DamagedBlobsTest, AreReplacedWhereTheyLie) {
  DamageTheSecond(1'000, 7'000);
  EXPECT_THAT(FilesBelow(Path("tensors")), IsEmpty());
}

TEST_F(DamagedBlobsTest, OfAFewOfTheirBytesGetAFileOfTheirOwn) {
  DamageTheSecond(7'000, 1'000);
  EXPECT_EQ(FilesBelow(Path("tensors")).size(), 1u);
  EXPECT_EQ(FilesBelow(Path("blobs")).size(), 1u);
}

// The right bytes are in their new place, but the row of the upload that brought them is not
// written: a start now is one after a kill at that moment.
class CutOffHealingTest : public DamagedBlobsTest {
 protected:
  void Heal(const std::vector<v1::UploadModelRequest>& messages) {
    ASSERT_EQ(Settled("m").state(), v1::Model::FAILED);
    const absl::Status cut = test_.server->core().registry().db().Execute(
        "CREATE TRIGGER cut_off BEFORE INSERT ON versions BEGIN SELECT RAISE(FAIL, 'now'); END");
    ASSERT_TRUE(cut.ok()) << cut;
    EXPECT_FALSE(test_.Send(messages).ok());
    EXPECT_EQ(Settled("m").state(), v1::Model::READY);
    test_.server.reset();
    Execute("DROP TRIGGER cut_off");
    test_.Restart();
    EXPECT_THAT(FilesBelow(Path("aside")), IsEmpty());
  }
  const std::vector<float> w_ = Numbers(2'000, 1);
};

// The file holds nothing but the damaged tensor, so it is removed.
TEST_F(CutOffHealingTest, FromAFileOfSeveralToOneOfItsOwn) {
  Upload("m", OnnxModelOf({{"w", w_}}));
  ASSERT_EQ(FilesBelow(Path("blobs")).size(), 1u);
  const std::string blob = FilesBelow(Path("blobs"))[0];
  test_.server.reset();
  DamageFile(blob, static_cast<int64_t>(ReadFile(blob).find(FloatBytes(w_))) + 5);
  test_.Restart();
  Heal(UploadMessages("n", ScaleModel(w_)));
  ExpectOutputs("m", "1", {{"w", w_}});
  EXPECT_THAT(FilesBelow(Path("blobs")), IsEmpty());
}

TEST_F(CutOffHealingTest, FromAFileOfItsOwnToOneOfSeveral) {
  const TestModel model = ScaleModel(w_);
  test_.Upload("m", model);
  test_.server.reset();
  DamageFile(PathOf(model));
  test_.Restart();
  Heal(OnnxMessages("n", OnnxModelOf({{"w", w_}})));
  ASSERT_EQ(Settled("m").state(), v1::Model::READY);
  EXPECT_EQ(test_.Infer("m", std::vector<float>(w_.size(), 1)), w_);
  EXPECT_THAT(FilesBelow(Path("tensors")), IsEmpty());
}

class DamagedGraphTest : public DamagedWeightsTest {};

TEST_F(DamagedGraphTest, IsRefusedByName) {
  test_.Upload("m", model_);
  test_.Upload("doubled", ChainModel({2}));
  test_.server.reset();
  // Another valid graph: y = relu(2 x * w).
  Execute(
      "UPDATE versions SET graph=(SELECT graph FROM versions WHERE name='doubled') "
      "WHERE name='m'");
  test_.Restart();
  const v1::Model model = test_.Get("m");
  EXPECT_EQ(model.state(), v1::Model::FAILED);
  const auto named =
      AllOf(HasSubstr("model \"m\", version 1, is damaged"), HasSubstr("registry.db have SHA-256"),
            HasSubstr("expected"), HasSubstr("upload the model again, and delete this version"));
  EXPECT_THAT(model.error(), named);
  const grpc::Status status = test_.Infer(FloatRequest("m", {3}));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), named);
  ExpectServes("doubled", "1", 3, 12);
  // A job does not compile it.
  grpc::ClientContext context;
  v1::StartCompileRequest request;
  request.set_model("m");
  v1::CompileJob job;
  ASSERT_TRUE(test_.compile->StartCompile(&context, request, &job).ok());
  EXPECT_EQ(test_.WaitForJob(job.id()).phase(), v1::CompileJob::FAILED);
  EXPECT_THAT(test_.Get("m").error(), named);
  test_.Upload("m", model_);
  ExpectServes("m", "", 3, 6);
}

// A damaged row's statement about a tensor is not applied to other versions that have the tensor.
TEST_F(DamagedGraphTest, SoIsAVersionWhoseTensorsChanged) {
  test_.Upload("m", model_);
  test_.Upload("a", model_);
  test_.Upload("z", model_);
  test_.server.reset();
  Execute("UPDATE version_tensors SET bytes=-1 WHERE name='m'");
  test_.Restart();
  EXPECT_EQ(test_.Get("m").state(), v1::Model::FAILED);
  EXPECT_THAT(test_.Get("m").error(), HasSubstr("is damaged"));
  ExpectServes("a", "1", 3, 6);
  ExpectServes("z", "1", 3, 6);
  EXPECT_TRUE(fs::exists(PathOf(model_)));
}

TEST_F(DamagedGraphTest, SoIsAVersionThatWouldBeServedOtherwise) {
  for (const char* change :
       {"deterministic=1", "approximate=1", "search_budget='1h'", "batch_dim='n'",
        "disable_rules='algebra'", "notes=x'00'", "format='onnx'"}) {
    const v1::UploadModelResponse stored = test_.Upload("m", model_);
    test_.server.reset();
    Execute(absl::StrCat("UPDATE versions SET ", change));
    test_.Restart();
    EXPECT_EQ(test_.Get("m", stored.version()).state(), v1::Model::FAILED) << change;
    ASSERT_TRUE(test_.server->core().registry().Delete("m", "").ok());
  }
}

}  // namespace
}  // namespace athanor
