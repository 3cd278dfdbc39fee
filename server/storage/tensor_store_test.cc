// Tests tensors that are ranges of a blob; upload_test.cc tests those with files of their own.
#include "server/storage/tensor_store.h"

#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deploy/bazel/libs/possession.h"
#include "deploy/bazel/libs/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

class TensorStoreTest : public testing::Test {
 protected:
  TensorStoreTest() {
    fs::remove_all(root_);
    store_ = TensorStore::Open(root_, &disk_).value();
  }
  std::unique_ptr<SpooledFile> Spooled(absl::string_view bytes) {
    auto file = store_->BeginSpool(static_cast<int64_t>(bytes.size()));
    for (size_t at = 0; at < bytes.size(); at += 1000) {
      EXPECT_TRUE(file->Append(bytes.substr(at, 1000)).ok());
    }
    EXPECT_TRUE(file->Finish().ok());
    EXPECT_TRUE(file->Sync().ok());
    file->SetName(Sha256Of(bytes));
    return file;
  }
  static std::string TextOf(const MappedTensor& tensor) {
    return {static_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes())};
  }
  std::string Whole() const {
    std::string bytes(20'000, 0);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 256);
    return bytes;
  }

  const std::string root_ = testing::TempDir() + "/tensor_store_test";
  Disk disk_;
  std::unique_ptr<TensorStore> store_;
};

TEST_F(TensorStoreTest, MapsRangesAtAnyOffset) {
  const std::string bytes = Whole();
  const auto file = Spooled(bytes);
  EXPECT_EQ(file->view(), bytes);
  ASSERT_TRUE(store_->PublishBlobs({file.get()}).ok());
  for (const int64_t offset : {0, 1, 4095, 4096, 4097, 9'001, 19'999, 20'000}) {
    const int64_t length = std::min<int64_t>(7'000, 20'000 - offset);
    const auto tensor =
        store_->Map(std::to_string(offset), length, TensorStore::Range{file->name(), offset});
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(TextOf(**tensor), bytes.substr(offset, length)) << offset;
  }
}

TEST_F(TensorStoreTest, LooksAtThePartsThatAreWantedAsTheyCome) {
  const std::string bytes = Whole();
  for (const size_t piece : {1, 7, 1'000, 20'000}) {
    auto file = store_->BeginSpool(20'000);
    // Parts out of order, adjacent, repeated, empty, and overlapping others.
    file->ReadParts({{19'999, 1},
                     {0, 5},
                     {5, 995},
                     {1'500, 3'000},
                     {1'500, 3'000},
                     {4'500, 0},
                     {4'499, 10},
                     {9'000, 11}});
    for (size_t at = 0; at < bytes.size(); at += piece) {
      ASSERT_TRUE(file->Append(absl::string_view(bytes).substr(at, piece)).ok());
    }
    ASSERT_TRUE(file->Finish().ok());
    for (const auto& [offset, length] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 5}, {5, 995}, {1'500, 3'000}, {9'000, 11}, {19'999, 1}}) {
      const SpooledFile::Contents* contents = file->ContentsOf(offset, length);
      ASSERT_NE(contents, nullptr) << offset;
      EXPECT_EQ(contents->hash, Sha256Of(bytes.substr(offset, length))) << offset;
      EXPECT_EQ(contents->magnitude, std::nullopt);  // u8 has no magnitude
    }
    EXPECT_EQ(file->ContentsOf(4'499, 10), nullptr);
    EXPECT_EQ(file->ContentsOf(4'500, 0), nullptr);
    EXPECT_EQ(file->ContentsOf(0, 6), nullptr);
  }
}

TEST_F(TensorStoreTest, WhatArrivedMayTellTheParts) {
  const std::string bytes = Whole();
  for (const size_t first : {1, 1'000, 19'999, 20'000}) {
    auto file = store_->BeginSpool(20'000);
    EXPECT_EQ(file->Arrived().value(), "");
    ASSERT_TRUE(file->Append(absl::string_view(bytes).substr(0, first)).ok());
    EXPECT_EQ(file->Arrived().value(), bytes.substr(0, first));
    // Some begin below what arrived.
    file->ReadParts({{0, 500}, {999, 10}, {1'000, 7}, {1'007, 18'000}, {19'999, 1}});
    ASSERT_TRUE(file->Append(absl::string_view(bytes).substr(first)).ok());
    EXPECT_EQ(file->Arrived().value(), bytes);
    ASSERT_TRUE(file->Finish().ok());
    EXPECT_EQ(file->view(), bytes);
    for (const auto& [offset, length] : std::vector<std::pair<size_t, size_t>>{
             {0, 500}, {999, 10}, {1'007, 18'000}, {19'999, 1}}) {
      const SpooledFile::Contents* contents =
          file->ContentsOf(static_cast<int64_t>(offset), static_cast<int64_t>(length));
      const bool overlaps = offset == 1'007 && first <= 999;  // {999, 10}, which is read then
      ASSERT_EQ(contents != nullptr, offset >= first && !overlaps) << offset << " " << first;
      if (contents != nullptr) EXPECT_EQ(contents->hash, Sha256Of(bytes.substr(offset, length)));
    }
  }
  auto empty = store_->BeginSpool(0);
  EXPECT_EQ(empty->Arrived().value(), "");
}

TEST_F(TensorStoreTest, FindsMagnitudesOfPartsAsTheyCome) {
  std::string bytes(20'000, '\0');
  const auto put = [&](size_t at, float value) { std::memcpy(bytes.data() + at, &value, 4); };
  put(9 + 4 * 100, 1e10F);
  put(4'009 + 4 * 999, std::numeric_limits<float>::infinity());
  put(8'009, -2);
  for (const size_t piece : {1, 3, 4, 1'001, 20'000}) {
    auto file = store_->BeginSpool(20'000);
    file->ReadParts({{9, 4'000, DType::kF32},
                     {4'009, 4'000, DType::kF32},
                     {8'009, 4'000, DType::kF32},
                     {12'100, 4'000, DType::kBF16}});
    for (size_t at = 0; at < bytes.size(); at += piece) {
      ASSERT_TRUE(file->Append(absl::string_view(bytes).substr(at, piece)).ok());
    }
    ASSERT_TRUE(file->Finish().ok());
    EXPECT_EQ(file->ContentsOf(9, 4'000)->magnitude, 60) << piece;
    EXPECT_EQ(file->ContentsOf(4'009, 4'000)->magnitude, std::nullopt) << piece;
    EXPECT_EQ(file->ContentsOf(8'009, 4'000)->magnitude, 20) << piece;
    EXPECT_EQ(file->ContentsOf(12'100, 4'000)->magnitude, 20) << piece;
    EXPECT_EQ(file->ContentsOf(12'100, 4'000)->dtype, DType::kBF16);
  }
}

// For a tensor stored before seals were, one pass finds hash and seal.
TEST_F(TensorStoreTest, HashingARangeFindsItsSeal) {
  const std::string bytes = Whole();
  const auto file = Spooled(bytes);
  ASSERT_TRUE(store_->PublishBlobs({file.get()}).ok());
  const TensorStore::Location at =
      store_->Locate("h", 7'000, TensorStore::Range{file->name(), 9'001});
  const auto read = HashFile(at.path, at.range, [] { return false; });
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->hash, Sha256Of(bytes.substr(9'001, 7'000)));
  EXPECT_EQ(read->seal, SealOf(bytes.substr(9'001, 7'000)));
}

TEST_F(TensorStoreTest, AMappedRangeOutlivesItsBlob) {
  auto file = Spooled(Whole());
  ASSERT_TRUE(store_->PublishBlobs({file.get()}).ok());
  const std::string blob = file->name();
  file.reset();
  const auto tensor = store_->Map("t", 10, TensorStore::Range{blob, 5'000}).value();
  store_->RemoveBlob(blob);
  EXPECT_FALSE(fs::exists(store_->BlobPathOf(blob)));
  EXPECT_EQ(TextOf(*tensor), Whole().substr(5'000, 10));
}

TEST_F(TensorStoreTest, ARangeBeyondItsFileIsRefused) {
  const auto file = Spooled("0123456789");
  ASSERT_TRUE(store_->PublishBlobs({file.get()}).ok());
  const absl::Status beyond = store_->Map("t", 8, TensorStore::Range{file->name(), 3}).status();
  EXPECT_EQ(beyond.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(beyond.message()),
              testing::HasSubstr("has 10 bytes, the tensor has 8 behind the first 3"));
  EXPECT_FALSE(store_->Map("u", 1, TensorStore::Range{std::string(32, 'x'), 0}).ok());
}

TEST_F(TensorStoreTest, WhatIsNotPublishedGoes) {
  {
    const auto file = Spooled(Whole());
  }
  {
    const auto empty = Spooled("");
  }
  EXPECT_TRUE(fs::is_empty(root_ + "/tmp"));
  const auto file = Spooled("kept"), other = Spooled("not kept");
  ASSERT_TRUE(store_->PublishBlobs({file.get(), other.get()}).ok());
  const TensorStore::Aside aside = store_->PutAside({{}, {file->name()}});
  EXPECT_TRUE(aside.status.ok()) << aside.status;
  EXPECT_EQ(aside.files, 1);
  EXPECT_EQ(aside.bytes, 8);
  EXPECT_TRUE(fs::exists(store_->BlobPathOf(file->name())));
  EXPECT_FALSE(fs::exists(store_->BlobPathOf(other->name())));
}

}  // namespace
}  // namespace athanor
