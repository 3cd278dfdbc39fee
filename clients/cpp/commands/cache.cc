// athanor cache stat|explain|verify|gc|export|import: shows and manages the server's cache.
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "clients/cpp/commands/commands.h"
#include "clients/cpp/text/cache_text.h"
#include "deploy/bazel/libs/status_macros.h"
#include "google/protobuf/io/zero_copy_stream_impl.h"
#include "google/protobuf/util/delimited_message_util.h"

namespace athanor::client {
namespace {

struct Options {
  std::string model, file;
  bool quarantine = false, failures = false, dry_run = false, binaries = false;
  int64_t limit = 0;
};

absl::Status Wrong(const std::string& message) {
  return Usage(absl::InvalidArgumentError(message));
}

void Show(Context* context, const std::vector<std::string>& lines, const nlohmann::json& object) {
  if (context->json) return context->out().Object(object);
  for (const std::string& line : lines) context->out().Line(line);
}

absl::Status Stat(Context* context) {
  ASSIGN_OR_RETURN(v1::CacheStat stat, context->client().cache().Stat(context->call()));
  Show(context, CacheStatLines(stat), CacheStatJson(stat));
  return absl::OkStatus();
}

absl::Status Explain(Context* context, const Options& options) {
  const ModelName model = ParseModelName(options.model);
  v1::ExplainCacheRequest request;
  request.set_model(model.name);
  request.set_version(model.version);
  ASSIGN_OR_RETURN(auto explained, context->client().cache().Explain(request, context->call()));
  for (const v1::BucketExplanation& bucket : explained.buckets()) {
    Show(context, CacheExplanationLines(bucket), CacheExplanationJson(bucket));
  }
  return absl::OkStatus();
}

absl::Status Verify(Context* context, const Options& options) {
  v1::VerifyCacheRequest request;
  request.set_quarantine(options.quarantine);
  ASSIGN_OR_RETURN(auto found, context->client().cache().Verify(request, context->call()));
  Show(context, CacheVerificationLines(found), CacheVerificationJson(found));
  if (found.database() != "ok") {
    return absl::DataLossError(absl::StrCat(
        "the cache's file is damaged: ", found.database(),
        options.quarantine ? "" : "; --quarantine mends it, or moves it aside and begins anew"));
  }
  if (found.bad_size() > 0 && !options.quarantine) {
    return absl::DataLossError(
        absl::StrCat(found.bad_size(), " bad rows; --quarantine puts them aside"));
  }
  return absl::OkStatus();
}

absl::Status CollectGarbage(Context* context, const Options& options) {
  v1::CollectGarbageRequest request;
  request.set_limit_bytes(options.limit);
  request.set_failures(options.failures);
  request.set_quarantine(options.quarantine);
  request.set_dry_run(options.dry_run);
  ASSIGN_OR_RETURN(auto done, context->client().cache().CollectGarbage(request, context->call()));
  Show(context, CacheGarbageLines(done, options.dry_run), CacheGarbageJson(done, options.dry_run));
  return absl::OkStatus();
}

struct Exported {
  int64_t recipes = 0, plans = 0, kernels = 0;
  bool is_signed = false;
};

void ShowExported(Context* context, const Options& options, const Exported& all) {
  const std::string none =
      all.recipes + all.plans + all.kernels == 0 ? "; the cache holds none yet" : "";
  Show(
      context,
      {absl::StrCat("exported ", all.recipes, " recipes, ", all.plans, " plans, ", all.kernels,
                    " kernels to ", options.file, all.is_signed ? ", signed" : ", unsigned", none)},
      {{"file", options.file},
       {"recipes", all.recipes},
       {"plans", all.plans},
       {"kernels", all.kernels},
       {"signed", all.is_signed}});
}

// Writes to a temporary file next to the target first, so that an interrupted export leaves
// nothing.
absl::Status Export(Context* context, const Options& options) {
  const ModelName model = ParseModelName(options.model);
  v1::ExportCacheRequest request;
  request.set_model(model.name);
  request.set_version(model.version);
  request.set_binaries(options.binaries);
  const std::string partial = options.file + ".partial";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  if (!file) return Wrong(absl::StrCat(options.file, ": cannot be written"));
  Exported all;
  absl::Status status = context->client().cache().Export(
      request,
      [&](const v1::CacheBundleChunk& chunk) {
        all.recipes += chunk.record().has_recipe() ? 1 : 0;
        all.plans += chunk.record().has_plan() ? 1 : 0;
        all.kernels += chunk.record().has_kernel() ? 1 : 0;
        if (chunk.has_trailer()) all.is_signed = !chunk.trailer().signature().empty();
        return google::protobuf::util::SerializeDelimitedToOstream(chunk, &file)
                   ? absl::OkStatus()
                   : absl::ResourceExhaustedError(
                         absl::StrCat(options.file, ": cannot be written to its end"));
      },
      context->call());
  file.close();
  if (status.ok() && !file) {
    status =
        absl::ResourceExhaustedError(absl::StrCat(options.file, ": cannot be written to its end"));
  }
  std::error_code failed;
  if (status.ok()) std::filesystem::rename(partial, options.file, failed);
  if (failed) status = Wrong(absl::StrCat(options.file, ": ", failed.message()));
  if (!status.ok()) {
    std::filesystem::remove(partial, failed);
    return status;
  }
  ShowExported(context, options, all);
  return absl::OkStatus();
}

absl::Status Import(Context* context, const Options& options) {
  std::ifstream file(options.file, std::ios::binary);
  if (!file) return Wrong(absl::StrCat(options.file, ": cannot be read"));
  google::protobuf::io::IstreamInputStream stream(&file);
  int64_t chunks = 0;
  auto next = [&]() -> absl::StatusOr<std::optional<v1::CacheBundleChunk>> {
    v1::CacheBundleChunk chunk;
    bool ended = false;
    if (google::protobuf::util::ParseDelimitedFromZeroCopyStream(&chunk, &stream, &ended)) {
      ++chunks;
      return chunk;
    }
    if (ended) return std::nullopt;
    return Wrong(absl::StrCat(options.file, ": is not a bundle: the data after chunk ", chunks,
                              " cannot be read"));
  };
  ASSIGN_OR_RETURN(auto kept, context->client().cache().Import(next, context->call()));
  Show(context, {ImportText(kept)}, ImportJson(kept));
  return absl::OkStatus();
}

}  // namespace

void AddCache(CommandSyntax root, Context* context) {
  auto options = std::make_shared<Options>();
  CommandSyntax cache =
      root.Add("cache", "Shows, checks, cleans, exports and imports the server's cache");
  cache.RequireCommand();
  const auto add = [&](const char* name, const char* about, auto run) {
    CommandSyntax command = cache.Add(name, about);
    command.Then([=] { context->run = [=] { return run(context, *options); }; });
    return command;
  };
  add("stat", "Shows the contents of the cache, and its hits and misses since the server started",
      [](Context* c, const Options&) { return Stat(c); });
  add("explain", "Shows the lookups for a model's plans, and why each one hit or missed", Explain)
      .Option("MODEL", &options->model, "NAME or NAME/VERSION")
      .Offer(Offers::kModels)
      .Required();
  add("verify", "Checks every row; exit status 1 if one is bad", Verify)
      .Flag("--quarantine", &options->quarantine,
            "quarantine bad rows, so that they are not read again");
  CommandSyntax gc = add("gc", "Removes the least useful rows", CollectGarbage);
  gc.Option("--limit", &options->limit,
            "size to shrink the cache to, such as 512MiB; default: the server's limit "
            "(--cache_limit)")
      .ByteSize();
  gc.Flag("--failures", &options->failures,
          "also remove all remembered failures, not only expired ones");
  gc.Flag("--quarantine", &options->quarantine, "also remove quarantined rows");
  gc.Flag("--dry_run", &options->dry_run, "remove nothing; only report what would be removed");
  CommandSyntax give =
      add("export", "Writes the cache's recipes, plans or kernels to a bundle file", Export);
  give.Option("FILE", &options->file, "bundle file to write").Required().Offer(Offers::kFiles);
  OptionSyntax binaries = give.Flag("--binaries", &options->binaries,
                                    "also export plans and compiled kernels, signed by the server "
                                    "(--cache_signing_key)");
  give.Option("--model", &options->model,
              "export only the plans and kernels of this model, NAME or NAME/VERSION")
      .Needs(binaries);
  add("import",
      "Adds the recipes, and signed plans and kernels, of a bundle to the cache: all or "
      "none",
      Import)
      .Option("FILE", &options->file, "bundle file to read, written by export")
      .Offer(Offers::kFiles)
      .Required();
}

}  // namespace athanor::client
