// athanor upload FILE: stores a model, then shows its compile job.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "clients/cpp/bundle.h"
#include "clients/cpp/commands.h"
#include "clients/cpp/onnx_file.h"
#include "clients/cpp/text_input.h"

namespace athanor::client {
namespace {

// Largest model that is sent inside the header; a larger one is sent in chunks.
constexpr size_t kHeaderBytes = size_t{32} << 20;

struct Options {
  std::string file, name, format, budget, batch_dim;
  std::vector<std::string> buckets, disable_rules, dims, values;
  std::optional<uint64_t> random_seed;
  bool no_wait = false, deterministic = false, approximate = false, check = false;
};

// Owns the bytes that an UploadRequest's views point to.
struct Source {
  std::string bytes;
  OnnxFile onnx;
};

absl::Status Usage(absl::Status status) {
  status.SetPayload("usage", absl::Cord());
  return status;
}

absl::StatusOr<std::string> FormatOf(const Options& options) {
  if (!options.format.empty()) return options.format;
  if (absl::EndsWith(options.file, ".athanor")) return std::string("athanor");
  if (absl::EndsWith(options.file, ".onnx")) return std::string("onnx");
  return absl::InvalidArgumentError(
      absl::StrCat(options.file, ": its name must end in .athanor or .onnx, or give --format"));
}

absl::Status AddOnnx(const Options& options, Source* source, UploadRequest* request) {
  absl::StatusOr<OnnxFile> opened = OnnxFile::Open(options.file);
  if (!opened.ok()) return opened.status();
  source->onnx = *std::move(opened);
  const bool large = source->onnx.bytes().size() > kHeaderBytes;
  (large ? request->files.emplace_back().bytes : request->graph) = source->onnx.bytes();
  for (const OnnxFile::Beside& file : source->onnx.files()) {
    request->files.push_back({file.path, file.file->bytes()});
  }
  for (const std::string& text : options.dims) {
    absl::StatusOr<v1::DimGiven> dim = ParseDim(text);
    if (!dim.ok()) return dim.status();
    request->dims.push_back(*std::move(dim));
  }
  for (const std::string& text : options.values) {
    absl::StatusOr<v1::NamedLiteral> value = ParseValue(text, source->onnx);
    if (!value.ok()) return value.status();
    request->values.push_back(*std::move(value));
  }
  request->random_seed = options.random_seed;
  return absl::OkStatus();
}

absl::Status AddBundle(const Options& options, Source* source, UploadRequest* request) {
  if (!options.dims.empty() || !options.values.empty() || options.random_seed.has_value()) {
    return absl::InvalidArgumentError("--dim, --value and --random_seed are of ONNX models only");
  }
  absl::StatusOr<std::string> bytes = ReadFile(options.file);
  if (!bytes.ok()) return bytes.status();
  source->bytes = *std::move(bytes);
  absl::StatusOr<Bundle> bundle = ParseBundle(source->bytes);
  if (!bundle.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(options.file, ": ", bundle.status().message()));
  }
  request->graph = bundle->graph;
  for (BundleTensor& tensor : bundle->tensors) {
    request->tensors.push_back({std::move(tensor.hash), tensor.bytes});
  }
  return absl::OkStatus();
}

absl::StatusOr<UploadRequest> MakeRequest(const Options& options, Source* source) {
  UploadRequest request;
  request.name =
      options.name.empty() ? std::filesystem::path(options.file).stem().string() : options.name;
  absl::StatusOr<std::string> format = FormatOf(options);
  if (!format.ok()) return format.status();
  request.format = *std::move(format);
  request.dry_run = options.check;
  request.search_budget = options.budget;
  request.disable_rules = options.disable_rules;
  request.approximate = options.approximate;
  request.deterministic = options.deterministic;
  request.batch_dim = options.batch_dim;
  for (const std::string& text : options.buckets) {
    absl::StatusOr<v1::DimBuckets> buckets = ParseBuckets(text);
    if (!buckets.ok()) return buckets.status();
    request.buckets.push_back(*std::move(buckets));
  }
  absl::Status added;
  if (request.format == "onnx") {
    added = AddOnnx(options, source, &request);
  } else if (request.format == "athanor") {
    added = AddBundle(options, source, &request);
  } else {
    added = absl::InvalidArgumentError(
        absl::StrCat("--format ", request.format, ": must be athanor or onnx"));
  }
  if (!added.ok()) return added;
  return request;
}

// Prints one line per refusal: "sum (ReduceSum-13): its axes are ...; give --value axes=..."
void ShowRefusals(const v1::Refusals& refusals, Printer* out) {
  for (const v1::Refusals::Refusal& refusal : refusals.refusals()) {
    if (out->json()) {
      out->Object({{"refusal",
                    {{"node", refusal.node()},
                     {"domain", refusal.domain()},
                     {"op", refusal.op()},
                     {"version", refusal.version()},
                     {"reason", refusal.reason()},
                     {"inputs", std::vector<std::string>(refusal.inputs().begin(),
                                                         refusal.inputs().end())}}}});
      continue;
    }
    std::string text = refusal.node();
    if (!refusal.op().empty()) {
      absl::StrAppend(&text, text.empty() ? "" : " ", "(", refusal.op(),
                      refusal.version() > 0 ? absl::StrCat("-", refusal.version()) : "", ")");
    }
    absl::StrAppend(&text, text.empty() ? "" : ": ", refusal.reason());
    for (const std::string& input : refusal.inputs()) {
      absl::StrAppend(&text, "; give --value ", input, "=...");
    }
    out->Line(text);
  }
  if (refusals.others() > 0 && !out->json()) {
    out->Line(absl::StrCat("and ", refusals.others(), " more"));
  }
}

void ShowChecked(const Options& options, const v1::Model& model, Printer* out) {
  if (!out->json()) out->Line(absl::StrCat(options.file, " would be taken"));
  out->Model(model);
}

absl::Status Upload(Context* context, const Options& options) {
  Source source;
  absl::StatusOr<UploadRequest> request = MakeRequest(options, &source);
  if (!request.ok()) return Usage(request.status());
  v1::Refusals refusals;
  absl::StatusOr<v1::UploadModelResponse> stored =
      context->client().Upload(*request, context->call(), nullptr, &refusals);
  ShowRefusals(refusals, &context->out());
  if (!stored.ok()) return stored.status();
  if (options.check) {
    ShowChecked(options, stored->model(), &context->out());
    return absl::OkStatus();
  }
  if (context->json) {
    context->out().Object({{"name", stored->name()},
                           {"version", stored->version()},
                           {"compile_job_id", stored->compile_job_id()},
                           {"batching", BatchingJson(stored->batching())}});
  } else {
    context->out().Line(absl::StrCat("stored ", stored->name(), "/", stored->version(),
                                     ", compile job ", stored->compile_job_id()));
    const std::string batching = BatchingText(stored->batching());
    if (!batching.empty()) context->out().Line(batching);
  }
  if (options.no_wait) return absl::OkStatus();
  return FollowJob(context, stored->compile_job_id());
}

}  // namespace

void AddUpload(CLI::App* app, Context* context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app->add_subcommand("upload", "Stores a model and shows how it is compiled");
  command
      ->add_option("FILE", options->file,
                   "a bundle (.athanor, of the SDK's Graph.save) or ONNX (.onnx, with its files of "
                   "external data beside it)")
      ->required();
  command->add_option("--name", options->name, "of the model; else the file's without its suffix");
  command->add_option("--format", options->format, "athanor or onnx; else by the file's suffix");
  command->add_option("--budget", options->budget, kBudgetHelp);
  command
      ->add_option("--disable_rules", options->disable_rules,
                   "rules, or families of rules, that its searches do not use")
      ->delimiter(',');
  command->add_flag("--approximate", options->approximate,
                    "its searches may use rules that change results beyond rounding");
  command->add_flag("--deterministic", options->deterministic,
                    "one plan serves until another is pinned; searches run when asked for");
  command->add_option("--batch_dim", options->batch_dim,
                      "the dim by which requests may be joined into one call, if its rows are "
                      "proved independent");
  command->add_option("--buckets", options->buckets,
                      "ranges of a dim, as in b=1-1,2-64; repeatable");
  command->add_option("--dim", options->dims,
                      "of ONNX: bounds of a dim, as in batch=1:64; its size, as in seq=128; or an "
                      "expression over others, as in \"total=past + seq\"; repeatable");
  command->add_option("--value", options->values,
                      "of ONNX: contents of an input that the graph's structure depends on, as in "
                      "axes=1,2 or axes=@axes.npy; requests must carry the same; repeatable");
  command->add_option("--random_seed", options->random_seed,
                      "of ONNX: for ops that draw numbers and state no seed");
  command->add_flag("--check", options->check,
                    "only says whether the server would take it, and why not, node by node");
  command->add_flag("--no_wait", options->no_wait, "return once the model is stored");
  command->callback([=] { context->run = [=] { return Upload(context, *options); }; });
}

}  // namespace athanor::client
