#include "clients/cpp/commands.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "clients/cpp/progress.h"
#include "clients/cpp/text_input.h"

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

// Replaces CLI11's own validator, whose message prints the upper bound with 309 digits.
const CLI::Validator kNotNegative(
    [](const std::string& text) -> std::string {
      double seconds = -1;
      if (absl::SimpleAtod(text, &seconds) && seconds >= 0) return "";
      return absl::StrCat("\"", text, "\" must be a number of seconds, 0 or more");
    },
    "");

}  // namespace

Client& Context::client() {
  if (client_ == nullptr) {
    ClientOptions options;
    options.tls = !tls_ca.empty();
    if (options.tls) options.root_certificates = ReadFile(tls_ca).value_or("");
    client_ = std::make_unique<Client>(address, options);
  }
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

int RunCli(int argc, char** argv) {
  CLI::App app("Uploads, calls and watches models on an Athanor server.", "athanor");
  Context context;
  app.add_option("--address", context.address, "HOST:PORT of the server")
      ->envname("ATHANOR_ADDRESS")
      ->capture_default_str();
  app.add_option("--tls_ca", context.tls_ca, "PEM file of the certificates to trust; uses TLS")
      ->check(CLI::ExistingFile);
  app.add_option("--timeout", context.timeout_s, "seconds until a call gives up; 0: never")
      ->check(kNotNegative);
  app.add_flag("--json", context.json, "one JSON object per line");
  app.require_subcommand(1);
  app.fallthrough();  // the options above may also follow the command
  app.footer(kFooter);
  AddUpload(&app, &context);
  AddModels(&app, &context);
  AddInfer(&app, &context);
  AddCompile(&app, &context);
  AddWatch(&app, &context);
  AddExplain(&app, &context);
  AddCache(&app, &context);
  AddStatus(&app, &context);
  AddDelete(&app, &context);
  AddFsck(&app, &context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  const absl::Status status = context.run();
  if (status.ok()) return kOk;
  const std::string code = absl::StatusCodeToString(status.code());
  if (context.json) {
    context.out().Object({{"error", {{"code", code}, {"message", std::string(status.message())}}}});
  } else {
    std::fprintf(stderr, "athanor: %s: %s\n", code.c_str(), std::string(status.message()).c_str());
  }
  // The payload "usage" marks errors found before any call was made.
  return status.GetPayload("usage").has_value() ? kUsage : ExitCodeOf(status);
}

}  // namespace athanor::client
