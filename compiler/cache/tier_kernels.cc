// Compiled kernels, and the checks that were passed with them.
#include <utility>

#include "compiler/cache/cache.h"
#include "compiler/cache/cache_reader.h"
#include "compiler/cache/cache_writer.h"
#include "compiler/cache/rows.h"

namespace athanor {
namespace {

constexpr size_t kMostObjectBytes = size_t{256} << 20;

}  // namespace

std::optional<std::string> Cache::FindKernel(const KernelKey& key, MissReason* why) {
  const std::string hash = key.Hash();
  for (const auto& row : writer_->Pending(Tier::kKernels, hash)) {
    reader_->CountHit(Tier::kKernels);
    return std::get<Bytes>(row->values.back()).bytes;
  }
  std::optional<std::string> object;
  const CacheReader::Outcome outcome =
      reader_->Select(Tier::kKernels, "key = ?", {Bytes{hash}}, [&](const RowView& row) {
        object = std::string(row.Text("object"));
        return false;
      });
  if (object) {
    reader_->CountHit(Tier::kKernels);
    return object;
  }
  MissReason reason = outcome.Reason();
  if (reason == MissReason::kAbsent &&
      reader_->Exists("SELECT 1 FROM kernels WHERE source_hash = ? LIMIT 1", {key.source_hash})) {
    reason = MissReason::kGate;
  }
  reader_->CountMiss(Tier::kKernels, reason, why);
  return object;
}

CacheRow KernelRow(const KernelKey& key, absl::string_view object) {
  CacheRow out{.tier = Tier::kKernels, .key = key.Hash()};
  out.values = ValuesOf(Tier::kKernels, key.Fields(),
                        {{"key", Bytes{out.key}}, {"object", Bytes{std::string(object)}}});
  return out;
}

void Cache::PutKernel(const KernelKey& key, absl::string_view object) {
  if (object.size() > kMostObjectBytes) return;
  writer_->Put(std::make_shared<const CacheRow>(KernelRow(key, object)));
}

bool Cache::HasKernel(absl::string_view key) {
  return !writer_->Pending(Tier::kKernels, key).empty() ||
         reader_->Exists("SELECT 1 FROM kernels WHERE key = ?", {Bytes{std::string(key)}});
}

bool Cache::HasPassed(absl::string_view check_key) {
  if (!writer_->Pending(Tier::kChecks, check_key).empty()) {
    reader_->CountHit(Tier::kChecks);
    return true;
  }
  const std::optional<int64_t> used_us =
      reader_->Integer("SELECT used_us FROM checks WHERE key = ?", {Bytes{std::string(check_key)}});
  if (used_us) {
    writer_->UsedCheck(check_key, *used_us);
    reader_->CountHit(Tier::kChecks);
  } else {
    reader_->CountMiss(Tier::kChecks,
                       writer_->usable() ? MissReason::kAbsent : MissReason::kNoCache, nullptr);
  }
  return used_us.has_value();
}

void Cache::PutPassed(absl::string_view check_key) {
  CacheRow out{.tier = Tier::kChecks, .key = std::string(check_key)};
  out.values = {Bytes{out.key}, WallMicroseconds()};
  writer_->Put(std::make_shared<const CacheRow>(std::move(out)));
}

}  // namespace athanor
