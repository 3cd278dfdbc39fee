// Compiled kernels, and the checks that were passed with them.
#include <utility>

#include "compiler/cache/cache_reader.h"
#include "compiler/cache/cache_writer.h"
#include "compiler/cache/rows.h"
#include "compiler/cache/tiers.h"

namespace athanor {
namespace {

constexpr size_t kMostObjectBytes = size_t{256} << 20;

}  // namespace

std::optional<std::string> KernelTier::Find(const KernelKey& key, MissReason* why) {
  const std::string hash = key.Hash();
  std::optional<std::string> object;
  file_.reader.Find({.tier = Tier::kKernels,
                     .queued = hash,
                     .where = "key = ?",
                     .bound = {Bytes{hash}},
                     .alike = {"source_hash", key.source_hash}},
                    why, [&](const RowView& row) {
                      object = std::string(row.Text("object"));
                      return true;
                    });
  return object;
}

CacheRow KernelRow(const KernelKey& key, absl::string_view object) {
  CacheRow out{.tier = Tier::kKernels, .key = key.Hash()};
  out.values = ValuesOf(Tier::kKernels, key.Fields(),
                        {{"key", Bytes{out.key}}, {"object", Bytes{std::string(object)}}});
  return out;
}

void KernelTier::Put(const KernelKey& key, absl::string_view object) {
  if (object.size() > kMostObjectBytes) return;
  file_.writer.Put(KernelRow(key, object));
}

bool KernelTier::Has(absl::string_view key) {
  return !file_.writer.Pending(Tier::kKernels, key).empty() ||
         file_.reader.Exists("SELECT 1 FROM kernels WHERE key = ?", {Bytes{std::string(key)}});
}

bool CheckTier::Has(absl::string_view check_key) {
  if (!file_.writer.Pending(Tier::kChecks, check_key).empty()) {
    file_.reader.CountHit(Tier::kChecks);
    return true;
  }
  const std::optional<int64_t> used_us = file_.reader.Integer(
      "SELECT used_us FROM checks WHERE key = ?", {Bytes{std::string(check_key)}});
  if (used_us) {
    file_.writer.UsedCheck(check_key, *used_us);
    file_.reader.CountHit(Tier::kChecks);
  } else {
    file_.reader.CountMiss(
        Tier::kChecks, file_.writer.usable() ? MissReason::kAbsent : MissReason::kNoCache, nullptr);
  }
  return used_us.has_value();
}

void CheckTier::Put(absl::string_view check_key) {
  CacheRow out{.tier = Tier::kChecks, .key = std::string(check_key)};
  out.values = {Bytes{out.key}, WallMicroseconds()};
  file_.writer.Put(std::move(out));
}

}  // namespace athanor
