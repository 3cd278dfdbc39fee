// Writes and reads bundles for the tests of this folder.
#ifndef ATHANOR_COMPILER_CACHE_BUNDLE_TESTING_H_
#define ATHANOR_COMPILER_CACHE_BUNDLE_TESTING_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/cache/bundle.h"
#include "deploy/bazel/libs/ed25519_testing.h"
#include "deploy/bazel/libs/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {

using Chunks = std::vector<v1::CacheBundleChunk>;

inline const std::string kSeed(32, 's'), kOtherSeed(32, 'o');

inline Ed25519Key KeyOf(const std::string& seed) {
  return Ed25519Key::FromPem(Ed25519PrivatePem(seed)).value();
}

inline v1::CacheBundleHeader HeaderOf(bool binaries) {
  v1::CacheBundleHeader header;
  header.set_semantics_version(3);
  header.set_origin("server one");
  header.set_binaries(binaries);
  header.mutable_created()->set_seconds(1700000000);
  return header;
}

inline v1::RegionRecipe Recipe(int i) {
  v1::RegionRecipe recipe;
  recipe.set_region_hash(absl::StrCat(std::string(56, 'a'), 10000000 + i));
  recipe.set_dim_box("d0=1..64 d1=0..512");
  recipe.set_facts("p0 in [0, 7]");
  recipe.set_format(2);
  recipe.set_genome(absl::StrCat("fuse 1 2; tile ", i, " × 8"));
  recipe.set_device("cpu");
  recipe.set_cpu("znver4");
  recipe.set_threads(2);
  recipe.set_rule_set("r1");
  recipe.set_share_of_baseline(0.5);
  return recipe;
}

inline v1::KernelBinary Kernel(int i) {
  v1::KernelBinary kernel;
  kernel.set_source_hash(absl::StrCat(std::string(56, 'b'), 10000000 + i));
  kernel.set_flags("-O3");
  kernel.set_triple("x86_64-pc-linux-gnu");
  kernel.set_cpu("znver4");
  kernel.set_features("+avx512f,+fma");
  kernel.set_compiler_version("19.1.7");
  kernel.set_codegen_version(1);
  kernel.set_object(
      std::string("\x7f"
                  "ELF\0bytes",
                  10));
  return kernel;
}

// Returns three recipes, and two kernels if `binaries`; signed by `seed` unless it is empty.
inline Chunks Bundle(bool binaries, const std::string& seed) {
  std::optional<Ed25519Key> key;
  if (!seed.empty()) key = KeyOf(seed);
  BundleWriter writer = BundleWriter::Create(HeaderOf(binaries), key).value();
  Chunks chunks = {writer.Header()};
  for (int i = 0; i < 3; ++i) chunks.push_back(writer.Record(Recipe(i)));
  for (int i = 0; binaries && i < 2; ++i) chunks.push_back(writer.Record(Kernel(i)).value());
  chunks.push_back(writer.Trailer().value());
  return chunks;
}

inline BundleTerms Terms(const std::vector<std::string>& trusted_seeds = {}) {
  BundleTerms terms{.semantics_version = 3, .recipe_format = 2};
  for (const std::string& seed : trusted_seeds)
    terms.trusted_keys.push_back(KeyOf(seed).public_key());
  return terms;
}

inline absl::Status Read(const Chunks& chunks, BundleReader* reader) {
  for (const v1::CacheBundleChunk& chunk : chunks) {
    RETURN_IF_ERROR(reader->Take(chunk));
  }
  return reader->Finish();
}

inline absl::Status Read(const Chunks& chunks, const BundleTerms& terms) {
  BundleReader reader(terms);
  const absl::Status status = Read(chunks, &reader);
  EXPECT_EQ(reader.complete(), status.ok());
  if (!status.ok()) EXPECT_EQ(reader.Finish(), status);
  return status;
}

inline void ExpectRefused(const Chunks& chunks, const BundleTerms& terms, absl::StatusCode code,
                          const std::string& message) {
  const absl::Status status = Read(chunks, terms);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(message));
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_BUNDLE_TESTING_H_
