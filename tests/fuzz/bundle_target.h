// Fuzzes bundles of the cache. An input holds the chunks, each after its length, as in a file.
//
//   std::string problem = FuzzBundle(SeedBundles()[0], &stats);
#ifndef ATHANOR_TESTS_FUZZ_BUNDLE_TARGET_H_
#define ATHANOR_TESTS_FUZZ_BUNDLE_TARGET_H_

#include <string>
#include <vector>

#include "proto/athanor/v1/cache.pb.h"
#include "tests/fuzz/targets.h"

namespace athanor {

using BundleChunks = std::vector<v1::CacheBundleChunk>;

// Returns the chunks before the first malformed one.
BundleChunks ParseBundle(const std::string& bytes);
std::string SerializeBundle(const BundleChunks& chunks);

// Returns valid bundles: with and without kernels, signed and unsigned.
std::vector<std::string> SeedBundles();

// Reads the bundle as it is: an accepted one must equal what a writer makes of its records. Then
// reads a bundle with the same records and correct links, which gets past the digests: its records
// must come out unchanged, and a bundle with a record missing or two exchanged must be refused.
// Counts an input with a chunk as parsed, one that the first reading accepts as accepted, and one
// that the second accepts as evaluated.
std::string FuzzBundle(const std::string& bytes, FuzzStats* stats);

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_BUNDLE_TARGET_H_
