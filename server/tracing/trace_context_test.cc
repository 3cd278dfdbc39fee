#include "server/tracing/trace_context.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr char kTrace[] = "12345678901234567890123456789012";
constexpr char kSpan[] = "1234567890123456";

std::string Header(const std::string& version, const std::string& trace, const std::string& span,
                   const std::string& flags) {
  return absl::StrCat(version, "-", trace, "-", span, "-", flags);
}

TEST(TraceContextTest, ReadsTheFieldsOfVersion00) {
  const auto parent = ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  ASSERT_TRUE(parent.has_value());
  EXPECT_EQ(parent->trace_high, 0x0af7651916cd43ddu);
  EXPECT_EQ(parent->trace_low, 0x8448eb211c80319cu);
  EXPECT_EQ(parent->span, 0xb7ad6b7169203331u);
  EXPECT_TRUE(parent->sampled);
  EXPECT_EQ(TraceIdText(*parent), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(TraceIdBytes(*parent),
            std::string("\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c", 16));
  EXPECT_EQ(SpanIdBytes(parent->span), std::string("\xb7\xad\x6b\x71\x69\x20\x33\x31", 8));
}

TEST(TraceContextTest, OnlyTheLowestFlagSaysSampled) {
  for (const char* flags : {"01", "03", "ff", "81"}) {
    EXPECT_TRUE(ParseTraceparent(Header("00", kTrace, kSpan, flags))->sampled) << flags;
  }
  for (const char* flags : {"00", "02", "fe"}) {
    EXPECT_FALSE(ParseTraceparent(Header("00", kTrace, kSpan, flags))->sampled) << flags;
  }
}

TEST(TraceContextTest, LeadingZerosAreKept) {
  const auto parent = ParseTraceparent("00-00000000000000000000000000000001-0000000000000002-00");
  ASSERT_TRUE(parent.has_value());
  EXPECT_EQ(TraceIdText(*parent), "00000000000000000000000000000001");
}

// The cases of the W3C's own suite, trace-context/test/test.py.
TEST(TraceContextTest, MalformedHeadersAreNone) {
  const std::string zeros(32, '0');
  for (const std::string& header : {std::string(),
                                    Header("ff", kTrace, kSpan, "01"),  // forbidden version
                                    Header("0", kTrace, kSpan, "01"),
                                    Header("000", kTrace, kSpan, "01"),
                                    Header(".0", kTrace, kSpan, "01"),
                                    Header("0.", kTrace, kSpan, "01"),
                                    Header("FF", kTrace, kSpan, "01"),
                                    Header("00", zeros, kSpan, "01"),
                                    Header("00", kTrace, "0000000000000000", "01"),
                                    Header("00", "1234567890123456789012345678901", kSpan, "01"),
                                    Header("00", "123456789012345678901234567890123", kSpan, "01"),
                                    Header("00", ".2345678901234567890123456789012", kSpan, "01"),
                                    Header("00", "1234567890123456789012345678901.", kSpan, "01"),
                                    Header("00", "ABCDEF78901234567890123456789012", kSpan, "01"),
                                    Header("00", kTrace, "123456789012345", "01"),
                                    Header("00", kTrace, "12345678901234567", "01"),
                                    Header("00", kTrace, ".234567890123456", "01"),
                                    Header("00", kTrace, "ABCDEF7890123456", "01"),
                                    Header("00", kTrace, kSpan, "1"),
                                    Header("00", kTrace, kSpan, "001"),
                                    Header("00", kTrace, kSpan, ".0"),
                                    Header("00", kTrace, kSpan, "0."),
                                    Header("00", kTrace, kSpan, "0A"),
                                    Header("00", kTrace, kSpan, ""),
                                    Header("00", kTrace, kSpan, "01-"),
                                    Header("00", kTrace, kSpan, "01-what"),
                                    Header("00", kTrace, kSpan, "01."),
                                    absl::StrCat("00-", kTrace),
                                    absl::StrCat("00", kTrace, kSpan, "01"),
                                    absl::StrCat("00_", kTrace, "_", kSpan, "_01"),
                                    std::string(4096, '0')}) {
    EXPECT_FALSE(ParseTraceparent(header).has_value()) << header;
  }
}

TEST(TraceContextTest, LaterVersionsAreReadByTheirFirstFields) {
  for (const char* rest : {"", "-", "-what-the-future-will-be-like"}) {
    const auto parent = ParseTraceparent(Header("cc", kTrace, kSpan, absl::StrCat("01", rest)));
    ASSERT_TRUE(parent.has_value()) << rest;
    EXPECT_TRUE(parent->sampled);
    EXPECT_EQ(TraceIdText(*parent), kTrace);
  }
  EXPECT_FALSE(ParseTraceparent(Header("cc", kTrace, kSpan, "01.what")).has_value());
  EXPECT_FALSE(ParseTraceparent(Header("cc", kTrace, kSpan, "0")).has_value());
}

TEST(TraceContextTest, TracestatesAreTidied) {
  EXPECT_EQ(CheckedTracestate(""), "");
  EXPECT_EQ(CheckedTracestate("foo=1"), "foo=1");
  EXPECT_EQ(CheckedTracestate("foo=1 \t , \t bar=2, \t baz=3"), "foo=1,bar=2,baz=3");
  EXPECT_EQ(CheckedTracestate("foo=1,,bar=2,"), "foo=1,bar=2");
  EXPECT_EQ(CheckedTracestate("abcdefghijklmnopqrstuvwxyz0123456789_-*/= "), "");
  EXPECT_EQ(CheckedTracestate("abcdefghijklmnopqrstuvwxyz0123456789_-*/=a b"),
            "abcdefghijklmnopqrstuvwxyz0123456789_-*/=a b");
  EXPECT_EQ(CheckedTracestate("0a-*/@a-*/=1"), "0a-*/@a-*/=1");
}

TEST(TraceContextTest, OneMalformedMemberDropsAll) {
  for (const char* wrong : {"foo", "foo=", "=1", "foo =1", "FOO=1", "foo.bar=1", "foo=1=2",
                            "foo@=1", "@foo=1", "foo@@bar=1", "foo@bar@baz=1", "foo@0bar=1",
                            "0foo=1", "foo=\x01", "foo=\xc3\xa9", "foo=1,foo=1"}) {
    EXPECT_EQ(CheckedTracestate(absl::StrCat("bar=1,", wrong)), "") << wrong;
  }
}

TEST(TraceContextTest, TracestatesHaveLimits) {
  std::string most;
  for (int i = 10; i < 42; ++i) absl::StrAppend(&most, most.empty() ? "" : ",", "a", i, "=1");
  EXPECT_EQ(CheckedTracestate(most), most);
  EXPECT_EQ(CheckedTracestate(most + ",b=1"), "");
  EXPECT_NE(CheckedTracestate(std::string(256, 'k') + "=1"), "");
  EXPECT_EQ(CheckedTracestate(std::string(257, 'k') + "=1"), "");
  EXPECT_NE(CheckedTracestate(std::string(241, 't') + "@" + std::string(14, 'v') + "=1"), "");
  EXPECT_EQ(CheckedTracestate(std::string(242, 't') + "@v=1"), "");
  EXPECT_EQ(CheckedTracestate("t@" + std::string(15, 'v') + "=1"), "");
  EXPECT_NE(CheckedTracestate("k=" + std::string(256, 'v')), "");
  EXPECT_EQ(CheckedTracestate("k=" + std::string(257, 'v')), "");
  const std::string half = std::string(255, 'k') + "=";
  const std::string two = absl::StrCat(half, "1,a", half.substr(1), "1");
  EXPECT_EQ(two.size(), 515u);
  EXPECT_EQ(CheckedTracestate(two), "");
}

}  // namespace
}  // namespace athanor
