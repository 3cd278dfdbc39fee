#include "server/http/request_reader.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using Got = RequestReader::Got;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Holds what a reader makes of bytes: each whole request, and the refusal that ended it, if any.
struct Read {
  std::vector<HttpRequest> requests;
  int refused = 0;
  bool in_part = false;  // the last request has begun and is not whole
};

// Feeds the bytes in pieces of `piece` at most. Puts every other piece of a body of known length to
// its place instead, and makes more room there than it fills.
Read ReadAll(const std::string& bytes, size_t piece = SIZE_MAX, HeaderLimits limits = {}) {
  RequestReader reader(limits);
  Read read;
  HttpRequest head;
  size_t fed = 0;
  bool in_place = false;
  while (true) {
    switch (reader.Advance()) {
      case Got::kMore: {
        if (fed == bytes.size()) return read;
        read.in_part = true;
        if (reader.lacking() > 0) in_place = !in_place;
        if (reader.lacking() > 0 && in_place) {
          const size_t grown = std::min<uint64_t>(reader.lacking(), bytes.size());
          const size_t came = std::min({piece, grown, bytes.size() - fed});
          std::memcpy(reader.GrowBody(grown), bytes.data() + fed, came);
          reader.Came(came);
          fed += came;
          break;
        }
        EXPECT_GT(reader.room(), 0u);
        const size_t most = std::min({piece, reader.room(), bytes.size() - fed});
        reader.Feed(absl::string_view(bytes).substr(fed, most));
        fed += most;
        break;
      }
      case Got::kHead:
        head = std::move(reader.head());
        break;
      case Got::kWhole:
        head.body = std::move(reader.body());
        read.requests.push_back(std::move(head));
        reader.Next();
        read.in_part = reader.held() > 0;
        break;
      case Got::kRefused:
        read.refused = reader.refusal().status;
        EXPECT_THAT(reader.refusal().message, testing::Not(IsEmpty()));
        return read;
    }
  }
}

TEST(RequestReaderTest, RequestsOneAfterAnother) {
  const std::string bytes =
      "GET /a%20b?x=1?y HTTP/1.1\r\nHost: h\r\nX: \t1 \r\n\r\n"
      "POST /p HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello"
      "PUT /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;name=value\r\nabc\r\n1\r\nd\r\n0\r\nTrailer: dropped\r\n\r\n"
      "DELETE /e HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n"
      "GET /last HTT";
  for (size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{100}, SIZE_MAX}) {
    const Read read = ReadAll(bytes, piece);
    ASSERT_EQ(read.requests.size(), 4u) << piece;
    EXPECT_EQ(read.refused, 0);
    EXPECT_TRUE(read.in_part);
    const HttpRequest& get = read.requests[0];
    EXPECT_EQ(get.method, "GET");
    EXPECT_EQ(get.path, "/a b");
    EXPECT_EQ(get.query, "x=1?y");
    ASSERT_NE(get.Header("x"), nullptr);
    EXPECT_EQ(*get.Header("x"), "1");
    EXPECT_EQ(get.body, "");
    EXPECT_EQ(read.requests[1].body, "hello");
    EXPECT_EQ(read.requests[2].body, "abcd");
    EXPECT_EQ(read.requests[2].Header("Trailer"), nullptr);
    EXPECT_EQ(read.requests[3].method, "DELETE");
    EXPECT_EQ(read.requests[3].body, "");
  }
}

TEST(RequestReaderTest, RoomForABodyIsClearedOnce) {
  RequestReader reader({});
  reader.Feed("POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n");
  ASSERT_EQ(reader.Advance(), Got::kHead);
  ASSERT_EQ(reader.Advance(), Got::kMore);
  ASSERT_EQ(reader.lacking(), 1000u);
  for (size_t came = 0; came < 1000; ++came) {
    char* const place = reader.GrowBody(1000 - came);
    if (came == 0) std::memset(place, 'x', 1000);
    ASSERT_EQ(std::string(place, 1000 - came), std::string(1000 - came, 'x')) << came;
    *place = static_cast<char>('a' + came % 26);
    reader.Came(1);
  }
  ASSERT_EQ(reader.Advance(), Got::kWhole);
  EXPECT_EQ(reader.body().substr(24, 4), "yzab");
  EXPECT_EQ(reader.body().size(), 1000u);
}

TEST(RequestReaderTest, HeadTellsWhatFollows) {
  const auto read = [](const std::string& bytes, auto check) {
    RequestReader reader({});
    reader.Feed(bytes);
    ASSERT_EQ(reader.Advance(), Got::kHead);
    check(reader);
  };
  read("GET / HTTP/1.1\r\n\r\n", [](RequestReader& reader) {
    EXPECT_TRUE(reader.keeps_alive());
    EXPECT_FALSE(reader.http_1_0());
    EXPECT_FALSE(reader.expects_continue());
    EXPECT_EQ(reader.body_bytes(), 0u);
    EXPECT_EQ(reader.Advance(), Got::kWhole);
  });
  read("POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 7\r\nExpect: 100-Continue\r\n\r\n",
       [](RequestReader& reader) {
         EXPECT_FALSE(reader.keeps_alive());
         EXPECT_TRUE(reader.expects_continue());
         EXPECT_EQ(reader.body_bytes(), 7u);
         EXPECT_EQ(reader.Advance(), Got::kMore);
       });
  read("POST / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", [](RequestReader& reader) {
    EXPECT_TRUE(reader.keeps_alive());
    EXPECT_TRUE(reader.http_1_0());
  });
  read("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
       [](RequestReader& reader) { EXPECT_EQ(reader.body_bytes(), std::nullopt); });
  // Announced, and not reserved.
  read("POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\nx",
       [](RequestReader& reader) {
         EXPECT_EQ(reader.body_bytes(), UINT64_MAX);
         EXPECT_EQ(reader.Advance(), Got::kMore);
         EXPECT_LT(reader.body().capacity(), 1'000u);
       });
}

TEST(RequestReaderTest, Refuses) {
  const std::string chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& wrong : std::vector<std::string>{
           "GARBAGE\r\n\r\n",
           "GET / HTTP/9.9\r\n\r\n",
           "GET / HTTP/2.0\r\n\r\n",
           "GET /\r\n\r\n",
           "GET / HTTP/1.1\n\n",
           "GET / HTTP/1.1\r\nHost: a\n\r\n",
           "GET / HTTP/1.1\r\nno colon\r\n\r\n",
           "GET / HTTP/1.1\r\nA : space\r\n\r\n",
           "GET http://a/ HTTP/1.1\r\n\r\n",
           "GET * HTTP/1.1\r\n\r\n",
           "GET /%0g HTTP/1.1\r\n\r\n",
           "GET /%00 HTTP/1.1\r\n\r\n",
           "GET /%4 HTTP/1.1\r\n\r\n",
           "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
           "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
           "POST / HTTP/1.1\r\nContent-Length: 1x\r\n\r\n",
           "POST / HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n",
           "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
           "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
           "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
           "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           chunked + "x\r\n\r\n",
           chunked + "1\r\nabc\r\n0\r\n\r\n",
           chunked + "fffffffffffffffff\r\n",
           chunked + "0\r\nno colon\r\n\r\n",
           std::string(64, '\0') + "\r\n\r\n",
           "\x16\x03\x01\x02\n\r\n\r\n",
       }) {
    EXPECT_EQ(ReadAll(wrong).refused, 400) << wrong;
    EXPECT_THAT(ReadAll(wrong).requests, IsEmpty());
    // In pieces, some wait for the header's end.
    const Read pieces = ReadAll(wrong, 1);
    EXPECT_TRUE(pieces.refused == 400 || pieces.in_part) << wrong;
    EXPECT_THAT(pieces.requests, IsEmpty());
  }
}

// Beast 1.74 throws std::length_error at a trailer of 200 kB, unless its buffer is small.
TEST(RequestReaderTest, RefusesWhatIsTooLong) {
  const std::string chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string many;
  for (int i = 0; i < 20'000; ++i) absl::StrAppend(&many, "H", i, ": v\r\n");
  const std::string folded = "A: b" + [] {
    std::string lines;
    for (int i = 0; i < 5'000; ++i) lines += "\r\n c";
    return lines;
  }();
  for (size_t piece : {size_t{1'000}, SIZE_MAX}) {
    EXPECT_EQ(ReadAll("GET /" + std::string(9'000, 'a') + " HTTP/1.1\r\n\r\n", piece).refused, 414);
    for (const std::string& wrong : {
             "GET /" + std::string(1 << 20, 'a') + " HTTP/1.1\r\n\r\n",
             std::string(1 << 20, 'G'),
             "GET / HTTP/1.1\r\n" + many + "\r\n",
             "GET / HTTP/1.1\r\nH: " + std::string(1 << 20, 'v') + "\r\n\r\n",
             "GET / HTTP/1.1\r\n" + std::string(1 << 20, 'n') + ": v\r\n\r\n",
             chunked + "0\r\nT: " + std::string(200'000, 't') + "\r\n\r\n",
             chunked + "1\r\na\r\n0\r\n" + std::string(200'000, 't') + ": v\r\n\r\n",
             chunked + "0\r\n" + many + "\r\n",
             chunked + "1;" + std::string(200'000, 'e') + "\r\na\r\n0\r\n\r\n",
             chunked + std::string(200'000, '0'),
         }) {
      EXPECT_EQ(ReadAll(wrong, piece).refused, 431) << wrong.substr(0, 80);
    }
    EXPECT_NE(ReadAll("GET / HTTP/1.1\r\n" + folded + "\r\n\r\n", piece).refused, 0);
    EXPECT_NE(ReadAll(chunked + "0\r\n" + folded + "\r\n\r\n", piece).refused, 0);
  }
  // Pieces that end with a field.
  std::string same = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 5'000; ++i) same += "HHHHHH: vvvvvv\r\n";
  EXPECT_EQ(ReadAll(same, 16).refused, 431);
  // A header of the whole limit fits.
  const HeaderLimits limits = {.header_bytes = 1'024};
  const std::string fixed = "GET / HTTP/1.1\r\nH: \r\n\r\n";
  for (int more : {-1, 0, 1}) {
    const std::string header =
        "GET / HTTP/1.1\r\nH: " + std::string(1'024 + more - fixed.size(), 'v') + "\r\n\r\n";
    EXPECT_EQ(ReadAll(header, SIZE_MAX, limits).refused, more > 0 ? 431 : 0) << more;
  }
}

TEST(RequestReaderTest, AMillionChunks) {
  std::string bytes = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 1'000'000; ++i) bytes += "1\r\nx\r\n";
  bytes += "0\r\n\r\n";
  const Read read = ReadAll(bytes);
  ASSERT_EQ(read.requests.size(), 1u);
  EXPECT_EQ(read.requests[0].body, std::string(1'000'000, 'x'));
}

// Random bytes, and random changes to a good request, in random pieces: never a crash, and the same
// whatever the pieces.
TEST(RequestReaderTest, RandomBytes) {
  std::mt19937 random(1);
  const std::string good =
      "POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5;e=\"v\"\r\nhello\r\n0\r\nT: x\r\n y\r\n\r\n";
  const std::string alphabet = "\r\n\r\n :;0aF%/\t\"\x00\xff";
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good + good;
    const int changes = static_cast<int>(random() % 4);
    for (int c = 0; c < changes; ++c) {
      const size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0:
          bytes[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          bytes.erase(at, random() % 5);
          break;
        default:
          bytes.insert(at, 1, alphabet[random() % alphabet.size()]);
      }
    }
    const Read whole = ReadAll(bytes), pieces = ReadAll(bytes, 1 + random() % 9);
    // In pieces, a fault may wait for the header's end.
    if (whole.refused != pieces.refused) {
      EXPECT_TRUE(pieces.in_part) << bytes;
    }
    EXPECT_EQ(whole.requests.size(), pieces.requests.size()) << bytes;
    if (changes == 0) {
      EXPECT_EQ(whole.requests.size(), 2u);
    }
  }
}

TEST(PercentDecodedTest, Decodes) {
  EXPECT_EQ(PercentDecoded(""), "");
  EXPECT_EQ(PercentDecoded("/a%2Fb%c3%a9"), "/a/b\xc3\xa9");
  EXPECT_EQ(PercentDecoded("%41%"), std::nullopt);
  EXPECT_EQ(PercentDecoded("%4"), std::nullopt);
  EXPECT_EQ(PercentDecoded("%+1"), std::nullopt);
  EXPECT_EQ(PercentDecoded("%0a"), std::nullopt);
  EXPECT_EQ(PercentDecoded("%7f"), std::nullopt);
}

}  // namespace
}  // namespace athanor
