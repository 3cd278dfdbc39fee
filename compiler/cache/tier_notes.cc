// Notes that save work: failures, how far searches went, and the compiler's description of
// machines.
#include <utility>

#include "compiler/cache/cache_reader.h"
#include "compiler/cache/cache_writer.h"
#include "compiler/cache/plan_records.h"
#include "compiler/cache/rows.h"
#include "compiler/cache/tiers.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace athanor {
namespace {

constexpr int64_t kHour = int64_t{3600} * 1000 * 1000;
constexpr int64_t kDay = 24 * kHour;

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

std::optional<FailureRow> FailureTier::Find(absl::string_view key, FailureKind kind,
                                            MissReason* why) {
  const int64_t now = WallMicroseconds();
  const std::string name(FailureKindName(kind));
  std::optional<FailureRow> found;
  file_.reader.Find({.tier = Tier::kFailures,
                     .queued = absl::StrCat(name, ":", key),
                     .where = "key = ? AND kind = ?",
                     .bound = {Bytes{std::string(key)}, name},
                     .refused = MissReason::kExpired},
                    why, [&](const RowView& row) {
                      // A row from the future was written under a wrong clock.
                      if (row.Int("expires_us") <= now || row.Int("created_us") > now) return false;
                      const auto code = static_cast<absl::StatusCode>(row.Int("code"));
                      found = FailureRow{absl::Status(code, row.Text("message")),
                                         std::string(row.Text("about"))};
                      return true;
                    });
  return found;
}

void FailureTier::Put(absl::string_view key, FailureKind kind, const FailureRow& row) {
  const int64_t lifetime = FailureLifetime(row.status.code());
  if (lifetime == 0) return;
  const std::string name(FailureKindName(kind));
  CacheRow out{.tier = Tier::kFailures, .key = absl::StrCat(name, ":", key)};
  out.values = ValuesOf(Tier::kFailures, {},
                        {{"key", Bytes{std::string(key)}},
                         {"kind", name},
                         {"code", static_cast<int64_t>(row.status.code())},
                         {"message", std::string(row.status.message())},
                         {"about", row.about},
                         {"expires_us", WallMicroseconds() + lifetime}});
  file_.writer.Put(std::move(out));
}

std::optional<SearchState> SearchTier::Find(const PlanKey& key, const v1::SearchOptions& options) {
  const KeyFields fields = key.Fields();
  const std::string hash = GateHash(fields), conditions = ConditionHash(fields);
  const std::string hashed_options = HashOfOptions(options);
  std::optional<SearchState> found;
  file_.reader.Find({.tier = Tier::kSearches,
                     .queued = absl::StrCat(hash, conditions, hashed_options),
                     .where = "key = ? AND conditions = ? AND options = ?",
                     .bound = {Bytes{hash}, Bytes{conditions}, Bytes{hashed_options}}},
                    nullptr, [&](const RowView& row) {
                      found = SearchState{static_cast<v1::CompileJob::StopReason>(row.Int("stop")),
                                          row.Real("seconds"), row.Int("candidates")};
                      return true;
                    });
  return found;
}

void SearchTier::Put(const PlanKey& key, const v1::SearchOptions& options,
                     const SearchState& state) {
  file_.writer.Put(SearchCacheRow(key.Fields(), HashOfOptions(options), state));
}

std::optional<internal::TargetReply> TargetTier::Find(absl::string_view machine,
                                                      absl::string_view tuner) {
  internal::TargetReply found;
  const bool hit =
      file_.reader.Find({.tier = Tier::kTargets,
                         .queued = absl::StrCat(machine, "\n", tuner),
                         .where = "machine = ? AND tuner = ?",
                         .bound = {std::string(machine), std::string(tuner)}},
                        nullptr, [&](const RowView& row) {
                          const absl::string_view reply = row.Text("reply");
                          return found.ParseFromArray(reply.data(), static_cast<int>(reply.size()));
                        });
  if (!hit) return std::nullopt;
  return found;
}

void TargetTier::Put(absl::string_view machine, absl::string_view tuner,
                     const internal::TargetReply& reply) {
  CacheRow out{.tier = Tier::kTargets, .key = absl::StrCat(machine, "\n", tuner)};
  out.values = ValuesOf(Tier::kTargets, {},
                        {{"machine", std::string(machine)},
                         {"tuner", std::string(tuner)},
                         {"reply", Bytes{reply.SerializeAsString()}}});
  file_.writer.Put(std::move(out));
}

}  // namespace athanor
