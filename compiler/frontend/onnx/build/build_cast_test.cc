// Compares casts between element types with ml_dtypes (testdata/casts.txt) and with the definition.
#include "compiler/frontend/onnx/build/build_cast.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_testing.h"

namespace athanor::onnx {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int kF16Codes = 1 << 16;

// Results of ml_dtypes, by element type.
struct Table {
  std::vector<float> decode;
  std::map<std::string, std::vector<int>> encode;  // by mode; one code for every f16
};

const std::map<std::string, Table>& Tables() {
  static const auto& tables = *[] {
    auto* all = new std::map<std::string, Table>;
    std::ifstream file("compiler/frontend/onnx/build/testdata/casts.txt");
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string kind, type, mode, word;
      words >> kind >> type;
      Table& table = (*all)[type];
      if (kind == "decode") {
        while (words >> word) {
          table.decode.push_back(
              std::bit_cast<float>(static_cast<uint32_t>(std::stoul(word, nullptr, 16))));
        }
        continue;
      }
      words >> mode;
      std::vector<int>& codes = table.encode[mode];
      int code = 0;
      while (words >> word) {
        codes.resize(std::stoul(word, nullptr, 16), code);
        code = std::stoi(word.substr(word.find(':') + 1), nullptr, 16);
      }
      codes.resize(kF16Codes, code);
    }
    return all;
  }();
  return tables;
}

Elem ElemNamed(const std::string& name) {
  for (const ElemRow& row : kElems) {
    if (row.name == name) return row.elem;
  }
  ADD_FAILURE() << name;
  return Elem::kFloat;
}

Tensor CastTo(Elem from, Elem to, const Tensor& x, const CastMode& mode = {}) {
  Built t;
  const Value in = t.Input(from, Shape(x.shape.begin(), x.shape.end()));
  const Value out = Cast(t.b(), in, to, mode);
  EXPECT_EQ(out.elem, to);
  return t.Run(out, {x});
}

std::vector<double> CastValues(Elem from, Elem to, const std::vector<double>& x,
                               const CastMode& mode = {}) {
  const auto count = static_cast<int64_t>(x.size());
  return ValuesOf(CastTo(from, to, Of(CarrierOf(from), {count}, x), mode));
}

std::vector<int> CodesOf(const Tensor& t) {
  std::vector<int> codes;
  for (char c : t.bytes) codes.push_back(static_cast<uint8_t>(c));
  return codes;
}

Tensor Codes(Elem elem, int count) {
  Tensor t = Tensor::Zeros(CarrierOf(elem), {count});
  for (int i = 0; i < count; ++i) t.bytes[i] = static_cast<char>(i);
  return t;
}

// Expects equal numbers, or two NaNs; no type promises the sign of a NaN.
void ExpectSameNumber(float got, float want, const std::string& what) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << what << ": " << got;
  } else {
    EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << what << ": " << got;
  }
}

TEST(BuildCastTest, EveryCodeDecodes) {
  EXPECT_EQ(Tables().size(), 7);
  for (const auto& [name, table] : Tables()) {
    const Elem elem = ElemNamed(name);
    const int count = 1 << Row(elem).bits;
    const Tensor y = CastTo(elem, Elem::kFloat, Codes(elem, count));
    ASSERT_EQ(table.decode.size(), count);
    for (int i = 0; i < count; ++i) {
      ExpectSameNumber(y.data<float>()[i], table.decode[i], name + " " + std::to_string(i));
    }
  }
}

TEST(BuildCastTest, EveryF16Encodes) {
  Tensor x = Tensor::Zeros(DType::kF16, {kF16Codes});
  for (int i = 0; i < kF16Codes; ++i) x.data<uint16_t>()[i] = static_cast<uint16_t>(i);
  for (const auto& [name, table] : Tables()) {
    for (const auto& [mode, want] : table.encode) {
      const Elem elem = ElemNamed(name);
      const std::vector<int> got =
          CodesOf(CastTo(Elem::kFloat16, elem, x, {.saturate = mode == "saturate"}));
      ASSERT_EQ(got.size(), want.size());
      int wrong = 0;
      for (int i = 0; i < kF16Codes && wrong < 5; ++i) {
        const bool nan = (i & 0x7fff) > 0x7c00;  // in a type without NaN: a zero of either sign
        const float is = table.decode[got[i]], should = table.decode[want[i]];
        const bool same =
            nan ? std::isnan(is) == std::isnan(should) && (std::isnan(is) || is == should)
                : got[i] == want[i];
        wrong += !same;
        EXPECT_TRUE(same) << name << " " << mode << " of f16 " << i << ": code " << got[i]
                          << ", not " << want[i];
      }
    }
  }
}

// Between neighbours, the middle goes to the even code. A value off the middle by one unit in the
// last place of f32 or f64 goes to the nearer code, with no second rounding on the way.
TEST(BuildCastTest, RoundsOnceToNearestEven) {
  for (const auto& [name, table] : Tables()) {
    const Elem elem = ElemNamed(name);
    const int codes = 1 << (Row(elem).bits - 1);
    std::vector<double> f32, f64;
    std::vector<int> want;
    for (int i = 0; i + 1 < codes; ++i) {
      const double low = table.decode[i], high = table.decode[i + 1];
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const double middle = (low + high) / 2;
      const auto narrow = static_cast<float>(middle);
      ASSERT_EQ(narrow, middle);
      for (double x :
           {double{std::nextafter(narrow, -1.0F)}, middle, double{std::nextafter(narrow, 1e9F)}}) {
        f32.push_back(x);
      }
      for (double x : {std::nextafter(middle, -1.0), middle, std::nextafter(middle, 1e9)}) {
        f64.push_back(x);
      }
      for (int code : {i, i + i % 2, i + 1}) want.push_back(code);
    }
    for (bool saturate : {true, false}) {
      const auto count = static_cast<int64_t>(want.size());
      EXPECT_EQ(CodesOf(CastTo(Elem::kFloat, elem, Of(DType::kF32, {count}, f32), {saturate})),
                want)
          << name << " from f32";
      EXPECT_EQ(CodesOf(CastTo(Elem::kDouble, elem, Of(DType::kF64, {count}, f64), {saturate})),
                want)
          << name << " from f64";
    }
  }
}

TEST(BuildCastTest, InfinitiesOfFnuz) {
  for (Elem elem : {Elem::kFloat8E4M3FNUZ, Elem::kFloat8E5M2FNUZ}) {
    const Tensor x = Of(DType::kF32, {5}, {kInf, -kInf, 1e9, -1e9, -0.0});
    EXPECT_EQ(CodesOf(CastTo(Elem::kFloat, elem, x)),
              (std::vector<int>{0x7f, 0xff, 0x7f, 0xff, 0}));
    EXPECT_EQ(CodesOf(CastTo(Elem::kFloat, elem, x, {.fnuz_keeps_infinity = true})),
              (std::vector<int>{0x80, 0x80, 0x7f, 0xff, 0}));
    EXPECT_EQ(CodesOf(CastTo(Elem::kFloat, elem, x, {.saturate = false})),
              (std::vector<int>{0x80, 0x80, 0x80, 0x80, 0}));
  }
}

TEST(BuildCastTest, PowersOfTwo) {
  using Round = CastMode::Round;
  const std::vector<double> x = {0,  -0.0, 1,    1.25,      1.5,      1.75,      2,
                                 -3, kNan, kInf, 0x1.8p127, 0x1p-127, 0x1.8p-127};
  const auto codes = [&](CastMode mode) {
    const auto count = static_cast<int64_t>(x.size());
    return CodesOf(CastTo(Elem::kFloat, Elem::kFloat8E8M0, Of(DType::kF32, {count}, x), mode));
  };
  EXPECT_EQ(codes({true, Round::kUp}),
            (std::vector<int>{0, 0, 127, 128, 128, 128, 128, 129, 255, 255, 254, 1, 1}));
  EXPECT_EQ(codes({true, Round::kDown}),
            (std::vector<int>{0, 0, 127, 127, 127, 127, 128, 128, 255, 255, 254, 0, 0}));
  EXPECT_EQ(codes({true, Round::kNearest}),
            (std::vector<int>{0, 0, 127, 127, 128, 128, 128, 129, 255, 255, 254, 0, 1}));
  EXPECT_EQ(codes({false, Round::kUp})[10], 255);
  EXPECT_EQ(codes({false, Round::kNearest})[10], 255);
  EXPECT_EQ(codes({false, Round::kDown})[10], 254);
  // A single last place of f64 is enough to round up.
  const Tensor above = Of(DType::kF64, {2}, {1 + 0x1p-52, 1});
  EXPECT_EQ(CodesOf(CastTo(Elem::kDouble, Elem::kFloat8E8M0, above)), (std::vector<int>{128, 127}));
  const Tensor back = CastTo(Elem::kFloat8E8M0, Elem::kFloat, Codes(Elem::kFloat8E8M0, 256));
  for (int i = 0; i < 255; ++i) EXPECT_EQ(back.data<float>()[i], std::ldexp(1.0F, i - 127));
  EXPECT_TRUE(std::isnan(back.data<float>()[255]));
}

// As in ml_dtypes: truncated, with the low bits kept.
TEST(BuildCastTest, NarrowIntegersKeepTheLowBits) {
  std::vector<double> x;
  for (int i = -9; i < 17; ++i) x.push_back(i);
  for (Elem from : {Elem::kFloat, Elem::kFloat16, Elem::kDouble, Elem::kInt32, Elem::kInt64}) {
    const std::vector<double> int4 = CastValues(from, Elem::kInt4, x);
    const std::vector<double> uint4 = CastValues(from, Elem::kUInt4, x);
    const std::vector<double> int2 = CastValues(from, Elem::kInt2, x);
    const std::vector<double> uint2 = CastValues(from, Elem::kUInt2, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const int value = static_cast<int>(x[i]);
      EXPECT_EQ(int4[i], ((value + 8) & 15) - 8) << value;
      EXPECT_EQ(uint4[i], value & 15) << value;
      EXPECT_EQ(int2[i], ((value + 2) & 3) - 2) << value;
      EXPECT_EQ(uint2[i], value & 3) << value;
    }
  }
  EXPECT_EQ(CastValues(Elem::kFloat, Elem::kInt4, {1.5, -0.9, -1.5, 7.9}),
            (std::vector<double>{1, 0, -1, 7}));
  EXPECT_EQ(CastValues(Elem::kInt4, Elem::kUInt4, {-8, -1, 0, 7}),
            (std::vector<double>{8, 15, 0, 7}));
  EXPECT_EQ(CastValues(Elem::kUInt4, Elem::kInt4, {0, 7, 8, 15}),
            (std::vector<double>{0, 7, -8, -1}));
  EXPECT_EQ(CastValues(Elem::kInt2, Elem::kInt4, {-2, -1, 0, 1}),
            (std::vector<double>{-2, -1, 0, 1}));
  EXPECT_EQ(CastValues(Elem::kInt4, Elem::kInt8, {-8, 7}), (std::vector<double>{-8, 7}));
  EXPECT_EQ(CastValues(Elem::kBool, Elem::kUInt2, {0, 1}), (std::vector<double>{0, 1}));
  EXPECT_EQ(CastValues(Elem::kInt4, Elem::kBool, {-8, 0}), (std::vector<double>{1, 0}));
}

TEST(BuildCastTest, BetweenCodesAndOtherTypes) {
  // The codes are 6 and -0.5 in float4e2m1.
  EXPECT_EQ(CodesOf(CastTo(Elem::kFloat4E2M1, Elem::kFloat8E4M3FN,
                           Tensor::Of<uint8_t>(DType::kU8, {2}, {7, 9}))),
            (std::vector<int>{0x4c, 0xb0}));
  EXPECT_EQ(CastValues(Elem::kFloat4E2M1, Elem::kInt32, {7, 9, 15, 6}),
            (std::vector<double>{6, 0, -6, 4}));
  EXPECT_EQ(CodesOf(CastTo(Elem::kInt64, Elem::kFloat8E4M3FNUZ,
                           Of(DType::kI64, {4}, {3, -1000, int64_t{1} << 62, 0}))),
            (std::vector<int>{0x4c, 0xff, 0x7f, 0}));
  EXPECT_EQ(CodesOf(CastTo(Elem::kUInt8, Elem::kFloat8E5M2, Of(DType::kU8, {2}, {1, 255}))),
            (std::vector<int>{0x3c, 0x5c}));
  EXPECT_EQ(CodesOf(CastTo(Elem::kBool, Elem::kFloat4E2M1, Of(DType::kBool, {2}, {0, 1}))),
            (std::vector<int>{0, 2}));
  EXPECT_EQ(CastValues(Elem::kFloat8E4M3FNUZ, Elem::kBool, {0, 0x80, 1}),
            (std::vector<double>{0, 1, 1}));
}

TEST(BuildCastTest, EmptyAndScalarAndDynamic) {
  EXPECT_EQ(CastTo(Elem::kFloat, Elem::kFloat4E2M1, Of(DType::kF32, {0, 3}, {})).elements(), 0);
  EXPECT_EQ(CodesOf(CastTo(Elem::kFloat, Elem::kFloat4E2M1, Of(DType::kF32, {}, {3}))),
            (std::vector<int>{5}));
  Built t({{"n", 0, 7}});
  const Value x = t.Input(Elem::kDouble, {Expr::Symbol("n")});
  const Value y = Cast(t.b(), x, Elem::kFloat8E5M2FNUZ);
  EXPECT_EQ(y.shape, x.shape);
  EXPECT_EQ(CodesOf(t.Run(y, {Of(DType::kF64, {3}, {1, -2, 0.5})})),
            (std::vector<int>{0x40, 0xc4, 0x3c}));
}

TEST(BuildCastTest, RefusesWhatIsNotServed) {
  for (Elem elem : {Elem::kString, Elem::kComplex64}) {
    Built t;
    Cast(t.b(), t.Input(Elem::kFloat, {2}), elem);
    EXPECT_EQ(t.b().status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(t.b().status().message().find(std::string(ElemName(elem))), std::string::npos);
  }
}

std::vector<double> BitcastValues(Elem from, Elem to, const std::vector<double>& x) {
  Built t;
  const auto count = static_cast<int64_t>(x.size());
  const Value in = t.Input(from, {count});
  return ValuesOf(t.Run(Bitcast(t.b(), in, to), {Of(CarrierOf(from), {count}, x)}));
}

TEST(BuildBitcastTest, KeepsBits) {
  EXPECT_EQ(BitcastValues(Elem::kFloat, Elem::kInt32, {1, -0.0}),
            (std::vector<double>{0x3f800000, -0x80000000L}));
  EXPECT_EQ(BitcastValues(Elem::kInt4, Elem::kUInt4, {-8, -1, 7}), (std::vector<double>{8, 15, 7}));
  EXPECT_EQ(BitcastValues(Elem::kFloat4E2M1, Elem::kInt4, {15, 8, 7}),
            (std::vector<double>{-1, -8, 7}));
  EXPECT_EQ(BitcastValues(Elem::kUInt2, Elem::kInt2, {0, 1, 2, 3}),
            (std::vector<double>{0, 1, -2, -1}));
  EXPECT_EQ(BitcastValues(Elem::kUInt8, Elem::kFloat8E4M3FN, {0x38, 0xb8}),
            (std::vector<double>{1, -1}));
  EXPECT_EQ(BitcastValues(Elem::kFloat8E4M3FNUZ, Elem::kInt8, {0x80, 1}),
            (std::vector<double>{-128, 1}));
  EXPECT_EQ(BitcastValues(Elem::kBool, Elem::kInt8, {0, 1}), (std::vector<double>{0, 1}));
  EXPECT_EQ(BitcastValues(Elem::kInt8, Elem::kBool, {0, -128, 1}), (std::vector<double>{0, 1, 1}));
}

TEST(BuildBitcastTest, WidthsMustAgree) {
  Built t;
  Bitcast(t.b(), t.Input(Elem::kFloat, {2}), Elem::kInt64);
  EXPECT_EQ(t.b().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(t.b().status().message(),
            "the bits of float cannot be read as int64: elements have 32 and 64 bits; the numbers "
            "must be equal");
}

}  // namespace
}  // namespace athanor::onnx
