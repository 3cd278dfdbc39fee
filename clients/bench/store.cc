#include "clients/bench/store.h"

#include <sqlite3.h>

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

constexpr int kBusyMilliseconds = 5000;
constexpr int64_t kApplication = 0x41426e63;  // "ABnc"

// Step i leads from schema version i to i + 1. Never changed once released, only added to.
constexpr const char* kMigrations[] = {
    "CREATE TABLE runs (id INTEGER PRIMARY KEY, date TEXT NOT NULL, host TEXT NOT NULL,"
    " label TEXT NOT NULL, model TEXT NOT NULL, commit_id TEXT NOT NULL, options TEXT NOT NULL,"
    " summary TEXT NOT NULL) STRICT;"
    "CREATE TABLE calls (run INTEGER NOT NULL REFERENCES runs(id), due_ns INTEGER NOT NULL,"
    " sent_ns INTEGER NOT NULL, done_ns INTEGER NOT NULL, queue_us INTEGER NOT NULL,"
    " batch_us INTEGER NOT NULL, exec_us INTEGER NOT NULL, code INTEGER NOT NULL,"
    " phase INTEGER NOT NULL, plan_id TEXT NOT NULL) STRICT;"
    "CREATE INDEX calls_by_run ON calls (run);",
};
constexpr int64_t kSchemaVersion = std::size(kMigrations);

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
  // For the next row of values.
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

// Text of another encoding in a label is replaced, not refused.
std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

bool IsStore(absl::string_view bytes) { return bytes.substr(0, 15) == "SQLite format 3"; }

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

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& path) {
  std::unique_ptr<Store> store(new Store(path));
  if (sqlite3_open_v2(path.c_str(), &store->db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                      nullptr) != SQLITE_OK) {
    return store->Error("cannot be opened");
  }
  sqlite3_busy_timeout(store->db_, kBusyMilliseconds);
  if (absl::Status s = store->Prepare(); !s.ok()) return s;
  return store;
}

// One transaction, so that two processes that open a new file together make its tables once.
absl::Status Store::Prepare() {
  int64_t application = 0, version = 0, tables = 0;
  const auto read = [this](const char* sql, int64_t* value) {
    Statement statement(db_, sql);
    const bool row = statement.Step() == SQLITE_ROW;
    if (row) *value = statement.IntColumn(0);
    return row;
  };
  const auto look = [&] {
    return read("PRAGMA application_id", &application) && read("PRAGMA user_version", &version) &&
           read("SELECT count(*) FROM sqlite_schema", &tables);
  };
  if (!look()) return Error("is no results file of athanor-bench");
  const bool ours = application == kApplication || (tables == 0 && version == 0);
  if (!ours) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": a SQLite file of another program; give another path"));
  }
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(path_, ": of a newer athanor-bench (schema ",
                                                      version, ", this one knows ", kSchemaVersion,
                                                      "); use that one or another file"));
  }
  if (version == kSchemaVersion) return absl::OkStatus();
  if (absl::Status s = Execute("BEGIN IMMEDIATE"); !s.ok()) return s;
  absl::Cleanup rollback = [this] { sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr); };
  if (!look()) return Error("cannot be read");
  for (; version < kSchemaVersion; ++version) {
    if (absl::Status s = Execute(kMigrations[version]); !s.ok()) return s;
  }
  absl::Status s = Execute(absl::StrCat("PRAGMA application_id = ", kApplication,
                                        "; PRAGMA user_version = ", kSchemaVersion, "; COMMIT"));
  if (s.ok()) std::move(rollback).Cancel();
  return s;
}

absl::StatusOr<int64_t> Store::Add(const json& summary, const LoadResult* calls) {
  const json metadata = summary.value("metadata", json::object());
  const json environment = summary.value("environment", json::object());
  if (absl::Status s = Execute("BEGIN IMMEDIATE"); !s.ok()) return s;
  absl::Cleanup rollback = [this] { sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr); };
  int64_t id;
  {
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
    id = sqlite3_last_insert_rowid(db_);
  }
  if (calls != nullptr) {
    if (absl::Status s = AddCalls(id, *calls); !s.ok()) return s;
  }
  if (absl::Status s = Execute("COMMIT"); !s.ok()) return s;
  std::move(rollback).Cancel();
  return id;
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

absl::StatusOr<std::vector<json>> Store::Runs() {
  std::vector<json> runs;
  Statement select(db_, "SELECT id, summary FROM runs ORDER BY id");
  int code;
  while ((code = select.Step()) == SQLITE_ROW) {
    json summary = json::parse(select.TextColumn(1), nullptr, /*allow_exceptions=*/false);
    if (!summary.is_object()) {
      return absl::DataLossError(
          absl::StrCat(path_, ": the summary of run ", select.IntColumn(0), " is no JSON object"));
    }
    summary["id"] = select.IntColumn(0);
    runs.push_back(std::move(summary));
  }
  if (code != SQLITE_DONE) return Error("cannot be read");
  return runs;
}

absl::StatusOr<json> Store::Run(int64_t id) {
  absl::StatusOr<std::vector<json>> runs = Runs();
  if (!runs.ok()) return runs.status();
  std::vector<int64_t> ids;
  for (json& run : *runs) {
    ids.push_back(run["id"].get<int64_t>());
    if (ids.back() == id) return std::move(run);
  }
  return absl::NotFoundError(absl::StrCat(path_, ": no run ", id, "; there ",
                                          ids.empty() ? "are none" : "are ",
                                          absl::StrJoin(ids, ", ")));
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
