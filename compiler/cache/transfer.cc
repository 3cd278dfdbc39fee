// Rows on their way into bundles, and those of bundles on their way in (bundle.h).
#include <sqlite3.h>

#include <utility>

#include "compiler/cache/cache.h"
#include "compiler/cache/cache_writer.h"
#include "compiler/cache/garbage.h"
#include "compiler/cache/rows.h"

namespace athanor {
namespace {

constexpr size_t kPageBytes = size_t{4} << 20;  // and one row more

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
  const v1::RegionRecipe& recipe = record.recipe();
  const RecipeKey key{.region_hash = recipe.region_hash(),
                      .dim_box = recipe.dim_box(),
                      .facts = recipe.facts(),
                      .semantics_version = from.semantics_version,
                      .recipe_format = recipe.format()};
  // No name of a bundle's is taken for a search of this server's.
  return RecipeRow(key, recipe, "import " + from.origin);
}

void Count(bool kernel, bool added, v1::ImportCacheReply* reply) {
  if (kernel) {
    added ? reply->set_kernels_added(reply->kernels_added() + 1)
          : reply->set_kernels_known(reply->kernels_known() + 1);
  } else {
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
      Count(record.has_kernel(), sqlite3_changes(file.db()) > 0, &reply);
    }
    return NoteBundle(file, from, records.size());
  });
  if (!kept.ok()) return kept;
  return reply;
}

}  // namespace

absl::StatusOr<std::vector<v1::CacheBundleRecord>> Cache::Export(ExportCursor* at) {
  if (at->rowid == 0 && !at->at_kernels) FlushBeforeMaintenance();
  MutexLock lock(maintenance_mu_);
  if (absl::Status s = OpenMaintenance(); !s.ok()) return s;
  std::vector<v1::CacheBundleRecord> records;
  size_t bytes = 0;
  const auto take = [&](const RowView& row) {
    at->rowid = row.rowid();
    if (!row.ChecksumFits()) return true;
    v1::CacheBundleRecord& record = records.emplace_back();
    if (at->at_kernels) {
      *record.mutable_kernel() = BinaryOf(row);
    } else {
      *record.mutable_recipe() = RecipeOf(row);
    }
    bytes += record.ByteSizeLong();
    return bytes < kPageBytes;
  };
  for (;;) {
    const int code = at->at_kernels
                         ? SelectRows(maintenance_, Tier::kKernels,
                                      "rowid > ?1 AND codegen_version = ?2 ORDER BY rowid",
                                      {at->rowid, kCodegenVersion}, take)
                         : SelectRows(maintenance_, Tier::kRecipes,
                                      "rowid > ?1 AND semantics_version = ?2 AND recipe_format = ?3"
                                      " ORDER BY rowid",
                                      {at->rowid, at->semantics_version, at->recipe_format}, take);
    if (code != SQLITE_DONE) return maintenance_.Failed(code, "export");
    if (!records.empty() || at->at_kernels || !at->kernels) return records;
    at->at_kernels = true;
    at->rowid = 0;
  }
}

absl::StatusOr<v1::ImportCacheReply> Cache::Import(absl::Span<const v1::CacheBundleRecord> records,
                                                   const BundleOrigin& from) {
  FlushBeforeMaintenance();
  MutexLock lock(maintenance_mu_);
  if (absl::Status s = OpenMaintenance(); !s.ok()) return s;
  absl::StatusOr<v1::ImportCacheReply> reply = KeepAll(maintenance_, records, from);
  if (!reply.ok()) return reply;
  if (options_.limit_bytes > 0 && UsedBytes(maintenance_) > options_.limit_bytes) {
    // What does not go now, goes with what the writer writes next.
    athanor::CollectGarbage(maintenance_, {.limit_bytes = options_.limit_bytes})
        .status()
        .IgnoreError();
  }
  return reply;
}

}  // namespace athanor
