#include "clients/cpp/syntax/completion.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

OptionRow Row(const std::string& name, const std::string& value, Offers offers = Offers::kNothing,
              std::vector<std::string> values = {}) {
  OptionRow row;
  row.name = name;
  row.about = "it's [a] \"$(test)\": `x`";
  row.value = value;
  row.offers = offers;
  row.values = std::move(values);
  return row;
}

CommandRow Tool() {
  CommandRow infer{"infer", "Calls it's model", "", {}, {}, {}};
  infer.arguments = {Row("MODEL", "TEXT", Offers::kModels)};
  infer.options = {Row("--input", "TEXT"), Row("--no_wait", ""),
                   Row("--wait", "TEXT", Offers::kNothing, {"baseline", "none"}),
                   Row("--file", "TEXT", Offers::kFiles)};
  CommandRow gc{"gc", "Frees", "", {}, {Row("--dry_run", "")}, {}};
  CommandRow explain{"explain", "Explains", "", {Row("MODEL", "TEXT", Offers::kModels)}, {}, {}};
  CommandRow cache{"cache", "Remembers", "", {}, {}, {gc, explain}};
  CommandRow help{"help", "Helps", "", {Row("COMMAND", "TEXT", Offers::kCommands)}, {}, {}};
  help.arguments[0].repeated = true;
  CommandRow tool{"tool", "Does things", "", {}, {}, {infer, explain, cache, help}};
  tool.options = {Row("--address", "TEXT"), Row("--json", "")};
  return tool;
}

// Runs a program and returns its lines.
std::vector<std::string> Lines(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {"cannot run " + command};
  std::string text;
  char bytes[4096];
  while (const size_t got = std::fread(bytes, 1, sizeof(bytes), pipe)) text.append(bytes, got);
  pclose(pipe);
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

// Returns what bash offers for the last of `words`. The tool itself is a function that lists two
// models, and its own arguments beside them.
std::vector<std::string> Offered(const std::vector<std::string>& words) {
  const std::string path = testing::TempDir() + "/completion.bash";
  std::ofstream file(path);
  file << "tool() { [[ \" $* \" == *' models --names '* ]] && echo alpha beta \"${@:1:2}\"; }\n"
       << *CompletionScript("bash", Tool()) << "compopt() { :; }\n"
       << "COMP_WORDS=("
       << absl::StrJoin(words, " ",
                        [](std::string* out, const std::string& word) {
                          absl::StrAppend(out, "'", word, "'");
                        })
       << ")\nCOMP_CWORD=" << words.size() - 1 << "\n_tool\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  file.close();
  return Lines(absl::StrCat("bash ", path, " 2>&1"));
}

TEST(Completion, BashOffersCommandsAndOptions) {
  EXPECT_THAT(Offered({"tool", ""}), IsSupersetOf({"infer", "cache", "help", "--json"}));
  EXPECT_THAT(Offered({"tool", "in"}), ElementsAre("infer"));
  EXPECT_THAT(Offered({"tool", "infer", "--no"}), ElementsAre("--no_wait"));
  EXPECT_THAT(Offered({"tool", "infer", "--"}), IsSupersetOf({"--input", "--address", "--help"}));
  EXPECT_THAT(Offered({"tool", "cache", ""}), IsSupersetOf({"gc", "explain"}));
  EXPECT_THAT(Offered({"tool", "cache", "gc", "--d"}), ElementsAre("--dry_run"));
  EXPECT_THAT(Offered({"tool", "--json", "infer", "--w"}), ElementsAre("--wait"));
  EXPECT_THAT(Offered({"tool", "help", "ca"}), ElementsAre("cache"));
}

TEST(Completion, BashOffersValues) {
  EXPECT_THAT(Offered({"tool", "infer", "m", "--wait", ""}), ElementsAre("baseline", "none"));
  EXPECT_THAT(Offered({"tool", "infer", "m", "--wait", "n"}), ElementsAre("none"));
  EXPECT_THAT(Offered({"tool", "infer", "m", "--input", ""}), ElementsAre());
  EXPECT_THAT(Offered({"tool", "infer", "m", "--file", "/et"}), Contains("/etc"));
}

TEST(Completion, BashAsksTheServerOfTheLineForModels) {
  EXPECT_THAT(Offered({"tool", "infer", ""}), IsSupersetOf({"alpha", "beta"}));
  EXPECT_THAT(Offered({"tool", "infer", "--no_wait", "al"}), ElementsAre("alpha"));
  EXPECT_THAT(Offered({"tool", "--address", "there:1", "infer", "there"}), ElementsAre("there:1"));
  EXPECT_THAT(Offered({"tool", "infer", "--wait", "none", "be"}), ElementsAre("beta"));
  EXPECT_THAT(Offered({"tool", "cache", "explain", "be"}), ElementsAre("beta"));
  EXPECT_THAT(Offered({"tool", "infer", "alpha", "be"}), ElementsAre());  // there is but one
}

TEST(Completion, TheOtherShellsTakeTheirScripts) {
  for (const std::string shell : {"zsh", "fish"}) {
    const std::string path = testing::TempDir() + "/completion." + shell;
    std::ofstream(path) << *CompletionScript(shell, Tool());
    if (std::system(("command -v " + shell + " >/dev/null").c_str()) == 0) {
      EXPECT_THAT(Lines(absl::StrCat(shell, " --no-exec ", path, " 2>&1")), ElementsAre()) << shell;
    }
  }
}

TEST(Completion, ZshDescribesEveryOption) {
  const std::string script = *CompletionScript("zsh", Tool());
  EXPECT_THAT(script, HasSubstr("#compdef tool\n"));
  EXPECT_THAT(script,
              HasSubstr("'--wait[it'\\''s \\[a\\] \"$(test)\"\\: `x`]:TEXT:(baseline none)'"));
  EXPECT_THAT(script, HasSubstr("'1:MODEL:_tool_models'"));
  EXPECT_THAT(script, HasSubstr("'infer:Calls it'\\''s model'"));
  EXPECT_THAT(script, HasSubstr("_tool_cache_gc() {"));
}

TEST(Completion, FishTellsCommandsOfOneNameApart) {
  const std::string script = *CompletionScript("fish", Tool());
  EXPECT_THAT(script, HasSubstr("-n '__fish_seen_subcommand_from explain; and not "
                                "__fish_seen_subcommand_from cache' -f -a"));
  EXPECT_THAT(script, HasSubstr("'__fish_seen_subcommand_from cache; and "
                                "__fish_seen_subcommand_from explain'"));
  EXPECT_THAT(script, HasSubstr(" -l wait -r -f -a 'baseline none' -d 'it\\'s [a]"));
}

TEST(Completion, AnotherShellIsRefused) {
  EXPECT_EQ(CompletionScript("csh", Tool()).status().message(),
            "no completions for \"csh\"; there are bash, zsh, fish");
}

}  // namespace
}  // namespace athanor::client
