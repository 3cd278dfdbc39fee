// Runs in a SQLite file, to be compared and reported later.
//
//   absl::StatusOr<std::unique_ptr<Store>> store = Store::Open("results.db");
//   absl::StatusOr<int64_t> id = (*store)->Add(summary, &result);
//
// Tables: runs(id, date, host, label, model, commit_id, options, summary), the last two JSON, and
// calls(run, ...), a row per call where they are kept. Writes are transactions: a run is there
// whole or not at all. Several processes may write one file. Not thread-safe.
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

class Store {
 public:
  // Makes the file if there is none. FAILED_PRECONDITION, the file untouched: it is no file of this
  // program, or of a newer version of it.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& path);
  ~Store();

  // The new run's id. `calls` may be null: only the summary is kept.
  absl::StatusOr<int64_t> Add(const nlohmann::json& summary, const LoadResult* calls);
  // Every run's summary, oldest first, with its "id".
  absl::StatusOr<std::vector<nlohmann::json>> Runs();
  // NOT_FOUND names the ids that there are.
  absl::StatusOr<nlohmann::json> Run(int64_t id);
  absl::StatusOr<std::vector<CallRecord>> Calls(int64_t id);

 private:
  explicit Store(std::string path) : path_(std::move(path)) {}
  absl::Status Prepare();
  absl::Status Execute(const std::string& sql);
  absl::Status Error(absl::string_view what);
  absl::Status AddCalls(int64_t id, const LoadResult& result);

  const std::string path_;
  sqlite3* db_ = nullptr;
};

// Whether the bytes are a SQLite file's.
bool IsStore(absl::string_view bytes);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_STORE_H_
