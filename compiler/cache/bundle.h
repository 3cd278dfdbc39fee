// Bundles carry recipes, and signed ones also plans, ended searches and kernels, from one machine's
// cache to another's. A bundle is a header, records and a trailer. Reading one runs and loads
// nothing.
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
// link i-1 and record i, and the trailer's digest that of the last link and the number of records.
// So the first record that was changed, moved, left out or put in is found when it arrives. The
// hash covers the fields that are set, in order of their numbers (LinkOf), not the bytes that
// travelled: a relay may encode those differently. Anyone who can write a bundle can compute links;
// only the signature, over the digest, proves who wrote it.
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

// Returns SHA-256, 32 bytes, over `before` and the digest of `message`. That digest is the SHA-256
// over each field that is set: its number, how many values it has (-1: not repeated) and the
// values; strings after their length, numbers as 8 bytes, little-endian, messages as their digest.
std::string LinkOf(absl::string_view before, const google::protobuf::Message& message);

// Makes the chunks of one bundle; call its functions in the bundle's order. Not thread-safe.
class BundleWriter {
 public:
  // `header` gives semantics_version, origin, binaries and created; Create fills in the rest.
  // FAILED_PRECONDITION: binaries without a key to sign with.
  static absl::StatusOr<BundleWriter> Create(v1::CacheBundleHeader header,
                                             std::optional<Ed25519Key> key);

  v1::CacheBundleChunk Header() const;
  v1::CacheBundleChunk Record(v1::RegionRecipe recipe);
  // FAILED_PRECONDITION: it is no recipe, and the header promised no binaries.
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
  int64_t semantics_version = 0;  // of this program; a bundle of another version is refused
  int32_t recipe_format = 0;
  std::vector<std::string> trusted_keys;  // Ed25519PublicKey; empty: no binaries are accepted
  int64_t max_records = 1000000;
  int64_t max_bytes = int64_t{1} << 30;  // of all records, serialised
  std::string max_bytes_by;              // name of that limit for the error: "--max_import_bytes"
};

// Takes a bundle's chunks in order and holds its records until it is whole. Not thread-safe.
//
// INVALID_ARGUMENT: wrong order, format, semantics, digest or field. PERMISSION_DENIED: binaries in
// a bundle that no trusted key has signed. RESOURCE_EXHAUSTED: more than the terms allow. Each
// message names the chunk ("record 3 (recipe of region 12ab...)") and the reason. After an error
// every further call returns it again.
//
// A genome is checked here for size and UTF-8 only. The search that tries a recipe parses it, and
// measures and checks it like any other candidate.
class BundleReader {
 public:
  explicit BundleReader(BundleTerms terms) : terms_(std::move(terms)) {}

  absl::Status Take(v1::CacheBundleChunk chunk);
  absl::Status Finish() const;  // OK once the trailer has come and fits

  bool complete() const { return state_ == State::kComplete; }
  const v1::CacheBundleHeader& header() const { return header_; }  // valid once it has come
  int64_t bytes() const { return bytes_; }                         // of the records held
  // The following functions REQUIRE complete().
  const std::vector<v1::CacheBundleRecord>& records() const { return records_; }
  const std::string& digest() const { return digest_; }  // 32 bytes; identifies the bundle
  // Returns the trusted key that signed it, 32 bytes; empty: no key, or none that is trusted.
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
