// athanor upload FILE: stores a model, then shows its compile job.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "clients/cpp/client/bundle.h"
#include "clients/cpp/commands/commands.h"
#include "clients/cpp/inputs/checkpoint_files.h"
#include "clients/cpp/inputs/onnx_file.h"
#include "clients/cpp/inputs/text_input.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

// Largest model that is sent inside the header; a larger one is sent in chunks.
constexpr size_t kHeaderBytes = size_t{32} << 20;

struct Options {
  std::string file, name, format, budget, batch_dim, device;
  std::vector<std::string> buckets, disable_rules, dims, values, ignore_keys;
  int64_t tokens = 0, sequences = 0, context = 0;
  std::optional<uint64_t> random_seed;
  bool no_wait = false, deterministic = false, approximate = false, check = false;
};

// Owns the bytes that an UploadRequest's views point to.
struct Source {
  std::string bytes;
  OnnxFile onnx;
  std::vector<CheckpointFile> checkpoint;
};

absl::StatusOr<std::string> FormatOf(const Options& options) {
  if (!options.format.empty()) return options.format;
  if (absl::EndsWith(options.file, ".athanor")) return std::string("athanor");
  if (absl::EndsWith(options.file, ".onnx")) return std::string("onnx");
  if (absl::EndsWith(options.file, ".gguf")) return std::string("gguf");
  std::error_code error;
  if (std::filesystem::is_directory(options.file, error)) return std::string("hf");
  return absl::InvalidArgumentError(absl::StrCat(
      options.file, ": its name must end in .athanor, .onnx or .gguf, or give --format"));
}

absl::Status AddOnnx(const Options& options, Source* source, UploadRequest* request) {
  ASSIGN_OR_RETURN(source->onnx, OnnxFile::Open(options.file));
  const bool large = source->onnx.bytes().size() > kHeaderBytes;
  (large ? request->files.emplace_back().bytes : request->graph) = source->onnx.bytes();
  for (const OnnxFile::Beside& file : source->onnx.files()) {
    request->files.push_back({file.path, file.file->bytes()});
  }
  for (const std::string& text : options.dims) {
    ASSIGN_OR_RETURN(v1::DimGiven dim, ParseDim(text));
    request->dims.push_back(std::move(dim));
  }
  for (const std::string& text : options.values) {
    ASSIGN_OR_RETURN(v1::NamedLiteral value, ParseValue(text, source->onnx));
    request->values.push_back(std::move(value));
  }
  request->random_seed = options.random_seed;
  return absl::OkStatus();
}

absl::Status AddCheckpoint(const Options& options, Source* source, UploadRequest* request) {
  ASSIGN_OR_RETURN(source->checkpoint, CheckpointFiles(options.file));
  for (const CheckpointFile& file : source->checkpoint) {
    request->files.push_back({file.path, file.file->bytes()});
  }
  request->ignore_keys = options.ignore_keys;
  v1::DecoderLimits& limits = request->decoder.emplace();
  limits.set_tokens(options.tokens);
  limits.set_sequences(options.sequences);
  limits.set_context(options.context);
  return absl::OkStatus();
}

absl::Status CheckFormatOptions(const Options& options, absl::string_view format) {
  const bool onnx =
      !options.dims.empty() || !options.values.empty() || options.random_seed.has_value();
  if (onnx && format != "onnx") {
    return absl::InvalidArgumentError("--dim, --value and --random_seed apply to ONNX models only");
  }
  const bool checkpoint = !options.ignore_keys.empty() || options.tokens != 0 ||
                          options.sequences != 0 || options.context != 0;
  if (checkpoint && format != "hf" && format != "gguf") {
    return absl::InvalidArgumentError(
        "--ignore_keys, --tokens, --sequences and --context apply to language models only");
  }
  return absl::OkStatus();
}

absl::Status AddBundle(const Options& options, Source* source, UploadRequest* request) {
  ASSIGN_OR_RETURN(source->bytes, ReadFile(options.file));
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

// Returns the file's name without its suffix, or the folder's, which has none.
std::string NameOf(std::filesystem::path path, absl::string_view format) {
  if (!path.has_filename()) path = path.parent_path();
  return format == "hf" ? path.filename() : path.stem();
}

absl::StatusOr<UploadRequest> MakeRequest(const Options& options, Source* source) {
  UploadRequest request;
  ASSIGN_OR_RETURN(request.format, FormatOf(options));
  request.name = options.name.empty() ? NameOf(options.file, request.format) : options.name;
  request.dry_run = options.check;
  request.search_budget = options.budget;
  request.disable_rules = options.disable_rules;
  request.approximate = options.approximate;
  request.deterministic = options.deterministic;
  request.batch_dim = options.batch_dim;
  request.device = options.device;
  for (const std::string& text : options.buckets) {
    ASSIGN_OR_RETURN(v1::DimBuckets buckets, ParseBuckets(text));
    request.buckets.push_back(std::move(buckets));
  }
  absl::Status added = CheckFormatOptions(options, request.format);
  if (!added.ok()) return added;
  if (request.format == "onnx") {
    added = AddOnnx(options, source, &request);
  } else if (request.format == "athanor") {
    added = AddBundle(options, source, &request);
  } else if (request.format == "hf" || request.format == "gguf") {
    added = AddCheckpoint(options, source, &request);
  } else {
    added = absl::InvalidArgumentError(
        absl::StrCat("--format ", request.format, ": must be athanor, onnx, hf or gguf"));
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

void AddUpload(CommandSyntax root, Context* context) {
  auto options = std::make_shared<Options>();
  CommandSyntax command = root.Add("upload", "Stores a model and follows its compile job");
  command
      .Option("FILE", &options->file,
              "the model: a bundle (.athanor, written by the SDK's Graph.save), ONNX (.onnx, next "
              "to its files of external data), or a language model (.gguf, or a folder with "
              "config.json and .safetensors files)")
      .Required()
      .Offer(Offers::kFiles);
  command.Option("--name", &options->name,
                 "name of the model; default: the file's name without its suffix, or the folder's");
  command
      .Option("--format", &options->format,
              "format of the file; default: by its suffix, hf for a folder")
      .OneOf({"athanor", "onnx", "hf", "gguf"});
  command.Option("--budget", &options->budget, kBudgetHelp);
  command
      .Option("--disable_rules", &options->disable_rules,
              "rules, or families of rules, that searches of the model must not use, separated "
              "by commas")
      .SplitAt(',');
  command.Flag("--approximate", &options->approximate,
               "let searches use rules that change results beyond rounding");
  command.Flag("--deterministic", &options->deterministic,
               "serve the same plan until another is pinned; search only when asked to (athanor "
               "compile)");
  command.Option("--device", &options->device,
                 "device of the server that executes the model, as athanor status names it; "
                 "default: the first of the server's --device");
  command.Option("--batch_dim", &options->batch_dim,
                 "dim along which requests may be batched, if rows along it are proved "
                 "independent; default: no batching");
  command.Option("--buckets", &options->buckets,
                 "ranges into which the bounds of a dim are cut (b=1-1,2-64); repeatable; default: "
                 "one range, for ONNX the server's choice");
  command.Option("--dim", &options->dims,
                 "for ONNX: bounds of a dim (batch=1:64), its size (seq=128), or an expression "
                 "over other dims (\"total=past + seq\"); repeatable");
  command.Option("--value", &options->values,
                 "for ONNX: contents of an input on which the graph's structure depends (axes=1,2 "
                 "or axes=@axes.npy); requests must then send the same contents; repeatable");
  command.Option("--random_seed", &options->random_seed,
                 "for ONNX: seed of random ops that have none of their own");
  command
      .Option("--ignore_keys", &options->ignore_keys,
              "for a language model: keys of its config that the server does not know and shall "
              "take for without effect, separated by commas")
      .SplitAt(',');
  command.Option("--tokens", &options->tokens,
                 "for a language model: most tokens of a step; default: 512");
  command.Option("--sequences", &options->sequences,
                 "for a language model: most sequences of a step; default: 64");
  command.Option("--context", &options->context,
                 "for a language model: most positions of a sequence; default: the checkpoint's");
  command.Flag("--check", &options->check,
               "store nothing; report whether the server would accept the model, and if not, "
               "why, node by node");
  command.Flag("--no_wait", &options->no_wait, "return as soon as the model is stored");
  command.Then([=] { context->run = [=] { return Upload(context, *options); }; });
}

}  // namespace athanor::client
