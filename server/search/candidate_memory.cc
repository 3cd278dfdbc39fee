#include "server/search/candidate_memory.h"

#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/cache/schema.h"
#include "compiler/ir/graph/versions.h"
#include "server/child/compile_flags.h"
#include "server/child/search_kernel.h"
#include "server/search/kernel_maker.h"

namespace athanor {
namespace {

// Raised when measuring a kernel alone comes to other times than it did.
constexpr int64_t kMeasureVersion = 5;

// Rows of the timings that are about no kernel.
constexpr char kLimits[] = "limits of the machine";
constexpr char kYardstick[] = "yardstick of the machine";

// "1,64;8,64"
std::string TextOf(const google::protobuf::RepeatedPtrField<internal::Sizes>& sizes) {
  return absl::StrJoin(sizes, ";", [](std::string* out, const internal::Sizes& values) {
    absl::StrAppend(out, absl::StrJoin(values.values(), ","));
  });
}

// Reports whether the candidate was not at fault: there was no child to try it, or this machine
// lacks what compiles it, runs it safely, or is compared with it.
bool SaysNothing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsFailedPrecondition(status);
}

}  // namespace

CandidateMemory::CandidateMemory(Cache* cache, const internal::TargetReply* machine,
                                 std::string clocks, const Graph& graph,
                                 const PlanSearchOptions& options)
    : cache_(*cache),
      machine_(*machine),
      clocks_(std::move(clocks)),
      graph_hash_(CanonicalHash(graph)) {
  const v1::Target& target = machine_.target();
  compiler_ = HashOfFields({machine_.compiler_version(), CompileFlags::For(target).ToString(),
                            target.triple(), target.cpu(), absl::StrJoin(target.features(), ","),
                            target.blas(), machine_.driver(), absl::StrCat(kCodegenVersion),
                            absl::StrCat(kSemanticsVersion), absl::StrCat(kCheckVersion)});
  search_ = HashOfFields({compiler_, ToText(graph), absl::StrCat(options.seed),
                          options.approximate ? "1" : "0", machine_.rule_set(),
                          absl::StrCat(target.threads())});
}

CandidateMemory::Kernel CandidateMemory::Of(const internal::SearchKernel& kernel,
                                            absl::Span<const int64_t> activation_bytes) const {
  const v1::Plan& plan = kernel.check().plan();
  Kernel of;
  of.right = HashOfFields({compiler_, CheckKey(kernel.check(), kCheckVersion)});
  of.about = FailureAbout(graph_hash_, absl::StrCat("kernel ", OwnKernel(plan).name()));
  of.time.kernel = OwnKernel(plan).source_hash();
  of.time.sizes = absl::StrCat(plan.plan_id(), " ", TextOf(kernel.sizes()));
  of.time.flags = CompileFlags::For(machine_.target()).ToString();
  of.time.context = absl::StrCat("weights=", kernel.weight_bytes(),
                                 " activations=", absl::StrJoin(activation_bytes, ","),
                                 " checks=", kCheckVersion, " codegen=", kCodegenVersion);
  of.time.measure_version = kMeasureVersion;
  of.time.made_under = Conditions();
  return of;
}

MachineConditions CandidateMemory::Conditions() const {
  MachineConditions conditions;
  conditions.target = machine_.target();
  conditions.compiler_version = machine_.compiler_version();
  conditions.libraries = machine_.target().blas();
  conditions.driver = machine_.driver();
  conditions.clocks = clocks_;
  return conditions;
}

TimingKey CandidateMemory::MachineKey(std::string what) const {
  TimingKey key;
  key.kernel = std::move(what);
  key.measure_version = kMeasureVersion;
  key.made_under = Conditions();
  return key;
}

// Kept as what a byte or an operation takes.
std::optional<internal::MachineReply> CandidateMemory::FindLimits() const {
  const std::optional<TimingRow> row = cache_.timings().Find(MachineKey(kLimits));
  if (!row || row->seconds.size() != 4) return std::nullopt;
  for (double seconds : row->seconds) {
    constexpr double kLeast = 1e-18;  // no machine is faster
    if (!(seconds > kLeast && std::isfinite(seconds))) return std::nullopt;
  }
  internal::MachineReply limits;
  limits.set_read_bytes_per_second(1 / row->seconds[0]);
  limits.set_cache_bytes_per_second(1 / row->seconds[1]);
  limits.set_near_bytes_per_second(1 / row->seconds[2]);
  limits.set_f32_flops_per_second(1 / row->seconds[3]);
  return limits;
}

void CandidateMemory::PutLimits(const internal::MachineReply& limits) const {
  TimingRow row;
  row.seconds = {1 / limits.read_bytes_per_second(), 1 / limits.cache_bytes_per_second(),
                 1 / limits.near_bytes_per_second(), 1 / limits.f32_flops_per_second()};
  row.low = row.high = row.seconds;
  cache_.timings().Put(MachineKey(kLimits), row);
}

std::optional<absl::StatusOr<std::vector<double>>> CandidateMemory::Find(
    const Kernel& of, const internal::SearchKernel& kernel) const {
  if (std::optional<TimingRow> row = cache_.timings().Find(of.time)) {
    const bool whole = row->seconds.size() == static_cast<size_t>(kernel.sizes_size());
    const bool may_serve =
        kernel.best_seconds().empty() || (whole && FasterThanBest(row->seconds, kernel));
    if (whole && (row->checked || !may_serve)) return std::move(row->seconds);
    return std::nullopt;
  }
  for (const FailureKind kind : {FailureKind::kCompile, FailureKind::kCheck}) {
    if (auto failed = cache_.failures().Find(of.right, kind)) return failed->status;
  }
  const std::string time = GateHash(of.time.Fields());
  if (auto failed = cache_.failures().Find(time, FailureKind::kMeasure)) return failed->status;
  return std::nullopt;
}

void CandidateMemory::PutFailure(const Kernel& of, FailureKind kind,
                                 const absl::Status& status) const {
  if (SaysNothing(status)) return;
  const bool timed = kind == FailureKind::kMeasure;
  cache_.failures().Put(timed ? GateHash(of.time.Fields()) : of.right, kind, {status, of.about});
}

std::optional<double> CandidateMemory::FlopsOfTimes() const {
  const std::optional<TimingRow> row = cache_.timings().Find(MachineKey(kYardstick));
  if (!row || row->seconds.size() != 1) return std::nullopt;
  const double flops = 1 / row->seconds[0];
  return flops > 0 && std::isfinite(flops) ? std::optional(flops) : std::nullopt;
}

void CandidateMemory::PutFlopsOfTimes(double flops) const {
  TimingRow row;
  row.seconds = row.low = row.high = {1 / flops};
  cache_.timings().Put(MachineKey(kYardstick), row);
}

std::string CandidateMemory::KeyOf(const internal::SearchPlan& plan) const {
  return HashOfFields({search_, plan.plan().SerializeAsString(), TextOf(plan.sizes())});
}

std::optional<CandidateMemory::PlanFailure> CandidateMemory::FindFailure(
    const internal::SearchPlan& plan) const {
  const std::string key = KeyOf(plan);
  for (const FailureKind kind : {FailureKind::kCompile, FailureKind::kCheck, FailureKind::kMeasure,
                                 FailureKind::kPlanCheck}) {
    if (auto failed = cache_.failures().Find(key, kind)) return PlanFailure{kind, failed->status};
  }
  return std::nullopt;
}

void CandidateMemory::PutFailure(const internal::SearchPlan& plan,
                                 const PlanFailure& failure) const {
  if (SaysNothing(failure.status)) return;
  std::string what = absl::StrCat("plan ", plan.plan().plan_id());
  if (!plan.about().empty()) absl::StrAppend(&what, " of ", plan.about());
  cache_.failures().Put(KeyOf(plan), failure.kind,
                        {failure.status, FailureAbout(graph_hash_, what)});
}

}  // namespace athanor
