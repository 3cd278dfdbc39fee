#include "server/generate/sample/stop_watcher.h"

#include <random>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

TEST(StopWatcherTest, WithoutStopStringsAllLeavesAtOnce) {
  StopWatcher watcher({});
  EXPECT_EQ(watcher.Add("abc").text, "abc");
  EXPECT_EQ(watcher.Add("").text, "");
  EXPECT_EQ(watcher.End(), "");
}

TEST(StopWatcherTest, HoldsBackWhatMayBecomeAStop) {
  StopWatcher watcher({"\n\nUser:"});
  EXPECT_EQ(watcher.Add("Hi\n").text, "Hi");
  EXPECT_EQ(watcher.Add("\n").text, "");
  EXPECT_EQ(watcher.Add("\nUs").text, "\n") << "the first of three lines is free";
  EXPECT_EQ(watcher.Add("e").text, "");
  const StopWatcher::Found found = watcher.Add("r: x");
  EXPECT_TRUE(found.stop);
  EXPECT_EQ(found.text, "");
}

TEST(StopWatcherTest, WhatIsHeldLeavesAtTheEndOrWithALetterThatDiffers) {
  StopWatcher watcher({"stop"});
  EXPECT_EQ(watcher.Add("a sto").text, "a ");
  EXPECT_EQ(watcher.Add("ne").text, "stone");
  EXPECT_EQ(watcher.Add("s").text, "");
  EXPECT_EQ(watcher.End(), "s");
}

TEST(StopWatcherTest, TheFirstCompleteOneEndsTheTextTheLongestOfEqualOnes) {
  EXPECT_EQ(StopWatcher({"abcd", "bc"}).Add("xabcd").text, "xa");
  EXPECT_EQ(StopWatcher({"c", "abc", "bc"}).Add("xabcd").text, "x");
  const StopWatcher::Found found = StopWatcher({"é"}).Add("caféé");
  EXPECT_TRUE(found.stop);
  EXPECT_EQ(found.text, "caf");
  EXPECT_EQ(found.stop_text, "é");
  EXPECT_EQ(StopWatcher({"c", "abc", "bc"}).Add("xabcd").stop_text, "abc");
  EXPECT_EQ(StopWatcher({"c"}).Add("x").stop_text, "");
}

TEST(StopWatcherTest, StopStringsThatCannotBeWatchedAreRefused) {
  EXPECT_TRUE(StopWatcher::Check({}).ok());
  EXPECT_TRUE(StopWatcher::Check(std::vector<std::string>(16, std::string(1024, 'a'))).ok());
  EXPECT_THAT(StopWatcher::Check(std::vector<std::string>(17, "a")).message(),
              HasSubstr("17 stop strings; there may be 16"));
  EXPECT_THAT(StopWatcher::Check({"a", ""}).message(), HasSubstr("is empty"));
  EXPECT_THAT(StopWatcher::Check({std::string(1025, 'a')}).message(), HasSubstr("1025 bytes"));
}

// Returns what has left of `text`, by looking at all of it; sets `*stop` if it ends with a stop
// string.
std::string LeftOf(const std::string& text, const std::vector<std::string>& stops, bool* stop) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string begin = text.substr(0, end);
    size_t longest = 0;
    for (const std::string& each : stops) {
      if (absl::EndsWith(begin, each)) longest = std::max(longest, each.size());
    }
    if (longest == 0) continue;
    *stop = true;
    return begin.substr(0, end - longest);
  }
  size_t held = 0;
  for (const std::string& each : stops) {
    for (size_t size = 1; size < each.size(); ++size) {
      if (absl::EndsWith(text, each.substr(0, size))) held = std::max(held, size);
    }
  }
  return text.substr(0, text.size() - held);
}

TEST(StopWatcherTest, IsASearchOfAllTextOverRandomPieces) {
  std::mt19937 random(9);
  const auto word = [&](size_t most, int letters) {
    std::string text(random() % (most + 1), ' ');
    for (char& letter : text) letter = static_cast<char>('a' + random() % letters);
    return text;
  };
  int stopped = 0, ended = 0;
  for (int i = 0; i < 100'000; ++i) {
    const int letters = 1 + static_cast<int>(random() % 3);
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) stop = "a" + word(6, letters);
    StopWatcher watcher(stops);
    std::string text, left;
    bool stop = false;
    for (int piece = 0; piece < 12 && !stop; ++piece) {
      const std::string next = word(random() % 4, letters);
      text += next;
      const StopWatcher::Found found = watcher.Add(next);
      left += found.text;
      ASSERT_EQ(left, LeftOf(text, stops, &stop)) << i << ": " << text;
      ASSERT_EQ(found.stop, stop) << i << ": " << text;
      ASSERT_TRUE(text.substr(left.size()).starts_with(found.stop_text)) << i << ": " << text;
      ASSERT_EQ(absl::c_linear_search(stops, found.stop_text), stop) << i << ": " << text;
    }
    (stop ? stopped : ended) += 1;
    if (!stop) {
      ASSERT_EQ(left + watcher.End(), text);
    }
  }
  EXPECT_GT(stopped, 20'000);
  EXPECT_GT(ended, 20'000);
}

}  // namespace
}  // namespace athanor
