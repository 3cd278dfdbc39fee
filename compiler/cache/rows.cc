#include "compiler/cache/rows.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr int kFirstColumn = 6;  // index in a SELECT of SelectRows

std::vector<TierTable>* MakeTables() {
  return new std::vector<TierTable>{
      {Tier::kPlans,
       {"key",
        "conditions",
        "plan_id",
        "semantics_version",
        "plan_format",
        "codegen_version",
        "graph_hash",
        "interface_hash",
        "dim_box",
        "approximate",
        "device",
        "triple",
        "cpu",
        "features",
        "rule_set",
        "disabled_rules",
        "compiler_version",
        "libraries",
        "driver",
        "threads",
        "clocks",
        "kind",
        "share_of_baseline",
        "low",
        "high",
        "compared_with",
        "kernel_keys",
        "body",
        "bytes",
        "created_us"},
       "CAST(key || plan_id AS BLOB)",
       "plan_id || ' of graph ' || substr(graph_hash, 1, 16) || ' ' || dim_box"},
      {Tier::kRecipes,
       {"key", "region_hash", "dim_box", "facts", "semantics_version", "recipe_format", "device",
        "cpu", "threads", "rule_set", "genome", "share_of_baseline", "origin", "bytes",
        "created_us"},
       "key",
       "'region ' || substr(region_hash, 1, 16) || ' ' || dim_box || ' of ' || cpu"},
      {Tier::kTimings,
       {"key",
        "kernel",
        "sizes",
        "flags",
        "context",
        "measure_version",
        "device",
        "triple",
        "cpu",
        "features",
        "compiler_version",
        "libraries",
        "driver",
        "threads",
        "clocks",
        "seconds",
        "low",
        "high",
        "rounds",
        "checked",
        "bytes",
        "created_us"},
       "key",
       "'kernel ' || substr(kernel, 1, 16) || ' ' || sizes"},
      {Tier::kKernels,
       {"key", "source_hash", "flags", "triple", "cpu", "features", "compiler_version",
        "codegen_version", "bytes", "created_us", "object"},
       "key",
       "'kernel ' || substr(source_hash, 1, 16) || ' for ' || cpu"},
      {Tier::kFailures,
       {"key", "kind", "code", "message", "about", "bytes", "created_us", "expires_us"},
       "key",
       "kind || ' of ' || about"},
      {Tier::kSearches,
       {"key", "conditions", "options", "stop", "seconds", "candidates", "bytes", "created_us"},
       "key",
       "'the state of a search'"},
      {Tier::kTargets,
       {"machine", "tuner", "reply", "bytes", "created_us"},
       "CAST(machine AS BLOB)",
       "'machine ' || machine"},
  };
}

// Returns the value as Statement::ValueAt gives it back. A key's numbers come as text and are
// stored as integers.
std::string Canonical(const Value& value) {
  if (const int64_t* number = std::get_if<int64_t>(&value)) return absl::StrCat(*number);
  if (const double* real = std::get_if<double>(&value)) {
    return std::string(reinterpret_cast<const char*>(real), sizeof(*real));
  }
  if (const std::string* text = std::get_if<std::string>(&value)) return *text;
  return std::get<Bytes>(value).bytes;
}

int64_t SizeOf(const Value& value) {
  if (const std::string* text = std::get_if<std::string>(&value)) return text->size();
  if (const Bytes* bytes = std::get_if<Bytes>(&value)) return bytes->bytes.size();
  return sizeof(int64_t);
}

// Hashes only key and object of kernels, as schema 1 did; every other column is part of the key.
std::string ChecksumOf(Tier tier, std::vector<std::string> values) {
  if (tier == Tier::kKernels) return HashOfFields({values.front(), values.back()});
  return HashOfFields(std::vector<absl::string_view>(values.begin(), values.end()));
}

std::string ChecksumOf(const CacheRow& row) {
  std::vector<std::string> values;
  for (const Value& value : row.values) values.push_back(Canonical(value));
  return ChecksumOf(row.tier, std::move(values));
}

absl::Status Done(SqliteFile& file, Statement& statement, absl::string_view what) {
  const int code = statement.Step();
  return code == SQLITE_DONE ? absl::OkStatus() : file.Failed(code, what);
}

absl::Status InsertCheck(SqliteFile& file, const CacheRow& row) {
  Statement insert(file.db(),
                   "INSERT OR IGNORE INTO checks (key, created_us, used_us) VALUES (?1, ?2, ?2)");
  for (const Value& value : row.values) BindValue(insert, value);
  return Done(file, insert, "write checks");
}

// A plan stays the incumbent until another one becomes it: putting it again changes nothing. A
// bundle's plan replaces only a slower incumbent.
absl::Status SetIncumbent(SqliteFile& file, const CacheRow& row) {
  if (row.imported && row.incumbent) {
    if (sqlite3_changes(file.db()) == 0) return absl::OkStatus();  // the plan was here before
    Statement better(file.db(),
                     "SELECT 1 FROM plans WHERE key = ?1 AND conditions = ?2 AND plan_id != ?3 AND"
                     " incumbent = 1 AND share_of_baseline <= (SELECT share_of_baseline FROM plans"
                     " WHERE key = ?1 AND conditions = ?2 AND plan_id = ?3)");
    for (int i = 0; i < 3; ++i) BindValue(better, row.values[i]);
    if (better.Step() == SQLITE_ROW) return absl::OkStatus();
  }
  if (row.incumbent) {
    Statement others(file.db(),
                     "UPDATE plans SET incumbent = (plan_id = ?3) WHERE key = ?1 AND"
                     " conditions = ?2 AND incumbent + (plan_id = ?3) > 0");
    for (int i = 0; i < 3; ++i) BindValue(others, row.values[i]);
    return Done(file, others, "write plans");
  }
  return absl::OkStatus();
}

}  // namespace

void BindValue(Statement& statement, const Value& value) {
  if (const int64_t* number = std::get_if<int64_t>(&value)) {
    statement.Int(*number);
  } else if (const double* real = std::get_if<double>(&value)) {
    statement.Real(*real);
  } else if (const std::string* text = std::get_if<std::string>(&value)) {
    statement.Text(*text);
  } else {
    statement.Blob(std::get<Bytes>(value).bytes);
  }
}

const TierTable& TableOf(Tier tier) {
  static const std::vector<TierTable>& tables = *MakeTables();
  return *std::find_if(tables.begin(), tables.end(),
                       [tier](const TierTable& table) { return table.tier == tier; });
}

int64_t CacheRow::bytes() const {
  int64_t bytes = 0;
  for (const Value& value : values) bytes += SizeOf(value);
  return bytes;
}

std::vector<Value> ValuesOf(Tier tier, const KeyFields& fields, std::vector<NamedValue> more) {
  std::vector<Value> values;
  int64_t bytes = 0;
  const TierTable& table = TableOf(tier);
  for (absl::string_view column : table.columns) {
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const KeyField& f) { return f.column == column; });
    if (field != fields.end()) {
      values.push_back(field->value);
    } else if (column == "bytes") {
      values.push_back(int64_t{0});
    } else if (column == "created_us") {
      values.push_back(WallMicroseconds());
    } else {
      const auto named = std::find_if(more.begin(), more.end(),
                                      [&](const NamedValue& v) { return v.column == column; });
      values.push_back(std::move(named->value));
    }
    bytes += SizeOf(values.back());
  }
  const auto at = std::find(table.columns.begin(), table.columns.end(), "bytes");
  values[at - table.columns.begin()] = bytes;
  return values;
}

absl::Status InsertRow(SqliteFile& file, const CacheRow& row) {
  if (row.tier == Tier::kChecks) return InsertCheck(file, row);
  const TierTable& table = TableOf(row.tier);
  const bool plans = row.tier == Tier::kPlans;
  std::string sql =
      absl::StrCat(row.imported ? "INSERT OR IGNORE INTO " : "INSERT OR REPLACE INTO ",
                   TierName(row.tier), " (", absl::StrJoin(table.columns, ", "),
                   ", checksum, used_us", plans ? ", incumbent" : "", ") VALUES (");
  for (size_t i = 0; i < table.columns.size() + 2; ++i) absl::StrAppend(&sql, i ? ", ?" : "?");
  // Reads the old row's mark before the row is replaced.
  absl::StrAppend(&sql, plans ? ", COALESCE((SELECT incumbent FROM plans WHERE key = ?1 AND"
                                " conditions = ?2 AND plan_id = ?3), 0))"
                              : ")");
  const std::string checksum = ChecksumOf(row);
  Statement insert(file.db(), sql);
  for (const Value& value : row.values) BindValue(insert, value);
  insert.Blob(checksum).Int(WallMicroseconds());
  RETURN_IF_ERROR(Done(file, insert, absl::StrCat("write ", TierName(row.tier))));
  return plans ? SetIncumbent(file, row) : absl::OkStatus();
}

int RowView::At(absl::string_view column) const {
  return kFirstColumn +
         static_cast<int>(std::find(table_.columns.begin(), table_.columns.end(), column) -
                          table_.columns.begin());
}

KeyFields RowView::Fields(const KeyFields& like) const {
  KeyFields fields = like;
  for (KeyField& field : fields) field.value = std::string(Text(field.column));
  return fields;
}

bool RowView::ChecksumFits() const {
  std::vector<std::string> values;
  for (size_t i = 0; i < table_.columns.size(); ++i) {
    values.push_back(statement_.ValueAt(kFirstColumn + static_cast<int>(i)));
  }
  if (table_.tier == Tier::kKernels && values.front() != GateHash(Fields(KernelKey().Fields()))) {
    return false;
  }
  return checksum() == ChecksumOf(table_.tier, std::move(values));
}

std::string RowView::key() const { return std::string(statement_.BytesAt(4)); }

std::string RowView::about() const { return std::string(statement_.BytesAt(5)); }

BadRow BadRowOf(Tier tier, const RowView& row, absl::string_view why) {
  return {tier,        row.rowid(),      row.checksum(),  row.key(),
          row.about(), std::string(why), row.Int("bytes")};
}

absl::Status QuarantineRow(SqliteFile& file, const BadRow& bad) {
  {
    // Compares the checksum as it was read: a damaged one may have another type, or be NULL.
    Statement remove(file.db(),
                     absl::StrCat("DELETE FROM ", TierName(bad.tier),
                                  " WHERE rowid = ? AND ifnull(CAST(checksum AS BLOB), x'') = ?"));
    remove.Int(bad.rowid).Blob(bad.checksum);
    RETURN_IF_ERROR(Done(file, remove, "remove a bad row"));
  }
  // Another process may have removed the row first, and put a good one there.
  if (sqlite3_changes(file.db()) == 0) return absl::OkStatus();
  Statement keep(file.db(),
                 "INSERT OR REPLACE INTO quarantine (tier, key, found_us, why, about, bytes)"
                 " VALUES (?, ?, ?, ?, ?, ?)");
  keep.Text(TierName(bad.tier)).Blob(bad.key).Int(WallMicroseconds()).Text(bad.why);
  keep.Text(bad.about).Int(bad.bytes);
  return Done(file, keep, "quarantine a bad row");
}

int SelectRows(SqliteFile& file, Tier tier, absl::string_view where, absl::Span<const Value> bound,
               absl::FunctionRef<bool(const RowView&)> take) {
  const TierTable& table = TableOf(tier);
  Statement select(
      file.db(),
      absl::StrCat("SELECT rowid, used_us, checksum, ", tier == Tier::kPlans ? "incumbent" : "0",
                   ", ", table.key, ", ", table.about, ", ", absl::StrJoin(table.columns, ", "),
                   " FROM ", TierName(tier), " WHERE ", where));
  for (const Value& value : bound) BindValue(select, value);
  int code = SQLITE_DONE;
  while ((code = select.Step()) == SQLITE_ROW) {
    if (!take(RowView(select, table))) return SQLITE_DONE;
  }
  return code;
}

}  // namespace athanor
