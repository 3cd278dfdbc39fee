#include "server/text/jinja/marked.h"

#include <random>
#include <string>

#include "gtest/gtest.h"

namespace athanor::jinja {
namespace {

// A mark for each byte: the plain way, to hold the runs against.
struct Plain {
  std::string bytes, marks;
};

void ExpectEqual(const Marked& text, const Plain& plain) {
  ASSERT_EQ(text.bytes(), plain.bytes);
  std::string marks;
  for (const Marked::Run& run : text.runs()) {
    ASSERT_GT(run.end, marks.size());
    ASSERT_TRUE(marks.empty() || (marks.back() == 't') != run.trusted) << "runs that could be one";
    marks.resize(run.end, run.trusted ? 't' : '.');
  }
  ASSERT_EQ(marks, plain.marks);
  ASSERT_EQ(text.trusted(), plain.marks.find('.') == std::string::npos);
  for (size_t i = 0; i < marks.size(); ++i) ASSERT_EQ(text.TrustedAt(i), marks[i] == 't');
}

TEST(MarkedTest, EmptyIsTrustedAndHasNoRuns) {
  EXPECT_TRUE(Marked("", false).trusted());
  EXPECT_TRUE(Marked("", false).runs().empty());
  EXPECT_FALSE(Marked("a", false).trusted());
}

TEST(MarkedTest, AppendAndSliceKeepTheMarkOfEachByte) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Marked text;
    Plain plain;
    for (int step = 0; step < 20; ++step) {
      if (random() % 3 == 0) {
        const size_t begin = random() % (plain.bytes.size() + 1);
        const size_t end = begin + random() % (plain.bytes.size() - begin + 1);
        const Plain part{plain.bytes.substr(begin, end - begin),
                         plain.marks.substr(begin, end - begin)};
        const Marked slice = text.Slice(begin, end);
        ExpectEqual(slice, part);
        if (plain.bytes.size() > 200) continue;
        text.Append(slice);
        plain.bytes += part.bytes;
        plain.marks += part.marks;
      } else {
        const bool trusted = random() % 2 == 0;
        const std::string bytes(random() % 4, static_cast<char>('a' + random() % 26));
        text.Append(bytes, trusted);
        plain.bytes += bytes;
        plain.marks += std::string(bytes.size(), trusted ? 't' : '.');
      }
      ExpectEqual(text, plain);
    }
  }
}

}  // namespace
}  // namespace athanor::jinja
