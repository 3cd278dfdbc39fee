// The commands of the command line tool `athanor`, one file each.
//
//   return RunCli(argc, argv);
//
// To add a command: write AddX in x.cc, which makes a subcommand whose callback sets
// Context::run, and add its line to commands.cc.
#ifndef ATHANOR_CLIENTS_CPP_COMMANDS_COMMANDS_H_
#define ATHANOR_CLIENTS_CPP_COMMANDS_COMMANDS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "clients/cpp/client/client.h"
#include "clients/cpp/inputs/text_input.h"
#include "clients/cpp/inputs/tls_files.h"
#include "clients/cpp/syntax/command_syntax.h"
#include "clients/cpp/syntax/tool_commands.h"
#include "clients/cpp/text/print.h"

namespace athanor::client {

// Exit codes of the process. Scripts rely on them: never renumber.
enum ExitCode {
  kOk = 0,
  kRefused = 1,      // the server refused the call, or the job or model failed
  kUsage = 2,        // the command line or a file is wrong; nothing was changed
  kUnreachable = 3,  // no server answers, or it is draining
  kDeadline = 4,     // --timeout passed
};

// State shared by all commands. Lives as long as the parsed command line.
struct Context {
  std::string address = "127.0.0.1:50051";
  TlsFiles tls;
  ClientOptions connects;  // by `tls` and the token
  std::string token_file;
  bool json = false;
  double timeout_s = 0;  // 0: no limit
  // Set by the subcommand that was given on the command line.
  std::function<absl::Status()> run;
  bool calls_server = true;  // false: what runs needs no address and no token

  // Connects on first use; call only after parsing.
  Client& client();
  Printer& out();
  CallOptions call() const;

 private:
  std::unique_ptr<Client> client_;
  std::unique_ptr<Printer> out_;
};

inline constexpr char kBudgetHelp[] =
    "extent of the search: a time (30s), a number of measured candidates (200c), fast "
    "(the cost model chooses) or exhaust (measure everything), the last two also "
    "with a limit (exhaust:5m), or 0 for no search; default: the model's, else the "
    "server's";

void AddUpload(CommandSyntax root, Context* context);
void AddModels(CommandSyntax root, Context* context);
void AddInfer(CommandSyntax root, Context* context);
void AddGenerate(CommandSyntax root, Context* context);
void AddCompile(CommandSyntax root, Context* context);
void AddWatch(CommandSyntax root, Context* context);
void AddExplain(CommandSyntax root, Context* context);
void AddCache(CommandSyntax root, Context* context);
void AddStatus(CommandSyntax root, Context* context);
void AddVersions(CommandSyntax root, Context* context);
void AddDelete(CommandSyntax root, Context* context);
void AddPin(CommandSyntax root, Context* context);
void AddUnpin(CommandSyntax root, Context* context);
void AddRollback(CommandSyntax root, Context* context);
void AddCancel(CommandSyntax root, Context* context);
void AddFsck(CommandSyntax root, Context* context);

// Measures and prints the worth of each rule family for `model`, whose latest search is `search`.
absl::Status Ablate(Context* context, const v1::Model& model, const v1::SearchProgress& search,
                    const std::string& budget);
// Returns a model's latest job, or the job with this id. Errors name what there is not.
absl::StatusOr<v1::CompileJob> FindJob(Context* context, const std::string& text);
// Shows a job until it ends. Returns its error if it failed or was cancelled.
absl::Status FollowJob(Context* context, const std::string& id);
// Parses "b=1-1,2-64" as ranges of the dim b.
absl::StatusOr<v1::DimBuckets> ParseBuckets(const std::string& text);

int RunCli(int argc, char** argv);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_COMMANDS_COMMANDS_H_
