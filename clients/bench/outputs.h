// Writes the figures of a run: to JSON, an HTML page, a results file.
//
//   absl::Status s = CheckOutputs(outputs);               // before minutes of measuring
//   Kept kept = Keep(outputs, {{{{&summary, &result}}}});
//
// Not thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_OUTPUTS_H_
#define ATHANOR_CLIENTS_BENCH_OUTPUTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "clients/bench/load/load.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {

// Paths as given; "": not asked for. `out` may be "-" for stdout.
struct Outputs {
  std::string out, html, db;
  bool detailed = false;    // store every call in `out`
  bool save_calls = false;  // store every call in `db`
};

struct Measured {
  const nlohmann::json* summary;
  const LoadResult* result;
};

// The runs of one load: one, or two and their comparison.
struct Part {
  std::vector<Measured> runs;
  nlohmann::json comparison;  // of the two runs if there are two, else null
};

struct Kept {
  std::vector<std::string> names;  // "results.db:3", as `compare` takes it, one per run
  absl::Status status;             // error of the first output that could not be written
};

// Checks the outputs before a run. INVALID_ARGUMENT names a flag without effect or a path used
// twice; otherwise returns the system's error for a file that cannot be written. Changes no file;
// creates a missing results file.
absl::Status CheckOutputs(const Outputs& outputs);

// Writes every output it can. A sweep has several parts.
Kept Keep(const Outputs& outputs, const std::vector<Part>& parts);

// Writes indented JSON; bytes that are not UTF-8 are replaced. "-" is stdout.
absl::Status WriteJson(const std::string& path, const nlohmann::json& value);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_OUTPUTS_H_
