#include "server/metrics/metrics.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

using Versions = std::vector<std::shared_ptr<const VersionMetrics>>;

void AddVersionRow(const MetricRow& row, const Versions& versions, Exposition* text) {
  const int labels = row.values.empty() ? 1 : static_cast<int>(row.values.size());
  for (const auto& version : versions) {
    for (int label = 0; label < labels; ++label) {
      std::vector<absl::string_view> values = {version->model, version->version};
      if (!row.values.empty()) values.push_back(row.values[label]);
      if (row.type == MetricType::kHistogram) {
        const HistogramCounts counts = version->cells.histogram(row.metric, label);
        if (counts.count() > 0) text->AddHistogram(row, values, counts);
      } else if (const int64_t value = version->cells.value(row.metric, label);
                 value != 0 || label == 0) {
        text->AddCounter(row, values, value);
      }
    }
  }
}

void AddServerRow(const MetricRow& row, const MetricCells& cells, Exposition* text) {
  const int labels = row.values.empty() ? 1 : static_cast<int>(row.values.size());
  for (int label = 0; label < labels; ++label) {
    std::vector<absl::string_view> values;
    if (!row.values.empty()) {
      if (row.values[label].empty()) continue;
      values.push_back(row.values[label]);
    }
    if (row.type == MetricType::kHistogram) {
      text->AddHistogram(row, values, cells.histogram(row.metric, label));
    } else {
      text->AddCounter(row, values, cells.value(row.metric, label));
    }
  }
}

void AddSamples(const MetricRow& row, const std::vector<MetricSample>& samples, Exposition* text) {
  for (const MetricSample& sample : samples) {
    if (sample.metric != row.metric) continue;
    text->AddValue(row, {sample.labels.begin(), sample.labels.end()}, sample.value);
  }
}

}  // namespace

Metrics::Metrics(int64_t max_versions)
    : max_versions_(max_versions),
      no_version_(std::make_shared<VersionMetrics>("", "")),
      // No model is named "" and no version is named "other".
      others_(std::make_shared<VersionMetrics>("", "other")) {}

std::shared_ptr<VersionMetrics> Metrics::ForVersion(const std::string& model, int64_t version) {
  MutexLock lock(mu_);
  // Erases often enough that there are never many more than those alive.
  if (static_cast<int64_t>(versions_.size()) >= erase_at_) {
    std::erase_if(versions_, [](const auto& entry) { return entry.second.expired(); });
    erase_at_ = std::min(max_versions_, 2 * static_cast<int64_t>(versions_.size()) + 16);
  }
  if (static_cast<int64_t>(versions_.size()) >= max_versions_) return others_;
  auto made = std::make_shared<VersionMetrics>(model, absl::StrCat(version));
  versions_[{model, version}] = made;
  return made;
}

void Metrics::AddCollector(Collector collector) {
  MutexLock lock(mu_);
  collectors_.push_back(std::move(collector));
}

std::vector<MetricSample> Metrics::Ask() const {
  std::vector<Collector> collectors;
  {
    MutexLock lock(mu_);
    collectors = collectors_;
  }
  std::vector<MetricSample> samples;
  for (const Collector& collector : collectors) collector(&samples);
  return samples;
}

Versions Metrics::Living() const {
  Versions versions = {no_version_, others_};
  MutexLock lock(mu_);
  for (auto it = versions_.begin(); it != versions_.end();) {
    if (auto version = it->second.lock()) {
      versions.push_back(std::move(version));
      ++it;
    } else {
      it = versions_.erase(it);
    }
  }
  return versions;
}

std::string Metrics::Text() const {
  const std::vector<MetricSample> samples = Ask();
  const Versions versions = Living();
  Exposition text;
  for (const MetricRow& row : MetricTable()) {
    text.Begin(row);
    switch (row.scope) {
      case MetricScope::kVersion:
        AddVersionRow(row, versions, &text);
        break;
      case MetricScope::kServer:
        AddServerRow(row, server_, &text);
        break;
      case MetricScope::kAsked:
        AddSamples(row, samples, &text);
        break;
    }
  }
  return std::move(text).Take();
}

}  // namespace athanor
