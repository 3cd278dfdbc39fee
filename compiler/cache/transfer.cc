// Moves rows into bundles, and records of bundles into rows (bundle.h).
#include <sqlite3.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/cache/cache.h"
#include "compiler/cache/cache_writer.h"
#include "compiler/cache/garbage.h"
#include "compiler/cache/plan_records.h"
#include "compiler/cache/rows.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr size_t kPageBytes = size_t{4} << 20;  // a page ends with the row that exceeds it

v1::KernelBinary BinaryOf(const RowView& row) {
  v1::KernelBinary kernel;
  kernel.set_source_hash(std::string(row.Text("source_hash")));
  kernel.set_flags(std::string(row.Text("flags")));
  kernel.set_triple(std::string(row.Text("triple")));
  kernel.set_cpu(std::string(row.Text("cpu")));
  kernel.set_features(std::string(row.Text("features")));
  kernel.set_compiler_version(std::string(row.Text("compiler_version")));
  kernel.set_codegen_version(row.Int("codegen_version"));
  kernel.set_object(std::string(row.Text("object")));
  return kernel;
}

KernelKey KeyOf(const v1::KernelBinary& kernel) {
  return {.source_hash = kernel.source_hash(),
          .flags = kernel.flags(),
          .triple = kernel.triple(),
          .cpu = kernel.cpu(),
          .features = kernel.features(),
          .compiler_version = kernel.compiler_version(),
          .codegen_version = kernel.codegen_version()};
}

CacheRow RowOf(const v1::CacheBundleRecord& record, const BundleOrigin& from) {
  if (record.has_kernel()) {
    CacheRow row = KernelRow(KeyOf(record.kernel()), record.kernel().object());
    row.imported = true;
    return row;
  }
  if (record.has_plan() || record.has_search()) {
    CacheRow row =
        record.has_plan() ? PlanCacheRow(record.plan()) : SearchCacheRow(record.search());
    row.imported = true;
    return row;
  }
  const v1::RegionRecipe& recipe = record.recipe();
  const RecipeKey key{.region_hash = recipe.region_hash(),
                      .dim_box = recipe.dim_box(),
                      .facts = recipe.facts(),
                      .semantics_version = from.semantics_version,
                      .recipe_format = recipe.format()};
  // The prefix keeps a bundle from naming its origin "search".
  return RecipeRow(key, recipe, "import " + from.origin);
}

void Count(const v1::CacheBundleRecord& record, bool added, v1::ImportCacheReply* reply) {
  if (record.has_kernel()) {
    added ? reply->set_kernels_added(reply->kernels_added() + 1)
          : reply->set_kernels_known(reply->kernels_known() + 1);
  } else if (record.has_plan()) {
    added ? reply->set_plans_added(reply->plans_added() + 1)
          : reply->set_plans_known(reply->plans_known() + 1);
  } else if (record.has_recipe()) {
    added ? reply->set_recipes_added(reply->recipes_added() + 1)
          : reply->set_recipes_known(reply->recipes_known() + 1);
  }
}

absl::Status NoteBundle(SqliteFile& file, const BundleOrigin& from, size_t rows) {
  Statement note(file.db(),
                 "INSERT OR REPLACE INTO bundles (hash, origin, rows, imported_us)"
                 " VALUES (?, ?, ?, ?)");
  note.Blob(from.digest).Text(from.origin).Int(static_cast<int64_t>(rows)).Int(WallMicroseconds());
  const int code = note.Step();
  return code == SQLITE_DONE ? absl::OkStatus() : file.Failed(code, "note a bundle");
}

absl::StatusOr<v1::ImportCacheReply> KeepAll(SqliteFile& file,
                                             absl::Span<const v1::CacheBundleRecord> records,
                                             const BundleOrigin& from) {
  v1::ImportCacheReply reply;
  reply.set_origin(from.origin);
  const absl::Status kept = file.Transaction([&] {
    for (const v1::CacheBundleRecord& record : records) {
      absl::Status status = InsertRow(file, RowOf(record, from));
      if (!status.ok()) return status;
      Count(record, sqlite3_changes(file.db()) > 0, &reply);
    }
    return NoteBundle(file, from, records.size());
  });
  if (!kept.ok()) return kept;
  return reply;
}

// Plans that a bundle takes: those that serve, and baselines, which servers fall back to.
constexpr char kServing[] = "(incumbent = 1 OR kind = 'baseline')";

// A page of an export.
class Page {
 public:
  Page(SqliteFile& file, ExportCursor* at) : file_(file), at_(*at) {}

  // Reads until the page is full or the stage has no more; returns SQLite's code.
  int Fill() { return at_.of.has_value() ? FillOfKeys() : FillOfAll(); }
  std::vector<v1::CacheBundleRecord>& records() { return records_; }

 private:
  bool Full() const { return bytes_ >= kPageBytes; }

  bool Take(const RowView& row) {
    at_.rowid = row.rowid();
    if (!row.ChecksumFits()) return true;
    v1::CacheBundleRecord record;
    switch (at_.stage) {
      case ExportStage::kRecipes:
        *record.mutable_recipe() = RecipeOf(row);
        break;
      case ExportStage::kPlans: {
        std::optional<v1::CachedPlan> plan = CachedPlanOf(row);
        if (!plan.has_value()) return true;
        if (at_.of.has_value()) {
          at_.kernels.insert(at_.kernels.end(), plan->kernel_keys().begin(),
                             plan->kernel_keys().end());
        }
        *record.mutable_plan() = *std::move(plan);
        break;
      }
      case ExportStage::kSearches:
        *record.mutable_search() = EndedSearchOf(row, (*at_.of)[at_.next]);
        break;
      case ExportStage::kKernels:
        *record.mutable_kernel() = BinaryOf(row);
        break;
      case ExportStage::kEnd:
        return false;
    }
    bytes_ += record.ByteSizeLong();
    records_.push_back(std::move(record));
    return !Full();
  }

  int Select(Tier tier, absl::string_view where, absl::Span<const Value> bound,
             bool whole = false) {
    return SelectRows(file_, tier, where, bound,
                      [&](const RowView& row) { return Take(row) || whole; });
  }

  int FillOfAll() {
    switch (at_.stage) {
      case ExportStage::kRecipes:
        return Select(Tier::kRecipes,
                      "rowid > ?1 AND semantics_version = ?2 AND recipe_format = ?3 ORDER BY rowid",
                      {at_.rowid, at_.semantics_version, at_.recipe_format});
      case ExportStage::kPlans:
        return Select(Tier::kPlans,
                      absl::StrCat("rowid > ?1 AND semantics_version = ?2 AND codegen_version = ?3"
                                   " AND ",
                                   kServing, " ORDER BY rowid"),
                      {at_.rowid, at_.semantics_version, kCodegenVersion});
      case ExportStage::kKernels:
        return Select(Tier::kKernels, "rowid > ?1 AND codegen_version = ?2 ORDER BY rowid",
                      {at_.rowid, kCodegenVersion});
      default:  // an ended search's row does not hold its key's fields
        return SQLITE_DONE;
    }
  }

  int FillOfKeys() {
    int code = SQLITE_DONE;
    const bool kernels = at_.stage == ExportStage::kKernels;
    const size_t end = kernels ? at_.kernels.size() : at_.of->size();
    for (; code == SQLITE_DONE && at_.next < end && !Full(); ++at_.next) {
      code = kernels ? Select(Tier::kKernels, "key = ?", {Bytes{at_.kernels[at_.next]}}) : OneKey();
    }
    return code;
  }

  int OneKey() {
    const KeyFields fields = (*at_.of)[at_.next].Fields();
    const Bytes gate{GateHash(fields)};
    if (at_.stage == ExportStage::kPlans) {
      const bool again = at_.next > 0 && GateHash((*at_.of)[at_.next - 1].Fields()) == gate.bytes;
      if (again) return SQLITE_DONE;
      return Select(Tier::kPlans, absl::StrCat("key = ? AND ", kServing, " ORDER BY rowid"), {gate},
                    /*whole=*/true);
    }
    if (at_.stage == ExportStage::kSearches) {
      return Select(Tier::kSearches, "key = ? AND conditions = ? ORDER BY rowid",
                    {gate, Bytes{ConditionHash(fields)}}, /*whole=*/true);
    }
    return SQLITE_DONE;  // recipes are not stored by plan
  }

  SqliteFile& file_;
  ExportCursor& at_;
  std::vector<v1::CacheBundleRecord> records_;
  size_t bytes_ = 0;
};

// Removes duplicates of kernels that several plans name, and of keys. Sorts keys by their gates, so
// that keys with equal gates are neighbours.
void KeepEachOnce(ExportCursor* at) {
  if (at->stage == ExportStage::kPlans && at->of.has_value()) {
    std::map<std::string, PlanKey> keys;
    for (PlanKey& key : *at->of) {
      const KeyFields fields = key.Fields();
      keys.emplace(GateHash(fields) + ConditionHash(fields), std::move(key));
    }
    at->of->clear();
    for (auto& [hash, key] : keys) at->of->push_back(std::move(key));
  }
  std::sort(at->kernels.begin(), at->kernels.end());
  at->kernels.erase(std::unique(at->kernels.begin(), at->kernels.end()), at->kernels.end());
}

}  // namespace

absl::StatusOr<std::vector<v1::CacheBundleRecord>> Cache::Export(ExportCursor* at) {
  if (at->rowid == 0 && at->stage == ExportStage::kRecipes) FlushBeforeMaintenance();
  MutexLock lock(maintenance_mu_);
  RETURN_IF_ERROR(OpenMaintenance());
  Page page(maintenance_, at);
  while (at->stage != ExportStage::kEnd) {
    const int code = page.Fill();
    if (code != SQLITE_DONE) return maintenance_.Failed(code, "export");
    if (!page.records().empty()) return std::move(page.records());
    at->stage = at->binaries ? static_cast<ExportStage>(static_cast<int>(at->stage) + 1)
                             : ExportStage::kEnd;
    at->rowid = 0;
    at->next = 0;
    KeepEachOnce(at);
  }
  return std::move(page.records());
}

absl::StatusOr<v1::ImportCacheReply> Cache::Import(absl::Span<const v1::CacheBundleRecord> records,
                                                   const BundleOrigin& from) {
  FlushBeforeMaintenance();
  MutexLock lock(maintenance_mu_);
  RETURN_IF_ERROR(OpenMaintenance());
  absl::StatusOr<v1::ImportCacheReply> reply = KeepAll(maintenance_, records, from);
  if (!reply.ok()) return reply;
  if (options_.limit_bytes > 0 && UsedBytes(maintenance_) > options_.limit_bytes) {
    // If this fails, the writer collects garbage after its next batch.
    athanor::CollectGarbage(maintenance_, {.limit_bytes = options_.limit_bytes})
        .status()
        .IgnoreError();
  }
  return reply;
}

}  // namespace athanor
