#include "server/models/held_tensors.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/possession.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/storage/storage_testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Starts anew with Open(); stores a version per call of Add.
class HeldTensorsTest : public testing::Test {
 protected:
  HeldTensorsTest() {
    std::filesystem::remove_all(options_.state_dir);
    Open();
  }
  void Open() {
    tensors_.reset();
    db_.reset();
    std::filesystem::create_directories(options_.state_dir);
    db_ = RegistryDb::Open(options_.state_dir + "/registry.db").value();
    tensors_ = std::make_unique<HeldTensors>(
        options_, &ledger_, &db_->tensors(), TensorStore::Open(options_.state_dir, &disk_).value(),
        [this](const std::string& hash, const std::string& damage) {
          EXPECT_EQ(tensors_->Damage(hash), damage);
          damaged_.push_back(hash);
        });
    const std::vector<VersionRow> rows = db_->ReadVersions().value();
    for (const VersionRow& row : rows) EXPECT_TRUE(tensors_->TakeStored(row).ok());
    tensors_->SortFiles(/*fresh=*/rows.empty());
    tensors_->TakeVerified(db_->tensors().ReadVerified().value());
  }
  // Adds version `version` of "m" with one tensor in a file of its own. Returns what was healed.
  std::vector<std::string> Add(int64_t version, const std::string& bytes) {
    const std::string hash = Sha256Of(bytes);
    const auto size = static_cast<int64_t>(bytes.size());
    const auto writer = tensors_->store().Begin(hash, size);
    EXPECT_TRUE(writer->Append(bytes).ok());
    EXPECT_TRUE(writer->Verify().ok());
    EXPECT_TRUE(writer->Sync().ok());
    std::vector<HeldTensors::NewTensor> added(1);
    added[0].hash = hash;
    added[0].reservation = ledger_.Reserve(HeldKind::kParameters, size, "m").value();
    added[0].writer = writer.get();
    added[0].seal = writer->seal();
    VersionRow row{.name = "m",
                   .version = version,
                   .tensors = {{.hash = hash, .bytes = size, .seal = writer->seal()}}};
    tensors_->Reference(row, absl::MakeSpan(added));
    std::vector<std::string> healed;
    const absl::Status published = tensors_->Publish(added, [&](const HeldTensors::Hashes& hashes) {
      healed.assign(hashes.begin(), hashes.end());
    });
    EXPECT_TRUE(published.ok()) << published;
    const absl::Status stored = tensors_->Store(&row, [&] { return db_->AddVersion(row); });
    EXPECT_TRUE(stored.ok()) << stored;
    return healed;
  }

  ServerOptions options_ = [] {
    ServerOptions options;
    options.state_dir = testing::TempDir() + "/held_tensors_test";
    return options;
  }();
  const std::string bytes_ = "sixteen bytes, 1";
  const std::string hash_ = Sha256Of(bytes_);
  const std::string path_ = TensorPath(options_.state_dir, hash_);
  Disk disk_;
  ServerLedger ledger_{1 << 20};
  std::unique_ptr<RegistryDb> db_;
  std::vector<std::string> damaged_;
  std::unique_ptr<HeldTensors> tensors_;
};

TEST_F(HeldTensorsTest, AreHeldFromPublicationToTheLastReference) {
  EXPECT_EQ(tensors_->Bytes(hash_), -1);
  EXPECT_THAT(Add(1, bytes_), IsEmpty());
  EXPECT_EQ(tensors_->Bytes(hash_), 16);
  EXPECT_EQ(ledger_.used(), 16);
  {
    const auto pins = tensors_->Pin({hash_});
    ASSERT_TRUE(pins.ok()) << pins.status();
    tensors_->Unpin({hash_});  // as a deletion does
    EXPECT_TRUE(tensors_->Map(hash_).ok());
  }
  EXPECT_EQ(tensors_->Bytes(hash_), -1);
  EXPECT_EQ(tensors_->count(), 0);
  EXPECT_EQ(ledger_.used(), 0);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(HeldTensorsTest, APinIsRefusedAsAProofIs) {
  const absl::Status refused = tensors_->Pin({hash_}).status();
  EXPECT_EQ(refused, HeldTensors::NeitherSentNorProved(hash_));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(HeldTensorsTest, AProofNeedsTheBytes) {
  const std::string right = PossessionProof("nonce", hash_, SealOf(bytes_));
  EXPECT_FALSE(tensors_->Proves("nonce", hash_, right));
  // The seal that stands for tensors that are not held proves nothing.
  EXPECT_FALSE(tensors_->Proves("nonce", hash_,
                                PossessionProof("nonce", hash_, std::string(kSha256Bytes, 0))));
  Add(1, bytes_);
  EXPECT_TRUE(tensors_->Proves("nonce", hash_, right));
  EXPECT_FALSE(tensors_->Proves("another", hash_, right));
  EXPECT_FALSE(tensors_->Proves("nonce", hash_, ""));
}

TEST_F(HeldTensorsTest, DamageIsToldOnceAndHealedByTheNextUpload) {
  Add(1, bytes_);
  DamageFile(path_);
  const absl::Status refused = tensors_->Map(hash_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("has SHA-256"));
  EXPECT_FALSE(tensors_->Pin({hash_}).ok());
  EXPECT_THAT(damaged_, ElementsAre(hash_));
  EXPECT_EQ(tensors_->Bytes(hash_), -1);
  EXPECT_THAT(Add(2, bytes_), ElementsAre(hash_));
  EXPECT_EQ(tensors_->Damage(hash_), std::nullopt);
  EXPECT_TRUE(tensors_->Map(hash_).ok());
}

TEST_F(HeldTensorsTest, AFileIsHashedAgainOnceItChanged) {
  Add(1, bytes_);
  const std::vector<TensorRow> rows = {{hash_, 16}};
  EXPECT_EQ(tensors_->UnverifiedBytes(rows), 0);
  const FileStamp before = StampOf(path_).value();
  while (StampOf(path_).value() == before) WriteFile(path_, bytes_);
  EXPECT_EQ(tensors_->UnverifiedBytes(rows), 16);
  EXPECT_EQ(tensors_->Check(hash_, [] { return true; }).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(tensors_->Check(hash_).ok());
  EXPECT_EQ(tensors_->UnverifiedBytes(rows), 0);
  tensors_->SaveVerified();
  Open();
  EXPECT_EQ(tensors_->UnverifiedBytes(rows), 0);
}

TEST_F(HeldTensorsTest, AStartTakesWhatIsStored) {
  Add(1, bytes_);
  Open();
  EXPECT_EQ(tensors_->Bytes(hash_), 16);
  EXPECT_EQ(ledger_.used(), 16);
  EXPECT_TRUE(tensors_->Proves("n", hash_, PossessionProof("n", hash_, SealOf(bytes_))));
  ASSERT_TRUE(db_->DeleteVersions("m", {1}).ok());
  Open();
  EXPECT_EQ(tensors_->Bytes(hash_), -1);
  EXPECT_FALSE(std::filesystem::exists(path_));  // put aside
}

TEST(TensorFactsTest, AreFoundOnceAndFailAsReadingDoes) {
  TensorFacts facts;
  const auto broken = [] { return absl::DataLossError("broken"); };
  EXPECT_EQ(facts.FindSeal(broken).status().message(), "broken");
  EXPECT_EQ(facts.FindMagnitude(DType::kF32, broken).status().message(), "broken");
  facts.SetSeal("seal");
  facts.SetMagnitude(DType::kF32, std::nullopt);
  EXPECT_EQ(facts.FindSeal(broken).value(), "seal");
  EXPECT_EQ(facts.FindMagnitude(DType::kF32, broken).value(), std::nullopt);
  EXPECT_FALSE(facts.FindMagnitude(DType::kF64, broken).ok());
}

}  // namespace
}  // namespace athanor
