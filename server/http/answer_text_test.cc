#include "server/http/answer_text.h"

#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(AnswerTextTest, Heads) {
  const HttpHead head = {404, "text/plain", {{"A", "1"}}};
  const std::string begin =
      "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nA: 1\r\n"
      "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n";
  EXPECT_EQ(HeadText(head, {.length = 0}), begin + "Content-Length: 0\r\n\r\n");
  EXPECT_EQ(HeadText(head, {.length = 5, .closes = true}),
            begin + "Content-Length: 5\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(HeadText(head, {.length = 5, .http_1_0 = true}),
            begin + "Content-Length: 5\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(HeadText(head, {}), begin + "Transfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(HeadText(head, {.http_1_0 = true, .closes = true}),
            begin + "Connection: close\r\n\r\n");
}

TEST(AnswerTextTest, AnAnswerMayBeCached) {
  EXPECT_EQ(HeadText({200, "", {{"cache-control", "no-cache"}}}, {.length = 1}),
            "HTTP/1.1 200 OK\r\ncache-control: no-cache\r\nX-Content-Type-Options: nosniff\r\n"
            "Content-Length: 1\r\n\r\n");
}

TEST(AnswerTextTest, Chunks) {
  EXPECT_EQ(ChunkText(""), "");
  EXPECT_EQ(ChunkText("a"), "1\r\na\r\n");
  const std::string large(0xabcde, 'x');
  EXPECT_EQ(ChunkText(large), "abcde\r\n" + large + "\r\n");
}

TEST(AnswerTextTest, Reasons) {
  EXPECT_EQ(ReasonOf(200), "OK");
  EXPECT_EQ(ReasonOf(418), "Unknown");
}

}  // namespace
}  // namespace athanor
