// Cache files as inputs: the bytes of the SQLite file of compiler/cache.
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

// One with a row of each tier, one that is empty.
std::vector<std::string> SeedCacheFiles();

// Bytes, pages, or, by SQL, values, rows, tables and the schema's number.
std::string MutateCacheFile(const std::string& bytes, Mutator* mutator);

// Opens a Cache on the file, finds a row of each tier, looks at all, evicts, writes and opens it
// again: what is found must be what was put into the seed, refusals must say why, and what was
// verified and put to quarantine must be clean. Counts as parsed what has the header of a database,
// as accepted what the cache uses, as evaluated files of which a row was found.
std::string FuzzCacheFile(const std::string& bytes, FuzzStats* stats);

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_CACHE_TARGET_H_
