#include "server/http/outgoing.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string TextOf(const Outgoing& outgoing) {
  std::string text;
  for (const absl::string_view piece : outgoing.Next()) text.append(piece.data(), piece.size());
  return text;
}

TEST(OutgoingTest, AWholeAnswerIsOnePiece) {
  Outgoing outgoing;
  EXPECT_TRUE(outgoing.empty());
  Framing framing;
  outgoing.Put({HttpHead{200, "text/plain"}, "hello", true}, false, &framing);
  const std::string text = TextOf(outgoing);
  EXPECT_THAT(text, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(text, EndsWith("\r\n\r\nhello"));
  EXPECT_THAT(outgoing.Written(text.size() - 1), IsEmpty());
  EXPECT_EQ(TextOf(outgoing), "o");
  EXPECT_THAT(outgoing.Written(1), ElementsAre(true));
  EXPECT_TRUE(outgoing.empty());
}

TEST(OutgoingTest, AStreamIsToldPieceByPiece) {
  Outgoing outgoing;
  Framing framing;
  outgoing.PutInterim("HTTP/1.1 100 Continue\r\n\r\n");
  outgoing.Put({HttpHead{200, "text/plain"}, "", false}, false, &framing);
  outgoing.Put({std::nullopt, "first", false}, false, &framing);
  outgoing.Put({std::nullopt, "", false}, false, &framing);  // no chunk, and yet told
  outgoing.Put({std::nullopt, "last", true}, false, &framing);
  const std::string text = TextOf(outgoing);
  EXPECT_THAT(text, StartsWith("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(text, EndsWith("\r\n\r\n5\r\nfirst\r\n4\r\nlast\r\n0\r\n\r\n"));
  EXPECT_THAT(outgoing.Written(text.size()), ElementsAre(false, false, true));
}

TEST(OutgoingTest, HeadsAlone) {
  Outgoing outgoing;
  Framing framing;
  outgoing.Put({HttpHead{200, "text/plain"}, "hello", true}, /*head_only=*/true, &framing);
  const std::string text = TextOf(outgoing);
  EXPECT_THAT(text, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(text, EndsWith("\r\n\r\n"));
  EXPECT_THAT(outgoing.Written(text.size()), ElementsAre(true));
}

TEST(OutgoingTest, LongPiecesGoInParts) {
  Outgoing outgoing;
  Framing framing{.http_1_0 = true};
  const std::string body(1'000'000, 'x');
  outgoing.Put({HttpHead{200, ""}, "", false}, false, &framing);
  EXPECT_TRUE(framing.closes) << "nothing else ends it";
  const size_t head = TextOf(outgoing).size();
  outgoing.Put({std::nullopt, body, true}, false, &framing);
  size_t sent = 0;
  for (int writes = 0; !outgoing.empty(); ++writes) {
    ASSERT_LT(writes, 10);
    const size_t bytes = TextOf(outgoing).size();
    EXPECT_LE(bytes, size_t{256} << 10);
    sent += bytes;
    EXPECT_EQ(outgoing.Written(bytes).empty(), sent < head + body.size());
  }
  EXPECT_EQ(sent, head + body.size());
}

}  // namespace
}  // namespace athanor
