#include "clients/cpp/syntax/command_syntax.h"

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

using testing::HasSubstr;

// A small tool with what the real ones have.
struct Tool {
  Tool() : syntax("tool", "Does things.", "Exit status: 0 done.") {
    CommandSyntax root = syntax.root();
    root.Flag("--json", &json, "objects instead of text");
    root.Option("--address", &address, "address of the server")
        .FromEnvironment("TOOL_TEST_ADDRESS")
        .ShowDefault();
    root.RequireCommand();
    syntax.RootOptionsAnywhere();
    CommandSyntax infer = root.Add("infer", "Calls a model once");
    infer.Option("MODEL", &model, "NAME or NAME/VERSION").Required().Offer(Offers::kModels);
    infer.Option("--input", &inputs, "an input's values");
    infer.Option("--wait", &wait, "how to wait").OneOf({"baseline", "none"});
    infer.Option("--seed", &seed, "a seed");
    infer.Option("--rate", &rate, "calls a second").NotNegative();
    OptionSyntax keep = infer.Flag("--keep", &keep_plan, "keeps it");
    infer.Flag("--compare", &compare, "compares it").Excludes(keep);
    infer.Option("--budget", &budget, "how long").Needs(keep);
    infer.Option("--limit", &limit, "bytes").ByteSize();
    infer.Option("--ca", &file, "a file").ExistingFile();
    CommandSyntax cache = root.Add("cache", "What is remembered");
    cache.RequireCommand();
    cache.Add("gc", "Frees what is not needed");
    cache.Add("stat", "Counts");
  }

  // Returns what is printed of a wrong line; "ok" if it is right, "help" for help.
  std::string Wrong(const std::string& line) {
    std::vector<std::string> words = absl::StrSplit("tool " + line, ' ', absl::SkipEmpty());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    const std::optional<bool> done = syntax.Parse(static_cast<int>(argv.size()), argv.data());
    const std::string said = testing::internal::GetCapturedStderr();
    testing::internal::GetCapturedStdout();
    if (!done.has_value()) return "ok" + said;
    return *done ? "help" + said : said;
  }

  ToolSyntax syntax;
  bool json = false, keep_plan = false, compare = false;
  std::string address = "here:1", model, wait, budget, file;
  std::vector<std::string> inputs;
  uint64_t seed = 0;
  int64_t limit = 0;
  std::optional<double> rate;
};

TEST(CommandSyntax, RightLinesAreTaken) {
  EXPECT_EQ(Tool().Wrong("infer m --input x=1 --input y=2 --seed 7 --wait none --json"), "ok");
  EXPECT_EQ(Tool().Wrong("--address b:2 cache gc"), "ok");
  EXPECT_EQ(Tool().Wrong("infer --help"), "help");
  Tool tool;
  EXPECT_EQ(tool.Wrong("infer m --limit 2KiB --rate 0"), "ok");
  EXPECT_EQ(tool.limit, 2048);
}

TEST(CommandSyntax, AnUnknownCommandIsNamedWithTheNearest) {
  EXPECT_EQ(Tool().Wrong("ifner m"),
            "tool: there is no command \"ifner\"; did you mean \"infer\"?\n"
            "tool help lists the commands\n");
  EXPECT_EQ(Tool().Wrong("zebra"),
            "tool: there is no command \"zebra\"\ntool help lists the commands\n");
  EXPECT_EQ(Tool().Wrong("cache gx"),
            "tool cache: there is no command \"gx\"; did you mean \"gc\"?\n"
            "tool help cache lists the commands\n");
  EXPECT_EQ(Tool().Wrong(""), "tool: a command is missing\ntool help lists the commands\n");
  EXPECT_THAT(Tool().Wrong("cache"), HasSubstr("tool cache: a command is missing\n"));
}

TEST(CommandSyntax, AnUnknownOptionIsNamedWithTheNearest) {
  EXPECT_EQ(Tool().Wrong("infer m --inptu x=1"),
            "tool infer: there is no option --inptu; did you mean --input?\n"
            "tool help infer tells what it takes\n");
  EXPECT_THAT(Tool().Wrong("infer m --wiat=none"), HasSubstr("--wiat; did you mean --wait?"));
  EXPECT_THAT(Tool().Wrong("infer m --adress b"), HasSubstr("did you mean --address?"));
  EXPECT_THAT(Tool().Wrong("infer --zebra"), HasSubstr("there is no option --zebra\n"));
  EXPECT_THAT(Tool().Wrong("--jsn infer m"), HasSubstr("--jsn; did you mean --json?"));
  EXPECT_THAT(Tool().Wrong("infer m -x"), HasSubstr("there is no option -x\n"));
}

TEST(CommandSyntax, WrongValuesAreNamedWithTheirOption) {
  EXPECT_THAT(Tool().Wrong("infer m --seed many"),
              HasSubstr("--seed: \"many\" must be a whole number, 0 or more\n"));
  EXPECT_THAT(Tool().Wrong("infer m --seed -1"), HasSubstr("must be a whole number, 0 or more"));
  EXPECT_THAT(Tool().Wrong("infer m --seed 99999999999999999999"), HasSubstr("whole number"));
  EXPECT_THAT(Tool().Wrong("infer m --rate fast"), HasSubstr("--rate: \"fast\" must be a number"));
  EXPECT_THAT(Tool().Wrong("infer m --rate -1"), HasSubstr("--rate: \"-1\" must be 0 or more"));
  EXPECT_THAT(Tool().Wrong("infer m --wait nome"),
              HasSubstr("--wait: \"nome\" must be one of baseline, none; did you mean none?"));
  EXPECT_THAT(Tool().Wrong("infer m --ca /none/such"),
              HasSubstr("--ca: \"/none/such\": No such file or directory"));
  EXPECT_THAT(Tool().Wrong("infer m --ca /tmp"), HasSubstr("is a folder, not a file"));
}

TEST(CommandSyntax, WhatIsMissingTwiceOrAtOddsIsNamed) {
  EXPECT_EQ(Tool().Wrong("infer"),
            "tool infer: MODEL is missing: NAME or NAME/VERSION\n"
            "tool help infer tells what it takes\n");
  EXPECT_THAT(Tool().Wrong("infer m n"), HasSubstr("\"n\" is one argument too many\n"));
  EXPECT_THAT(Tool().Wrong("infer m --seed"), HasSubstr("--seed: a value is missing\n"));
  EXPECT_THAT(Tool().Wrong("infer m --seed 1 --seed 2"), HasSubstr("--seed is given twice\n"));
  EXPECT_THAT(Tool().Wrong("infer m --compare --keep"),
              HasSubstr("--keep and --compare cannot be given together\n"));
  EXPECT_THAT(Tool().Wrong("infer m --budget 3s"),
              HasSubstr("--budget needs --keep, which is not given\n"));
}

TEST(CommandSyntax, RowsTellTheWholeTable) {
  Tool tool;
  const CommandRow rows = tool.syntax.Rows();
  EXPECT_EQ(rows.name, "tool");
  ASSERT_EQ(rows.commands.size(), 2u);
  ASSERT_EQ(rows.options.size(), 2u);
  EXPECT_EQ(rows.options[0].name, "--json");
  EXPECT_EQ(rows.options[0].value, "");
  EXPECT_EQ(rows.options[1].fallback, "here:1");
  EXPECT_EQ(rows.options[1].environment, "TOOL_TEST_ADDRESS");
  const CommandRow& infer = rows.commands[0];
  ASSERT_EQ(infer.arguments.size(), 1u);
  EXPECT_EQ(infer.arguments[0].name, "MODEL");
  EXPECT_TRUE(infer.arguments[0].required);
  EXPECT_EQ(infer.arguments[0].offers, Offers::kModels);
  EXPECT_TRUE(infer.options[0].repeated);
  EXPECT_THAT(infer.options[1].values, testing::ElementsAre("baseline", "none"));
  EXPECT_EQ(infer.options.back().offers, Offers::kFiles);
  EXPECT_EQ(rows.commands[1].commands[0].name, "gc");
}

TEST(CommandSyntax, HelpOfACommandIsFoundByItsWords) {
  Tool tool;
  EXPECT_THAT(*tool.syntax.Help({}), HasSubstr("Usage: tool [OPTIONS] SUBCOMMAND"));
  EXPECT_THAT(*tool.syntax.Help({"infer"}), HasSubstr("Usage: tool infer [OPTIONS] MODEL"));
  EXPECT_THAT(*tool.syntax.Help({"cache", "gc"}), HasSubstr("Usage: tool cache gc"));
  EXPECT_EQ(tool.syntax.Help({"cache", "sta"}).status().message(),
            "there is no command \"cache sta\"; did you mean \"cache stat\"?");
  EXPECT_FALSE(tool.syntax.Help({"infer", "x"}).ok());
}

}  // namespace
}  // namespace athanor::client
