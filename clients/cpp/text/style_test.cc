#include "clients/cpp/text/style.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

using testing::ElementsAre;

std::vector<Row> Rows() {
  return {{{"MODEL"}, {"STATE"}, {"TAKES"}},
          {{"long-name/12"}, {"READY", Tone::kGood}, {"x f32[b, 3]"}},
          {{"é/1"}, {"FAILED", Tone::kBad}, {""}}};
}

TEST(Style, ColumnsAreAligned) {
  EXPECT_THAT(TableLines(Rows(), 0, Style(false)),
              ElementsAre("MODEL         STATE   TAKES", "long-name/12  READY   x f32[b, 3]",
                          "é/1           FAILED"));
  EXPECT_THAT(TableLines({}, 80, Style(false)), ElementsAre());
  EXPECT_THAT(TableLines({{{"A"}, {"B"}}, {{"x"}}}, 0, Style(false)), ElementsAre("A  B", "x"));
}

TEST(Style, LinesAreCutToTheTerminal) {
  for (int columns = 1; columns < 40; ++columns) {
    for (const std::string& line : TableLines(Rows(), columns, Style(false))) {
      EXPECT_LE(TextWidth(line), static_cast<size_t>(columns));
    }
  }
  EXPECT_THAT(
      TableLines(Rows(), 24, Style(false)),
      ElementsAre("MODEL         STATE   TA", "long-name/12  READY   x", "é/1           FAILED"));
  EXPECT_EQ(TableLines({{{"ééé"}}}, 2, Style(false))[0], "éé");
}

TEST(Style, ColoursTakeNoPlace) {
  const std::vector<std::string> lines = TableLines(Rows(), 0, Style(true));
  EXPECT_EQ(lines[1], "long-name/12  \x1b[32mREADY\x1b[0m   x f32[b, 3]");
  EXPECT_EQ(lines[0], "\x1b[1mMODEL\x1b[0m         \x1b[1mSTATE\x1b[0m   \x1b[1mTAKES\x1b[0m");
  EXPECT_EQ(Style(true).Paint("", Tone::kBad), "");
  EXPECT_EQ(Style(true).Paint("x", Tone::kPlain), "x");
}

TEST(Style, FilesAreNotColouredAndHaveNoWidth) {
  std::FILE* file = std::tmpfile();
  EXPECT_EQ(Style::Of(file).Paint("x", Tone::kBad), "x");
  EXPECT_EQ(TerminalColumns(file), 0);
  std::fclose(file);
}

}  // namespace
}  // namespace athanor::client
