#include "clients/cpp/text/cache_text.h"

#include <iterator>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace athanor::client {
namespace {

using nlohmann::json;
using Ranges = google::protobuf::RepeatedPtrField<v1::DimRange>;

std::string BucketText(const Ranges& bucket) {
  if (bucket.empty()) return "no dims";
  return absl::StrJoin(bucket, " ", [](std::string* out, const v1::DimRange& range) {
    absl::StrAppend(out, range.name(), "=", range.min(), "..", range.max());
  });
}

json BucketJson(const Ranges& bucket) {
  json dims = json::object();
  for (const v1::DimRange& range : bucket) dims[range.name()] = {range.min(), range.max()};
  return dims;
}

std::string StateText(const v1::CacheStat& stat) {
  std::string text = v1::CacheStat::State_Name(stat.state());
  absl::AsciiStrToLower(&text);
  for (char& c : text) c = c == '_' ? ' ' : c;
  return text;
}

// "absent 3, gate 1"
std::string ReasonsText(const v1::CacheStat::TierStat& tier) {
  // Maps of messages have no order of their own.
  const std::map<std::string, int64_t> sorted(tier.misses_by_reason().begin(),
                                              tier.misses_by_reason().end());
  return absl::StrJoin(sorted, ", ", absl::PairFormatter(" "));
}

std::string PathText(const v1::CacheStat& stat) {
  return stat.path().empty() ? "cache" : absl::StrCat("cache ", stat.path());
}

}  // namespace

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::vector<std::string> CacheStatLines(const v1::CacheStat& stat) {
  std::vector<std::string> lines;
  lines.push_back(absl::StrCat(PathText(stat), ": ", StateText(stat),
                               stat.reason().empty() ? "" : ", ", stat.reason()));
  lines.push_back(absl::StrCat(
      "schema ", stat.schema(), ", ", BytesText(stat.bytes()),
      stat.limit_bytes() > 0 ? absl::StrCat(" of ", BytesText(stat.limit_bytes())) : "", ", ",
      stat.writes_waiting(), " rows to be written, ", stat.writes_dropped(), " dropped"));
  lines.push_back(absl::StrCat("since the server started: ", stat.kernels_compiled(),
                               " kernels compiled, ", stat.kernels_from_cache(),
                               " from the cache, ", stat.candidates_measured(),
                               " candidates measured"));
  lines.push_back(absl::StrFormat("%-10s %9s %11s %9s %9s %9s", "tier", "rows", "size", "hits",
                                  "misses", "bad rows"));
  for (const v1::CacheStat::TierStat& tier : stat.tiers()) {
    const std::string reasons = ReasonsText(tier);
    lines.push_back(absl::StrFormat("%-10s %9d %11s %9d %9d %9d%s%s", tier.tier(), tier.rows(),
                                    BytesText(tier.bytes()), tier.hits(), tier.misses(),
                                    tier.bad_rows(), reasons.empty() ? "" : "  ", reasons));
  }
  for (const v1::CacheStat::Lease& lease : stat.leases()) {
    lines.push_back(absl::StrFormat("%s lease of %s: %s %d for %.1f s", lease.kind(), lease.about(),
                                    lease.ours() ? "this server, process" : "process", lease.pid(),
                                    lease.age_seconds()));
  }
  return lines;
}

std::vector<std::string> CacheExplanationLines(const v1::BucketExplanation& bucket) {
  std::vector<std::string> lines;
  lines.push_back(absl::StrCat(
      BucketText(bucket.bucket()), ": ",
      bucket.hit() ? absl::StrCat("found ", bucket.plan_id()) : std::string("no plan is found")));
  for (const std::string& step : bucket.steps()) lines.push_back("  " + step);
  for (const v1::BucketExplanation::Difference& d : bucket.differences()) {
    lines.push_back(absl::StrCat("  ", d.column(), " \"", d.found(), "\" is not \"", d.wanted(),
                                 "\"", d.gates() ? "" : " (only a new search is due)"));
  }
  return lines;
}

std::vector<std::string> CacheVerificationLines(const v1::CacheVerification& found) {
  std::vector<std::string> lines;
  lines.push_back(absl::StrCat(found.rows(), " rows, ", BytesText(found.bytes()), ": ",
                               found.bad_size(), " bad; database: ", found.database()));
  for (const v1::CacheVerification::BadRow& row : found.bad()) {
    lines.push_back(
        absl::StrCat("  ", row.tier(), " ", row.key(), " (", row.about(), "): ", row.why()));
  }
  if (found.quarantined_size() > 0) {
    lines.push_back(absl::StrCat("quarantined before: ", found.quarantined_size()));
  }
  for (const v1::CacheVerification::BadRow& row : found.quarantined()) {
    lines.push_back(absl::StrCat("  ", row.tier(), ", ", row.about(), ": ", row.why()));
  }
  return lines;
}

std::vector<std::string> CacheGarbageLines(const v1::CollectGarbageReply& reply, bool dry_run) {
  std::vector<std::string> lines;
  lines.push_back(absl::StrCat(dry_run ? "would remove " : "removed ", reply.rows(), " rows, ",
                               BytesText(reply.bytes()), "; ", BytesText(reply.bytes_left()),
                               dry_run ? " would be left" : " left"));
  for (const v1::CollectGarbageReply::TierGarbage& tier : reply.tiers()) {
    lines.push_back(
        absl::StrCat("  ", tier.tier(), ": ", tier.rows(), " rows, ", BytesText(tier.bytes())));
  }
  return lines;
}

std::string ImportText(const v1::ImportCacheReply& reply) {
  return absl::StrCat("imported from ",
                      reply.origin().empty() ? "an unknown server" : reply.origin(), ": ",
                      reply.recipes_added(), " recipes (", reply.recipes_known(), " were here), ",
                      reply.plans_added(), " plans (", reply.plans_known(), " were here), ",
                      reply.kernels_added(), " kernels (", reply.kernels_known(), " were here); ",
                      reply.signed_by().empty() ? "not signed by a trusted key"
                                                : absl::StrCat("signed by ", reply.signed_by()));
}

json CacheStatJson(const v1::CacheStat& stat) {
  json tiers = json::object();
  for (const v1::CacheStat::TierStat& tier : stat.tiers()) {
    tiers[tier.tier()] = {{"rows", tier.rows()},         {"bytes", tier.bytes()},
                          {"hits", tier.hits()},         {"misses", tier.misses()},
                          {"bad_rows", tier.bad_rows()}, {"misses_by_reason", json::object()}};
    for (const auto& [reason, misses] : tier.misses_by_reason()) {
      tiers[tier.tier()]["misses_by_reason"][reason] = misses;
    }
  }
  json leases = json::array();
  for (const v1::CacheStat::Lease& lease : stat.leases()) {
    leases.push_back({{"kind", lease.kind()},
                      {"about", lease.about()},
                      {"pid", lease.pid()},
                      {"ours", lease.ours()},
                      {"age_seconds", lease.age_seconds()}});
  }
  return {{"path", stat.path()},
          {"state", v1::CacheStat::State_Name(stat.state())},
          {"reason", stat.reason()},
          {"schema", stat.schema()},
          {"bytes", stat.bytes()},
          {"limit_bytes", stat.limit_bytes()},
          {"tiers", tiers},
          {"kernels_compiled", stat.kernels_compiled()},
          {"candidates_measured", stat.candidates_measured()},
          {"kernels_from_cache", stat.kernels_from_cache()},
          {"leases", leases},
          {"writes_waiting", stat.writes_waiting()},
          {"writes_dropped", stat.writes_dropped()}};
}

json CacheExplanationJson(const v1::BucketExplanation& bucket) {
  json differences = json::array();
  for (const v1::BucketExplanation::Difference& d : bucket.differences()) {
    differences.push_back({{"column", d.column()},
                           {"wanted", d.wanted()},
                           {"found", d.found()},
                           {"gates", d.gates()}});
  }
  return {{"bucket", BucketJson(bucket.bucket())},
          {"plan_id", bucket.plan_id()},
          {"hit", bucket.hit()},
          {"differences", differences},
          {"steps", std::vector<std::string>(bucket.steps().begin(), bucket.steps().end())}};
}

json CacheVerificationJson(const v1::CacheVerification& found) {
  const auto listed = [](const auto& rows) {
    json list = json::array();
    for (const v1::CacheVerification::BadRow& row : rows) {
      list.push_back(
          {{"tier", row.tier()}, {"key", row.key()}, {"about", row.about()}, {"why", row.why()}});
    }
    return list;
  };
  return {{"rows", found.rows()},
          {"bytes", found.bytes()},
          {"bad", listed(found.bad())},
          {"quarantined", listed(found.quarantined())},
          {"database", found.database()}};
}

json CacheGarbageJson(const v1::CollectGarbageReply& reply, bool dry_run) {
  json tiers = json::object();
  for (const v1::CollectGarbageReply::TierGarbage& tier : reply.tiers()) {
    tiers[tier.tier()] = {{"rows", tier.rows()}, {"bytes", tier.bytes()}};
  }
  return {{"dry_run", dry_run},
          {"rows", reply.rows()},
          {"bytes", reply.bytes()},
          {"tiers", tiers},
          {"bytes_left", reply.bytes_left()}};
}

json ImportJson(const v1::ImportCacheReply& reply) {
  return {{"recipes_added", reply.recipes_added()},
          {"recipes_known", reply.recipes_known()},
          {"plans_added", reply.plans_added()},
          {"plans_known", reply.plans_known()},
          {"kernels_added", reply.kernels_added()},
          {"kernels_known", reply.kernels_known()},
          {"origin", reply.origin()},
          {"signed_by", reply.signed_by()}};
}

}  // namespace athanor::client
