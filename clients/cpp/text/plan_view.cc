#include "clients/cpp/text/plan_view.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/cpp/inputs/text_input.h"
#include "clients/cpp/text/print.h"
#include "clients/cpp/text/search_text.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

using nlohmann::json;

std::string FactorText(const v1::SizeExpr::Factor& factor) {
  auto pair = [](const char* name, const v1::SizeExpr::Pair& p) {
    return absl::StrCat(name, "(", SizeText(p.a()), ", ", SizeText(p.b()), ")");
  };
  switch (factor.kind_case()) {
    case v1::SizeExpr::Factor::kSymbol:
      return factor.symbol();
    case v1::SizeExpr::Factor::kFloorDiv:
      return pair("floor_div", factor.floor_div());
    case v1::SizeExpr::Factor::kMin:
      return pair("min", factor.min());
    case v1::SizeExpr::Factor::kMax:
      return pair("max", factor.max());
    default:
      return "?";
  }
}

// Formats 1.5e9 as "1.50 G".
std::string CountText(double count) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T"};
  int unit = 0;
  while (unit < 4 && count >= 999.5) {
    count /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.*f%s",
                         unit == 0 || count >= 99.95 ? 0
                         : count >= 9.995            ? 1
                                                     : 2,
                         count, kUnits[unit]);
}

double SecondsOf(const v1::PlanCost& cost) {
  double whole = 0;
  for (const v1::StepCost& step : cost.steps()) whole += step.seconds();
  return whole;
}

// Adds "loop of s turns: steps 2 to 4" for each loop that starts here; inner loops are indented.
void AddLoopLines(const v1::Plan& plan, int step, std::vector<std::string>* lines) {
  std::string indent;
  for (const v1::Loop& loop : plan.loops()) {
    const int first = static_cast<int>(loop.first());
    const int last = first + static_cast<int>(loop.steps()) - 1;
    if (first == step) {
      lines->push_back(absl::StrCat(
          std::string(65, ' '), indent, "loop of ", SizeText(loop.count()), " turns: step",
          last > first ? "s " : " ", first, last > first ? absl::StrCat(" to ", last) : ""));
    }
    if (first <= step && step <= last) indent += "  ";
  }
}

std::string LoopIndent(const v1::Plan& plan, int step) {
  std::string indent;
  for (const v1::Loop& loop : plan.loops()) {
    const int64_t first = loop.first();
    if (first <= step && step < first + loop.steps()) indent += "  ";
  }
  return indent;
}

void AddCostTable(const v1::Plan& plan, const v1::PlanCost& cost, std::vector<std::string>* lines) {
  const double whole = SecondsOf(cost);
  lines->push_back(absl::StrCat("Steps", cost.size().empty() ? "" : " at ", cost.size(),
                                whole > 0
                                    ? absl::StrCat(", ", SecondsText(whole), " in all:")
                                    : ", not measured (a search measures the serving plan):"));
  lines->push_back(absl::StrFormat("  %4s %9s %7s %9s %9s %9s %8s  %s", "step", "time", "share",
                                   "bytes", "flops", "least", "roofline",
                                   "kernel: what it computes"));
  for (int i = 0; i < std::min(cost.steps_size(), plan.run_size()); ++i) {
    const v1::StepCost& step = cost.steps(i);
    const bool timed = step.seconds() > 0 && whole > 0;
    const bool limited = step.roofline_seconds() > 0;
    const bool bounded = timed && limited;
    AddLoopLines(plan, i, lines);
    lines->push_back(absl::StrFormat(
        "  %4d %9s %7s %9s %9s %9s %8s  %s%s: %s", i, timed ? SecondsText(step.seconds()) : "-",
        timed ? absl::StrFormat("%.1f %%", 100 * step.seconds() / whole) : "-",
        CountText(step.bytes()), CountText(step.flops()),
        limited ? SecondsText(step.roofline_seconds()) : "-",
        bounded ? absl::StrFormat("%.0f %%", 100 * step.roofline_seconds() / step.seconds()) : "-",
        LoopIndent(plan, i), KernelName(plan, plan.run(i)), plan.run(i).label()));
  }
}

std::string DeviceLine(const v1::PlanDetails& details) {
  std::string line = absl::StrCat("Device ", details.device());
  if (!details.has_limits())
    return line + ", whose limits are not known yet (a search measures them)";
  const v1::DeviceLimits& limits = details.limits();
  return absl::StrCat(line, ": ", CountText(limits.read_bytes_per_second()), "B/s of memory, ",
                      CountText(limits.cache_bytes_per_second()), "B/s of its cache, ",
                      CountText(limits.f32_flops_per_second()), "flop/s in f32");
}

void AddResourceTable(const v1::PlanDetails& details, std::vector<std::string>* lines) {
  if (details.resources().empty()) return;
  lines->push_back(
      "Kernels, as their compiler's log has them (bytes of a thread; shared: of a block):");
  lines->push_back(absl::StrFormat("  %9s %7s %7s %7s %7s  %s", "registers", "shared", "stack",
                                   "spilled", "loaded", "kernel"));
  for (int i = 0; i < std::min(details.resources_size(), details.plan().kernels_size()); ++i) {
    const v1::KernelResources& r = details.resources(i);
    lines->push_back(absl::StrFormat("  %9s %7d %7d %7d %7d  %s",
                                     r.registers() > 0 ? absl::StrCat(r.registers()) : "-",
                                     r.shared_bytes(), r.stack_bytes(), r.spill_store_bytes(),
                                     r.spill_load_bytes(), details.plan().kernels(i).name()));
  }
}

json ResourcesJson(const v1::KernelResources& r) {
  return {{"registers", r.registers() > 0 ? json(r.registers()) : json()},
          {"shared_bytes", r.shared_bytes()},
          {"stack_bytes", r.stack_bytes()},
          {"spill_store_bytes", r.spill_store_bytes()},
          {"spill_load_bytes", r.spill_load_bytes()},
          {"barriers", r.barriers()}};
}

json LimitsJson(const v1::PlanDetails& details) {
  if (!details.has_limits()) return nullptr;
  return {{"read_bytes_per_second", details.limits().read_bytes_per_second()},
          {"cache_bytes_per_second", details.limits().cache_bytes_per_second()},
          {"f32_flops_per_second", details.limits().f32_flops_per_second()}};
}

std::string FileStem(int kernel, const std::string& name) {
  std::string stem = absl::StrFormat("%02d_%s", kernel, name.substr(0, 80));
  for (char& c : stem) {
    if (!absl::ascii_isalnum(c) && c != '_') c = '_';
  }
  return stem;
}

}  // namespace

std::string SizeText(const v1::SizeExpr& size) {
  if (size.terms().empty()) return "0";
  std::string text;
  for (const v1::SizeExpr::Term& term : size.terms()) {
    const int64_t c = term.coefficient();
    const uint64_t magnitude = c < 0 ? 0 - static_cast<uint64_t>(c) : static_cast<uint64_t>(c);
    absl::StrAppend(&text, text.empty() ? (c < 0 ? "-" : "") : (c < 0 ? " - " : " + "));
    const bool shown = magnitude != 1 || term.factors().empty();
    if (shown) absl::StrAppend(&text, magnitude);
    for (int i = 0; i < term.factors_size(); ++i) {
      absl::StrAppend(&text, shown || i > 0 ? "*" : "", FactorText(term.factors(i)));
    }
  }
  return text;
}

std::string BufferText(const v1::Buffer& buffer) {
  return absl::StrCat(
      buffer.dtype(), "[",
      absl::StrJoin(buffer.shape(), ", ",
                    [](std::string* out, const v1::SizeExpr& s) { *out += SizeText(s); }),
      "]");
}

std::string KernelName(const v1::Plan& plan, const v1::Step& step) {
  const auto kernel = static_cast<int>(step.kernel());
  if (kernel >= plan.kernels_size()) return "?";
  return absl::StrCat(plan.kernels(kernel).name(),
                      step.has_library_call() ? " by " + plan.target().blas() : "");
}

std::vector<std::string> PlanTable(const v1::PlanDetails& details) {
  std::vector<std::string> lines;
  if (!details.device().empty()) lines.push_back(DeviceLine(details));
  for (const v1::PlanCost& cost : details.costs()) AddCostTable(details.plan(), cost, &lines);
  AddResourceTable(details, &lines);
  return lines;
}

json PlanDetailsJson(const v1::PlanDetails& details) {
  const v1::Plan& plan = details.plan();
  json kernels = json::array(), steps = json::array(), costs = json::array();
  for (int i = 0; i < plan.kernels_size(); ++i) {
    const v1::Kernel& kernel = plan.kernels(i);
    kernels.push_back(
        {{"name", kernel.name()},
         {"source_hash", kernel.source_hash()},
         {"kir_hash", kernel.kir_hash()},
         {"resources",
          i < details.resources_size() ? ResourcesJson(details.resources(i)) : json()}});
  }
  for (const v1::Step& step : plan.run()) {
    json buffers = json::array();
    for (uint32_t b : step.buffers()) buffers.push_back(b);
    steps.push_back({{"kernel", step.kernel()},
                     {"library", step.has_library_call() ? plan.target().blas() : ""},
                     {"label", step.label()},
                     {"buffers", buffers},
                     {"grid", SizeText(step.grid())},
                     {"flops", SizeText(step.flops())},
                     {"moved_bytes", SizeText(step.moved_bytes())}});
  }
  json loops = json::array();
  for (const v1::Loop& loop : plan.loops()) {
    loops.push_back({{"first", loop.first()},
                     {"steps", loop.steps()},
                     {"count", SizeText(loop.count())},
                     {"slices", loop.slices_size()},
                     {"carries", loop.carries_size()}});
  }
  json buffers = json::array();
  for (const v1::Buffer& buffer : plan.buffers()) {
    buffers.push_back({{"kind", v1::Buffer::Kind_Name(buffer.kind())},
                       {"name", buffer.name()},
                       {"type", BufferText(buffer)},
                       {"bytes", SizeText(buffer.bytes())}});
  }
  for (const v1::PlanCost& cost : details.costs()) {
    json at = json::array();
    for (const v1::StepCost& step : cost.steps()) {
      at.push_back({{"seconds", step.seconds()},
                    {"flops", step.flops()},
                    {"bytes", step.bytes()},
                    {"roofline_seconds", step.roofline_seconds()}});
    }
    costs.push_back({{"size", cost.size()}, {"steps", at}});
  }
  return {{"info", PlanJson(details.info())},
          {"device", details.device()},
          {"limits", LimitsJson(details)},
          {"kernels", kernels},
          {"buffers", buffers},
          {"prepare_steps", plan.prepare_size()},
          {"steps", steps},
          {"loops", loops},
          {"costs", costs}};
}

absl::StatusOr<std::vector<std::string>> WritePlan(const v1::PlanDetails& details,
                                                   const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("--out ", directory, ": ", error.message()));
  }
  const v1::Plan& plan = details.plan();
  std::vector<std::pair<std::string, std::string>> files = {
      {"plan.svg", PlanSvg(details)},
      {"plan.json", PlanDetailsJson(details).dump(1, ' ', false, json::error_handler_t::replace)},
      {"genome.txt", plan.genome()}};
  for (int k = 0; k < plan.kernels_size(); ++k) {
    const std::string stem = FileStem(k, plan.kernels(k).name());
    files.emplace_back(stem + ".kir", plan.kernels(k).kir());
    if (plan.kernels(k).library_call()) continue;  // its source is the same
    files.emplace_back(stem + ".cc", plan.kernels(k).source());
  }
  std::vector<std::string> names;
  for (const auto& [name, text] : files) {
    names.push_back((std::filesystem::path(directory) / name).string());
    RETURN_IF_ERROR(WriteFile(names.back(), text));
  }
  return names;
}

}  // namespace athanor::client
