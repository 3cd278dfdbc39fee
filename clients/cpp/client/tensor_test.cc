#include "clients/cpp/client/tensor.h"

#include <cstring>

#include "gtest/gtest.h"

namespace athanor::client {
namespace {

uint16_t Bits(const std::string& dtype, const std::string& text) {
  Tensor t{dtype, {1}, {}};
  EXPECT_TRUE(AppendElement(text, &t).ok()) << text;
  uint16_t bits = 0;
  std::memcpy(&bits, t.bytes.data(), 2);
  return bits;
}

TEST(ClientTensor, EveryDTypeReadsBackWhatItPrints) {
  for (const ClientDType& row : ClientDTypes()) {
    Tensor t{std::string(row.name), {2}, {}};
    ASSERT_TRUE(AppendElement("0", &t).ok()) << row.name;
    ASSERT_TRUE(AppendElement("1", &t).ok()) << row.name;
    ASSERT_TRUE(CheckTensor(t).ok()) << row.name;
    Tensor again{t.dtype, {2}, {}};
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(AppendElement(ElementText(t, i), &again).ok());
    EXPECT_EQ(again.bytes, t.bytes) << row.name;
  }
}

TEST(ClientTensor, EveryF16AndBF16BitPatternRoundTrips) {
  for (const char* dtype : {"f16", "bf16"}) {
    for (int code = 0; code < 1 << 16; ++code) {
      const uint16_t bits = static_cast<uint16_t>(code);
      Tensor t{dtype, {1}, std::string(reinterpret_cast<const char*>(&bits), 2)};
      const std::string text = ElementText(t, 0);
      if (text == "nan" || text == "-nan") continue;
      ASSERT_EQ(Bits(dtype, text), bits) << dtype << " " << text;
    }
  }
}

TEST(ClientTensor, NarrowFloatsRoundToNearestEven) {
  EXPECT_EQ(Bits("f16", "65519.99"), 0x7bff);
  EXPECT_EQ(Bits("f16", "65520"), 0x7c00);             // a tie: to even, which is infinity
  EXPECT_EQ(Bits("f16", "2.9802322387695312e-8"), 0);  // half the least subnormal
  EXPECT_EQ(Bits("f16", "5.9604644775390625e-8"), 1);
  EXPECT_EQ(Bits("bf16", "1.00390625"), 0x3f80);  // halfway to the next
  EXPECT_EQ(Bits("bf16", "-inf"), 0xff80);
}

TEST(ClientTensor, RefusesWhatDoesNotFit) {
  Tensor t{"i8", {}, {}};
  EXPECT_FALSE(AppendElement("128", &t).ok());
  EXPECT_FALSE(AppendElement("-129", &t).ok());
  EXPECT_FALSE(AppendElement("1.5", &t).ok());
  EXPECT_TRUE(AppendElement("-128", &t).ok());
  t.dtype = "u64";
  EXPECT_FALSE(AppendElement("-1", &t).ok());
  t.dtype = "bool";
  EXPECT_FALSE(AppendElement("2", &t).ok());
  EXPECT_NE(AppendElement("yes", &t).message().find("true or false"), std::string::npos);
}

TEST(ClientTensor, ChecksBytesAgainstTheShape) {
  EXPECT_TRUE(CheckTensor({"f32", {2, 0}, ""}).ok());
  EXPECT_FALSE(CheckTensor({"f32", {2}, "1234"}).ok());
  EXPECT_FALSE(CheckTensor({"f32", {-1}, ""}).ok());
  EXPECT_FALSE(CheckTensor({"f32", {int64_t{1} << 40, int64_t{1} << 40}, ""}).ok());
  EXPECT_FALSE(CheckTensor({"f8e4m3", {1}, "1"}).ok());
}

}  // namespace
}  // namespace athanor::client
