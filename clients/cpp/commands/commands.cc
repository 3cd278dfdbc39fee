#include "clients/cpp/commands/commands.h"

#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "clients/cpp/client/retry_after.h"
#include "clients/cpp/inputs/text_input.h"
#include "clients/cpp/inputs/token.h"
#include "clients/cpp/terminal/progress.h"
#include "clients/cpp/text/error_text.h"
#include "clients/cpp/text/style.h"

namespace athanor::client {
namespace {

constexpr char kFooter[] =
    "Exit status: 0 done; 1 the server refused or the job failed; 2 the command line or a file is\n"
    "wrong; 3 the server cannot be reached; 4 the timeout passed.";

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kUnavailable:
      return kUnreachable;
    case absl::StatusCode::kDeadlineExceeded:
      return kDeadline;
    default:
      return kRefused;
  }
}

}  // namespace

Client& Context::client() {
  if (client_ == nullptr) client_ = std::make_unique<Client>(address, connects);
  return *client_;
}

Printer& Context::out() {
  if (out_ == nullptr) out_ = std::make_unique<Printer>(stdout, json);
  return *out_;
}

CallOptions Context::call() const {
  CallOptions options;
  if (timeout_s > 0) options.timeout = absl::Seconds(timeout_s);
  return options;
}

absl::Status FollowJob(Context* context, const std::string& id) {
  absl::StatusOr<v1::CompileJob> last;
  {
    JobProgress progress(&context->out());
    last = context->client().WatchCompileJob(
        id, [&](const v1::CompileJob& job) { return progress.Show(job), true; }, context->call());
  }
  if (!last.ok()) return last.status();
  switch (last->phase()) {
    case v1::CompileJob::DONE:
      return absl::OkStatus();
    case v1::CompileJob::FAILED:
      return absl::Status(static_cast<absl::StatusCode>(last->error_code()), last->error());
    case v1::CompileJob::CANCELLED:
      return absl::CancelledError(absl::StrCat(
          "job ", id, " was cancelled: ", v1::CompileJob::StopReason_Name(last->stop_reason())));
    default:
      return absl::UnavailableError(absl::StrCat("the watch of job ", id, " ended early"));
  }
}

absl::StatusOr<v1::DimBuckets> ParseBuckets(const std::string& text) {
  v1::DimBuckets buckets;
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  buckets.set_dim(parts.first);
  for (absl::string_view range : absl::StrSplit(parts.second, ',')) {
    const std::pair<std::string, std::string> ends = absl::StrSplit(range, absl::MaxSplits('-', 1));
    v1::DimBuckets::Range* added = buckets.add_ranges();
    int64_t low, high;
    if (!absl::SimpleAtoi(ends.first, &low) || !absl::SimpleAtoi(ends.second, &high)) {
      return absl::InvalidArgumentError(absl::StrCat("--buckets ", text, ": range \"", range,
                                                     "\" must look like 1-64, as in b=1-1,2-64"));
    }
    added->set_min(low);
    added->set_max(high);
  }
  return buckets;
}

namespace {

void AddOptions(CommandSyntax root, Context* context) {
  root.Option("--address", &context->address, "address of the server, as HOST:PORT")
      .FromEnvironment("ATHANOR_ADDRESS")
      .ShowDefault();
  root.Option("--tls_ca", &context->tls.ca, kTlsCaHelp).ExistingFile();
  root.Option("--tls_cert", &context->tls.cert, kTlsCertHelp).ExistingFile();
  root.Option("--tls_key", &context->tls.key, kTlsKeyHelp).ExistingFile();
  root.Option("--token_file", &context->token_file, kTokenFileHelp).ExistingFile();
  root.Option("--timeout", &context->timeout_s,
              "seconds after which a call gives up; 0, the default: never")
      .NotNegative();
  root.Flag("--json", &context->json, "print one JSON object per line instead of text");
}

void AddCommands(CommandSyntax root, Context* context) {
  AddUpload(root, context);
  AddModels(root, context);
  AddVersions(root, context);
  AddInfer(root, context);
  AddGenerate(root, context);
  AddCompile(root, context);
  AddWatch(root, context);
  AddCancel(root, context);
  AddExplain(root, context);
  AddPin(root, context);
  AddUnpin(root, context);
  AddRollback(root, context);
  AddDelete(root, context);
  AddCache(root, context);
  AddStatus(root, context);
  AddFsck(root, context);
}

absl::Status Run(Context* context) {
  if (context->calls_server) {
    absl::StatusOr<std::string> token = ReadToken(context->token_file);
    if (!token.ok()) return Usage(token.status());
    context->connects.token = *std::move(token);
    if (absl::Status s = ReadTls(context->tls, &context->connects); !s.ok()) return Usage(s);
  }
  absl::Status status = context->run();
  return status.ok() ? WrittenToStdout() : status;
}

// Says to a person, or with --json to a program, why the command failed.
void ShowError(const absl::Status& status, const CallScene& scene, Context* context) {
  const std::string text = ErrorText(status, scene);
  if (context->json && std::ferror(stdout) == 0) {
    nlohmann::json error = {{"code", absl::StatusCodeToString(status.code())}, {"message", text}};
    if (const absl::Duration after = RetryAfter(status); after > absl::ZeroDuration()) {
      error["retry_after_s"] = absl::ToDoubleSeconds(after);
    }
    context->out().Object({{"error", std::move(error)}});
    return;
  }
  std::fprintf(stderr, "%s %s\n", Style::Of(stderr).Paint("athanor:", Tone::kBad).c_str(),
               text.c_str());
}

}  // namespace

int RunCli(int argc, char** argv) {
  ToolSyntax tool("athanor", "Uploads, calls and watches models on an Athanor server.", kFooter);
  Context context;
  AddOptions(tool.root(), &context);
  tool.root().RequireCommand();
  tool.RootOptionsAnywhere();  // of the commands that are added from here on
  AddCommands(tool.root(), &context);
  AddToolCommands(&tool, [&](std::function<absl::Status()> run) {
    context.run = std::move(run);
    context.calls_server = false;
  });
  if (std::optional<bool> helped = tool.Parse(argc, argv)) return *helped ? kOk : kUsage;
  const absl::Status status = Run(&context);
  if (status.ok()) return kOk;
  ShowError(status,
            {context.address, context.timeout_s, tool.GivenOptions(),
             /*certificate=*/!context.tls.cert.empty()},
            &context);
  return status.GetPayload(kUsagePayload).has_value() ? kUsage : ExitCodeOf(status);
}

}  // namespace athanor::client
