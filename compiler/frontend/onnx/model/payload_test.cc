#include "compiler/frontend/onnx/model/payload.h"

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

using ::onnx::TensorProto;

// Files in memory.
class Files : public PayloadReader {
 public:
  explicit Files(std::vector<std::string> contents) : contents_(std::move(contents)) {}
  absl::StatusOr<std::string_view> Bytes(const PayloadRef& ref) const override {
    return std::string_view(contents_[ref.file]).substr(ref.offset, ref.bytes);
  }
  FileTable table() const {
    FileTable table;
    for (size_t i = 0; i < contents_.size(); ++i) {
      table.files.push_back({i == 0 ? "" : "w" + std::to_string(i) + ".bin",
                             static_cast<int64_t>(contents_[i].size())});
    }
    return table;
  }

 private:
  std::vector<std::string> contents_;
};

TensorProto Proto(TensorProto::DataType type, std::vector<int64_t> shape) {
  TensorProto proto;
  proto.set_name("t");
  proto.set_data_type(type);
  for (const int64_t size : shape) proto.add_dims(size);
  return proto;
}

TensorProto Raw(TensorProto::DataType type, std::vector<int64_t> shape, std::string raw) {
  TensorProto proto = Proto(type, std::move(shape));
  proto.set_raw_data(std::move(raw));
  return proto;
}

TensorProto External(std::vector<int64_t> shape, std::map<std::string, std::string> entries) {
  TensorProto proto = Proto(TensorProto::INT16, std::move(shape));
  proto.set_data_location(TensorProto::EXTERNAL);
  for (const auto& [key, value] : entries) {
    auto* entry = proto.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
  return proto;
}

std::string ErrorOf(const TensorProto& proto, const Files& files = Files({""}),
                    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::StatusOr<StoredTensor> tensor = DescribeTensor(proto, {}, files.table());
  if (tensor.ok()) return "no error";
  EXPECT_EQ(tensor.status().code(), code) << tensor.status();
  return std::string(tensor.status().message());
}

// Returns the tensor's contents, by ReadTensor and by pieces of several sizes.
absl::StatusOr<Tensor> Read(const TensorProto& proto, const Files& files = Files({""})) {
  absl::StatusOr<StoredTensor> stored = DescribeTensor(proto, {}, files.table());
  if (!stored.ok()) return stored.status();
  absl::StatusOr<Tensor> whole = ReadTensor(*stored, files);
  if (!whole.ok()) return whole;
  for (const int64_t piece : {8, 24, 1 << 20}) {
    std::string bytes;
    const absl::Status s = ForEachPiece(*stored, files, piece, [&](std::string_view part) {
      EXPECT_LE(static_cast<int64_t>(part.size()), piece);
      bytes += part;
      return absl::OkStatus();
    });
    if (!s.ok()) return s;
    EXPECT_EQ(static_cast<int64_t>(bytes.size()), stored->stored_bytes());
    if (stored->form != PayloadForm::kPacked) {
      EXPECT_EQ(bytes, whole->bytes);
    }
  }
  return whole;
}

// Moves the payload out of the proto into file 0, as LiftPayloads does.
absl::StatusOr<Tensor> ReadLifted(TensorProto proto) {
  ::onnx::ModelProto model;
  *model.mutable_graph()->add_initializer() = std::move(proto);
  const std::string file = model.SerializeAsString();
  const Lifted lifted = LiftPayloads(file, {.inline_bytes = 0}).value();
  EXPECT_TRUE(model.ParseFromString(lifted.message));
  const Files files({file});
  absl::StatusOr<StoredTensor> stored =
      DescribeTensor(model.graph().initializer(0), lifted.payloads, files.table());
  if (!stored.ok()) return stored.status();
  EXPECT_TRUE(stored->payload.has_value() || stored->elements == 0);
  std::string pieces;
  const absl::Status s = ForEachPiece(*stored, files, 8, [&](std::string_view part) {
    pieces += part;
    return absl::OkStatus();
  });
  if (!s.ok()) return s;
  EXPECT_EQ(static_cast<int64_t>(pieces.size()), stored->stored_bytes());
  return ReadTensor(*stored, files);
}

template <typename T>
std::string BytesOf(std::vector<T> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

TEST(PayloadTest, RawDataOfEveryType) {
  for (const ElemRow& row : kElems) {
    if (row.carry == Carry::kNone) continue;
    for (const int64_t elements : {0, 1, 2, 3, 4, 5, 7, 8, 9, 17}) {
      const int64_t bytes = (elements * row.bits + 7) / 8;
      std::string raw(bytes, 0);
      for (int64_t i = 0; i < bytes; ++i)
        raw[i] = static_cast<char>(row.elem == Elem::kBool ? i % 2 : 37 * i);
      const TensorProto proto =
          Raw(static_cast<TensorProto::DataType>(row.number), {elements}, raw);
      const absl::StatusOr<Tensor> read = Read(proto);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(read->dtype, row.carrier);
      EXPECT_EQ(read->shape, std::vector<int64_t>{elements});
      if (row.bits >= 8) {
        EXPECT_EQ(read->bytes, raw);
      }
      if (elements > 0) {
        EXPECT_EQ(*ReadLifted(proto), *read) << row.name;
      }
      // A byte too many, a byte too few.
      TensorProto longer = proto;
      longer.mutable_raw_data()->push_back(0);
      EXPECT_NE(ErrorOf(longer).find("bytes; "), std::string::npos) << row.name << elements;
      if (bytes == 0) continue;
      TensorProto shorter = proto;
      shorter.mutable_raw_data()->pop_back();
      EXPECT_NE(ErrorOf(shorter).find("bytes; "), std::string::npos) << row.name;
    }
  }
}

TEST(PayloadTest, PackedElementsCountFromTheLowestBits) {
  EXPECT_EQ(Read(Raw(TensorProto::INT4, {3}, "\x7f\x08"))->bytes, BytesOf<int8_t>({-1, 7, -8}));
  EXPECT_EQ(Read(Raw(TensorProto::UINT4, {3}, "\x7f\x08"))->bytes, BytesOf<uint8_t>({15, 7, 8}));
  EXPECT_EQ(Read(Raw(TensorProto::INT2, {5}, "\xe4\x01"))->bytes,
            BytesOf<int8_t>({0, 1, -2, -1, 1}));
  EXPECT_EQ(Read(Raw(TensorProto::UINT2, {4}, "\xe4"))->bytes, BytesOf<uint8_t>({0, 1, 2, 3}));
  EXPECT_EQ(Read(Raw(TensorProto::FLOAT4E2M1, {2}, "\xf1"))->bytes, BytesOf<uint8_t>({1, 15}));
  // onnx.proto: byte0 = x0 | (x1 & 3) << 6; byte1 = x1 >> 2 | (x2 & 15) << 4; byte2 = x2 >> 4 | x3
  // << 2. The values are 33, 22, 11, 63, and 5 alone in the last byte.
  const std::string six = {static_cast<char>(33 | (22 & 3) << 6),
                           static_cast<char>(22 >> 2 | (11 & 15) << 4),
                           static_cast<char>(11 >> 4 | 63 << 2), 5};
  EXPECT_EQ(Read(Raw(TensorProto::FLOAT6E2M3, {5}, six))->bytes,
            BytesOf<uint8_t>({33, 22, 11, 63, 5}));
}

TEST(PayloadTest, PackedPayloadsStayPacked) {
  TensorProto proto = Raw(TensorProto::INT4, {2, 3}, "\x21\x43\x65");
  const Files files({"\x21\x43\x65"});
  proto.clear_raw_data();
  auto* entry = proto.add_external_data();
  entry->set_key(std::string(kPayloadKey));
  entry->set_value("0");
  const std::vector<PayloadRef> lifted = {{0, 0, 3, 9}};
  const StoredTensor stored = DescribeTensor(proto, lifted, files.table()).value();
  EXPECT_EQ(stored.form, PayloadForm::kPacked);
  EXPECT_EQ(stored.stored_bytes(), 3);
  EXPECT_EQ(ReadTensor(stored, files)->bytes, BytesOf<int8_t>({1, 2, 3, 4, 5, 6}));
}

TEST(PayloadTest, TypedData) {
  TensorProto f32 = Proto(TensorProto::FLOAT, {2});
  f32.add_float_data(1.5f), f32.add_float_data(-0.0f);
  TensorProto f64 = Proto(TensorProto::DOUBLE, {1});
  f64.add_double_data(1 + 0x1p-52);
  TensorProto i64 = Proto(TensorProto::INT64, {3});
  i64.add_int64_data(-1), i64.add_int64_data(INT64_MIN), i64.add_int64_data(int64_t{1} << 40);
  TensorProto u32 = Proto(TensorProto::UINT32, {2});
  u32.add_uint64_data(UINT32_MAX), u32.add_uint64_data(0);
  TensorProto i8 = Proto(TensorProto::INT8, {3});
  i8.add_int32_data(-128), i8.add_int32_data(127), i8.add_int32_data(-1);
  TensorProto f16 = Proto(TensorProto::FLOAT16, {2});
  f16.add_int32_data(0x3c00), f16.add_int32_data(0xfc00);
  TensorProto u16 = Proto(TensorProto::UINT16, {1});
  u16.add_int32_data(65535);
  TensorProto boolean = Proto(TensorProto::BOOL, {2});
  boolean.add_int32_data(1), boolean.add_int32_data(0);
  TensorProto i4 = Proto(TensorProto::INT4, {3});
  i4.add_int32_data(0x7f), i4.add_int32_data(0x08);
  TensorProto f6 = Proto(TensorProto::FLOAT6E3M2, {3});
  f6.add_int32_data(63), f6.add_int32_data(0), f6.add_int32_data(33);
  const std::vector<std::pair<TensorProto, std::string>> cases = {
      {f32, BytesOf<float>({1.5f, -0.0f})},
      {f64, BytesOf<double>({1 + 0x1p-52})},
      {i64, BytesOf<int64_t>({-1, INT64_MIN, int64_t{1} << 40})},
      {u32, BytesOf<uint32_t>({UINT32_MAX, 0})},
      {i8, BytesOf<int8_t>({-128, 127, -1})},
      {f16, BytesOf<uint16_t>({0x3c00, 0xfc00})},
      {u16, BytesOf<uint16_t>({65535})},
      {boolean, BytesOf<uint8_t>({1, 0})},
      {i4, BytesOf<int8_t>({-1, 7, -8})},
      {f6, BytesOf<uint8_t>({63, 0, 33})}};
  for (const auto& [proto, bytes] : cases) {
    EXPECT_EQ(Read(proto)->bytes, bytes) << proto.ShortDebugString();
    EXPECT_EQ(ReadLifted(proto)->bytes, bytes) << proto.ShortDebugString();
  }
}

TEST(PayloadTest, ValuesThatAreNotOfTheTypeAreRefused) {
  const auto with = [](TensorProto::DataType type, int32_t value) {
    TensorProto proto = Proto(type, {1});
    proto.add_int32_data(value);
    return proto;
  };
  EXPECT_EQ(ErrorOf(with(TensorProto::INT8, 128)),
            "tensor \"t\": value 0 of its int32_data is not a value of type int8");
  for (const TensorProto& proto :
       {with(TensorProto::INT8, -129), with(TensorProto::UINT8, -1), with(TensorProto::UINT8, 256),
        with(TensorProto::FLOAT16, 65536), with(TensorProto::FLOAT16, -1),
        with(TensorProto::BOOL, 2), with(TensorProto::UINT4, 256),
        with(TensorProto::FLOAT6E2M3, 64)}) {
    EXPECT_NE(ErrorOf(proto).find("value 0 of its int32_data is not a value of type"),
              std::string::npos);
    EXPECT_NE(std::string(ReadLifted(proto).status().message()).find("value 0 of its int32_data"),
              std::string::npos);
  }
  const TensorProto bools = Raw(TensorProto::BOOL, {2}, "\x01\x02");
  EXPECT_EQ(ErrorOf(bools), "tensor \"t\": a bool has the value 2; bools are 0 or 1");
  EXPECT_EQ(ReadLifted(bools).status().message(),
            "tensor \"t\": a bool has the value 2; bools are 0 or 1");
}

TEST(PayloadTest, LiftedVarintsAreCounted) {
  TensorProto proto = Proto(TensorProto::INT64, {3});
  for (const int64_t value : {1, 300, -1, 5}) proto.add_int64_data(value);
  EXPECT_EQ(ReadLifted(proto).status().message(),
            "tensor \"t\": its int64_data has more than the 3 values of its shape");
  proto.clear_dims();
  proto.add_dims(6);
  EXPECT_EQ(ReadLifted(proto).status().message(),
            "tensor \"t\": its int64_data has 4 values that can be read; 6 are needed");
  proto.clear_dims();
  proto.add_dims(100);
  EXPECT_EQ(ReadLifted(proto).status().message(),
            "tensor \"t\": its int64_data has 14 bytes, which are not 100 values");
}

TEST(PayloadTest, WrongTensorsAreRefusedByName) {
  EXPECT_EQ(ErrorOf(Raw(TensorProto::FLOAT, {2, 3}, "abc")),
            "tensor \"t\": its data (raw_data) has 3 bytes; float [2, 3] has 24");
  EXPECT_EQ(ErrorOf(Proto(TensorProto::FLOAT, {2})), "tensor \"t\": it has 2 elements and no data");
  EXPECT_EQ(ErrorOf(Raw(TensorProto::UNDEFINED, {1}, "a")),
            "tensor \"t\": its data_type is 0, which is not an element type");
  EXPECT_EQ(ErrorOf(Raw(TensorProto::FLOAT, {-1}, "")),
            "tensor \"t\": axis 0 has the negative size -1");
  EXPECT_EQ(ErrorOf(Raw(TensorProto::FLOAT, {1 << 30, 1 << 30, 1 << 30}, "")),
            "tensor \"t\": its shape has more elements than can be counted");
  TensorProto both = Raw(TensorProto::FLOAT, {1}, "abcd");
  both.add_float_data(1);
  EXPECT_EQ(ErrorOf(both), "tensor \"t\": its data is in several places: raw_data and float_data");
  TensorProto wrong = Proto(TensorProto::FLOAT, {1});
  wrong.add_int64_data(1);
  EXPECT_EQ(ErrorOf(wrong),
            "tensor \"t\": elements of type float cannot be in int64_data; they are "
            "in float_data or raw_data");
  TensorProto few = Proto(TensorProto::FLOAT, {2});
  few.add_float_data(1);
  EXPECT_EQ(ErrorOf(few), "tensor \"t\": its data (float_data) has 1 values; float [2] has 2");
  EXPECT_EQ(ErrorOf(Proto(TensorProto::STRING, {1}), Files({""}), absl::StatusCode::kUnimplemented),
            "tensor \"t\": elements of type string are not supported");
  TensorProto segment = Raw(TensorProto::FLOAT, {1}, "abcd");
  segment.mutable_segment()->set_begin(0);
  EXPECT_EQ(ErrorOf(segment, Files({""}), absl::StatusCode::kUnimplemented),
            "tensor \"t\": segments of tensors are not read");
}

TEST(PayloadTest, EmptyTensorsNeedNoData) {
  EXPECT_EQ(Read(Proto(TensorProto::FLOAT, {0}))->bytes, "");
  EXPECT_EQ(Read(Raw(TensorProto::FLOAT, {3, 0}, ""))->bytes, "");
  // The other axes may be of any size whose product can be computed.
  EXPECT_EQ(Read(Proto(TensorProto::FLOAT, {int64_t{1} << 40, 0}))->bytes, "");
  EXPECT_EQ(ErrorOf(Proto(TensorProto::FLOAT, {int64_t{1} << 40, int64_t{1} << 40, 0})),
            "tensor \"t\": its shape has more elements than can be counted");
  EXPECT_EQ(Read(Raw(TensorProto::INT16, {}, "ab"))->bytes, "ab");
}

TEST(PayloadTest, ExternalData) {
  const Files files({"model", "abcdefgh", "xy"});
  EXPECT_EQ(Read(External({4}, {{"location", "w1.bin"}}), files)->bytes, "abcdefgh");
  EXPECT_EQ(Read(External({1}, {{"location", "w2.bin"}, {"checksum", "f00"}}), files)->bytes, "xy");
  EXPECT_EQ(Read(External({2}, {{"location", "./w1.bin"}, {"offset", "4"}}), files)->bytes, "efgh");
  EXPECT_EQ(
      Read(External({2}, {{"location", "w1.bin"}, {"offset", "2"}, {"length", "4"}}), files)->bytes,
      "cdef");
  EXPECT_EQ(Read(External({0}, {{"location", "w1.bin"}, {"offset", "8"}}), files)->bytes, "");
}

TEST(PayloadTest, ExternalDataThatIsNotThere) {
  const Files files({"model", "abcdefgh"});
  using Entries = std::map<std::string, std::string>;
  const std::vector<std::pair<Entries, std::string>> cases = {
      {{}, "external_data has no location"},
      {{{"location", ""}}, "its location is empty"},
      {{{"location", "../w1.bin"}}, "its location \"../w1.bin\" leaves the model's folder"},
      {{{"location", "a/../../w1.bin"}},
       "its location \"a/../../w1.bin\" leaves the model's folder"},
      {{{"location", "/etc/passwd"}},
       "its location \"/etc/passwd\" is absolute; it must be relative to the model's folder"},
      {{{"location", "a\\w1.bin"}},
       "its location \"a\\\\w1.bin\" has a backslash; folders are separated by \"/\""},
      {{{"location", "w2.bin"}},
       "its data is in file \"w2.bin\", which is not part of this upload; did you mean "
       "\"w1.bin\"?"},
      {{{"location", "w1.bin"}, {"offset", "9"}},
       "its data starts at byte 9 of file \"w1.bin\", which has 8"},
      {{{"location", "w1.bin"}, {"offset", "4"}, {"length", "8"}},
       "its data has 8 bytes from byte 4 of file \"w1.bin\" on, which has 8"},
      {{{"location", "w1.bin"}, {"offset", "9223372036854775807"}, {"length", "8"}},
       "its data starts at byte 9223372036854775807 of file \"w1.bin\", which has 8"},
      {{{"location", "w1.bin"}, {"length", "9223372036854775807"}, {"offset", "8"}},
       "its data has 9223372036854775807 bytes from byte 8 of file \"w1.bin\" on, which has 8"},
      {{{"location", "w1.bin"}, {"offset", "-1"}},
       "external_data's offset is \"-1\"; it must be a number of bytes"},
      {{{"location", "w1.bin"}, {"length", "4x"}},
       "external_data's length is \"4x\"; it must be a number of bytes"},
      {{{"location", "w1.bin"}, {"length", "6"}},
       "its data (file \"w1.bin\") has 6 bytes; int16 [4] has 8"},
  };
  for (const auto& [entries, error] : cases) {
    EXPECT_EQ(ErrorOf(External({4}, entries), files), "tensor \"t\": " + error);
  }
  EXPECT_NE(ErrorOf(External({4}, {{"location", std::string(2000, 'a')}}), files).find("at most"),
            std::string::npos);
  TensorProto both = External({4}, {{"location", "w1.bin"}});
  both.set_raw_data("abcdefgh");
  EXPECT_EQ(ErrorOf(both, files),
            "tensor \"t\": its data is in several places: raw_data and external_data");
  TensorProto unsaid = External({4}, {{"location", "w1.bin"}});
  unsaid.clear_data_location();
  EXPECT_EQ(ErrorOf(unsaid, files),
            "tensor \"t\": it has 4 elements and no data; its data_location is not EXTERNAL");
}

TEST(PayloadTest, OverlappingRanges) {
  const auto tensor = [](std::string name, int file, int64_t offset, int64_t bytes) {
    StoredTensor t;
    t.name = std::move(name);
    t.payload = PayloadRef{file, offset, bytes, 9};
    return t;
  };
  const StoredTensor a = tensor("a", 1, 0, 8), same = tensor("same", 1, 0, 8),
                     next = tensor("next", 1, 8, 4), other = tensor("other", 2, 4, 8),
                     part = tensor("part", 1, 4, 2), empty = tensor("empty", 1, 4, 0);
  const auto check = [](std::vector<const StoredTensor*> tensors) {
    return std::string(CheckOverlaps(tensors).message());
  };
  EXPECT_EQ(check({&a, &same, &next, &other, &empty}), "");
  EXPECT_EQ(
      check({&part, &next, &a}),
      "the external data of tensors \"a\" (bytes 0 to 8) and \"part\" (bytes 4 to 6) overlap; "
      "they may be one range or apart");
  const StoredTensor inlined;
  EXPECT_EQ(check({&inlined, &a}), "");
}

TEST(PayloadTest, LargeTensorsAreNotRead) {
  const Files files({"model", "abcdefgh"});
  const StoredTensor stored =
      DescribeTensor(External({4}, {{"location", "w1.bin"}}), {}, files.table()).value();
  EXPECT_TRUE(ReadTensor(stored, files, 8).ok());
  EXPECT_EQ(ReadTensor(stored, files, 7).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(PayloadTest, TakersErrorsEndIt) {
  const Files files({"model", "abcdefgh"});
  const StoredTensor stored =
      DescribeTensor(External({4}, {{"location", "w1.bin"}}), {}, files.table()).value();
  int pieces = 0;
  const absl::Status s = ForEachPiece(stored, files, 2, [&](std::string_view) {
    return ++pieces == 2 ? absl::CancelledError("enough") : absl::OkStatus();
  });
  EXPECT_EQ(s.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(pieces, 2);
}

}  // namespace
}  // namespace athanor::onnx
