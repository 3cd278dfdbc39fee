#include "clients/cpp/syntax/tool_commands.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/cpp/syntax/completion.h"
#include "clients/cpp/syntax/manual.h"
#include "deploy/bazel/libs/version.h"

namespace athanor::client {
namespace {

absl::Status Print(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return Usage(text.status());
  std::fputs(text->c_str(), stdout);
  return absl::OkStatus();
}

// Prints the page of a command, or writes all pages to a folder, which exists.
absl::Status Man(const CommandRow& tool, const std::vector<std::string>& words,
                 const std::string& folder) {
  const std::string wanted = absl::StrJoin(
      [&] {
        std::vector<std::string> all = {tool.name};
        all.insert(all.end(), words.begin(), words.end());
        return all;
      }(),
      "-");
  for (const ManualPage& page : ManualPages(tool, kVersion)) {
    if (folder.empty()) {
      if (page.name == wanted) return Print(page.text);
      continue;
    }
    const std::string path = absl::StrCat(folder, "/", page.name, ".1");
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    if (!(file << page.text) || !file.flush()) {
      return Usage(absl::NotFoundError(
          absl::StrCat("--out: cannot write ", path, ": ", std::strerror(errno))));
    }
  }
  if (!folder.empty()) return absl::OkStatus();
  return Usage(absl::InvalidArgumentError(
      absl::StrCat("there is no command \"", absl::StrJoin(words, " "), "\"")));
}

}  // namespace

absl::Status Usage(absl::Status status) {
  status.SetPayload(kUsagePayload, absl::Cord());
  return status;
}

void AddToolCommands(ToolSyntax* tool,
                     std::function<void(std::function<absl::Status()> run)> given) {
  CommandSyntax root = tool->root();
  auto words = std::make_shared<std::vector<std::string>>();
  CommandSyntax help = root.Add("help", "Shows the help of a command");
  help.Option("COMMAND", words.get(), "the command's words: cache gc; default: all commands")
      .Offer(Offers::kCommands);
  help.Then([=] { given([=] { return Print(tool->Help(*words)); }); });

  CommandSyntax version = root.Add("version", "Shows the version of this tool");
  version.Then(
      [=] { given([=] { return Print(absl::StrCat(tool->Rows().name, " ", kVersion, "\n")); }); });

  auto shell = std::make_shared<std::string>();
  CommandSyntax completion = root.Add(
      "completion", "Prints a script with which a shell completes command lines of this tool");
  completion.Option("SHELL", shell.get(), "the shell").Required().OneOf(CompletionShells());
  completion.Then([=] { given([=] { return Print(CompletionScript(*shell, tool->Rows())); }); });

  auto folder = std::make_shared<std::string>();
  CommandSyntax man = root.Add("man", "Prints the manual page of this tool or of a command");
  OptionSyntax of =
      man.Option("COMMAND", words.get(), "the command's words: cache gc; default: the tool")
          .Offer(Offers::kCommands);
  man.Option("--out", folder.get(), "folder to write all pages to")
      .Offer(Offers::kFolders)
      .Excludes(of);
  man.Then([=] { given([=] { return Man(tool->Rows(), *words, *folder); }); });
}

}  // namespace athanor::client
