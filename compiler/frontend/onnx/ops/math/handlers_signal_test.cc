#include <cmath>
#include <complex>
#include <numbers>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_testing.h"
#include "compiler/frontend/onnx/testing/node_testing.h"
#include "compiler/ir/sample/compare.h"

namespace athanor::onnx {
namespace {

using Values = std::vector<double>;
using List = std::vector<int64_t>;
using Spectrum = std::vector<std::complex<double>>;

bool Says(const std::string& message, std::string_view part) {
  return message.find(part) != std::string::npos;
}

void ExpectNear(const Tensor& got, const Values& want) {
  const Tensor wanted = Of(got.dtype, got.shape, want);
  const absl::Status s = CompareTensors(got, wanted, 1e-6, 1e-6);
  EXPECT_TRUE(s.ok()) << s;
}

// Transforms by the definition.
Values Transformed(const Spectrum& x, size_t bins, bool inverse) {
  Values values;
  const auto n = static_cast<double>(x.size());
  for (size_t k = 0; k < bins; ++k) {
    std::complex<double> sum = 0;
    for (size_t t = 0; t < x.size(); ++t) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(k * t) / n;
      sum += x[t] * std::polar(1.0, inverse ? angle : -angle);
    }
    if (inverse) sum /= n;
    values.push_back(sum.real());
    values.push_back(sum.imag());
  }
  return values;
}

const Tensor kReal = Of(DType::kF32, {1, 5, 1}, {1, -2, 3, 5, -7});
const Spectrum kRealParts = {1, -2, 3, 5, -7};
const Tensor kComplex = Of(DType::kF32, {1, 3, 2}, {1, 2, -3, 4, 0, -1});
const Spectrum kComplexParts = {{1, 2}, {-3, 4}, {0, -1}};

TEST(HandlersSignalTest, DftByItsDefinition) {
  ExpectNear(OneNode("DFT", 20).In(kReal, {"b", "n", 1}).Result(),
             Transformed(kRealParts, 5, false));
  ExpectNear(OneNode("DFT", 17).In(kReal).Attr("onesided", int64_t{1}).Result(),
             Transformed(kRealParts, 3, false));
  ExpectNear(OneNode("DFT", 20).In(kComplex, {"b", "n", 2}).Result(),
             Transformed(kComplexParts, 3, false));
  ExpectNear(OneNode("DFT", 20).In(kComplex).Attr("inverse", int64_t{1}).Result(),
             Transformed(kComplexParts, 3, true));
}

TEST(HandlersSignalTest, DftCutsAndFillsToItsLength) {
  const auto run = [](double length) {
    return OneNode("DFT", 20)
        .In(kReal, {"b", "n", 1})
        .Fixed(Of(DType::kI64, {}, {length}))
        .Result();
  };
  ExpectNear(run(3), Transformed({1, -2, 3}, 3, false));
  ExpectNear(run(7), Transformed({1, -2, 3, 5, -7, 0, 0}, 7, false));
}

TEST(HandlersSignalTest, DftAlongAnyAxis) {
  const Tensor x = Of(DType::kF32, {2, 2, 1}, {1, 2, 3, 5});
  const Values rows = {4, 0, 7, 0, -2, 0, -3, 0}, columns = {3, 0, -1, 0, 8, 0, -2, 0};
  ExpectNear(OneNode("DFT", 17).In(x).Result(), columns);
  ExpectNear(OneNode("DFT", 17).In(x).Attr("axis", int64_t{0}).Result(), rows);
  ExpectNear(OneNode("DFT", 20).In(x).Result(), columns);
  ExpectNear(OneNode("DFT", 20).In(x).Omit().Fixed(Of(DType::kI64, {}, {-3})).Result(), rows);
  EXPECT_TRUE(
      Says(OneNode("DFT", 20).In(x).Omit().Fixed(Of(DType::kI64, {}, {2})).Error(), "the last"));
  // Too large for the builder; its failure is reported.
  const Tensor one = Of(DType::kF32, {1, 2, 1}, {1, 2});
  EXPECT_FALSE(OneNode("DFT", 20).In(one, {int64_t{1} << 60, 2, 1}).Error().empty());
  EXPECT_TRUE(Says(OneNode("DFT", 20).In(kComplex).Attr("onesided", int64_t{1}).Error(),
                   "complex and onesided"));
}

TEST(HandlersSignalTest, HalfASpectrumGivesTheSignalBack) {
  for (const int64_t n : {1, 2, 5, 6}) {
    SCOPED_TRACE(n);
    Tensor signal = Tensor::Zeros(DType::kF32, {1, n, 1});
    for (int64_t i = 0; i < n; ++i) signal.data<float>()[i] = static_cast<float>(i * i - 3);
    const Tensor half = OneNode("DFT", 20).In(signal).Attr("onesided", int64_t{1}).Result();
    OneNode back("DFT", 20);
    back.In(half).Fixed(Of(DType::kI64, {}, {static_cast<double>(n)}));
    const Tensor y = back.Attr("onesided", int64_t{1}).Attr("inverse", int64_t{1}).Result();
    EXPECT_EQ(y.shape, signal.shape);
    ExpectNear(y, ValuesOf(signal));
  }
}

TEST(HandlersSignalTest, StftIsTheDftOfFrames) {
  const Tensor signal = Of(DType::kF32, {1, 7, 1}, {1, -2, 3, 5, -7, 2, 4});
  const auto trial = [&] {
    return OneNode("STFT", 17).In(signal, {"b", "n", 1}).Fixed(Of(DType::kI64, {}, {2}));
  };
  const Tensor window = Of(DType::kF32, {4}, {0.5, 1, 1, 0.25});
  const auto frames = [](const std::vector<Spectrum>& cut, size_t bins) {
    Values all;
    for (const Spectrum& x : cut) {
      const Values y = Transformed(x, bins, false);
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  };
  OneNode windowed = OneNode("STFT", 17);
  windowed.Least(4).In(signal, {1, "n", 1}).Fixed(Of(DType::kI64, {}, {2})).In(window);
  ExpectNear(windowed.Result(), frames({{0.5, -2, 3, 1.25}, {1.5, 5, -7, 0.5}}, 3));
  OneNode plain = OneNode("STFT", 17);
  plain.In(signal).Fixed(Of(DType::kI64, {}, {3})).Omit().Fixed(Of(DType::kI64, {}, {3}));
  ExpectNear(plain.Attr("onesided", int64_t{0}).Result(), frames({{1, -2, 3}, {5, -7, 2}}, 3));
  OneNode unproved = trial();
  EXPECT_TRUE(Says(unproved.In(window).Error(), "within the signal"));
}

TEST(HandlersSignalTest, Windows) {
  const auto window = [](std::string_view op, double size, int64_t periodic) {
    return OneNode(op, 17).Fixed(Of(DType::kI64, {}, {size})).Attr("periodic", periodic).Result();
  };
  ExpectNear(window("HannWindow", 4, 1), {0, 0.5, 1, 0.5});
  ExpectNear(window("HannWindow", 5, 0), {0, 0.5, 1, 0.5, 0});
  ExpectNear(window("HammingWindow", 2, 1), {4.0 / 46, 1});
  ExpectNear(window("BlackmanWindow", 3, 0), {0, 1, 0});
  EXPECT_TRUE(Says(OneNode("HannWindow", 17).In(Of(DType::kI64, {}, {4})).Error(), "size"));
}

TEST(HandlersSignalTest, MelWeightMatrix) {
  OneNode t("MelWeightMatrix", 17);
  for (double v : {2.0, 8.0, 80.0}) t.Fixed(Of(DType::kI64, {}, {v}));
  for (double v : {0.0, 40.0}) t.Fixed(Of(DType::kF32, {}, {v}));
  // By the formula, the corners are in bins 0, 1, 2 and 3.
  EXPECT_EQ(t.Result(), Of(DType::kF32, {5, 2}, {0, 0, 1, 0, 0, 1, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace athanor::onnx
