// Bundles as inputs: chunks, each after its length, as in a file.
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

// The chunks up to the first that is none.
BundleChunks ParseBundle(const std::string& bytes);
std::string SerializeBundle(const BundleChunks& chunks);

// Valid ones: with and without kernels, signed and not.
std::vector<std::string> SeedBundles();

// Reads the bundle as it is: what is accepted must be what a writer makes of its records. Then its
// records in a bundle with links of their own, which gets past the digests: what is accepted must
// come out as it went in, and must not be accepted with a record less or two in another order.
// Counts as parsed what has a chunk, as accepted and as evaluated what the first and the second
// reading accept.
std::string FuzzBundle(const std::string& bytes, FuzzStats* stats);

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_BUNDLE_TARGET_H_
