#include "compiler/frontend/names.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(NamesTest, NearestIgnoresCaseAndSmallMistakes) {
  const std::vector<std::string_view> ops = {"Softmax", "Silu", "Sigmoid", "MaxReduce"};
  EXPECT_EQ(NearestName("Softmx", ops), "Softmax");
  EXPECT_EQ(NearestName("sigmoid", ops), "Sigmoid");
  EXPECT_EQ(NearestName("ReduceMax", ops), "");
  EXPECT_EQ(NearestName("", ops), "");
  EXPECT_EQ(NearestName(std::string(10'000, 'S'), ops), "");
  EXPECT_EQ(DidYouMean("Silo", ops), "; did you mean \"Silu\"?");
  EXPECT_EQ(DidYouMean("Convolution", ops), "");
}

TEST(NamesTest, ListsStayShort) {
  const std::vector<std::string_view> two = {"a", "b"};
  EXPECT_EQ(JoinNames(two), "a, b");
  const std::vector<std::string_view> many(17, "x");
  EXPECT_EQ(JoinNames(many), "x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, ...");
}

TEST(NamesTest, LongMessagesAreCutBetweenCharacters) {
  const absl::Status small = absl::InvalidArgumentError("short");
  EXPECT_EQ(Shortened(small), small);
  std::string text(2047, 'a');
  text += "\u00e9 and more";  // its second byte is byte 2048
  const absl::Status cut = Shortened(absl::UnimplementedError(text));
  EXPECT_EQ(cut.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(std::string(cut.message()), std::string(2047, 'a') + "...");
}

}  // namespace
}  // namespace athanor
