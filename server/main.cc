// athanord: flags, log, server, and the wait for the signal that ends it.
#include <grpc/support/log.h>
#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "runtime/cpu/blas.h"
#include "server/log.h"
#include "server/options.h"
#include "server/search_cpus.h"
#include "server/server.h"
#include "server/tuner_backend.h"
#include "server/version.h"

namespace athanor {
namespace {

// SIGTERM and SIGINT are waited for, not handled. Set before any thread begins, so that all inherit
// it.
sigset_t BlockSignals() {
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return ending;
}

// gRPC's own lines, for those who look for trouble below us.
void LogGrpc(gpr_log_func_args* args) {
  LogDebug("grpc", {{"text", args->message}, {"file", args->file}, {"line", args->line}});
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "athanord: %s\n", std::string(status.message()).c_str());
  return code;
}

int Serve(const ServerOptions& options, const sigset_t& ending) {
  TunerOptions tuner;
  absl::StatusOr<std::vector<int>> search_cpus = SetSearchCpusAside(options.search_cores);
  if (!search_cpus.ok()) return Fail(search_cpus.status(), 2);
  tuner.search_cpus = *std::move(search_cpus);
  absl::StatusOr<std::shared_ptr<TunerBackends>> backends =
      TunerBackends::Create(options, std::move(tuner));
  if (!backends.ok()) return Fail(backends.status(), 1);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options, *backends);
  // What only turns out when it is used: a flag's file or address that is none.
  if (!server.ok()) return Fail(server.status(), absl::IsInvalidArgument(server.status()) ? 2 : 1);
  LogInfo("serving", {{"version", kVersion},
                      {"listen", options.listen},
                      {"port", (*server)->port()},
                      {"http_listen", options.http_listen},
                      {"http_port", (*server)->http_port()},
                      {"device", "cpu"},
                      {"threads", (*server)->core().options().threads},
                      {"memory_limit", (*server)->core().ledger().limit()},
                      {"search_cores", options.search_cores},
                      {"search_budget", options.search_budget}});
  int signal = 0;
  sigwait(&ending, &signal);
  LogInfo("signal", {{"signal", signal == SIGTERM ? "SIGTERM" : "SIGINT"}});
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
    if (arg == "--version") {
      std::printf("athanord %s\n", kVersion);
      return 0;
    }
  }
  absl::StatusOr<ServerOptions> options = ParseOptions(args, getenv);
  if (!options.ok()) return Fail(options.status(), 2);
  const sigset_t ending = BlockSignals();
  BlasVersion();  // loaded before there are threads that its loading could disturb
  InitLog(options->log_level, options->log_format);
  // What does not parse is answered and logged with its field; protobuf's own lines would say it
  // again.
  google::protobuf::SetLogHandler(nullptr);
  gpr_set_log_function(LogGrpc);
  return Serve(*options, ending);
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) { return athanor::Main(argc, argv); }
