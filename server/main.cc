// athanord: reads flags, opens the log, runs the server and waits for the signal that ends it.
#include <fcntl.h>
#include <grpc/support/log.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/version.h"
#include "google/protobuf/stubs/logging.h"
#include "runtime/cpu/blas.h"
#include "server/access/identities.h"
#include "server/base/help.h"
#include "server/base/log.h"
#include "server/base/options.h"
#include "server/base/search_cpus.h"
#include "server/base/signals.h"
#include "server/core/core.h"
#include "server/search/tuner_backend.h"
#include "server/server.h"

namespace athanor {
namespace {

// Logs gRPC's own lines, for those who look for trouble below our code.
void LogGrpc(gpr_log_func_args* args) {
  LogDebug("grpc", {{"text", args->message}, {"file", args->file}, {"line", args->line}});
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "athanord: %s\n", std::string(status.message()).c_str());
  return code;
}

// Standard error as it was before the log took it over. Whoever starts a server that fails to start
// sees the error there too, not only in the log.
class Console {
 public:
  explicit Console(bool needed) : fd_(needed ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3) : -1) {}
  ~Console() { Close(); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  int Fail(const absl::Status& status, int code) const {
    if (fd_ >= 0) dprintf(fd_, "athanord: %s\n", std::string(status.message()).c_str());
    return athanor::Fail(status, code);
  }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

// Tells the service manager, if one waits at $NOTIFY_SOCKET; its state matters to nobody else.
void Notify(const char* state) {
  if (const int error = sd_notify(/*unset_environment=*/0, state); error < 0) {
    LogWarn("service manager not told", {{"state", state}, {"reason", std::strerror(-error)}});
  }
}

void Reload(const ServerOptions& options, Server& server) {
  if (absl::Status s = OpenLogFile(options.log_file); !s.ok()) {
    LogError("log file kept", {{"reason", s.message()}});
  }
  if (absl::Status s = server.ReloadIdentities(); !s.ok()) {
    LogError("identities kept", {{"reason", s.message()}});
  }
  const absl::StatusOr<std::string> valid_until = server.ReloadCertificate();
  if (!valid_until.ok()) {
    LogError("certificate kept", {{"reason", valid_until.status().message()}});
    return;
  }
  LogInfo("reloaded", {{"certificate_valid_until", *valid_until}});
}

int Serve(const ServerOptions& options, Console& console) {
  TunerOptions tuner;
  absl::StatusOr<std::vector<int>> search_cpus = SetSearchCpusAside(options.search_cores);
  if (!search_cpus.ok()) return console.Fail(search_cpus.status(), 2);
  tuner.search_cpus = *std::move(search_cpus);
  absl::StatusOr<std::shared_ptr<TunerBackends>> backends =
      TunerBackends::Create(options, std::move(tuner));
  if (!backends.ok()) return console.Fail(backends.status(), 1);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options, *backends);
  // Invalid values of flags that show up only on use, such as a file or an address, also exit with
  // 2.
  if (!server.ok()) {
    return console.Fail(server.status(), absl::IsInvalidArgument(server.status()) ? 2 : 1);
  }
  console.Close();
  LogInfo("serving", {{"version", kVersion},
                      {"listen", options.listen},
                      {"port", (*server)->port()},
                      {"http_listen", (*server)->http_listen()},
                      {"http_port", (*server)->http_port()},
                      {"openai_listen", options.openai_listen},
                      {"openai_port", (*server)->openai_port()},
                      {"device", absl::StrJoin((*backends)->DeviceNames(), ",")},
                      {"threads", (*server)->core().options().threads},
                      {"memory_limit", (*server)->core().ledger().limit()},
                      {"search_cores", options.search_cores},
                      {"search_budget", options.search_budget}});
  Notify("READY=1");
  const SignalRow& ending = AwaitDrain([&] {
    Notify("RELOADING=1");
    Reload(options, **server);
    Notify("READY=1");
  });
  Notify("STOPPING=1");
  LogInfo("signal", {{"signal", ending.name}});
  EndAtOnceOnAnother();
  (*server)->Drain();
  return 0;
}

int Main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  for (const std::string& arg : args) {
    if (arg == "--help" || arg == "-h") {
      std::fputs(HelpText().c_str(), stdout);
      return 0;
    }
    if (arg == "--man") {
      std::fputs(ManualText().c_str(), stdout);
      return 0;
    }
    if (arg == "--make_token") {
      const std::string token = MakeToken();
      std::printf("%s\ntoken = %s\n", token.c_str(), TokenDigestText(token).c_str());
      return token.empty() ? 1 : 0;
    }
    if (arg == "--version") {
      std::printf("athanord %s\n", kVersion);
      return 0;
    }
  }
  absl::StatusOr<ServerOptions> options = ParseOptions(args, getenv);
  if (!options.ok()) return Fail(options.status(), 2);
  TakeSignals();  // before any thread starts, so that all inherit it
  Console console(!options->log_file.empty());
  if (absl::Status s = OpenLogFile(options->log_file); !s.ok()) return Fail(s, 2);
  BlasVersion();  // loaded before any thread starts that loading could disturb
  InitLog(options->log_level, options->log_format);
  // Silences protobuf's own log: messages that do not parse are answered and logged with their
  // field.
  google::protobuf::SetLogHandler(nullptr);
  gpr_set_log_function(LogGrpc);
  return Serve(*options, console);
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) { return athanor::Main(argc, argv); }
