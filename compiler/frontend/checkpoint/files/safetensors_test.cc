#include "compiler/frontend/checkpoint/files/safetensors.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace athanor::checkpoint {
namespace {

std::string FileOf(std::string_view head, int64_t data) {
  const uint64_t size = head.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + std::string(head) +
         std::string(data, 'x');
}

constexpr std::string_view kHead =
    R"({"__metadata__": {"format": "pt", "a": ""}, )"
    R"("w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [8, 32]}, )"
    R"("h": {"data_offsets": [0, 6], "shape": [3], "dtype": "F16"}, )"
    R"("b": {"dtype": "BF16", "shape": [], "data_offsets": [6, 8]}, )"
    R"("e": {"dtype": "F16", "shape": [0, 7], "data_offsets": [32, 32]}}   )";

absl::StatusOr<std::vector<FileTensor>> ReadAll(const std::string& file,
                                                const SafetensorsLimits& limits = {}) {
  return ReadSafetensors(file, 0, static_cast<int64_t>(file.size()), limits);
}

// Returns the error of a file with this head and this many bytes behind it.
std::string ErrorOf(std::string_view head, int64_t data = 0, const SafetensorsLimits& limits = {}) {
  const auto tensors = ReadAll(FileOf(head, data), limits);
  return tensors.ok() ? "OK" : tensors.status().ToString();
}

// Same, for one tensor "t".
std::string TensorError(std::string_view fields, int64_t data = 4) {
  return ErrorOf(std::string("{\"t\": ") + std::string(fields) + "}", data);
}

TEST(SafetensorsTest, ReadsTensors) {
  const std::string file = FileOf(kHead, 32);
  const auto tensors = ReadSafetensors(file, 3, static_cast<int64_t>(file.size()));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 4);
  const auto begin = static_cast<int64_t>(8 + kHead.size());
  const std::vector<FileTensor> expected = {{"w", Stored::kF32, {2, 3}, 3, begin + 8, 24},
                                            {"h", Stored::kF16, {3}, 3, begin, 6},
                                            {"b", Stored::kBF16, {}, 3, begin + 6, 2},
                                            {"e", Stored::kF16, {0, 7}, 3, begin + 32, 0}};
  for (size_t i = 0; i < expected.size(); ++i) {
    const FileTensor &a = tensors->at(i), &b = expected[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.stored, b.stored);
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_EQ(a.file, b.file);
    EXPECT_EQ(a.offset, b.offset);
    EXPECT_EQ(a.bytes, b.bytes);
  }
}

TEST(SafetensorsTest, NoTensors) {
  EXPECT_EQ(ErrorOf("{}"), "OK");
  EXPECT_EQ(ErrorOf("{\"__metadata__\": {}}"), "OK");
}

TEST(SafetensorsTest, EveryPrefix) {
  const std::string file = FileOf(kHead, 32);
  const auto size = static_cast<int64_t>(file.size());
  for (int64_t n = 0; n <= size; ++n) {
    const auto tensors = ReadSafetensors(std::string_view(file).substr(0, n), 0, size);
    const bool whole = n >= static_cast<int64_t>(8 + kHead.size());
    ASSERT_EQ(tensors.ok(), whole) << n;
    if (!whole) ASSERT_EQ(tensors.status().code(), absl::StatusCode::kOutOfRange);
  }
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string file = FileOf(kHead, 32);
  for (size_t n = 0; n < file.size(); ++n) {
    ASSERT_EQ(ReadAll(file.substr(0, n)).status().code(), absl::StatusCode::kInvalidArgument) << n;
  }
}

TEST(SafetensorsTest, EveryByteChanged) {
  const std::string file = FileOf(kHead, 32);
  int read = 0;
  for (size_t at = 0; at < file.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = file;
      changed[at] = static_cast<char>(byte);
      const auto tensors = ReadAll(changed);
      if (!tensors.ok()) {
        EXPECT_TRUE(tensors.status().code() == absl::StatusCode::kInvalidArgument ||
                    tensors.status().code() == absl::StatusCode::kUnimplemented)
            << tensors.status();
        continue;
      }
      ++read;
      for (const FileTensor& tensor : *tensors) {
        EXPECT_LE(tensor.offset + tensor.bytes, static_cast<int64_t>(file.size()));
        EXPECT_EQ(BytesOfShape(tensor.stored, tensor.shape).value(), tensor.bytes);
      }
    }
  }
  EXPECT_GT(read, 32 * 256);
}

TEST(SafetensorsTest, WrongSizesAreRefused) {
  const auto error = [](uint64_t size) {
    std::string file = FileOf("{}", 0);
    file.replace(0, 8, reinterpret_cast<const char*>(&size), 8);
    return ReadAll(file).status().ToString();
  };
  EXPECT_EQ(error(3), "INVALID_ARGUMENT: the file states a head of 3 bytes, but has only 10");
  EXPECT_EQ(
      error(uint64_t{1} << 63),
      "INVALID_ARGUMENT: the file states a head of 9223372036854775808 bytes, but has only 10");
  EXPECT_EQ(error(0), "INVALID_ARGUMENT: the head does not begin with \"{\"");
  EXPECT_EQ(ReadAll("1234567").status().ToString(),
            "INVALID_ARGUMENT: the file has 7 bytes, fewer than the 8 of its head's size");
  EXPECT_EQ(ReadSafetensors("12345678", 0, 7).status().ToString(),
            "INVALID_ARGUMENT: the file is said to have 7 bytes, but 8 are there");
  EXPECT_EQ(ErrorOf("{}", 0, {.max_head_bytes = 1}),
            "RESOURCE_EXHAUSTED: the file states a head of 2 bytes; at most 1 are supported");
}

TEST(SafetensorsTest, WrongJsonIsRefused) {
  EXPECT_EQ(ErrorOf(" {}"), "INVALID_ARGUMENT: the head does not begin with \"{\"");
  EXPECT_EQ(ErrorOf("{} {}"), "INVALID_ARGUMENT: the head is no JSON: it goes wrong at byte 4");
  EXPECT_EQ(ErrorOf("{\"\xff\": {}}"),
            "INVALID_ARGUMENT: the head is no JSON: it goes wrong at byte 3");
  EXPECT_EQ(ErrorOf("{\"t\": 1}"),
            "INVALID_ARGUMENT: tensor \"t\": a number is there instead of an object");
  EXPECT_EQ(ErrorOf("{\"t\": []}"),
            "INVALID_ARGUMENT: tensor \"t\": an array is there instead of an object");
  EXPECT_EQ(ErrorOf("{\"__metadata__\": {\"a\": 1}}"),
            "INVALID_ARGUMENT: __metadata__, \"a\": a number is there instead of a text");
  EXPECT_EQ(ErrorOf("{\"__metadata__\": {\"a\": \"\", \"a\": \"\"}}"),
            "INVALID_ARGUMENT: __metadata__, \"a\" is there twice");
  EXPECT_EQ(ErrorOf("{\"__metadata__\": {}, \"__metadata__\": {}}"),
            "INVALID_ARGUMENT: __metadata__ is there twice");
}

// Neither depth nor length of what is not a head reaches the stack or the memory.
TEST(SafetensorsTest, DeepAndLongJsonIsRefused) {
  const std::string many(8 << 20, '[');
  EXPECT_EQ(
      ErrorOf("{\"t\": {\"shape\": " + many),
      "INVALID_ARGUMENT: tensor \"t\", \"shape\": an array is there instead of a whole number");
  std::string objects = "{\"t\":";
  for (int i = 0; i < 1 << 20; ++i) objects += "{\"t\":";
  EXPECT_NE(ErrorOf(objects).find("INVALID_ARGUMENT: tensor \"t\", \"t\" is not known"),
            std::string::npos);
  std::string ones = "{\"t\": {\"shape\": [1";
  for (int i = 0; i < 1 << 20; ++i) ones += ",1";
  EXPECT_EQ(ErrorOf(ones),
            "INVALID_ARGUMENT: tensor \"t\", \"shape\": it has more than 16 numbers");
}

TEST(SafetensorsTest, WrongTensorsAreRefused) {
  EXPECT_EQ(TensorError(R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})"), "OK");
  EXPECT_EQ(TensorError(R"({"dtype": "I32", "shape": [1], "data_offsets": [0, 4]})", 4),
            "UNIMPLEMENTED: tensor \"t\": its dtype \"I32\" is not supported; F32, F16, BF16 and "
            "I64 are");
  EXPECT_EQ(TensorError(R"({"dtype": "Q4_0", "shape": [32], "data_offsets": [0, 18]})", 18),
            "UNIMPLEMENTED: tensor \"t\": its dtype \"Q4_0\" is not supported; F32, F16, BF16 and "
            "I64 are");
  EXPECT_EQ(TensorError(R"({"dtype": "F32", "shape": [1]})"),
            "INVALID_ARGUMENT: tensor \"t\": dtype, shape or data_offsets is missing");
  EXPECT_EQ(TensorError(R"({"dtype": "F32", "dtype": "F16"})"),
            "INVALID_ARGUMENT: tensor \"t\", \"dtype\" is there twice");
  EXPECT_EQ(TensorError(R"({"extra": 1})"),
            "INVALID_ARGUMENT: tensor \"t\", \"extra\" is not known; a tensor has dtype, shape and "
            "data_offsets");
  EXPECT_EQ(TensorError(R"({"dtype": ["F32"]})"),
            "INVALID_ARGUMENT: tensor \"t\", \"dtype\": an array is there instead of a text");
  EXPECT_EQ(
      TensorError(R"({"shape": "1"})"),
      "INVALID_ARGUMENT: tensor \"t\", \"shape\": a text is there instead of an array of whole "
      "numbers");
  const std::string shape = "INVALID_ARGUMENT: tensor \"t\", \"shape\": ";
  EXPECT_EQ(TensorError(R"({"shape": [-1]})"),
            shape + "a negative number is there instead of a whole number");
  EXPECT_EQ(TensorError(R"({"shape": [1e0]})"),
            shape + "a number that is not whole is there instead of a whole number");
  EXPECT_EQ(TensorError(R"({"shape": [null]})"), shape + "null is there instead of a whole number");
  EXPECT_EQ(TensorError(R"({"shape": [true]})"),
            shape + "a bool is there instead of a whole number");
  EXPECT_EQ(TensorError(R"({"shape": [9223372036854775808]})"),
            shape + "9223372036854775808 is beyond int64");
  EXPECT_EQ(
      TensorError(R"({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]})"),
      "INVALID_ARGUMENT: tensor \"t\": dtype and shape take 8 bytes, but data_offsets hold 4");
  EXPECT_EQ(
      TensorError(R"({"dtype": "F32", "shape": [0], "data_offsets": [4, 0]})"),
      "INVALID_ARGUMENT: tensor \"t\": data_offsets must be two numbers, the second not below "
      "the first");
  EXPECT_EQ(
      TensorError(R"({"dtype": "F32", "shape": [0], "data_offsets": [0]})"),
      "INVALID_ARGUMENT: tensor \"t\": data_offsets must be two numbers, the second not below "
      "the first");
  EXPECT_EQ(
      TensorError(R"({"dtype": "F32", "shape": [4611686018427387904], "data_offsets": [0, 0]})"),
      "INVALID_ARGUMENT: tensor \"t\": its axes are too large: their product leaves the range of "
      "int64");
  EXPECT_EQ(TensorError(R"({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]})"),
            "INVALID_ARGUMENT: tensor \"t\" has 4 bytes at offset 4, but the file ends 4 bytes "
            "behind its head");
}

TEST(SafetensorsTest, OverlapsHolesAndRepeatsAreRefused) {
  const auto two = [](std::string_view name, int64_t begin, int64_t data) {
    const std::string offsets = std::to_string(begin) + ", " + std::to_string(begin + 4);
    return ErrorOf(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, ")" +
                       std::string(name) +
                       R"(": {"dtype": "F32", "shape": [1], "data_offsets": [)" + offsets + "]}}",
                   data);
  };
  EXPECT_EQ(two("b", 4, 8), "OK");
  EXPECT_EQ(two("a", 4, 8), "INVALID_ARGUMENT: tensor \"a\" is there twice");
  EXPECT_EQ(two("", 4, 8), "INVALID_ARGUMENT: a tensor has no name");
  EXPECT_EQ(
      two("b", 3, 8),
      "INVALID_ARGUMENT: tensors \"a\" and \"b\" overlap: the first has 4 bytes at offset 0, the "
      "second begins at 3");
  EXPECT_EQ(two("b", 5, 9),
            "INVALID_ARGUMENT: tensors take 8 of the 9 bytes behind the head; others must not be "
            "there");
  EXPECT_EQ(two("b", 4, 9),
            "INVALID_ARGUMENT: tensors take 8 of the 9 bytes behind the head; others must not be "
            "there");
  EXPECT_EQ(ErrorOf(kHead, 32, {.max_tensors = 4}), "OK");
  EXPECT_EQ(ErrorOf(kHead, 32, {.max_tensors = 3}),
            "RESOURCE_EXHAUSTED: the file has more than 3 tensors");
}

}  // namespace
}  // namespace athanor::checkpoint
