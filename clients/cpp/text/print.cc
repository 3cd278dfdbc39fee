#include "clients/cpp/text/print.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "clients/cpp/text/search_text.h"

namespace athanor::client {
namespace {

using nlohmann::json;

constexpr int64_t kShownElements = 64;

json TensorsJson(const google::protobuf::RepeatedPtrField<v1::ModelTensor>& tensors) {
  json list = json::array();
  for (const v1::ModelTensor& t : tensors) {
    list.push_back({{"name", t.name()},
                    {"dtype", t.dtype()},
                    {"shape", std::vector<std::string>(t.shape().begin(), t.shape().end())},
                    {"element", t.element()},
                    {"fixed", t.fixed()}});
  }
  return list;
}

std::string TensorsText(const google::protobuf::RepeatedPtrField<v1::ModelTensor>& tensors) {
  return absl::StrJoin(tensors, ", ", [](std::string* out, const v1::ModelTensor& t) {
    absl::StrAppend(out, t.name(), " ", t.element().empty() ? t.dtype() : t.element(), "[",
                    absl::StrJoin(t.shape(), ", "), "]", t.fixed() ? " (fixed)" : "");
  });
}

json RangesJson(const google::protobuf::RepeatedPtrField<v1::DimRange>& ranges) {
  json bucket = json::object();
  for (const v1::DimRange& range : ranges) bucket[range.name()] = {range.min(), range.max()};
  return bucket;
}

json TimeJson(bool known, const google::protobuf::Timestamp& time) {
  if (!known) return nullptr;
  return absl::FormatTime(absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos()),
                          absl::UTCTimeZone());
}

Cell StateCell(const v1::Model& model) {
  Tone tone = Tone::kWait;
  if (model.state() == v1::Model::READY) tone = Tone::kGood;
  if (model.state() == v1::Model::FAILED) tone = Tone::kBad;
  return {v1::Model::State_Name(model.state()), tone};
}

std::string PlanCell(const v1::Model& model) {
  return absl::StrCat(model.plan_id(), model.pinned() ? " pinned" : "",
                      model.deterministic() ? " deterministic" : "");
}

json ElementJson(const Tensor& tensor, int64_t i) {
  const std::string text = ElementText(tensor, i);
  if (tensor.dtype == "bool") return text == "true";
  int64_t whole;
  uint64_t natural;
  double number;
  const NumberKind kind = FindDType(tensor.dtype)->kind;
  if (kind == NumberKind::kSigned && absl::SimpleAtoi(text, &whole)) return whole;
  if (kind == NumberKind::kUnsigned && absl::SimpleAtoi(text, &natural)) return natural;
  if (absl::SimpleAtod(text, &number) && std::isfinite(number)) return number;
  return text;
}

}  // namespace

void Printer::Line(absl::string_view text) {
  std::fprintf(out_, "%.*s\n", static_cast<int>(text.size()), text.data());
  std::fflush(out_);
}

absl::Status WrittenToStdout() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return absl::OkStatus();
  return absl::UnknownError("standard output could not be written, so the result is not whole");
}

void Printer::Object(const nlohmann::json& object) {
  // The server only accepts names in UTF-8; other bytes are replaced instead of throwing.
  Line(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::vector<std::string> BucketLines(const v1::Model& model) {
  std::vector<std::string> lines;
  for (const v1::BucketState& state : model.buckets()) {
    const auto range = [](std::string* out, const v1::DimRange& r) {
      absl::StrAppend(out, r.name(), "=", r.min(), "..", r.max());
    };
    lines.push_back(absl::StrCat(
        absl::StrJoin(state.bucket(), " ", range), ": ",
        state.plan_id().empty()
            ? absl::StrCat("served by the full range's plan: ", state.reason())
            : absl::StrCat("plan ", state.plan_id(), state.pinned() ? " (pinned)" : "")));
  }
  return lines;
}

json PlanJson(const v1::PlanInfo& plan) {
  return {{"plan_id", plan.plan_id()},
          {"kind", plan.kind()},
          {"bucket", RangesJson(plan.bucket())},
          {"kernels", plan.kernels()},
          {"steps", plan.steps()},
          {"search", plan.has_search() ? SearchOptionsJson(plan.search()) : json()}};
}

json DeviceJson(const v1::Device& device) {
  const auto mhz = [](int32_t told) { return told > 0 ? json(told) : json(); };
  return {{"name", device.name()},
          {"chip", device.chip()},
          {"compute_capability", device.compute_capability()},
          {"driver", device.driver()},
          {"threads", device.threads()},
          {"memory_used", device.memory_used()},
          {"memory_limit", device.memory_limit()},
          {"memory_bytes", device.memory_bytes()},
          {"core_mhz", mhz(device.core_mhz())},
          {"memory_mhz", mhz(device.memory_mhz())},
          {"compiler", device.compiler()},
          {"kernels_compiled", device.kernels_compiled()},
          {"lost", device.lost()}};
}

std::string DeviceText(const v1::Device& device) {
  constexpr double kGiB = 1 << 30;
  std::string text = absl::StrCat("device ", device.name());
  if (!device.chip().empty()) absl::StrAppend(&text, ": ", device.chip());
  if (!device.compute_capability().empty()) {
    absl::StrAppend(&text, ", compute capability ", device.compute_capability(),
                    ", driver of CUDA ", device.driver());
  }
  absl::StrAppendFormat(&text, "; %.2f of %.2f GiB held", device.memory_used() / kGiB,
                        device.memory_limit() / kGiB);
  if (device.core_mhz() > 0) absl::StrAppend(&text, "; ", device.core_mhz(), " MHz");
  if (device.memory_mhz() > 0) absl::StrAppend(&text, ", memory ", device.memory_mhz(), " MHz");
  absl::StrAppend(&text, "; ", device.kernels_compiled(), " kernels compiled");
  if (!device.compiler().empty()) absl::StrAppend(&text, " by ", device.compiler());
  if (!device.lost().empty()) absl::StrAppend(&text, "; LOST: ", device.lost());
  return text;
}

json BatchingJson(const v1::Batching& batching) {
  if (batching.dim().empty()) return nullptr;
  return {{"dim", batching.dim()},
          {"on", batching.on()},
          {"reason", batching.reason()},
          {"max_rows", batching.max_rows()},
          {"max_delay_us", batching.max_delay_us()}};
}

std::string BatchingText(const v1::Batching& batching) {
  if (batching.dim().empty()) return "";
  if (!batching.on()) {
    return absl::StrCat("requests share no calls over ", batching.dim(), ": ", batching.reason());
  }
  std::string text = absl::StrCat("requests share calls over ", batching.dim(), ", at most ",
                                  batching.max_rows(), " rows");
  if (batching.max_delay_us() == 0) return text;
  return absl::StrCat(text, ", and wait at most ", batching.max_delay_us(), " us for others");
}

json ModelJson(const v1::Model& model) {
  json plans = json::array();
  for (const v1::PlanInfo& plan : model.plans()) plans.push_back(PlanJson(plan));
  json buckets = json::array();
  for (const v1::BucketState& state : model.buckets()) {
    buckets.push_back({{"bucket", RangesJson(state.bucket())},
                       {"plan_id", state.plan_id()},
                       {"pinned", state.pinned()},
                       {"reason", state.reason()}});
  }
  json dims = json::object();
  for (const v1::GraphDim& dim : model.dims()) dims[dim.name()] = {dim.min(), dim.max()};
  return {{"name", model.name()},
          {"version", model.version()},
          {"serving", model.serving()},
          {"state", v1::Model::State_Name(model.state())},
          {"error", model.error()},
          {"device", model.device()},
          {"inputs", TensorsJson(model.inputs())},
          {"outputs", TensorsJson(model.outputs())},
          {"dims", dims},
          {"graph_hash", model.graph_hash()},
          {"plan_id", model.plan_id()},
          {"pinned", model.pinned()},
          {"deterministic", model.deterministic()},
          {"batching", BatchingJson(model.batching())},
          {"notes", std::vector<std::string>(model.notes().begin(), model.notes().end())},
          {"plans", plans},
          {"buckets", buckets},
          {"created", TimeJson(model.has_created(), model.created())},
          {"compile_job_id", model.compile_job_id()},
          {"memory",
           {{"parameters", model.memory().parameters()},
            {"prepared", model.memory().prepared()},
            {"arenas", model.memory().arenas()}}}};
}

json JobJson(const v1::CompileJob& job) {
  return {{"id", job.id()},
          {"model", job.model()},
          {"version", job.version()},
          {"phase", v1::CompileJob::Phase_Name(job.phase())},
          {"kernels_total", job.kernels_total()},
          {"kernels_done", job.kernels_done()},
          {"kernels_from_cache", job.kernels_from_cache()},
          {"buckets_total", job.buckets_total()},
          {"buckets_done", job.buckets_done()},
          {"buckets_searched", job.buckets_searched()},
          {"search_bucket", job.search_bucket()},
          {"percent", job.percent()},
          {"message", job.message()},
          {"waits_for", job.waits_for()},
          {"stop_reason", v1::CompileJob::StopReason_Name(job.stop_reason())},
          {"taps", json(std::vector<std::string>(job.taps().begin(), job.taps().end()))},
          {"created", TimeJson(job.has_created(), job.created())},
          {"started", TimeJson(job.has_started(), job.started())},
          {"finished", TimeJson(job.has_finished(), job.finished())},
          {"error_code", job.error_code()},
          {"error", job.error()},
          {"search", job.has_search() ? SearchJson(job.search()) : json()},
          {"search_options",
           job.has_search_options() ? SearchOptionsJson(job.search_options()) : json()},
          {"comparison", job.has_comparison() ? ComparisonJson(job.comparison()) : json()}};
}

json TensorJson(const std::string& name, const Tensor& tensor) {
  json values = json::array();
  const int64_t count = ElementCount(tensor.shape).value_or(0);
  for (int64_t i = 0; i < count; ++i) values.push_back(ElementJson(tensor, i));
  return {{"name", name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"values", values}};
}

std::string JobText(const v1::CompileJob& job) {
  std::string text = absl::StrCat("job ", job.id(), " ", job.model(), "/", job.version(), ": ",
                                  v1::CompileJob::Phase_Name(job.phase()));
  if (IsFinished(job)) {
    absl::StrAppend(&text, ", ", StopReasonText(job.stop_reason()));
    const std::string& what = job.error().empty() ? job.message() : job.error();
    return what.empty() ? text : absl::StrCat(text, ": ", what);
  }
  if (job.has_search()) {
    const std::string& bucket = job.search_bucket();
    return absl::StrCat(text, ", ", bucket.empty() ? "" : absl::StrCat("bucket ", bucket, ": "),
                        SearchText(job.search()));
  }
  if (job.kernels_total() > 0) {
    absl::StrAppend(&text, ", kernel ", job.kernels_done(), " of ", job.kernels_total(), " (",
                    job.kernels_from_cache(), " from the cache)");
  }
  absl::StrAppendFormat(&text, ", %.0f %%", job.percent());
  if (!job.message().empty()) absl::StrAppend(&text, ", ", job.message());
  if (!job.error().empty()) absl::StrAppend(&text, ": ", job.error());
  return text;
}

std::vector<Row> ModelRows(const google::protobuf::RepeatedPtrField<v1::Model>& models) {
  std::vector<Row> rows = {
      {{"MODEL"}, {"SERVES"}, {"STATE"}, {"DEVICE"}, {"PLAN"}, {"TAKES -> GIVES"}}};
  for (const v1::Model& model : models) {
    rows.push_back(
        {{absl::StrCat(model.name(), "/", model.version())},
         {model.serving() ? "yes" : ""},
         StateCell(model),
         {model.device()},
         {PlanCell(model)},
         {absl::StrCat(TensorsText(model.inputs()), " -> ", TensorsText(model.outputs()))}});
  }
  return rows;
}

std::vector<Row> VersionRows(const google::protobuf::RepeatedPtrField<v1::Model>& models) {
  std::vector<Row> rows = {
      {{"VERSION"}, {"SERVES"}, {"STATE"}, {"CREATED"}, {"PLAN"}, {"JOB"}, {"HOLDS"}}};
  for (const v1::Model& model : models) {
    const v1::MemoryUse& memory = model.memory();
    const double held = static_cast<double>(memory.parameters() + memory.prepared());
    rows.push_back(
        {{model.version()},
         {model.serving() ? "yes" : ""},
         StateCell(model),
         {model.has_created() ? absl::FormatTime("%Y-%m-%d %H:%M:%S",
                                                 absl::FromUnixSeconds(model.created().seconds()),
                                                 absl::LocalTimeZone())
                              : ""},
         {PlanCell(model)},
         {model.compile_job_id()},
         {absl::StrFormat("%.1f MiB", held / (1 << 20))}});
  }
  return rows;
}

void Printer::Table(const std::vector<Row>& rows) {
  for (const std::string& line : TableLines(rows, TerminalColumns(out_), Style::Of(out_))) {
    Line(line);
  }
}

void Printer::Models(const google::protobuf::RepeatedPtrField<v1::Model>& models) {
  if (json_) {
    for (const v1::Model& model : models) Object(ModelJson(model));
  } else if (models.empty()) {
    Line("no models");
  } else {
    Table(ModelRows(models));
  }
}

void Printer::Versions(const google::protobuf::RepeatedPtrField<v1::Model>& models) {
  if (!json_) return Table(VersionRows(models));
  for (const v1::Model& model : models) Object(ModelJson(model));
}

void Printer::Model(const v1::Model& model) {
  if (json_) return Object(ModelJson(model));
  const std::string types =
      absl::StrCat(TensorsText(model.inputs()), " -> ", TensorsText(model.outputs()));
  if (model.version().empty()) {  // a dry run stores no version
    Line(absl::StrCat(model.name(), ": ", types));
  } else {
    Line(absl::StrCat(model.name(), "/", model.version(), model.serving() ? " (serving)" : "", ": ",
                      v1::Model::State_Name(model.state()), model.device().empty() ? "" : " on ",
                      model.device(), model.plan_id().empty() ? "" : ", plan ", model.plan_id(),
                      model.pinned() ? " (pinned)" : "",
                      model.deterministic() ? " (deterministic)" : "", "; ", types));
  }
  for (const v1::GraphDim& dim : model.dims()) {
    Line(absl::StrCat("  ", dim.name(), " in [", dim.min(), ", ", dim.max(), "]"));
  }
  if (const std::string batching = BatchingText(model.batching()); !batching.empty()) {
    Line(absl::StrCat("  ", batching));
  }
  for (const std::string& bucket : BucketLines(model)) Line("  " + bucket);
  for (const std::string& note : model.notes()) Line("  " + note);
  if (!model.error().empty()) Line(absl::StrCat("  ", model.error()));
}

void Printer::Job(const v1::CompileJob& job) {
  if (json_) return Object(JobJson(job));
  Line(JobText(job));
}

void Printer::Output(const std::string& name, const Tensor& tensor) {
  if (json_) return Object(TensorJson(name, tensor));
  const int64_t count = ElementCount(tensor.shape).value_or(0);
  std::string text = absl::StrCat(name, ": ", TensorTypeText(tensor.dtype, tensor.shape), " =");
  for (int64_t i = 0; i < std::min(count, kShownElements); ++i) {
    absl::StrAppend(&text, " ", ElementText(tensor, i));
  }
  if (count > kShownElements) absl::StrAppend(&text, " ... (", count, " elements)");
  Line(text);
}

}  // namespace athanor::client
