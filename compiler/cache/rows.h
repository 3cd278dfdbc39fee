// Rows of the cache's tables: columns, checksums, writing and reading. For the files of this
// folder.
//
// A checksum covers all columns that a tier lists here, so a row with any other byte is bad.
// Columns that change after the row was written (used_us, incumbent) are not listed.
#ifndef ATHANOR_COMPILER_CACHE_ROWS_H_
#define ATHANOR_COMPILER_CACHE_ROWS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/cache/keys.h"
#include "compiler/cache/schema.h"
#include "compiler/cache/sqlite/sqlite_file.h"
#include "proto/athanor/v1/cache.pb.h"

namespace athanor {

struct Bytes {
  std::string bytes;
};
using Value = std::variant<int64_t, double, std::string, Bytes>;  // a string is text

// Binds the statement's next value; `value` must live as long as the binding.
void BindValue(Statement& statement, const Value& value);

struct TierTable {
  Tier tier;
  std::vector<absl::string_view> columns;  // in the order of a row's values; `checksum` covers them
  absl::string_view key;                   // SQL: the row's name in quarantine
  absl::string_view about;                 // SQL: description for people
};
// REQUIRES: a tier of rows with checksums: neither checks nor quarantine.
const TierTable& TableOf(Tier tier);
inline constexpr Tier kTiersWithChecksums[] = {
    Tier::kPlans,    Tier::kRecipes,  Tier::kTimings, Tier::kKernels,
    Tier::kFailures, Tier::kSearches, Tier::kTargets,
};

// A row to be written.
struct CacheRow {
  Tier tier = Tier::kKernels;
  std::string key;            // finds the row in this process until it is written
  std::vector<Value> values;  // by TableOf(tier).columns; of checks: key, created_us
  bool incumbent = false;     // of plans
  bool imported = false;      // an existing row stays

  int64_t bytes() const;  // of its values
};

// Returns a row's values by TableOf(tier).columns: from `fields` by name, the rest from `more`.
// REQUIRES: every column is in one of them, except "bytes" and "created_us".
struct NamedValue {
  absl::string_view column;
  Value value;
};
std::vector<Value> ValuesOf(Tier tier, const KeyFields& fields, std::vector<NamedValue> more);

// A recipe of origin "search" replaces an existing one; a bundle's leaves it.
CacheRow RecipeRow(const RecipeKey& key, const v1::RegionRecipe& recipe, absl::string_view origin);
CacheRow KernelRow(const KernelKey& key, absl::string_view object);

// Inserts the row, replacing one with the same primary key unless row.imported. REQUIRES: inside a
// transaction.
absl::Status InsertRow(SqliteFile& file, const CacheRow& row);

// A row that was read from the file, or one that waits to be written. Views live until the next
// row.
class RowView {
 public:
  RowView(const Statement& statement, const TierTable& table)
      : statement_(&statement), table_(table) {}
  explicit RowView(const CacheRow& queued) : queued_(&queued), table_(TableOf(queued.tier)) {}

  // REQUIRES: `column` is one of the tier's, and of its type; the columns of a key are also texts.
  absl::string_view Text(absl::string_view column) const;
  int64_t Int(absl::string_view column) const;
  double Real(absl::string_view column) const;
  // Returns the columns of a key, with the names of `like`.
  KeyFields Fields(const KeyFields& like) const;
  bool incumbent() const;

  // The following REQUIRE a row of the file.
  int64_t rowid() const { return statement_->IntAt(0); }
  int64_t used_us() const { return statement_->IntAt(1); }
  bool ChecksumFits() const;
  std::string checksum() const { return std::string(statement_->BytesAt(2)); }
  std::string key() const { return std::string(statement_->BytesAt(4)); }    // TierTable::key
  std::string about() const { return std::string(statement_->BytesAt(5)); }  // TierTable::about

 private:
  size_t IndexOf(absl::string_view column) const;
  int At(absl::string_view column) const;  // in the statement

  const Statement* statement_ = nullptr;  // exactly one of the two is set
  const CacheRow* queued_ = nullptr;
  const TierTable& table_;
};

v1::RegionRecipe RecipeOf(const RowView& row);  // REQUIRES: a row of that tier

struct BadRow {
  Tier tier = Tier::kKernels;
  int64_t rowid = 0;
  std::string checksum;  // as stored: the row may have been replaced since
  std::string key;
  std::string about;
  std::string why;
  int64_t bytes = 0;
};
BadRow BadRowOf(Tier tier, const RowView& row, absl::string_view why);
// Moves the row to the quarantine table. REQUIRES: inside a transaction.
absl::Status QuarantineRow(SqliteFile& file, const BadRow& bad);

// Reads the rows of a tier `where` ("key = ? ORDER BY ...", with `bound`) until `take` returns
// false, also those whose checksums do not fit. Returns SQLite's code, SQLITE_DONE if all went
// well. REQUIRES: file.db().
int SelectRows(SqliteFile& file, Tier tier, absl::string_view where, absl::Span<const Value> bound,
               absl::FunctionRef<bool(const RowView&)> take);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_ROWS_H_
