// Timings of kernels' calls: measured, and whether they were checked.
#include <cstring>
#include <utility>

#include "compiler/cache/cache_reader.h"
#include "compiler/cache/cache_writer.h"
#include "compiler/cache/rows.h"
#include "compiler/cache/tiers.h"

namespace athanor {
namespace {

std::string Packed(const std::vector<double>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
}

std::vector<double> Unpacked(absl::string_view bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(double));
  return values;
}

}  // namespace

std::optional<TimingRow> TimingTier::Find(const TimingKey& key, MissReason* why) {
  const std::string hash = GateHash(key.Fields());
  std::optional<TimingRow> found;
  file_.reader.Find({.tier = Tier::kTimings,
                     .queued = hash,
                     .where = "key = ?",
                     .bound = {Bytes{hash}},
                     .alike = {"kernel", key.kernel}},
                    why, [&](const RowView& row) {
                      found = TimingRow{.seconds = Unpacked(row.Text("seconds")),
                                        .low = Unpacked(row.Text("low")),
                                        .high = Unpacked(row.Text("high")),
                                        .rounds = static_cast<int32_t>(row.Int("rounds")),
                                        .checked = row.Int("checked") != 0};
                      return true;
                    });
  return found;
}

void TimingTier::Put(const TimingKey& key, const TimingRow& row) {
  const KeyFields fields = key.Fields();
  CacheRow out{.tier = Tier::kTimings, .key = GateHash(fields)};
  out.values = ValuesOf(Tier::kTimings, fields,
                        {{"key", Bytes{out.key}},
                         {"seconds", Bytes{Packed(row.seconds)}},
                         {"low", Bytes{Packed(row.low)}},
                         {"high", Bytes{Packed(row.high)}},
                         {"rounds", int64_t{row.rounds}},
                         {"checked", int64_t{row.checked}}});
  file_.writer.Put(std::move(out));
}

}  // namespace athanor
