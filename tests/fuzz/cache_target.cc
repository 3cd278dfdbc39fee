#include "tests/fuzz/cache_target.h"

#include <sqlite3.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "compiler/cache/cache.h"
#include "compiler/cache/cache_testing.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

constexpr std::chrono::seconds kLong{60};
constexpr size_t kPage = 4096;
constexpr size_t kHeader = 100;   // bytes of the database's own header
constexpr size_t kVersions = 18;  // place of two version bytes: 2 in WAL mode, else 1
constexpr size_t kLargest = size_t{1} << 20;
constexpr char kMagic[] = "SQLite format 3";

// A folder, deleted with its files by the destructor; in memory where possible, so that a run does
// not wait for a disk.
class Folder {
 public:
  Folder() {
    const char* memory = "/dev/shm";
    path_ = (std::filesystem::is_directory(memory) ? std::filesystem::path(memory)
                                                   : std::filesystem::temp_directory_path()) /
            "athanor-fuzz-XXXXXX";
    std::string name = path_.string();
    if (mkdtemp(name.data()) == nullptr) abort();
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  std::string cache() const { return path_ / "cache.db"; }

 private:
  std::filesystem::path path_;
};

std::unique_ptr<Cache> Open(const Folder& folder) {
  return Cache::Open({.path = folder.cache(), .limit_bytes = 0}, [](absl::string_view) {});
}

TimingRow Timing() { return {{1e-3, 2e-3}, {0.5e-3, 1e-3}, {2e-3, 3e-3}, 7, true}; }

v1::SearchOptions Options() {
  v1::SearchOptions options;
  options.set_budget("30s");
  return options;
}

internal::TargetReply Reply() {
  internal::TargetReply reply;
  *reply.mutable_target() = TestTarget();
  return reply;
}

void PutAll(Cache& cache) {
  cache.PutPlan(TestPlanKey(1), TestPlan("p-1"));
  cache.PutRecipe(TestRecipeKey(1), TestRecipe("tile 4"));
  cache.PutTiming(TestTimingKey(1), Timing());
  cache.PutKernel(TestKernelKey(0), TestObject(0));
  cache.PutPassed(std::string(32, 'c'));
  cache.PutFailure("k", FailureKind::kCompile, {absl::InternalError("crashed"), "kernel 1"});
  cache.PutSearch(TestPlanKey(1), Options(), {v1::CompileJob::STOP_STAGNATION, 1.5, 9});
  cache.PutTarget("zen4", "build 1", Reply());
}

// Returns a row that is found but differs from what was put; "" if none. `found` counts rows.
std::string FindAll(Cache& cache, int* found) {
  if (const auto row = cache.FindPlan(TestPlanKey(1))) {
    ++*found;
    if (row->stored.SerializeAsString() != TestPlan("p-1").stored.SerializeAsString() ||
        row->share_of_baseline != 0.5) {
      return "another plan is found";
    }
  }
  for (const v1::RegionRecipe& recipe :
       cache.FindRecipes(TestRecipeKey(1), TestTarget(), /*most=*/4)) {
    ++*found;
    if (recipe.genome() != "tile 4") return "another recipe is found";
  }
  if (const auto row = cache.FindTiming(TestTimingKey(1))) {
    ++*found;
    if (row->seconds != Timing().seconds || row->high != Timing().high || !row->checked) {
      return "another time is found";
    }
  }
  if (const auto object = cache.FindKernel(TestKernelKey(0))) {
    ++*found;
    if (*object != TestObject(0)) return "another kernel is found";
  }
  *found += cache.HasPassed(std::string(32, 'c')) ? 1 : 0;
  if (cache.HasPassed(std::string(32, 'd'))) return "a check has passed that never ran";
  if (const auto row = cache.FindFailure("k", FailureKind::kCompile)) {
    ++*found;
    if (row->status != absl::InternalError("crashed")) return "another failure is found";
  }
  if (const auto state = cache.FindSearch(TestPlanKey(1), Options())) {
    ++*found;
    if (state->candidates != 9) return "another search is found";
  }
  if (const auto reply = cache.FindTarget("zen4", "build 1")) {
    ++*found;
    if (reply->SerializeAsString() != Reply().SerializeAsString()) return "another target is found";
  }
  return "";
}

std::string Refusal(const char* what, const absl::Status& status) {
  const std::string bad = BadRefusal(
      status, {absl::StatusCode::kUnavailable, absl::StatusCode::kDataLoss,
               absl::StatusCode::kFailedPrecondition, absl::StatusCode::kResourceExhausted});
  return bad.empty() ? "" : Cat(what, ": ", bad);
}

// Makes every call that reads the whole file.
std::string LookAtAll(Cache& cache, bool* usable) {
  *usable = cache.Stat().state() == v1::CacheStat::USABLE;
  (void)cache.Explain(TestPlanKey(1));
  (void)cache.Explain(TestPlanKey(2));
  const auto first = cache.Verify(/*quarantine=*/true);
  if (!first.ok()) return Refusal("Verify", first.status());
  const auto again = cache.Verify(/*quarantine=*/false);
  if (!again.ok()) return Refusal("Verify", again.status());
  if (again->bad_size() > 0 || again->database() != "ok") {
    return Cat("bad after quarantine: ", again->ShortDebugString());
  }
  v1::CollectGarbageRequest garbage;
  garbage.set_limit_bytes(int64_t{1} << 30);
  garbage.set_failures(true);
  garbage.set_quarantine(true);
  const auto collected = cache.CollectGarbage(garbage);
  return collected.ok() ? "" : Refusal("CollectGarbage", collected.status());
}

// Checks that the cache still works: a row put now is found, if it can be kept at all.
std::string Use(Cache& cache) {
  cache.PutKernel(TestKernelKey(9), TestObject(9));
  const absl::Status written = cache.Flush(kLong);
  const auto found = cache.FindKernel(TestKernelKey(9));
  if (found.has_value() && *found != TestObject(9)) return "another kernel than was put is found";
  if (!written.ok()) return Refusal("Flush", written);
  return "";
}

// Opens `bytes` as a database in memory; null if it is none, or if SQLite takes its size for
// damage.
class InMemory {
 public:
  explicit InMemory(const std::string& bytes) {
    if (sqlite3_open(":memory:", &db_) != SQLITE_OK) return;
    auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), copy);
    copy[kVersions] = copy[kVersions + 1] = 1;  // a database in memory has no WAL
    const auto size = static_cast<sqlite3_int64>(bytes.size());
    sqlite3_deserialize(db_, "main", copy, size, size,
                        SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE);
  }
  ~InMemory() { sqlite3_close(db_); }
  InMemory(const InMemory&) = delete;
  InMemory& operator=(const InMemory&) = delete;

  void Run(const std::string& sql) { sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr); }

  // Returns the values of the first column.
  std::vector<std::string> Read(const std::string& sql) {
    std::vector<std::string> values;
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr);
    while (sqlite3_step(statement) == SQLITE_ROW) {
      const unsigned char* text = sqlite3_column_text(statement, 0);
      if (text != nullptr) values.emplace_back(reinterpret_cast<const char*>(text));
    }
    sqlite3_finalize(statement);
    return values;
  }

  std::string Bytes() {
    sqlite3_int64 size = 0;
    unsigned char* data = sqlite3_serialize(db_, "main", &size, 0);
    if (data == nullptr || size < static_cast<sqlite3_int64>(kHeader)) return "";
    std::string bytes(reinterpret_cast<char*>(data), static_cast<size_t>(size));
    sqlite3_free(data);
    bytes[kVersions] = bytes[kVersions + 1] = 2;
    return bytes;
  }

 private:
  sqlite3* db_ = nullptr;
};

std::string AnyOf(const std::vector<std::string>& of, Mutator* mutator) {
  return of.empty() ? "kernels" : of[mutator->Below(of.size())];
}

// Returns an SQL expression whose value differs from that of `column`.
std::string AnotherValue(const std::string& column, Mutator* mutator) {
  switch (mutator->Below(6)) {
    case 0:
      return Cat(mutator->AnyInteger(7));
    case 1:
      return "CAST(zeroblob(" + Cat(mutator->Below(5000)) + ") AS BLOB)";
    case 2:
      return "substr(" + column + ", 2)";
    case 3:
      return column + " || 'x'";
    case 4:
      return "NULL";
    default:
      return Cat("x'", std::string(64, "0123456789abcdef"[mutator->Below(16)]), "'");
  }
}

std::string MutateBySql(const std::string& bytes, Mutator* mutator) {
  InMemory db(bytes);
  const std::string table =
      AnyOf(db.Read("SELECT name FROM sqlite_master WHERE type = 'table'"), mutator);
  const std::string column =
      AnyOf(db.Read("SELECT name FROM pragma_table_info('" + table + "')"), mutator);
  switch (mutator->Below(10)) {
    case 0:
      db.Run("PRAGMA user_version = " + Cat(mutator->AnyInteger(2)));
      break;
    case 1:
      db.Run("DROP TABLE " + table);
      break;
    case 2:
      db.Run("ALTER TABLE " + table + " RENAME COLUMN " + column + " TO other");
      break;
    case 3:
      db.Run("ALTER TABLE " + table + " ADD COLUMN other INTEGER");
      break;
    case 4:
      db.Run("DELETE FROM " + table);
      break;
    case 5:
      db.Run("CREATE TRIGGER t AFTER INSERT ON " + table + " BEGIN DELETE FROM kernels; END");
      break;
    default:
      db.Run("UPDATE " + table + " SET " + column + " = " + AnotherValue(column, mutator));
  }
  const std::string changed = db.Bytes();
  return changed.empty() ? bytes : changed;
}

void MutatePages(std::string* bytes, Mutator* mutator) {
  const size_t pages = bytes->size() / kPage;
  if (pages == 0) return mutator->MutateBytes(bytes);
  const size_t at = mutator->Below(pages) * kPage, other = mutator->Below(pages) * kPage;
  switch (mutator->Below(5)) {
    case 0:
      bytes->replace(at, kPage, kPage, '\0');
      break;
    case 1:
      bytes->replace(at, kPage, bytes->substr(other, kPage));
      break;
    case 2:
      bytes->resize(at);
      break;
    case 3:
      (*bytes)[mutator->Below(kHeader)] = static_cast<char>(mutator->Below(256));
      break;
    // Changes a byte where pages hold their type.
    default:
      (*bytes)[at + mutator->Below(64)] = static_cast<char>(mutator->Below(256));
  }
}

}  // namespace

std::vector<std::string> SeedCacheFiles() {
  std::vector<std::string> seeds;
  for (const bool full : {true, false}) {
    const Folder folder;
    std::unique_ptr<Cache> cache = Open(folder);
    if (full) PutAll(*cache);
    cache.reset();  // writes the database, and the log into the file
    std::ifstream file(folder.cache(), std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

std::string MutateCacheFile(const std::string& bytes, Mutator* mutator) {
  std::string changed = bytes;
  const uint64_t changes = 1 + (mutator->OneIn(2) ? 0 : mutator->Below(4));
  for (uint64_t i = 0; i < changes; ++i) {
    switch (mutator->Below(4)) {
      case 0:
        mutator->MutateBytes(&changed);
        break;
      case 1:
        MutatePages(&changed, mutator);
        break;
      default:
        if (changed.size() > kHeader) changed = MutateBySql(changed, mutator);
    }
  }
  if (changed.size() > kLargest) changed.resize(kLargest);
  return changed;
}

std::string FuzzCacheFile(const std::string& bytes, FuzzStats* stats) {
  if (bytes.compare(0, sizeof(kMagic) - 1, kMagic) == 0) ++stats->parsed;
  const Folder folder;
  std::ofstream(folder.cache(), std::ios::binary) << bytes;
  for (const bool first : {true, false}) {
    const std::unique_ptr<Cache> cache = Open(folder);
    int found = 0;
    if (std::string problem = FindAll(*cache, &found); !problem.empty()) return problem;
    if (first) stats->evaluated += found > 0 ? 1 : 0;
    bool usable = true;
    // Takes most of an input's time, so only some inputs are checked again after repair.
    if (first || std::accumulate(bytes.begin(), bytes.end(), 0u) % 4 == 0) {
      if (std::string problem = LookAtAll(*cache, &usable); !problem.empty()) return problem;
    }
    if (first) stats->accepted += usable ? 1 : 0;
    if (std::string problem = Use(*cache); !problem.empty()) return problem;
  }
  return "";
}

}  // namespace athanor
