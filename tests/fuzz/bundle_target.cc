#include "tests/fuzz/bundle_target.h"

#include <optional>
#include <utility>

#include "compiler/cache/bundle.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/ed25519.h"
#include "deploy/bazel/libs/ed25519_testing.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/util/delimited_message_util.h"

namespace athanor {
namespace {

constexpr int64_t kSemantics = 1;
constexpr int32_t kRecipeFormat = 1;

const Ed25519Key& Key() {
  static const Ed25519Key& key =
      *new Ed25519Key(Ed25519Key::FromPem(Ed25519PrivatePem(std::string(32, 'f'))).value());
  return key;
}

// Reads a bundle. `error` is that of the refused chunk, or of the end.
BundleReader Read(const BundleChunks& chunks, absl::Status* error) {
  BundleReader reader({.semantics_version = kSemantics,
                       .recipe_format = kRecipeFormat,
                       .trusted_keys = {Key().public_key()},
                       .max_records = 20,
                       .max_bytes = 1 << 16});
  for (const v1::CacheBundleChunk& chunk : chunks) {
    if (*error = reader.Take(chunk); !error->ok()) return reader;
  }
  *error = reader.Finish();
  return reader;
}

// Makes a bundle of the header and the records, with fitting links and trailer; signs it if the
// header names a key. nullopt if a writer refuses them.
std::optional<BundleChunks> Seal(const v1::CacheBundleHeader& header,
                                 const std::vector<v1::CacheBundleRecord>& records) {
  std::optional<Ed25519Key> key;
  if (!header.public_key().empty()) key = Key();
  absl::StatusOr<BundleWriter> writer = BundleWriter::Create(header, key);
  if (!writer.ok()) return std::nullopt;
  BundleChunks chunks = {writer->Header()};
  for (const v1::CacheBundleRecord& record : records) {
    if (record.has_recipe()) {
      chunks.push_back(writer->Record(record.recipe()));
    } else {
      absl::StatusOr<v1::CacheBundleChunk> chunk = writer->Record(record.kernel());
      if (!chunk.ok()) return std::nullopt;
      chunks.push_back(*std::move(chunk));
    }
  }
  chunks.push_back(writer->Trailer().value());
  return chunks;
}

std::string CheckRefusal(const absl::Status& error) {
  return BadRefusal(error, {absl::StatusCode::kInvalidArgument, absl::StatusCode::kPermissionDenied,
                            absl::StatusCode::kResourceExhausted});
}

// Checks that an accepted bundle is, byte for byte, what a writer makes of it, and that no shorter
// one is accepted.
std::string CheckAccepted(const BundleChunks& chunks, const BundleReader& reader) {
  if (reader.header().public_key().empty() || reader.header().public_key() == Key().public_key()) {
    const std::optional<BundleChunks> again = Seal(reader.header(), reader.records());
    if (!again) return "a writer refuses what a reader accepted";
    if (SerializeBundle(*again) != SerializeBundle(chunks)) return "it is not what a writer makes";
  }
  absl::Status error;
  for (size_t i = 1; i + 1 < chunks.size(); ++i) {
    BundleChunks less = chunks;
    less.erase(less.begin() + static_cast<int64_t>(i));
    if (Read(less, &error); error.ok()) return Cat("it is accepted without record ", i - 1);
    BundleChunks moved = chunks;
    std::swap(moved[i], moved[i + 1]);
    if (Read(moved, &error); error.ok()) return Cat("it is accepted with record ", i - 1, " moved");
  }
  const BundleChunks cut(chunks.begin(), chunks.end() - 1);
  if (Read(cut, &error); error.ok()) return "it is accepted without its trailer";
  return "";
}

v1::CacheBundleRecord RecipeRecord(int i) {
  v1::CacheBundleRecord record;
  v1::RegionRecipe& recipe = *record.mutable_recipe();
  recipe.set_region_hash(std::string(64, static_cast<char>('a' + i)));
  recipe.set_dim_box(i == 0 ? "" : "d0=1..64 d1=0..512");
  recipe.set_facts(i == 0 ? "" : "p0 in [0, 7]");
  recipe.set_format(kRecipeFormat);
  recipe.set_genome("fuse 1 2; tile 8");
  recipe.set_device("cpu");
  recipe.set_cpu("znver4");
  recipe.set_threads(2);
  recipe.set_share_of_baseline(0.5);
  return record;
}

v1::CacheBundleRecord KernelRecord() {
  v1::CacheBundleRecord record;
  v1::KernelBinary& kernel = *record.mutable_kernel();
  kernel.set_source_hash(std::string(64, '7'));
  kernel.set_flags("-O3");
  kernel.set_triple("x86_64-pc-linux-gnu");
  kernel.set_cpu("znver4");
  kernel.set_compiler_version("19.1.7");
  kernel.set_codegen_version(1);
  kernel.set_object("object");
  return record;
}

}  // namespace

BundleChunks ParseBundle(const std::string& bytes) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  BundleChunks chunks;
  v1::CacheBundleChunk chunk;
  while (chunks.size() < 100 &&
         google::protobuf::util::ParseDelimitedFromZeroCopyStream(&chunk, &stream, nullptr)) {
    chunks.push_back(std::move(chunk));
    chunk.Clear();
  }
  return chunks;
}

std::string SerializeBundle(const BundleChunks& chunks) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  for (const v1::CacheBundleChunk& chunk : chunks) {
    google::protobuf::util::SerializeDelimitedToZeroCopyStream(chunk, &stream);
  }
  return bytes;
}

std::vector<std::string> SeedBundles() {
  std::vector<std::string> seeds;
  for (const bool binaries : {false, true}) {
    for (const bool is_signed : {false, true}) {
      if (binaries && !is_signed) continue;
      v1::CacheBundleHeader header;
      header.set_semantics_version(kSemantics);
      header.set_origin("seed");
      header.set_binaries(binaries);
      header.mutable_created()->set_seconds(1700000000);
      if (is_signed) header.set_public_key(Key().public_key());
      std::vector<v1::CacheBundleRecord> records = {RecipeRecord(0), RecipeRecord(1)};
      if (binaries) records.push_back(KernelRecord());
      seeds.push_back(SerializeBundle(Seal(header, records).value()));
    }
  }
  return seeds;
}

std::string FuzzBundle(const std::string& bytes, FuzzStats* stats) {
  const BundleChunks chunks = ParseBundle(bytes);
  if (chunks.empty()) return "";
  ++stats->parsed;
  absl::Status error;
  const BundleReader as_it_is = Read(chunks, &error);
  if (error.ok()) {
    ++stats->accepted;
    if (std::string problem = CheckAccepted(chunks, as_it_is); !problem.empty()) return problem;
  } else if (std::string problem = CheckRefusal(error); !problem.empty()) {
    return problem;
  }
  v1::CacheBundleHeader header = chunks[0].header();
  std::vector<v1::CacheBundleRecord> records;
  for (const v1::CacheBundleChunk& chunk : chunks) {
    if (chunk.has_record()) records.push_back(chunk.record());
  }
  const std::optional<BundleChunks> sealed = Seal(header, records);
  if (!sealed) return "";
  const BundleReader reader = Read(*sealed, &error);
  if (!error.ok()) return CheckRefusal(error);
  ++stats->evaluated;
  return CheckAccepted(*sealed, reader);
}

}  // namespace athanor
