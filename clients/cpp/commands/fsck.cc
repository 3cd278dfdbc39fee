// athanor fsck: checks that a state directory is undamaged. Works without a server.
#include "server/storage/fsck.h"

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/cpp/commands/commands.h"

namespace athanor::client {
namespace {

absl::Status Check(Context* context, const std::string& state_dir) {
  int64_t checked = 0, damaged = 0;
  const absl::Status done = CheckStateDirectory(state_dir, [&](const FsckFinding& finding) {
    ++checked;
    damaged += finding.verdict == FsckFinding::kDamaged ? 1 : 0;
    const absl::string_view verdict = VerdictText(finding.verdict);
    if (context->json) {
      context->out().Object({{"verdict", std::string(verdict)},
                             {"kind", finding.kind},
                             {"name", finding.name},
                             {"detail", finding.detail}});
    } else {
      context->out().Line(
          absl::StrFormat("%-8s %s %s: %s", verdict, finding.kind, finding.name, finding.detail));
    }
  });
  if (!done.ok()) return done;
  if (damaged > 0) {
    return absl::DataLossError(
        absl::StrCat(state_dir, ": ", damaged, " of ", checked, " items checked are damaged"));
  }
  if (!context->json) {
    context->out().Line(absl::StrCat(state_dir, ": ", checked, " items checked, none damaged"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddFsck(CommandSyntax root, Context* context) {
  auto state_dir = std::make_shared<std::string>();
  CommandSyntax command =
      root.Add("fsck",
               "Checks a server's state directory while no server uses it: rows, weights, pinned "
               "plans; exit status 1 if something is damaged");
  command.Option("--state_dir", state_dir.get(), "state directory of the server")
      .Offer(Offers::kFolders)
      .FromEnvironment("ATHANOR_STATE_DIR")
      .Required();
  command.Then([=] {
    context->calls_server = false;
    context->run = [=] { return Check(context, *state_dir); };
  });
}

}  // namespace athanor::client
