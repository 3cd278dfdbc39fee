#include "clients/cpp/syntax/manual.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

using testing::HasSubstr;

CommandRow Tool() {
  OptionRow model{"MODEL", "NAME or NAME/VERSION", "TEXT"};
  model.required = true;
  OptionRow wait{"--no_wait", "returns at once; \\, is a comma"};
  OptionRow format{"--format", ".athanor, or\n'another", "TEXT"};
  format.values = {"onnx", "hf"};
  format.repeated = true;
  OptionRow address{"--address", "address of the server", "TEXT", "here:1", "TOOL_ADDRESS"};
  CommandRow infer{"infer", "Calls a model", "", {model}, {wait, format}, {}};
  return {"tool", "Does things.", "0 done; 1 refused.", {}, {address}, {infer}};
}

TEST(Manual, ThereIsAPagePerCommand) {
  const std::vector<ManualPage> pages = ManualPages(Tool(), "1.2");
  ASSERT_EQ(pages.size(), 2u);
  EXPECT_EQ(pages[0].name, "tool");
  EXPECT_EQ(pages[1].name, "tool-infer");
  EXPECT_THAT(pages[0].text, HasSubstr(".TH \"TOOL\" 1 \"\" \"tool 1.2\"\n.SH NAME\ntool \\- "));
  EXPECT_THAT(pages[0].text, HasSubstr(".TP\n\\fBinfer\\fR\nCalls a model.\n"));
  EXPECT_THAT(pages[0].text, HasSubstr(".SH EXIT STATUS\n0 done; 1 refused.\n"));
  EXPECT_THAT(pages[0].text, HasSubstr("\\fBtool\\-infer\\fR(1)"));
}

TEST(Manual, OptionsAreWhole) {
  const std::string page = ManualPages(Tool(), "1.2")[1].text;
  EXPECT_THAT(page,
              HasSubstr(".SH SYNOPSIS\n\\fBtool infer\\fR [\\fIOPTIONS\\fR] \\fIMODEL\\fR\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-no_wait\\fR\nreturns at once; \\e, is a comma.\n"));
  EXPECT_THAT(page, HasSubstr("One of onnx, hf.\n"));
  EXPECT_THAT(page, HasSubstr(".SH OPTIONS OF EVERY COMMAND\n.TP\n\\fB\\-\\-address\\fR"));
  EXPECT_THAT(page, HasSubstr("Default: here:1.\n"));
  EXPECT_THAT(page, HasSubstr("\\fBTOOL_ADDRESS\\fR"));
}

TEST(Manual, TextNeverSteersTheFormatter) {
  const std::string page = ManualPages(Tool(), "1.2")[1].text;
  EXPECT_THAT(page, HasSubstr("\n\\&.athanor, or\n\\&'another.\n"));
}

TEST(Manual, TheFormatterHasNoWarning) {
  if (std::system("command -v groff >/dev/null") != 0) GTEST_SKIP() << "groff is not installed";
  for (const ManualPage& page : ManualPages(Tool(), "1.2")) {
    const std::string path = testing::TempDir() + "/" + page.name + ".1";
    std::ofstream(path) << page.text;
    const std::string command = "groff -man -ww -z " + path + " > " + path + ".log 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0);
    std::ifstream log(path + ".log");
    EXPECT_EQ(log.peek(), std::ifstream::traits_type::eof()) << page.name;
  }
}

}  // namespace
}  // namespace athanor::client
