// Runs in a SQLite file, to be compared and reported later.
//
//   absl::StatusOr<std::unique_ptr<Store>> store = Store::Open("results.db");
//   absl::StatusOr<int64_t> id = (*store)->Add(summary, &result);
//
// Tables: runs(id, date, host, label, model, commit_id, options, summary), the last two JSON;
// calls(run, ...), a row per call where they are kept; comparisons(first, second, json) of two runs
// that were measured in turns. Writes are transactions: a run is there whole or not at all.
// Several processes may write one file. Not thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_STORE_H_
#define ATHANOR_CLIENTS_BENCH_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "clients/bench/load.h"
#include "nlohmann/json.hpp"

struct sqlite3;

namespace athanor::bench {

enum class Access { kWrite, kRead };

struct NewRun {
  const nlohmann::json* summary;
  const LoadResult* calls;  // null: only the summary is kept
};

class Store {
 public:
  // To write: makes the file if there is none, and the tables that an older one lacks. To read:
  // changes nothing. FAILED_PRECONDITION, the file untouched: it is no file of this program, or of
  // a newer version of it.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& path,
                                                     Access access = Access::kWrite);
  ~Store();

  // Whether a run could be added now; adds nothing.
  absl::Status CheckWritable();

  // The new run's id. `calls` may be null: only the summary is kept.
  absl::StatusOr<int64_t> Add(const nlohmann::json& summary, const LoadResult* calls);
  // The new ids, in the order of `runs`, all of them kept or none. `comparison` is of the two that
  // there are then, or null.
  absl::StatusOr<std::vector<int64_t>> AddAll(const std::vector<NewRun>& runs,
                                              const nlohmann::json& comparison);
  // Every run's summary, oldest first, with its "id".
  absl::StatusOr<std::vector<nlohmann::json>> Runs();
  // NOT_FOUND names the ids that there are.
  absl::StatusOr<nlohmann::json> Run(int64_t id);
  absl::StatusOr<std::vector<CallRecord>> Calls(int64_t id);
  // Oldest first, each with the ids of its runs as "first" and "second".
  absl::StatusOr<std::vector<nlohmann::json>> Comparisons();

 private:
  explicit Store(std::string path) : path_(std::move(path)) {}
  absl::Status Prepare(Access access);
  absl::Status Execute(const std::string& sql);
  absl::Status Error(absl::string_view what);
  absl::StatusOr<int64_t> AddSummary(const nlohmann::json& summary);
  absl::Status AddCalls(int64_t id, const LoadResult& result);
  absl::StatusOr<nlohmann::json> ParseSummary(int64_t id, const std::string& text);

  const std::string path_;
  int64_t version_ = 0;  // of the schema
  sqlite3* db_ = nullptr;
};

// Whether the file begins as a SQLite file does; false for one that cannot be read.
bool IsStore(const std::string& path);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_STORE_H_
