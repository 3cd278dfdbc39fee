#include "server/base/help.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/options.h"
#include "server/base/signals.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

TEST(HelpTest, EachFlagIsInBothWithItsDefaultAndMeaning) {
  const std::string help = HelpText(), page = ManualText();
  for (const FlagRow& row : FlagTable()) {
    EXPECT_THAT(help, HasSubstr(absl::StrCat("  --", row.name, " (", FlagTypeText(row.type))));
    EXPECT_THAT(help, HasSubstr(absl::StrCat("\n      ", row.help, "\n")));
    EXPECT_THAT(page, HasSubstr(absl::StrCat("\\fB\\-\\-", row.name, "\\fR (")));
    EXPECT_THAT(page, HasSubstr(absl::StrReplaceAll(row.help, {{"-", "\\-"}})));
  }
  EXPECT_THAT(help, HasSubstr("--trace_ratio (a number such as 0.01; default 1)\n"));
  EXPECT_THAT(page, HasSubstr(".TP\n\\fB\\-\\-max_message_bytes\\fR (a size such as 64MiB; "
                              "default 64MiB)\nlargest gRPC message"));
}

TEST(HelpTest, SignalsAndFlagsWithoutAValueAreInBoth) {
  for (const std::string& text : {HelpText(), ManualText()}) {
    for (const SignalRow& row : SignalTable()) EXPECT_THAT(text, HasSubstr(std::string(row.name)));
    for (const char* name : {"help", "man", "version", "make_token"}) {
      EXPECT_THAT(absl::StrReplaceAll(text, {{"\\-", "-"}}), HasSubstr(absl::StrCat("--", name)));
    }
    EXPECT_THAT(text, HasSubstr("0 after it has drained"));
  }
}

TEST(HelpTest, TheFormatterHasNoWarning) {
  if (std::system("command -v groff >/dev/null") != 0) GTEST_SKIP() << "groff is not installed";
  const std::string path = testing::TempDir() + "/athanord.1", log = path + ".log";
  std::ofstream(path) << ManualText();
  EXPECT_EQ(std::system(("groff -man -ww -z " + path + " > " + log + " 2>&1").c_str()), 0);
  EXPECT_EQ(std::ifstream(log).peek(), std::ifstream::traits_type::eof());
}

}  // namespace
}  // namespace athanor
