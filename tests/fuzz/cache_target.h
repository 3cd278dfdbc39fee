// Fuzzes cache files: the bytes of the SQLite file of compiler/cache.
//
//   std::string changed = MutateCacheFile(SeedCacheFiles()[0], &mutator);
//   std::string problem = FuzzCacheFile(changed, &stats);
#ifndef ATHANOR_TESTS_FUZZ_CACHE_TARGET_H_
#define ATHANOR_TESTS_FUZZ_CACHE_TARGET_H_

#include <string>
#include <vector>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets.h"

namespace athanor {

// Returns two files: one with a row of each tier, and an empty one.
std::vector<std::string> SeedCacheFiles();

// Changes bytes or pages; or, by SQL, values, rows, tables or the schema's number.
std::string MutateCacheFile(const std::string& bytes, Mutator* mutator);

// Opens a Cache on the file, finds a row of each tier, reads everything, evicts, writes and opens
// it again. A row that is found must be the seed's, a refusal must say why, and after verification
// and quarantine the file must be clean. Counts a file with a database's header as parsed, one that
// the cache uses as accepted, and one with a row that was found as evaluated.
std::string FuzzCacheFile(const std::string& bytes, FuzzStats* stats);

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_CACHE_TARGET_H_
