#include "server/restore/plan_keeper.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/versions.h"
#include "deploy/bazel/libs/sha256.h"
#include "server/log.h"
#include "server/restore/machine_id.h"
#include "server/tuner_channel.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kBaseline = "baseline";  // Plan.kind
constexpr std::chrono::seconds kMostWait{1};         // for the cache's writer

absl::Status CheckFileName(const std::string& plan_id) {
  const bool fits = !plan_id.empty() && plan_id.size() <= 128 &&
                    std::all_of(plan_id.begin(), plan_id.end(),
                                [](char c) { return absl::ascii_isalnum(c) || c == '-'; });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("plan id \"", absl::CHexEscape(plan_id), "\": expected letters, digits and -"));
}

// Of a found plan: it was found without what `policy` leaves out.
bool Allowed(const internal::StoredPlan& stored, const SearchPolicy& policy) {
  if (stored.plan().kind() == kBaseline) return true;
  if (!policy.budget.search) return false;
  const auto& left_out = stored.how().disabled_rules();
  return std::all_of(policy.disabled_rules.begin(), policy.disabled_rules.end(),
                     [&](const std::string& rule) {
                       return std::find(left_out.begin(), left_out.end(), rule) != left_out.end();
                     });
}

// What was measured here says more than what was measured elsewhere.
bool Faster(const PlanRow& a, const PlanRow& b) {
  if (a.conditions_equal != b.conditions_equal) return a.conditions_equal;
  const auto share = [](const PlanRow& row) {
    return row.stored.plan().kind() == kBaseline ? 1.0 : row.share_of_baseline;
  };
  return share(a) < share(b);
}

// A pinned plan's file: the SHA-256 of the rest, the key's GateHash, the serialised StoredPlan.
std::string FileOf(const PlanKey& key, const internal::StoredPlan& stored) {
  const std::string rest = GateHash(key.Fields()) + stored.SerializeAsString();
  return Sha256Of(rest) + rest;
}

}  // namespace

KernelKey KernelKeyOf(const v1::Kernel& kernel, const internal::TargetReply& machine) {
  return MakeKernelKey(kernel.source(), machine.target(),
                       CompileFlags::For(machine.target()).ToString(), machine.compiler_version());
}

void PlanKeeper::SetMachine(const internal::TargetReply& machine) {
  MutexLock lock(mu_);
  machine_ = machine;
  if (clocks_.empty()) clocks_ = ClocksText();
}

bool PlanKeeper::ready() const {
  MutexLock lock(mu_);
  return machine_.has_value();
}

PlanKey PlanKeeper::KeyOf(const ModelVersion& version, const Graph& graph,
                          const v1::SearchOptions& how) const {
  PlanKey key;
  key.semantics_version = kSemanticsVersion;
  key.plan_format = kPlanFormat;
  key.graph_hash = version.graph_hash();
  std::vector<std::string> dims, inputs, parameters, outputs;
  const Graph canonical = Canonicalize(graph, &dims);
  std::vector<std::string> box;
  for (const Dim& dim : canonical.dims) {
    box.push_back(absl::StrCat(dim.name, "=", dim.min, "..", dim.max));
  }
  // Plans name also those that no node uses.
  for (const Dim& dim : graph.dims) {
    if (std::find(dims.begin(), dims.end(), dim.name) != dims.end()) continue;
    box.push_back(absl::StrCat("d", dims.size(), "=", dim.min, "..", dim.max));
    dims.push_back(dim.name);
  }
  key.dim_box = absl::StrJoin(box, " ");
  for (NodeId id : graph.InputIds()) inputs.push_back(graph.node(id).name);
  for (NodeId id : graph.ParameterIds()) parameters.push_back(graph.node(id).name);
  for (const Output& output : graph.outputs) outputs.push_back(output.name);
  key.interface_hash = InterfaceHash(inputs, parameters, outputs, dims);
  key.approximate = how.approximate();
  key.disabled_rules.assign(how.disabled_rules().begin(), how.disabled_rules().end());
  MutexLock lock(mu_);
  key.made_under.target = machine_->target();
  key.made_under.compiler_version = machine_->compiler_version();
  key.made_under.rule_set = absl::BytesToHexString(machine_->rule_set());
  key.made_under.libraries = machine_->target().blas();
  key.made_under.clocks = clocks_;
  return key;
}

internal::StoredPlan PlanKeeper::Stored(const PlanSearch::Found& made,
                                        const std::vector<v1::PlanCost>& costs) const {
  internal::StoredPlan stored;
  *stored.mutable_plan() = made.plan;
  if (!made.how.budget().empty()) *stored.mutable_how() = made.how;
  for (const v1::PlanCost& cost : costs) *stored.add_costs() = cost;
  MutexLock lock(mu_);
  for (const v1::Kernel& kernel : made.plan.kernels()) {
    stored.add_kernel_keys(KernelKeyOf(kernel, *machine_).Hash());
  }
  return stored;
}

PlanKeeper::Kept PlanKeeper::Revived(const internal::StoredPlan& stored) const {
  internal::TargetReply machine;
  {
    MutexLock lock(mu_);
    machine = *machine_;
  }
  Kept kept;
  kept.made = std::make_shared<PlanSearch::Found>();
  kept.made->plan = stored.plan();
  kept.made->how = stored.how();
  kept.costs.assign(stored.costs().begin(), stored.costs().end());
  for (int i = 0; i < stored.plan().kernels_size(); ++i) {
    const KernelKey key = KernelKeyOf(stored.plan().kernels(i), machine);
    // An object is kept before it is checked: one under another key says nothing of this plan.
    const bool verified = i < stored.kernel_keys_size() && stored.kernel_keys(i) == key.Hash();
    std::optional<std::string> object;
    if (verified && cache_ != nullptr) object = cache_->FindKernel(key);
    if (object.has_value()) {
      ++cache_->work().kernels_from_cache;
    } else {
      kept.missing.push_back(i);
    }
    kept.made->objects.push_back({object.value_or(""), object.has_value()});
  }
  return kept;
}

std::string PlanKeeper::WhyNot(const PlanKey& key) const {
  if (cache_ == nullptr) return "there is no cache";
  const v1::BucketExplanation explanation = cache_->Explain(key);
  if (explanation.hit()) return absl::StrCat("plan ", explanation.plan_id(), " is there");
  std::string why = absl::StrJoin(explanation.steps(), "; ");
  for (const auto& difference : explanation.differences()) {
    if (!difference.gates()) continue;
    absl::StrAppend(&why, "; ", difference.column(), " \"", difference.found(), "\" is not \"",
                    difference.wanted(), "\"");
  }
  return why;
}

absl::StatusOr<PlanKeeper::Kept> PlanKeeper::Find(const PlanKey& key,
                                                  const std::string& plan_id) const {
  if (cache_ != nullptr) {
    if (std::optional<PlanRow> row = cache_->FindPlanById(key, plan_id)) {
      return Revived(row->stored);
    }
  }
  if (std::optional<internal::StoredPlan> pinned = ReadPinned(key, plan_id)) {
    return Revived(*pinned);
  }
  return absl::NotFoundError(absl::StrCat("plan ", plan_id, " is not in the cache: ", WhyNot(key)));
}

absl::StatusOr<PlanKeeper::Best> PlanKeeper::FindBest(PlanKey key,
                                                      const SearchPolicy& policy) const {
  if (cache_ == nullptr) return absl::NotFoundError("there is no cache");
  std::optional<PlanRow> fastest;
  std::optional<internal::StoredPlan> baseline;
  for (const bool approximate : {false, true}) {
    if (approximate && !policy.approximate) continue;
    key.approximate = approximate;
    bool first = true;  // the one to take among these
    for (const PlanRow& row : cache_->Plans(key)) {
      if (first && Allowed(row.stored, policy)) {
        if (!fastest || Faster(row, *fastest)) fastest = row;
        first = false;
      }
      if (!baseline && row.stored.plan().kind() == kBaseline) baseline = row.stored;
    }
  }
  const internal::StoredPlan* best = fastest ? &fastest->stored : nullptr;
  if (best == nullptr)
    return absl::NotFoundError(absl::StrCat("no plan is in the cache: ", WhyNot(key)));
  if (!baseline) {
    return absl::NotFoundError(absl::StrCat("plan ", best->plan().plan_id(),
                                            " is in the cache, but no baseline to go back to"));
  }
  Best found{Revived(*best), std::nullopt};
  if (best->plan().plan_id() != baseline->plan().plan_id()) found.baseline = Revived(*baseline);
  return found;
}

std::vector<PlanKeeper::Choice> PlanKeeper::FindAll(PlanKey key, const SearchPolicy& policy,
                                                    size_t most) const {
  if (cache_ == nullptr) return {};
  std::vector<PlanRow> rows;
  for (const bool approximate : {false, true}) {
    if (approximate && !policy.approximate) continue;
    key.approximate = approximate;
    for (PlanRow& row : cache_->Plans(key)) {
      if (!Allowed(row.stored, policy)) continue;
      const auto at = std::upper_bound(rows.begin(), rows.end(), row, Faster);
      rows.insert(at, std::move(row));
    }
  }
  std::vector<Choice> choices;
  bool baseline = false;
  for (const PlanRow& row : rows) {
    const bool is_baseline = row.stored.plan().kind() == kBaseline;
    if (is_baseline ? baseline : choices.size() >= most) continue;
    // Times of other machines' conditions say nothing beside those of these.
    if (!is_baseline && row.conditions_equal != rows.front().conditions_equal) continue;
    Kept kept = Revived(row.stored);
    if (!kept.missing.empty()) continue;
    baseline |= is_baseline;
    choices.push_back({std::move(kept.made), is_baseline ? 1 : row.share_of_baseline});
  }
  return choices;
}

void PlanKeeper::PutBaseline(const PlanKey& key, const PlanSearch::Found& made) {
  if (cache_ == nullptr) return;
  PlanKey exact = key;
  exact.approximate = false;
  const std::optional<PlanRow> before = cache_->FindPlan(exact);
  const bool first = !before.has_value() || !before->conditions_equal;
  // Again, it would be without what its steps cost.
  const std::optional<PlanRow> same = cache_->FindPlanById(exact, made.plan.plan_id());
  if (same.has_value() && same->conditions_equal) return;
  PlanRow row;
  row.stored = Stored(made, {});
  row.incumbent = first;
  row.compared_with = "kernels";
  cache_->PutPlan(exact, row);
}

absl::Status PlanKeeper::PutVerified(const PlanKey& key, const Kept& kept, bool pinned) {
  if (pinned) {
    if (absl::Status s = Pin(key, *kept.made, kept.costs); !s.ok()) return s;
  }
  if (cache_ == nullptr) return absl::OkStatus();
  if (auto row = cache_->FindPlanById(key, kept.made->plan.plan_id())) {
    row->stored = Stored(*kept.made, kept.costs);
    cache_->PutPlan(key, *row);
  }
  return absl::OkStatus();
}

void PlanKeeper::PutFound(const PlanKey& key, const PlanSearch::Found& made,
                          const std::string& from, double ratio) {
  if (cache_ == nullptr) return;
  double share = ratio;
  for (const bool approximate : {key.approximate, false}) {
    PlanKey at = key;
    at.approximate = approximate;
    const std::optional<PlanRow> begun = cache_->FindPlanById(at, from);
    if (!begun.has_value()) continue;
    share *= begun->share_of_baseline;
    break;
  }
  const std::optional<PlanRow> before = cache_->FindPlan(key);
  PlanRow row;
  row.stored = Stored(made, {});
  row.share_of_baseline = row.low = row.high = share;
  // Of a box the full range's plan may be slower than its baseline.
  row.incumbent = !before.has_value() || !before->conditions_equal ||
                  share < before->share_of_baseline;
  row.compared_with = "whole plan";
  cache_->PutPlan(key, row);
}

void PlanKeeper::PutCosts(const PlanKey& key, const std::string& plan_id,
                          const std::vector<v1::PlanCost>& costs) {
  if (cache_ == nullptr) return;
  std::optional<PlanRow> row = cache_->FindPlanById(key, plan_id);
  if (!row.has_value() || !row->conditions_equal) return;
  row->stored.clear_costs();
  for (const v1::PlanCost& cost : costs) *row->stored.add_costs() = cost;
  cache_->PutPlan(key, *row);
}

bool PlanKeeper::SearchEnded(const PlanKey& key, const SearchPolicy& policy) const {
  return cache_ != nullptr && cache_->FindSearch(key, policy.ToProto()).has_value();
}

void PlanKeeper::PutSearch(const PlanKey& key, const SearchPolicy& policy,
                           const SearchState& state) {
  if (cache_ == nullptr) return;
  cache_->PutSearch(key, policy.ToProto(), state);
  cache_->Flush(kMostWait).IgnoreError();  // else it is made again
}

absl::Status PlanKeeper::Pin(const PlanKey& key, const PlanSearch::Found& made,
                             const std::vector<v1::PlanCost>& costs) {
  const std::string& id = made.plan.plan_id();
  if (absl::Status s = CheckFileName(id); !s.ok()) return s;
  if (absl::Status s = disk_.MakeDirectory(folder_); !s.ok()) return s;
  const std::string bytes = FileOf(key, Stored(made, costs));
  const std::string path = PathOf(id), begun = path + ".new";
  unlink(begun.c_str());
  absl::StatusOr<int> fd = disk_.Create(begun);
  if (!fd.ok()) return fd.status();
  absl::Cleanup remove = [&] { unlink(begun.c_str()); };
  absl::Status written = disk_.Write(*fd, bytes, begun);
  if (written.ok()) written = disk_.Sync(*fd, begun);
  close(*fd);
  if (!written.ok()) return written;
  if (absl::Status s = disk_.Rename(begun, path); !s.ok()) return s;
  std::move(remove).Cancel();
  if (absl::Status s = disk_.SyncDirectory(folder_); !s.ok()) return s;
  return disk_.SyncDirectory(fs::path(folder_).parent_path());  // the first pin made the folder
}

void PlanKeeper::Unpin(const std::string& plan_id) {
  if (CheckFileName(plan_id).ok()) unlink(PathOf(plan_id).c_str());
}

void PlanKeeper::RemoveAllBut(const std::set<std::string>& pinned) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    if (!pinned.contains(entry.path().filename().string())) fs::remove(entry.path(), error);
  }
}

std::optional<internal::StoredPlan> PlanKeeper::ReadPinned(const PlanKey& key,
                                                           const std::string& plan_id) const {
  if (!CheckFileName(plan_id).ok()) return std::nullopt;
  std::ifstream file(PathOf(plan_id), std::ios::binary);
  if (!file) return std::nullopt;
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const absl::string_view text = bytes;
  const absl::string_view rest = text.substr(std::min<size_t>(kSha256Bytes, text.size()));
  internal::StoredPlan stored;
  const absl::string_view body = rest.substr(std::min<size_t>(kSha256Bytes, rest.size()));
  const bool whole = Sha256Of(rest) == text.substr(0, kSha256Bytes) &&
                     stored.ParseFromArray(body.data(), static_cast<int>(body.size()));
  if (!whole) {
    LogWarn("a pinned plan's file is damaged", {{"file", PathOf(plan_id)}});
    return std::nullopt;
  }
  if (rest.substr(0, kSha256Bytes) != GateHash(key.Fields())) {
    LogWarn("a pinned plan was made for another machine or server", {{"file", PathOf(plan_id)}});
    return std::nullopt;
  }
  return stored;
}

}  // namespace athanor
