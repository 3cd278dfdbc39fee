// Notes that save work: failures, how far searches went, and the compiler's description of
// machines.
#include <utility>

#include "compiler/cache/cache.h"
#include "compiler/cache/cache_reader.h"
#include "compiler/cache/cache_writer.h"
#include "compiler/cache/plan_records.h"
#include "compiler/cache/rows.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace athanor {
namespace {

constexpr int64_t kHour = int64_t{3600} * 1000 * 1000;
constexpr int64_t kDay = 24 * kHour;

struct QueuedFailure {
  int64_t expires_us = 0;
  FailureRow row;
};

std::string HashOfOptions(const v1::SearchOptions& options) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    options.SerializeToCodedStream(&coded);
  }
  return HashOfFields({bytes});
}

}  // namespace

std::string SearchKeyOf(const PlanKey& key, const v1::SearchOptions& options) {
  const KeyFields fields = key.Fields();
  return HashOfFields({GateHash(fields), ConditionHash(fields), HashOfOptions(options)});
}

std::string FailureAbout(absl::string_view graph_hash, absl::string_view what) {
  return absl::StrCat("graph ", graph_hash, ": ", what);
}

absl::string_view FailureKindName(FailureKind kind) {
  constexpr absl::string_view kNames[] = {"lower",   "compile",    "check",
                                          "measure", "plan_check", "load"};
  return kNames[static_cast<int>(kind)];
}

int64_t FailureLifetime(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
      return 30 * kDay;
    case absl::StatusCode::kInternal:
      return kDay;
    default:  // may succeed when the machine is less busy
      return kHour;
  }
}

std::optional<FailureRow> Cache::FindFailure(absl::string_view key, FailureKind kind,
                                             MissReason* why) {
  const int64_t now = WallMicroseconds();
  const std::string name(FailureKindName(kind));
  for (const auto& row : writer_->Pending(Tier::kFailures, absl::StrCat(name, ":", key))) {
    const auto& queued = std::any_cast<const QueuedFailure&>(row->value);
    if (queued.expires_us <= now) continue;
    reader_->CountHit(Tier::kFailures);
    return queued.row;
  }
  std::optional<FailureRow> found;
  bool expired = false;
  const CacheReader::Outcome outcome = reader_->Select(
      Tier::kFailures, "key = ? AND kind = ?", {Bytes{std::string(key)}, name},
      [&](const RowView& row) {
        // A row from the future was written under a wrong clock.
        expired = row.Int("expires_us") <= now || row.Int("created_us") > now;
        if (expired) return false;
        found = FailureRow{
            absl::Status(static_cast<absl::StatusCode>(row.Int("code")), row.Text("message")),
            std::string(row.Text("about"))};
        return false;
      });
  if (found) {
    reader_->CountHit(Tier::kFailures);
  } else {
    reader_->CountMiss(Tier::kFailures, expired ? MissReason::kExpired : outcome.Reason(), why);
  }
  return found;
}

void Cache::PutFailure(absl::string_view key, FailureKind kind, const FailureRow& row) {
  const int64_t lifetime = FailureLifetime(row.status.code());
  if (lifetime == 0) return;
  const std::string name(FailureKindName(kind));
  const int64_t expires_us = WallMicroseconds() + lifetime;
  CacheRow out{.tier = Tier::kFailures, .key = absl::StrCat(name, ":", key)};
  out.values = ValuesOf(Tier::kFailures, {},
                        {{"key", Bytes{std::string(key)}},
                         {"kind", name},
                         {"code", static_cast<int64_t>(row.status.code())},
                         {"message", std::string(row.status.message())},
                         {"about", row.about},
                         {"expires_us", expires_us}});
  out.value = QueuedFailure{expires_us, row};
  writer_->Put(std::make_shared<const CacheRow>(std::move(out)));
}

std::optional<SearchState> Cache::FindSearch(const PlanKey& key, const v1::SearchOptions& options) {
  const KeyFields fields = key.Fields();
  const std::string hash = GateHash(fields), conditions = ConditionHash(fields);
  const std::string hashed_options = HashOfOptions(options);
  for (const auto& row :
       writer_->Pending(Tier::kSearches, absl::StrCat(hash, conditions, hashed_options))) {
    reader_->CountHit(Tier::kSearches);
    return std::any_cast<const SearchState&>(row->value);
  }
  std::optional<SearchState> found;
  const CacheReader::Outcome outcome = reader_->Select(
      Tier::kSearches, "key = ? AND conditions = ? AND options = ?",
      {Bytes{hash}, Bytes{conditions}, Bytes{hashed_options}}, [&](const RowView& row) {
        found = SearchState{static_cast<v1::CompileJob::StopReason>(row.Int("stop")),
                            row.Real("seconds"), row.Int("candidates")};
        return false;
      });
  if (found) {
    reader_->CountHit(Tier::kSearches);
  } else {
    reader_->CountMiss(Tier::kSearches, outcome.Reason(), nullptr);
  }
  return found;
}

void Cache::PutSearch(const PlanKey& key, const v1::SearchOptions& options,
                      const SearchState& state) {
  writer_->Put(std::make_shared<const CacheRow>(
      SearchCacheRow(key.Fields(), HashOfOptions(options), state)));
}

std::optional<internal::TargetReply> Cache::FindTarget(absl::string_view machine,
                                                       absl::string_view tuner) {
  for (const auto& row : writer_->Pending(Tier::kTargets, absl::StrCat(machine, "\n", tuner))) {
    reader_->CountHit(Tier::kTargets);
    return std::any_cast<const internal::TargetReply&>(row->value);
  }
  std::optional<internal::TargetReply> found;
  const CacheReader::Outcome outcome =
      reader_->Select(Tier::kTargets, "machine = ? AND tuner = ?",
                      {std::string(machine), std::string(tuner)}, [&](const RowView& row) {
                        const absl::string_view reply = row.Text("reply");
                        found.emplace();
                        if (!found->ParseFromArray(reply.data(), static_cast<int>(reply.size())))
                          found.reset();
                        return false;
                      });
  if (found) {
    reader_->CountHit(Tier::kTargets);
  } else {
    reader_->CountMiss(Tier::kTargets, outcome.Reason(), nullptr);
  }
  return found;
}

void Cache::PutTarget(absl::string_view machine, absl::string_view tuner,
                      const internal::TargetReply& reply) {
  CacheRow out{.tier = Tier::kTargets, .key = absl::StrCat(machine, "\n", tuner)};
  out.values = ValuesOf(Tier::kTargets, {},
                        {{"machine", std::string(machine)},
                         {"tuner", std::string(tuner)},
                         {"reply", Bytes{reply.SerializeAsString()}}});
  out.value = reply;
  writer_->Put(std::make_shared<const CacheRow>(std::move(out)));
}

}  // namespace athanor
