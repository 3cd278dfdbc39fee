// Bundles carry recipes, and signed ones plans, ended searches and kernels too, from one machine's
// cache to another's: a header, records, a trailer. Reading one runs and loads nothing.
//
//   auto writer = BundleWriter::Create(header, key);   // no key: unsigned, recipes only
//   Send(writer->Header());
//   for (v1::RegionRecipe& recipe : recipes) Send(writer->Record(std::move(recipe)));
//   Send(*writer->Trailer());
//
//   BundleReader reader({.semantics_version = 1, .recipe_format = 1});
//   while (Receive(&chunk)) {
//     if (absl::Status s = reader.Take(std::move(chunk)); !s.ok()) return s;
//   }
//   if (absl::Status s = reader.Finish(); !s.ok()) return s;  // it was cut off
//   Keep(reader.records());
//
// Every chunk is linked to those before it: link 0 is the SHA-256 of the header, link i that of
// link i-1 and record i, the trailer's digest that of the last link and the number of records. So
// the first record that was changed, moved, left out or put in is found when it arrives. Hashed are
// not the bytes that travelled, which a relay may write differently, but the fields that are set,
// in order of their numbers (LinkOf). Whoever can write a bundle can compute links: only the
// signature, over the digest, says who wrote it.
#ifndef ATHANOR_COMPILER_CACHE_BUNDLE_H_
#define ATHANOR_COMPILER_CACHE_BUNDLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/ed25519.h"
#include "google/protobuf/message.h"
#include "proto/athanor/v1/cache.pb.h"

namespace athanor {

inline constexpr int32_t kBundleFormat = 1;

// SHA-256, 32 bytes, over `before` and the digest of `message`: the SHA-256 over each field that is
// set: its number, how many values it has (-1: not repeated) and the values, strings after their
// length, numbers as 8 bytes, little-endian, messages as their digest.
std::string LinkOf(absl::string_view before, const google::protobuf::Message& message);

// Makes the chunks of one bundle, in the order they are asked for. Not thread-safe.
class BundleWriter {
 public:
  // `header` says semantics_version, origin, binaries and created; the rest is filled in here.
  // FAILED_PRECONDITION: binaries, and no key to sign with.
  static absl::StatusOr<BundleWriter> Create(v1::CacheBundleHeader header,
                                             std::optional<Ed25519Key> key);

  v1::CacheBundleChunk Header() const;
  v1::CacheBundleChunk Record(v1::RegionRecipe recipe);
  // FAILED_PRECONDITION: the header promised no binaries, and it is no recipe.
  absl::StatusOr<v1::CacheBundleChunk> Record(v1::KernelBinary kernel);
  absl::StatusOr<v1::CacheBundleChunk> Record(v1::CacheBundleRecord record);
  absl::StatusOr<v1::CacheBundleChunk> Trailer() const;

 private:
  BundleWriter(v1::CacheBundleHeader header, std::optional<Ed25519Key> key);
  v1::CacheBundleChunk Linked(v1::CacheBundleRecord record);

  v1::CacheBundleHeader header_;
  std::optional<Ed25519Key> key_;
  std::string link_;
  int64_t records_ = 0;
};

struct BundleTerms {
  int64_t semantics_version = 0;  // of this program; another's bundle is refused
  int32_t recipe_format = 0;
  std::vector<std::string> trusted_keys;  // Ed25519PublicKey; none: no binaries
  int64_t max_records = 1000000;
  int64_t max_bytes = int64_t{1} << 30;  // of all records, serialised
  std::string max_bytes_by;              // what says so, for the error: "--max_import_bytes"
};

// Takes a bundle's chunks in order and holds its records until it is whole. Not thread-safe.
//
// INVALID_ARGUMENT: the order, the format, other semantics, a digest or a field is wrong.
// PERMISSION_DENIED: binaries whose bundle no trusted key has signed. RESOURCE_EXHAUSTED: more than
// the terms allow. Each message names the chunk ("record 3 (recipe of region 12ab...)") and the
// reason. After an error every further call returns it again.
//
// Of a genome only size and UTF-8 are checked here: what it says is read by the search that tries
// it, which measures and checks a recipe like any other candidate.
class BundleReader {
 public:
  explicit BundleReader(BundleTerms terms) : terms_(std::move(terms)) {}

  absl::Status Take(v1::CacheBundleChunk chunk);
  absl::Status Finish() const;  // OK once the trailer has come and fits

  bool complete() const { return state_ == State::kComplete; }
  const v1::CacheBundleHeader& header() const { return header_; }  // once it has come
  int64_t bytes() const { return bytes_; }                         // of the records held
  // The following REQUIRE complete().
  const std::vector<v1::CacheBundleRecord>& records() const { return records_; }
  const std::string& digest() const { return digest_; }  // 32 bytes; the bundle's name
  // The trusted key that signed it, 32 bytes; empty: nobody, or a key that is not trusted.
  std::string signed_by() const;

 private:
  enum class State : uint8_t { kHeader, kRecords, kComplete, kFailed };

  absl::Status TakeChunk(v1::CacheBundleChunk chunk);
  absl::Status TakeHeader(v1::CacheBundleHeader header);
  absl::Status TakeRecord(v1::CacheBundleRecord record);
  absl::Status TakeTrailer(const v1::CacheBundleTrailer& trailer);
  absl::Status CheckLimits(const v1::CacheBundleRecord& record) const;
  absl::Status CheckRecord(const v1::CacheBundleRecord& record) const;
  bool Trusted() const;

  BundleTerms terms_;
  State state_ = State::kHeader;
  absl::Status failure_;
  v1::CacheBundleHeader header_;
  std::vector<v1::CacheBundleRecord> records_;
  std::string link_, digest_;
  int64_t bytes_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_BUNDLE_H_
