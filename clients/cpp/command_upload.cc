// athanor upload FILE: stores a model, then shows its compile job.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "clients/cpp/bundle.h"
#include "clients/cpp/commands.h"
#include "clients/cpp/text_input.h"

namespace athanor::client {
namespace {

struct Options {
  std::string file, name, format, budget, batch_dim;
  std::vector<std::string> buckets, disable_rules;
  bool no_wait = false, deterministic = false, approximate = false;
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

// What its views point to is in `bytes`.
absl::StatusOr<UploadRequest> MakeRequest(const Options& options, absl::string_view bytes) {
  UploadRequest request;
  request.name =
      options.name.empty() ? std::filesystem::path(options.file).stem().string() : options.name;
  absl::StatusOr<std::string> format = FormatOf(options);
  if (!format.ok()) return format.status();
  request.format = *std::move(format);
  request.graph = bytes;
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
  if (request.format != "athanor") return request;
  absl::StatusOr<Bundle> bundle = ParseBundle(bytes);
  if (!bundle.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(options.file, ": ", bundle.status().message()));
  }
  request.graph = bundle->graph;
  for (BundleTensor& tensor : bundle->tensors) {
    request.tensors.push_back({std::move(tensor.hash), tensor.bytes});
  }
  return request;
}

absl::Status Upload(Context* context, const Options& options) {
  absl::StatusOr<std::string> bytes = ReadFile(options.file);
  if (!bytes.ok()) return Usage(bytes.status());
  absl::StatusOr<UploadRequest> request = MakeRequest(options, *bytes);
  if (!request.ok()) return Usage(request.status());
  absl::StatusOr<v1::UploadModelResponse> stored =
      context->client().Upload(*request, context->call());
  if (!stored.ok()) return stored.status();
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
                   "a bundle (.athanor, of the SDK's Graph.save) or ONNX, "
                   "which the server does not import yet")
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
  command->add_flag("--no_wait", options->no_wait, "return once the model is stored");
  command->callback([=] { context->run = [=] { return Upload(context, *options); }; });
}

}  // namespace athanor::client
