#include "compiler/frontend/onnx/build/build_window.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/graph/op.h"
#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

using Ints = std::vector<int64_t>;

// Geometry of one axis, computed in numbers by the schema's formulas.
struct Axis {
  int64_t begin, end, out;
};
Axis Expected(int64_t size, int64_t kernel, int64_t stride, int64_t dilation, Ints pads,
              const std::string& auto_pad, bool ceil_mode) {
  const int64_t reach = (kernel - 1) * dilation + 1;
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    const auto out = static_cast<int64_t>(std::ceil(static_cast<double>(size) / stride));
    const int64_t total = std::max<int64_t>((out - 1) * stride + reach - size, 0);
    const int64_t begin = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    return {begin, total - begin, out};
  }
  if (auto_pad == "VALID") pads = {0, 0};
  const double steps = static_cast<double>(size + pads[0] + pads[1] - reach) / stride;
  if (!ceil_mode || auto_pad == "VALID") {
    return {pads[0], pads[1], static_cast<int64_t>(std::floor(steps)) + 1};
  }
  auto out = static_cast<int64_t>(std::ceil(steps)) + 1;
  if ((out - 1) * stride >= size + pads[0]) --out;
  return {pads[0], pads[1], out};
}

TEST(BuildWindowTest, SizesAreExpressionsThatGiveTheSchemasNumbers) {
  const Expr h = Expr::Symbol("h");
  int tried = 0;
  for (const char* auto_pad : {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}) {
    for (int64_t kernel : {1, 2, 3, 5}) {
      for (int64_t stride : {1, 2, 3, 7}) {
        for (int64_t dilation : {1, 2}) {
          for (const Ints& pads : {Ints{0, 0}, Ints{1, 1}, Ints{0, 2}, Ints{2, 1}}) {
            for (bool ceil_mode : {false, true}) {
              const absl::StatusOr<Window> w =
                  WindowOf({h}, {kernel}, {stride}, {dilation}, pads, auto_pad, ceil_mode);
              ASSERT_TRUE(w.ok()) << w.status();
              const int64_t reach = (kernel - 1) * dilation + 1;
              for (int64_t size = reach; size < reach + 15; ++size) {
                const Axis want =
                    Expected(size, kernel, stride, dilation, pads, auto_pad, ceil_mode);
                const Expr::Env dims = {{"h", size}};
                EXPECT_EQ(w->begin[0].Evaluate(dims), want.begin) << auto_pad << size;
                EXPECT_EQ(w->end[0].Evaluate(dims), want.end) << auto_pad << size;
                EXPECT_EQ(w->out[0].Evaluate(dims), want.out)
                    << auto_pad << " " << size << " " << kernel << " " << stride << ceil_mode;
                const absl::StatusOr<Window> fixed =
                    WindowOf({size}, {kernel}, {stride}, {dilation}, pads, auto_pad, ceil_mode);
                ASSERT_TRUE(fixed.ok()) << fixed.status();
                EXPECT_EQ(fixed->out[0], Expr(want.out));
                ++tried;
              }
              // The size must provably not be negative.
              Bounds bounds;
              bounds.Set("h", reach, 320);
              EXPECT_TRUE(bounds.NonNegative(w->out[0])) << w->out[0].ToString();
            }
          }
        }
      }
    }
  }
  EXPECT_GT(tried, 10'000);
}

// Stages of a network: two ways of halving an axis must be provably equal.
TEST(BuildWindowTest, StagesOfANetworkHaveEqualSizes) {
  Bounds bounds;
  bounds.Set("h", 32, 320);
  Expr by_kernel = Expr::Symbol("h"), by_point = by_kernel;
  for (int stage = 0; stage < 5; ++stage) {
    by_kernel = WindowOf({by_kernel}, {3}, {2}, {1}, {1, 1}, "NOTSET", false)->out[0];
    by_point = WindowOf({by_point}, {1}, {2}, {1}, {0, 0}, "NOTSET", false)->out[0];
    EXPECT_TRUE(bounds.ProvablyEqual(by_kernel, by_point))
        << by_kernel.ToString() << " and " << by_point.ToString();
  }
  EXPECT_EQ(WindowOf({Expr::Symbol("h")}, {3}, {1}, {1}, {}, "SAME_LOWER", false)->out[0],
            Expr::Symbol("h"));
}

TEST(BuildWindowTest, AbsentAttributesHaveTheirDefaults) {
  const absl::StatusOr<Window> w = WindowOf({8, 9}, {3, 2}, {}, {}, {}, "NOTSET", false);
  ASSERT_TRUE(w.ok()) << w.status();
  EXPECT_EQ(w->strides, (Ints{1, 1}));
  EXPECT_EQ(w->dilations, (Ints{1, 1}));
  EXPECT_EQ(w->begin, (Shape{0, 0}));
  EXPECT_EQ(w->out, (Shape{6, 8}));
}

TEST(BuildWindowTest, WhatDoesNotFitIsNamed) {
  const auto message = [](const absl::StatusOr<Window>& w) {
    EXPECT_EQ(w.status().code(), absl::StatusCode::kInvalidArgument) << w.status();
    return std::string(w.status().message());
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(message(WindowOf({8}, {3, 3}, {}, {}, {}, "NOTSET", false)),
      "attribute kernel_shape holds 2 values; it must hold 1");
  has(message(WindowOf({8}, {3}, {0}, {}, {}, "NOTSET", false)), "attribute strides holds 0");
  has(message(WindowOf({8}, {3}, {}, {-1}, {}, "NOTSET", false)), "attribute dilations holds -1");
  has(message(WindowOf({8}, {3}, {}, {}, {1}, "NOTSET", false)),
      "attribute pads holds 1 values; it must hold 2");
  has(message(WindowOf({8}, {3}, {}, {}, {1, -1}, "NOTSET", false)), "attribute pads holds -1");
  has(message(WindowOf({8}, {INT64_MAX}, {}, {}, {}, "NOTSET", false)), "must be in [1, 2^31)");
  has(message(WindowOf({8}, {3}, {}, {}, {}, "SAME", false)), "auto_pad=\"SAME\" must be");
  has(message(WindowOf({2}, {3}, {2}, {2}, {1, 1}, "NOTSET", false)),
      "spatial axis 0 has 2 elements, 4 with its padding, and a window reaches over 5");
}

}  // namespace
}  // namespace athanor::onnx
