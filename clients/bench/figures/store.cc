#include "clients/bench/figures/store.h"

#include <sqlite3.h>

#include <fstream>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

constexpr int kBusyMilliseconds = 5000;
constexpr int64_t kApplication = 0x41426e63;  // "ABnc"

// Step i leads from schema version i to i + 1. Released steps never change; new ones are appended.
constexpr const char* kMigrations[] = {
    "CREATE TABLE runs (id INTEGER PRIMARY KEY, date TEXT NOT NULL, host TEXT NOT NULL,"
    " label TEXT NOT NULL, model TEXT NOT NULL, commit_id TEXT NOT NULL, options TEXT NOT NULL,"
    " summary TEXT NOT NULL) STRICT;"
    "CREATE TABLE calls (run INTEGER NOT NULL REFERENCES runs(id), due_ns INTEGER NOT NULL,"
    " sent_ns INTEGER NOT NULL, done_ns INTEGER NOT NULL, queue_us INTEGER NOT NULL,"
    " batch_us INTEGER NOT NULL, exec_us INTEGER NOT NULL, code INTEGER NOT NULL,"
    " phase INTEGER NOT NULL, plan_id TEXT NOT NULL) STRICT;"
    "CREATE INDEX calls_by_run ON calls (run);",
    "CREATE TABLE comparisons (first INTEGER NOT NULL REFERENCES runs(id),"
    " second INTEGER NOT NULL REFERENCES runs(id), json TEXT NOT NULL,"
    " PRIMARY KEY (first, second)) STRICT, WITHOUT ROWID;",
};
constexpr int64_t kSchemaVersion = std::size(kMigrations);
constexpr int64_t kWithComparisons = 2;  // first schema version that stores comparisons

class Statement {
 public:
  Statement(sqlite3* db, const char* sql) {
    code_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Text(absl::string_view text) {
    return Bound(sqlite3_bind_text64(statement_, ++bound_, text.data() ? text.data() : "",
                                     text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  }
  Statement& Int(int64_t value) { return Bound(sqlite3_bind_int64(statement_, ++bound_, value)); }
  int Step() {
    if (code_ == SQLITE_OK || code_ == SQLITE_ROW) code_ = sqlite3_step(statement_);
    return code_;
  }
  // Prepares the statement for the next row of values.
  void Reset() {
    code_ = sqlite3_reset(statement_);
    bound_ = 0;
  }
  int64_t IntColumn(int i) const { return sqlite3_column_int64(statement_, i); }
  std::string TextColumn(int i) const {
    const unsigned char* text = sqlite3_column_text(statement_, i);
    return text == nullptr ? "" : reinterpret_cast<const char*>(text);
  }

 private:
  Statement& Bound(int code) {
    if (code_ == SQLITE_OK) code_ = code;
    return *this;
  }

  sqlite3_stmt* statement_ = nullptr;
  int code_;
  int bound_ = 0;
};

std::string TextAt(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Replaces bytes that are not UTF-8 (in a label) instead of refusing them.
std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

bool IsStore(const std::string& path) {
  constexpr absl::string_view kMagic("SQLite format 3\0", 16);
  std::string bytes(kMagic.size(), ' ');
  std::ifstream file(path, std::ios::binary);
  return file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())) && bytes == kMagic;
}

Store::~Store() { sqlite3_close(db_); }

absl::Status Store::Error(absl::string_view what) {
  return absl::Status(absl::StatusCode::kFailedPrecondition,
                      absl::StrCat(path_, ": ", what, ": ", sqlite3_errmsg(db_)));
}

absl::Status Store::Execute(const std::string& sql) {
  if (sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) {
    return absl::OkStatus();
  }
  return Error("cannot be written");
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& path, Access access) {
  std::unique_ptr<Store> store(new Store(path));
  const int flags =
      access == Access::kRead ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  if (sqlite3_open_v2(path.c_str(), &store->db_, flags, nullptr) != SQLITE_OK) {
    return store->Error("cannot be opened");
  }
  sqlite3_busy_timeout(store->db_, kBusyMilliseconds);
  RETURN_IF_ERROR(store->Prepare(access));
  return store;
}

// Makes the tables in one transaction, so that two processes that open a new file do it only once.
absl::Status Store::Prepare(Access access) {
  int64_t application = 0, version = 0, tables = 0;
  const auto look = [&] {
    // Asks both in one statement, since another process may be making the tables.
    Statement statement(db_,
                        "SELECT a.application_id, v.user_version, (SELECT count(*) FROM "
                        "sqlite_schema) FROM pragma_application_id a, pragma_user_version v");
    if (statement.Step() != SQLITE_ROW) return false;
    application = statement.IntColumn(0);
    version = statement.IntColumn(1);
    tables = statement.IntColumn(2);
    return true;
  };
  if (!look()) return Error("is not a results file of athanor-bench");
  const bool is_new = access == Access::kWrite && tables == 0 && version == 0;
  if (application != kApplication && !is_new) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": a SQLite file of another program; give another path"));
  }
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(path_, ": of a newer athanor-bench (schema ",
                                                      version, ", this one knows ", kSchemaVersion,
                                                      "); use that one or another file"));
  }
  version_ = version;
  if (access == Access::kRead || version == kSchemaVersion) return absl::OkStatus();
  RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  absl::Cleanup rollback = [this] { sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr); };
  if (!look()) return Error("cannot be read");
  for (; version < kSchemaVersion; ++version) {
    RETURN_IF_ERROR(Execute(kMigrations[version]));
  }
  absl::Status s = Execute(absl::StrCat("PRAGMA application_id = ", kApplication,
                                        "; PRAGMA user_version = ", kSchemaVersion, "; COMMIT"));
  if (!s.ok()) return s;
  std::move(rollback).Cancel();
  version_ = version;
  return absl::OkStatus();
}

absl::Status Store::CheckWritable() {
  RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  const absl::Cleanup rollback = [this] {
    sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  };
  // Rewrites the same version, because on a read-only file BEGIN alone succeeds as a read
  // transaction.
  return Execute(absl::StrCat("PRAGMA user_version = ", version_));
}

absl::StatusOr<int64_t> Store::Add(const json& summary, const LoadResult* calls) {
  ASSIGN_OR_RETURN(std::vector<int64_t> ids, AddAll({{&summary, calls}}, json()));
  return ids.front();
}

absl::StatusOr<std::vector<int64_t>> Store::AddAll(const std::vector<NewRun>& runs,
                                                   const json& comparison) {
  RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  absl::Cleanup rollback = [this] { sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr); };
  std::vector<int64_t> ids;
  for (const NewRun& run : runs) {
    ASSIGN_OR_RETURN(int64_t id, AddSummary(*run.summary));
    if (run.calls != nullptr) {
      RETURN_IF_ERROR(AddCalls(id, *run.calls));
    }
    ids.push_back(id);
  }
  if (!comparison.is_null()) {
    Statement insert(db_, "INSERT INTO comparisons (first, second, json) VALUES (?, ?, ?)");
    insert.Int(ids.at(0)).Int(ids.at(1)).Text(Dump(comparison));
    if (insert.Step() != SQLITE_DONE) return Error("cannot be written");
  }
  RETURN_IF_ERROR(Execute("COMMIT"));
  std::move(rollback).Cancel();
  return ids;
}

absl::StatusOr<int64_t> Store::AddSummary(const json& summary) {
  const json metadata = summary.value("metadata", json::object());
  const json environment = summary.value("environment", json::object());
  Statement insert(db_,
                   "INSERT INTO runs (date, host, label, model, commit_id, options, summary)"
                   " VALUES (?, ?, ?, ?, ?, ?, ?)");
  insert.Text(TextAt(summary, "date"))
      .Text(TextAt(environment, "host"))
      .Text(TextAt(summary, "label"))
      .Text(TextAt(summary, "model_id"))
      .Text(TextAt(metadata, "commit"))
      .Text(Dump(summary.value("options", json::object())))
      .Text(Dump(summary));
  if (insert.Step() != SQLITE_DONE) return Error("cannot be written");
  return sqlite3_last_insert_rowid(db_);
}

absl::Status Store::AddCalls(int64_t id, const LoadResult& result) {
  Statement insert(db_, "INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  for (const CallRecord& record : result.calls) {
    insert.Int(id).Int(record.due_ns).Int(record.sent_ns).Int(record.done_ns);
    insert.Int(record.queue_us).Int(record.batch_us).Int(record.exec_us);
    insert.Int(record.code).Int(record.phase);
    insert.Text(record.plan < 0 ? "" : result.plan_ids[record.plan]);
    if (insert.Step() != SQLITE_DONE) return Error("cannot be written");
    insert.Reset();
  }
  return absl::OkStatus();
}

absl::StatusOr<json> Store::ParseSummary(int64_t id, const std::string& text) {
  json summary = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object()) {
    return absl::DataLossError(
        absl::StrCat(path_, ": the summary of run ", id, " is not a JSON object"));
  }
  summary["id"] = id;
  return summary;
}

absl::StatusOr<std::vector<json>> Store::Runs() {
  std::vector<json> runs;
  Statement select(db_, "SELECT id, summary FROM runs ORDER BY id");
  int code;
  while ((code = select.Step()) == SQLITE_ROW) {
    ASSIGN_OR_RETURN(json summary, ParseSummary(select.IntColumn(0), select.TextColumn(1)));
    runs.push_back(std::move(summary));
  }
  if (code != SQLITE_DONE) return Error("cannot be read");
  return runs;
}

absl::StatusOr<json> Store::Run(int64_t id) {
  Statement select(db_, "SELECT summary FROM runs WHERE id = ?");
  select.Int(id);
  const int code = select.Step();
  if (code == SQLITE_ROW) return ParseSummary(id, select.TextColumn(0));
  if (code != SQLITE_DONE) return Error("cannot be read");
  std::vector<int64_t> ids;
  Statement all(db_, "SELECT id FROM runs ORDER BY id");
  while (all.Step() == SQLITE_ROW) ids.push_back(all.IntColumn(0));
  return absl::NotFoundError(absl::StrCat(path_, ": no run ", id, "; the file has ",
                                          ids.empty() ? "no runs" : "runs ",
                                          absl::StrJoin(ids, ", ")));
}

absl::StatusOr<std::vector<json>> Store::Comparisons() {
  std::vector<json> comparisons;
  if (version_ < kWithComparisons) return comparisons;
  Statement select(db_, "SELECT first, second, json FROM comparisons ORDER BY first, second");
  int code;
  while ((code = select.Step()) == SQLITE_ROW) {
    const int64_t first = select.IntColumn(0), second = select.IntColumn(1);
    json comparison = json::parse(select.TextColumn(2), nullptr, /*allow_exceptions=*/false);
    if (!comparison.is_object()) {
      return absl::DataLossError(absl::StrCat(path_, ": the comparison of runs ", first, " and ",
                                              second, " is not a JSON object"));
    }
    comparison["first"] = first;
    comparison["second"] = second;
    comparisons.push_back(std::move(comparison));
  }
  if (code != SQLITE_DONE) return Error("cannot be read");
  return comparisons;
}

absl::StatusOr<std::vector<CallRecord>> Store::Calls(int64_t id) {
  Statement select(db_,
                   "SELECT due_ns, sent_ns, done_ns, queue_us, batch_us, exec_us, code, phase"
                   " FROM calls WHERE run = ? ORDER BY due_ns, rowid");
  select.Int(id);
  std::vector<CallRecord> calls;
  int code;
  while ((code = select.Step()) == SQLITE_ROW) {
    calls.push_back({.due_ns = select.IntColumn(0),
                     .sent_ns = select.IntColumn(1),
                     .done_ns = select.IntColumn(2),
                     .queue_us = select.IntColumn(3),
                     .batch_us = select.IntColumn(4),
                     .exec_us = select.IntColumn(5),
                     .code = static_cast<int32_t>(select.IntColumn(6)),
                     .phase = static_cast<int32_t>(select.IntColumn(7))});
  }
  if (code != SQLITE_DONE) return Error("cannot be read");
  return calls;
}

}  // namespace athanor::bench
