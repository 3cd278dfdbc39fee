// Timings of kernels' calls: measured, and whether they were checked.
#include <cstring>
#include <utility>

#include "compiler/cache/cache.h"
#include "compiler/cache/cache_reader.h"
#include "compiler/cache/cache_writer.h"
#include "compiler/cache/rows.h"

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

std::optional<TimingRow> Cache::FindTiming(const TimingKey& key, MissReason* why) {
  const std::string hash = GateHash(key.Fields());
  for (const auto& row : writer_->Pending(Tier::kTimings, hash)) {
    reader_->CountHit(Tier::kTimings);
    return std::any_cast<const TimingRow&>(row->value);
  }
  std::optional<TimingRow> found;
  const CacheReader::Outcome outcome =
      reader_->Select(Tier::kTimings, "key = ?", {Bytes{hash}}, [&](const RowView& row) {
        found = TimingRow{.seconds = Unpacked(row.Text("seconds")),
                          .low = Unpacked(row.Text("low")),
                          .high = Unpacked(row.Text("high")),
                          .rounds = static_cast<int32_t>(row.Int("rounds")),
                          .checked = row.Int("checked") != 0};
        return false;
      });
  if (found) {
    reader_->CountHit(Tier::kTimings);
    return found;
  }
  MissReason reason = outcome.Reason();
  if (reason == MissReason::kAbsent &&
      reader_->Exists("SELECT 1 FROM timings WHERE kernel = ? LIMIT 1", {key.kernel})) {
    reason = MissReason::kGate;
  }
  reader_->CountMiss(Tier::kTimings, reason, why);
  return found;
}

void Cache::PutTiming(const TimingKey& key, const TimingRow& row) {
  const KeyFields fields = key.Fields();
  CacheRow out{.tier = Tier::kTimings, .key = GateHash(fields)};
  out.values = ValuesOf(Tier::kTimings, fields,
                        {{"key", Bytes{out.key}},
                         {"seconds", Bytes{Packed(row.seconds)}},
                         {"low", Bytes{Packed(row.low)}},
                         {"high", Bytes{Packed(row.high)}},
                         {"rounds", int64_t{row.rounds}},
                         {"checked", int64_t{row.checked}}});
  out.value = row;
  writer_->Put(std::make_shared<const CacheRow>(std::move(out)));
}

}  // namespace athanor
