// athanor cache stat|explain|verify|gc|export|import: shows and manages the server's cache.
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "clients/cpp/cache_text.h"
#include "clients/cpp/commands.h"
#include "google/protobuf/io/zero_copy_stream_impl.h"
#include "google/protobuf/util/delimited_message_util.h"

namespace athanor::client {
namespace {

struct Options {
  std::string model, file;
  bool quarantine = false, failures = false, dry_run = false, binaries = false;
  int64_t limit = 0;
};

absl::Status Usage(std::string message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload("usage", absl::Cord());
  return status;
}

void Show(Context* context, const std::vector<std::string>& lines, const nlohmann::json& object) {
  if (context->json) return context->out().Object(object);
  for (const std::string& line : lines) context->out().Line(line);
}

absl::Status Stat(Context* context) {
  absl::StatusOr<v1::CacheStat> stat = context->client().CacheStat(context->call());
  if (!stat.ok()) return stat.status();
  Show(context, CacheStatLines(*stat), CacheStatJson(*stat));
  return absl::OkStatus();
}

absl::Status Explain(Context* context, const Options& options) {
  const ModelName model = ParseModelName(options.model);
  v1::ExplainCacheRequest request;
  request.set_model(model.name);
  request.set_version(model.version);
  auto explained = context->client().ExplainCache(request, context->call());
  if (!explained.ok()) return explained.status();
  for (const v1::BucketExplanation& bucket : explained->buckets()) {
    Show(context, CacheExplanationLines(bucket), CacheExplanationJson(bucket));
  }
  return absl::OkStatus();
}

absl::Status Verify(Context* context, const Options& options) {
  v1::VerifyCacheRequest request;
  request.set_quarantine(options.quarantine);
  auto found = context->client().VerifyCache(request, context->call());
  if (!found.ok()) return found.status();
  Show(context, CacheVerificationLines(*found), CacheVerificationJson(*found));
  if (found->database() != "ok") {
    return absl::DataLossError(absl::StrCat(
        "the cache's file is damaged: ", found->database(),
        options.quarantine ? "" : "; --quarantine mends it, or moves it aside and begins anew"));
  }
  if (found->bad_size() > 0 && !options.quarantine) {
    return absl::DataLossError(
        absl::StrCat(found->bad_size(), " bad rows; --quarantine puts them aside"));
  }
  return absl::OkStatus();
}

absl::Status CollectGarbage(Context* context, const Options& options) {
  v1::CollectGarbageRequest request;
  request.set_limit_bytes(options.limit);
  request.set_failures(options.failures);
  request.set_quarantine(options.quarantine);
  request.set_dry_run(options.dry_run);
  auto done = context->client().CollectCacheGarbage(request, context->call());
  if (!done.ok()) return done.status();
  Show(context, CacheGarbageLines(*done, options.dry_run),
       CacheGarbageJson(*done, options.dry_run));
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
  if (!file) return Usage(absl::StrCat(options.file, ": cannot be written"));
  Exported all;
  absl::Status status = context->client().ExportCache(
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
  if (failed) status = Usage(absl::StrCat(options.file, ": ", failed.message()));
  if (!status.ok()) {
    std::filesystem::remove(partial, failed);
    return status;
  }
  ShowExported(context, options, all);
  return absl::OkStatus();
}

absl::Status Import(Context* context, const Options& options) {
  std::ifstream file(options.file, std::ios::binary);
  if (!file) return Usage(absl::StrCat(options.file, ": cannot be read"));
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
    return Usage(absl::StrCat(options.file, ": is no bundle: what follows chunk ", chunks,
                              " cannot be read"));
  };
  auto kept = context->client().ImportCache(next, context->call());
  if (!kept.ok()) return kept.status();
  Show(context, {ImportText(*kept)}, ImportJson(*kept));
  return absl::OkStatus();
}

}  // namespace

void AddCache(CLI::App* app, Context* context) {
  auto options = std::make_shared<Options>();
  CLI::App* cache = app->add_subcommand(
      "cache", "Shows, checks, cleans and moves what the server remembers between its runs");
  cache->require_subcommand(1);
  const auto add = [&](const char* name, const char* about, auto run) {
    CLI::App* command = cache->add_subcommand(name, about);
    command->callback([=] { context->run = [=] { return run(context, *options); }; });
    return command;
  };
  add("stat", "What it holds, and what it was good for since the server started",
      [](Context* c, const Options&) { return Stat(c); });
  add("explain", "What was looked up for a model's plans, and why it was found or not", Explain)
      ->add_option("MODEL", options->model, "NAME or NAME/VERSION")
      ->required();
  add("verify", "Looks at every row; exit status 1 where one is bad", Verify)
      ->add_flag("--quarantine", options->quarantine, "bad rows are put aside at once");
  CLI::App* gc = add("gc", "Removes what is of least use", CollectGarbage);
  gc->add_option("--limit", options->limit,
                 "what may stay, as in 512MiB; else the server's limit (--cache_limit)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  gc->add_flag("--failures", options->failures, "all failures too, not only the expired");
  gc->add_flag("--quarantine", options->quarantine, "what was put aside as damaged, too");
  gc->add_flag("--dry_run", options->dry_run, "only says what would go");
  CLI::App* give =
      add("export", "Writes its recipes to a file, or all that serves a model", Export);
  give->add_option("FILE", options->file, "the bundle")->required();
  CLI::Option* binaries =
      give->add_flag("--binaries", options->binaries,
                     "plans and compiled kernels too; the server signs them (--cache_signing_key)");
  give->add_option("--model", options->model,
                   "only the plans and kernels of NAME, or of NAME/VERSION; with --binaries")
      ->needs(binaries);
  add("import", "Takes in the recipes, and signed plans and kernels, of a bundle: all or none",
      Import)
      ->add_option("FILE", options->file, "what export wrote")
      ->required();
}

}  // namespace athanor::client
