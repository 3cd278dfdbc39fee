// Stores runs in a SQLite file, to compare and report them later.
//
//   absl::StatusOr<std::unique_ptr<Store>> store = Store::Open("results.db");
//   absl::StatusOr<int64_t> id = (*store)->Add(summary, &result);
//
// Tables: runs(id, date, host, label, model, commit_id, options, summary), the last two as JSON;
// calls(run, ...), a row per stored call; comparisons(first, second, json), of two runs measured in
// alternation. A run is written in one transaction, so it is there completely or not at all.
// Several processes may write one file. Not thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_FIGURES_STORE_H_
#define ATHANOR_CLIENTS_BENCH_FIGURES_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "clients/bench/load/load.h"
#include "nlohmann/json.hpp"

struct sqlite3;

namespace athanor::bench {

enum class Access { kWrite, kRead };

struct NewRun {
  const nlohmann::json* summary;
  const LoadResult* calls;  // null: store only the summary
};

class Store {
 public:
  // For writing: creates the file, or the tables that an older file lacks. For reading: changes
  // nothing. FAILED_PRECONDITION: the file was not made by this program, or by a newer version of
  // it; it stays unchanged.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& path,
                                                     Access access = Access::kWrite);
  ~Store();

  // Checks that a run could be added now; adds nothing.
  absl::Status CheckWritable();

  // Adds a run and returns its id. `calls` may be null: then only the summary is stored.
  absl::StatusOr<int64_t> Add(const nlohmann::json& summary, const LoadResult* calls);
  // Adds all runs or none and returns their ids, in the order of `runs`. `comparison` is of the two
  // runs if there are two, else null.
  absl::StatusOr<std::vector<int64_t>> AddAll(const std::vector<NewRun>& runs,
                                              const nlohmann::json& comparison);
  // Returns the summary of every run, oldest first, with its "id".
  absl::StatusOr<std::vector<nlohmann::json>> Runs();
  // Returns one run's summary. NOT_FOUND lists the ids that exist.
  absl::StatusOr<nlohmann::json> Run(int64_t id);
  absl::StatusOr<std::vector<CallRecord>> Calls(int64_t id);
  // Returns the comparisons, oldest first, each with the ids of its runs as "first" and "second".
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
  int64_t version_ = 0;  // schema version of the file
  sqlite3* db_ = nullptr;
};

// Reports whether the file starts like a SQLite file; false if it cannot be read.
bool IsStore(const std::string& path);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_FIGURES_STORE_H_
