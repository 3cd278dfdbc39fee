// Reads a file of the gguf package (testdata/make_goldens.py), and files that lie in every way.
#include "compiler/frontend/checkpoint/files/gguf.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "compiler/frontend/checkpoint/files/gguf_testing.h"
#include "gtest/gtest.h"

namespace athanor::checkpoint {
namespace {

constexpr uint32_t kF32 = 0, kQ4_1 = 3, kUint32 = 4, kUint64 = 10, kString = 8, kArray = 9;

std::string SmallFile() {
  std::ifstream file("compiler/frontend/checkpoint/files/testdata/small.gguf", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

absl::StatusOr<Gguf> ReadAll(const std::string& file) {
  return ReadGguf(file, 0, static_cast<int64_t>(file.size()));
}

std::string ErrorOf(const std::string& file, const GgufLimits& limits = {}) {
  const auto head = ReadGguf(file, 0, static_cast<int64_t>(file.size()), limits);
  return head.ok() ? "OK" : head.status().ToString();
}

template <typename T>
void ExpectKey(const Gguf& head, std::string_view key, const T& value) {
  const GgufValue* found = head.Find(key);
  ASSERT_NE(found, nullptr) << key;
  ASSERT_TRUE(std::holds_alternative<T>(*found)) << key;
  EXPECT_EQ(std::get<T>(*found), value) << key;
}

// A file with two tensors, whose bytes are those of both texts.
GgufWriter Two() {
  GgufWriter w;
  w.Key("general.architecture", "llama");
  w.Tensor("a", {2, 2}, kF32, std::string(16, 'a'));
  w.Tensor("b", {1, 64}, kQ4_1, std::string(40, 'b'));
  return w;
}

TEST(GgufTest, ReadsWhatTheGgufPackageWrites) {
  const std::string file = SmallFile();
  const auto head = ReadGguf(file, 7, static_cast<int64_t>(file.size()));
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->keys.size(), 17);
  EXPECT_EQ(head->Find("absent"), nullptr);
  ExpectKey<std::string>(*head, "general.architecture", "llama");
  ExpectKey<int64_t>(*head, "a.uint8", 255);
  ExpectKey<int64_t>(*head, "a.int8", -128);
  ExpectKey<int64_t>(*head, "a.uint16", 65535);
  ExpectKey<int64_t>(*head, "a.int16", -32768);
  ExpectKey<int64_t>(*head, "a.uint32", 4294967295);
  ExpectKey<int64_t>(*head, "a.int32", -2147483648);
  ExpectKey<int64_t>(*head, "a.uint64", INT64_MAX);
  ExpectKey<int64_t>(*head, "a.int64", INT64_MIN);
  ExpectKey<double>(*head, "a.float32", static_cast<double>(0.1f));
  ExpectKey<double>(*head, "a.float64", 0.1);
  ExpectKey<bool>(*head, "a.bool", true);
  ExpectKey<std::string>(*head, "a.string", "grüße");
  ExpectKey<std::vector<std::string>>(*head, "tokens", {"", "a", "▁b"});
  ExpectKey<std::vector<double>>(*head, "scores", {0.5, -1});
  ExpectKey<std::vector<int64_t>>(*head, "merges", {1, -2, 3});
  ExpectKey<std::vector<bool>>(*head, "flags", {true, false});
  struct Row {
    std::string name;
    Stored stored;
    std::vector<int64_t> shape;
    std::string begin;  // of its bytes
    int64_t bytes;
  };
  const std::vector<Row> rows = {{"f32", Stored::kF32, {2, 3}, GgufWriter::Bytes(0.0f), 24},
                                 {"f16", Stored::kF16, {2, 3}, std::string("\0\0\0\x3c", 4), 12},
                                 {"q8_0", Stored::kQ8_0, {2, 32}, std::string("\0\1\2\3", 4), 68},
                                 {"one", Stored::kF32, {1}, GgufWriter::Bytes(1.0f), 4}};
  ASSERT_EQ(head->tensors.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const FileTensor& tensor = head->tensors[i];
    EXPECT_EQ(tensor.name, rows[i].name);
    EXPECT_EQ(tensor.stored, rows[i].stored);
    EXPECT_EQ(tensor.shape, rows[i].shape);
    EXPECT_EQ(tensor.file, 7);
    EXPECT_EQ(tensor.bytes, rows[i].bytes);
    EXPECT_EQ(file.substr(tensor.offset, 4), rows[i].begin) << tensor.name;
    EXPECT_GE(tensor.offset, head->head_bytes);
  }
}

TEST(GgufTest, VersionTwoAndAlignments) {
  for (const int64_t alignment : {1, 8, 64}) {
    GgufWriter w;
    w.version = 2;
    w.alignment = alignment;
    w.Key("general.alignment", static_cast<uint32_t>(alignment));
    w.Tensor("a", {3}, kF32, "abcdefghijkl");
    w.Tensor("b", {1}, kF32, "mnop");
    const std::string file = w.File();
    const auto head = ReadAll(file);
    ASSERT_TRUE(head.ok()) << head.status();
    EXPECT_EQ(head->head_bytes % alignment, 0);
    EXPECT_EQ(file.substr(head->tensors[0].offset, 12), "abcdefghijkl");
    EXPECT_EQ(file.substr(head->tensors[1].offset, 4), "mnop");
  }
}

TEST(GgufTest, NothingAndEmptyTensors) {
  GgufWriter w;
  const auto nothing = ReadAll(w.Head());
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_EQ(nothing->head_bytes, 24);
  w.Tensor("scalar", {}, kF32, "abcd");
  w.Tensor("empty", {0, 5}, kF32, "");
  w.Tensor("no blocks", {5, 0}, kQ4_1, "");
  const auto head = ReadAll(w.File());
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->tensors[0].shape, std::vector<int64_t>{});
  EXPECT_EQ(head->tensors[0].bytes, 4);
  EXPECT_EQ(head->tensors[1].shape, (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(head->tensors[1].bytes, 0);
  EXPECT_EQ(head->tensors[2].bytes, 0);
}

// Asks for more exactly as long as the head is not whole.
TEST(GgufTest, EveryPrefix) {
  const std::string file = SmallFile();
  const auto size = static_cast<int64_t>(file.size());
  const int64_t head_bytes = ReadAll(file)->head_bytes;
  int64_t whole = -1;
  for (int64_t n = 0; n <= size; ++n) {
    const auto head = ReadGguf(std::string_view(file).substr(0, n), 0, size);
    if (head.ok() && whole < 0) whole = n;
    ASSERT_EQ(head.ok(), whole >= 0) << n;
    if (!head.ok()) {
      ASSERT_EQ(head.status().code(), absl::StatusCode::kOutOfRange) << head.status();
    } else {
      ASSERT_EQ(head->head_bytes, head_bytes);
      ASSERT_EQ(head->tensors.size(), 4);
    }
  }
  EXPECT_LE(whole, head_bytes);
  EXPECT_GT(whole, head_bytes - 32);
}

TEST(GgufTest, EveryTruncationIsRefused) {
  const std::string file = SmallFile();
  const FileTensor last = ReadAll(file)->tensors.back();
  for (int64_t n = 0; n < last.offset + last.bytes; ++n) {
    const auto head = ReadAll(file.substr(0, n));
    ASSERT_EQ(head.status().code(), absl::StatusCode::kInvalidArgument) << n << head.status();
  }
}

// A changed file is refused, or its tensors still lie inside it and apart.
TEST(GgufTest, EveryByteChanged) {
  const std::string file = SmallFile();
  int read = 0;
  for (size_t at = 0; at < file.size(); ++at) {
    for (const uint8_t change : {0x01, 0x80, 0xff}) {
      std::string changed = file;
      changed[at] = static_cast<char>(static_cast<uint8_t>(changed[at]) ^ change);
      const auto head = ReadAll(changed);
      if (!head.ok()) {
        EXPECT_FALSE(head.status().message().empty());
        EXPECT_NE(head.status().code(), absl::StatusCode::kOutOfRange) << head.status();
        EXPECT_NE(head.status().code(), absl::StatusCode::kInternal) << head.status();
        continue;
      }
      ++read;
      for (const FileTensor& tensor : head->tensors) {
        EXPECT_LE(tensor.offset + tensor.bytes, static_cast<int64_t>(file.size()));
        EXPECT_EQ(BytesOfShape(tensor.stored, tensor.shape).value(), tensor.bytes);
      }
    }
  }
  EXPECT_GT(read, 500);
}

TEST(GgufTest, WrongStartsAreRefused) {
  EXPECT_EQ(ErrorOf("GGML" + std::string(20, '\0')),
            "INVALID_ARGUMENT: the file does not begin with \"GGUF\"");
  EXPECT_NE(ErrorOf("").find("INVALID_ARGUMENT: the file ends inside its head"), std::string::npos);
  GgufWriter w;
  w.version = 1;
  EXPECT_EQ(ErrorOf(w.File()), "UNIMPLEMENTED: the file has GGUF version 1; 2 and 3 are supported");
  w.version = 4;
  EXPECT_EQ(ErrorOf(w.File()), "UNIMPLEMENTED: the file has GGUF version 4; 2 and 3 are supported");
  w.version = 3 << 24;
  EXPECT_EQ(ErrorOf(w.File()),
            "UNIMPLEMENTED: the file is big endian; only little endian files are supported");
  EXPECT_EQ(ReadGguf("GGUF", 0, 3).status().ToString(),
            "INVALID_ARGUMENT: the file is said to have 3 bytes, but 4 are there");
  EXPECT_FALSE(ReadGguf("", 0, INT64_MIN).ok());
}

TEST(GgufTest, LyingCountsAreRefusedBeforeTheyAreUsed) {
  for (const uint64_t count : {uint64_t{9}, uint64_t{1} << 31, uint64_t{1} << 63, UINT64_MAX}) {
    GgufWriter w = Two();
    w.tensor_count = count;
    EXPECT_NE(ErrorOf(w.Head()).find("INVALID_ARGUMENT"), std::string::npos) << count;
    w = Two();
    w.key_count = count;
    EXPECT_NE(ErrorOf(w.Head()).find("INVALID_ARGUMENT"), std::string::npos) << count;
  }
  for (const uint64_t count : {uint64_t{1} << 40, uint64_t{1} << 63, UINT64_MAX}) {
    for (const uint32_t type : {kUint32, kString, kUint64}) {
      GgufWriter w;
      w.RawKey("k", kArray, GgufWriter::Bytes(type) + GgufWriter::Bytes(count));
      EXPECT_NE(ErrorOf(w.File()).find("elements of an array"), std::string::npos);
      // A file that is said to be large may hold them, but no memory is taken for them.
      EXPECT_FALSE(ReadGguf(w.File(), 0, INT64_MAX).ok());
    }
    GgufWriter w;
    w.RawKey("k", kString, GgufWriter::Bytes(count) + "text");
    EXPECT_NE(ErrorOf(w.File()).find("INVALID_ARGUMENT: key \"k\": the file ends inside"),
              std::string::npos);
  }
}

TEST(GgufTest, LimitsAreKept) {
  GgufWriter w = Two();
  EXPECT_EQ(ErrorOf(w.File(), {.max_tensors = 1}),
            "RESOURCE_EXHAUSTED: the file states 2 tensors; at most 1 are supported");
  EXPECT_EQ(ErrorOf(w.File(), {.max_keys = 0}),
            "RESOURCE_EXHAUSTED: the file states 1 keys; at most 0 are supported");
  const auto head_bytes = static_cast<int64_t>(w.Head().size());
  EXPECT_EQ(ErrorOf(w.File(), {.max_head_bytes = head_bytes}), "OK");
  EXPECT_EQ(
      ErrorOf(w.File(), {.max_head_bytes = head_bytes - 1}),
      "RESOURCE_EXHAUSTED: the head has more than " + std::to_string(head_bytes - 1) + " bytes");
  w.Key("one", std::vector<std::string>{"a", "b"});
  w.Key("two", std::vector<std::string>{"c", "d"});
  EXPECT_EQ(ErrorOf(w.File(), {.max_elements = 4}), "OK");
  EXPECT_EQ(
      ErrorOf(w.File(), {.max_elements = 3}),
      "RESOURCE_EXHAUSTED: key \"two\": the file states 2 elements of an array; at most 1 are "
      "supported");
}

TEST(GgufTest, WrongKeysAreRefused) {
  const auto error = [](std::string_view key, uint32_t type, std::string_view bytes) {
    GgufWriter w;
    w.RawKey(key, type, bytes);
    return ErrorOf(w.File());
  };
  EXPECT_EQ(error("k", kUint64, GgufWriter::Bytes(uint64_t{1} << 63)),
            "INVALID_ARGUMENT: key \"k\": its value 9223372036854775808 is beyond int64");
  EXPECT_EQ(error("k", kArray,
                  GgufWriter::Bytes(kUint64) + GgufWriter::Bytes(uint64_t{1}) +
                      GgufWriter::Bytes(UINT64_MAX)),
            "INVALID_ARGUMENT: key \"k\": its value 18446744073709551615 is beyond int64");
  EXPECT_EQ(error("k", 13, "12345678"),
            "UNIMPLEMENTED: key \"k\": a value has type 13; types 0 to 12 are supported");
  EXPECT_EQ(error("k", kArray, GgufWriter::Bytes(kArray) + GgufWriter::Bytes(uint64_t{0})),
            "UNIMPLEMENTED: key \"k\": it is an array of arrays, which is not supported");
  EXPECT_EQ(error("k", 7, "\2"),
            "INVALID_ARGUMENT: key \"k\": a bool has the byte 2; only 0 and 1 are bools");
  EXPECT_EQ(error("", kUint32, "1234"),
            "INVALID_ARGUMENT: key \"\" is not 1 to 65535 bytes of UTF-8");
  EXPECT_NE(error("\xff", kUint32, "1234").find("bytes of UTF-8"), std::string::npos);
  GgufWriter w = Two();
  w.Key("general.architecture", "llama");
  EXPECT_EQ(ErrorOf(w.File()), "INVALID_ARGUMENT: key \"general.architecture\" is there twice");
  for (const uint32_t alignment : {0u, 3u, 1u << 21}) {
    w = GgufWriter();
    w.Key("general.alignment", alignment);
    EXPECT_EQ(ErrorOf(w.File()),
              "INVALID_ARGUMENT: key \"general.alignment\" must be a power of 2 up to 1048576");
  }
}

TEST(GgufTest, WrongTensorsAreRefused) {
  const auto error = [](absl::Span<const int64_t> shape, uint32_t type, uint64_t offset) {
    GgufWriter w = Two();
    w.RawTensor("c", shape, type, offset);
    return ErrorOf(w.File());
  };
  const std::string prefix = "INVALID_ARGUMENT: tensor \"c\": ";
  EXPECT_EQ(error({1, 1, 1, 1, 1}, kF32, 0), prefix + "it has 5 axes; a file has at most 4");
  EXPECT_EQ(error({2, 48}, kQ4_1, 0),
            prefix + "its last axis has size 48; Q4_1 needs a multiple of 32");
  EXPECT_EQ(error({-1, 32}, kQ4_1, 0), prefix + "its axis 0 has size -1");
  EXPECT_EQ(error({1}, kF32, 4),
            prefix + "its offset 4 is not a multiple of 32, the file's alignment");
  const std::string large =
      prefix + "its axes are too large: their product leaves the range of int64";
  EXPECT_EQ(error({INT64_MAX}, kF32, 0), large);
  EXPECT_EQ(error({1 << 20, 1 << 20, 1 << 20, 32}, kF32, 0), large);
  EXPECT_EQ(error({int64_t{1} << 40, 0, int64_t{1} << 40}, kF32, 0), large);
  EXPECT_EQ(error({1}, 10, 0), "UNIMPLEMENTED: tensor \"c\": its type Q2_K is not supported");
  EXPECT_EQ(error({1}, 999, 0),
            "UNIMPLEMENTED: tensor \"c\": its type number 999 is not supported");
  EXPECT_EQ(
      error({1}, kF32, 0),
      "INVALID_ARGUMENT: tensors \"a\" and \"c\" overlap: the first has 16 bytes at offset 0, "
      "the second begins at 0");
  EXPECT_EQ(
      error({1}, kF32, 64),
      "INVALID_ARGUMENT: tensors \"b\" and \"c\" overlap: the first has 40 bytes at offset 32, "
      "the second begins at 64");
  EXPECT_EQ(error({1}, kF32, 96),
            "INVALID_ARGUMENT: tensor \"c\" has 4 bytes at offset 96, but the "
            "file ends 72 bytes behind its head");
  EXPECT_EQ(error({0}, kF32, 64), "OK");
  EXPECT_NE(error({1}, kF32, uint64_t{1} << 63).find("is not a multiple"), std::string::npos);
  EXPECT_NE(error({1}, kF32, INT64_MAX - 31).find("but the file ends"), std::string::npos);
  GgufWriter w = Two();
  w.RawTensor("a", {0}, kF32, 0);
  EXPECT_EQ(ErrorOf(w.File()), "INVALID_ARGUMENT: tensor \"a\" is there twice");
  for (const std::string& name : {std::string(), std::string("\xff"), std::string(1025, 'n')}) {
    w = Two();
    w.RawTensor(name, {0}, kF32, 0);
    EXPECT_NE(ErrorOf(w.File()).find("INVALID_ARGUMENT"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace athanor::checkpoint
