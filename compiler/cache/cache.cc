#include "compiler/cache/cache.h"

#include <filesystem>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "compiler/cache/cache_reader.h"
#include "compiler/cache/cache_writer.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

v1::CacheStat::State StateOf(FileState state) {
  switch (state) {
    case FileState::kUsable:
      return v1::CacheStat::USABLE;
    case FileState::kNewerSchema:
      return v1::CacheStat::NEWER_SCHEMA;
    case FileState::kReadOnly:
      return v1::CacheStat::READ_ONLY;
    case FileState::kFull:
      return v1::CacheStat::FULL;
    case FileState::kUnusable:
      break;
  }
  return v1::CacheStat::UNUSABLE;
}

int64_t FileBytes(const std::string& path) {
  int64_t bytes = 0;
  for (const char* suffix : {"", "-wal"}) {
    std::error_code missing;
    const auto size = std::filesystem::file_size(path + suffix, missing);
    if (!missing) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

// Returns SQL that sums a tier's rows; checks have no bytes of their own.
std::string SumOf(Tier tier) {
  return absl::StrCat("SELECT COALESCE(SUM(", tier == Tier::kChecks ? "length(key) + 16" : "bytes",
                      "), 0) FROM ", TierName(tier));
}

}  // namespace

absl::string_view MissReasonName(MissReason reason) {
  constexpr absl::string_view kNames[kMissReasonCount] = {"absent",  "gate",     "bad_row",
                                                          "expired", "no_cache", "busy"};
  return kNames[static_cast<int>(reason)];
}

Cache::Cache(CacheOptions options, const Report& report)
    : options_(std::move(options)),
      lease_file_(options_.path, CacheSchema(), report),
      leases_(
          [this](absl::FunctionRef<absl::Status(SqliteFile&)> body) -> absl::Status {
            MutexLock lock(lease_mu_);
            RETURN_IF_ERROR(writer_->OpenAnother(lease_file_));
            return body(lease_file_);
          },
          WithWake()),
      writer_(
          std::make_unique<CacheWriter>(CacheWriter::Options{options_.path, options_.limit_bytes,
                                                             [this] { return leases_.Beat(); }},
                                        report)),
      reader_(std::make_unique<CacheReader>(options_.path, writer_.get(), report)),
      file_{options_.path, *reader_, *writer_},
      plans_(file_),
      recipes_(file_),
      timings_(file_),
      kernels_(file_),
      checks_(file_),
      failures_(file_),
      searches_(file_),
      targets_(file_),
      maintenance_(options_.path, options_.limit_bytes, writer_.get(), report) {}

Cache::~Cache() = default;

std::unique_ptr<Cache> Cache::Open(CacheOptions options, Report report) {
  return std::unique_ptr<Cache>(new Cache(std::move(options), report));
}

absl::Status Cache::Flush(std::chrono::milliseconds limit) { return writer_->Flush(limit); }

int64_t Cache::data_version() { return reader_->data_version(); }

LeaseOptions Cache::WithWake() {
  LeaseOptions options = options_.leases;
  options.wake = [this] { writer_->Wake(); };
  return options;
}

v1::CacheStat Cache::Stat() {
  v1::CacheStat stat;
  const CacheWriter::State state = writer_->GetState();
  stat.set_path(options_.path);
  stat.set_state(StateOf(state.file));
  stat.set_reason(state.reason);
  stat.set_limit_bytes(options_.limit_bytes);
  if (!options_.path.empty()) stat.set_bytes(FileBytes(options_.path));
  stat.set_schema(static_cast<int32_t>(reader_->Integer("PRAGMA user_version", {}).value_or(0)));
  for (int i = 0; i < kTierCount; ++i) {
    const auto tier = static_cast<Tier>(i);
    v1::CacheStat::TierStat& of = *stat.add_tiers();
    of.set_tier(std::string(TierName(tier)));
    of.set_rows(
        reader_->Integer(absl::StrCat("SELECT COUNT(*) FROM ", TierName(tier)), {}).value_or(0));
    of.set_bytes(reader_->Integer(SumOf(tier), {}).value_or(0));
    reader_->AddCounts(tier, &of);
  }
  stat.set_kernels_compiled(work_.kernels_compiled);
  stat.set_candidates_measured(work_.candidates_measured);
  stat.set_kernels_from_cache(work_.kernels_from_cache);
  for (const LeaseTable::Holder& holder : leases_.Holders()) {
    v1::CacheStat::Lease& lease = *stat.add_leases();
    lease.set_kind(holder.kind);
    lease.set_about(holder.about);
    lease.set_pid(holder.pid);
    lease.set_ours(holder.ours);
    lease.set_age_seconds(holder.age_seconds);
  }
  stat.set_writes_waiting(state.waiting);
  stat.set_writes_dropped(state.dropped);
  return stat;
}

CacheCounts Cache::Counts() const {
  CacheCounts counts;
  for (int i = 0; i < kTierCount; ++i) {
    counts.tiers.push_back(reader_->TierCounts(static_cast<Tier>(i)));
  }
  counts.candidates_measured = work_.candidates_measured;
  if (!options_.path.empty()) counts.bytes = FileBytes(options_.path);
  return counts;
}

v1::BucketExplanation Cache::Explain(const PlanKey& key) {
  v1::BucketExplanation explanation;
  plans_.Explain(key, &explanation);
  failures_.Explain(key.graph_hash, &explanation);
  return explanation;
}

absl::Status Cache::ExecuteForTest(const std::string& sql) { return reader_->Execute(sql); }

}  // namespace athanor
