#include "compiler/frontend/onnx/build/build_window.h"

#include <string>
#include <utility>

#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

// Limit on strides and similar values: far beyond any image, and small enough to avoid overflow.
constexpr int64_t kMaxStep = int64_t{1} << 31;

absl::Status CheckList(std::string_view attr, absl::Span<const int64_t> values, size_t count,
                       int64_t least) {
  if (values.size() != count) {
    return Invalid("attribute ", attr, " holds ", values.size(), " values; it must hold ", count);
  }
  for (int64_t value : values) {
    if (value >= least && value < kMaxStep) continue;
    return Invalid("attribute ", attr, " holds ", value, "; each value must be in [", least,
                   ", 2^31)");
  }
  return absl::OkStatus();
}

// Checks that a window that spans `reach` elements fits into `size` plus the padding.
absl::Status CheckFits(size_t axis, const Expr& size, const Expr& room, int64_t reach) {
  if (!room.constant() || *room.constant() >= 0) return absl::OkStatus();
  return Invalid("spatial axis ", axis, " has ", size.ToString(), " elements, ",
                 (room + reach).ToString(), " with its padding, and a window reaches over ", reach,
                 "; it must fit");
}

}  // namespace

absl::StatusOr<Window> WindowOf(absl::Span<const Expr> sizes, std::vector<int64_t> kernel,
                                std::vector<int64_t> strides, std::vector<int64_t> dilations,
                                std::vector<int64_t> pads, std::string_view auto_pad,
                                bool ceil_mode) {
  const size_t rank = sizes.size();
  if (strides.empty()) strides.assign(rank, 1);
  if (dilations.empty()) dilations.assign(rank, 1);
  if (pads.empty()) pads.assign(2 * rank, 0);
  absl::Status s = CheckList("kernel_shape", kernel, rank, 1);
  if (s.ok()) s = CheckList("strides", strides, rank, 1);
  if (s.ok()) s = CheckList("dilations", dilations, rank, 1);
  if (s.ok()) s = CheckList("pads", pads, 2 * rank, 0);
  if (!s.ok()) return s;
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  if (!same && auto_pad != "VALID" && auto_pad != "NOTSET" && !auto_pad.empty()) {
    return Invalid("auto_pad=", Quoted(auto_pad),
                   " must be \"NOTSET\", \"SAME_UPPER\", \"SAME_LOWER\" or \"VALID\"");
  }
  const bool given = !same && auto_pad != "VALID";
  Window w;
  for (size_t i = 0; i < rank; ++i) {
    const Expr& size = sizes[i];
    const int64_t stride = strides[i], reach = (kernel[i] - 1) * dilations[i] + 1;
    if (same) {
      const Expr out = CeilDiv(size, stride);
      // Never negative: if the stride is longer than the window, nothing is cut off.
      const Expr total = MaxOf(0, (out - 1) * stride + reach - size);
      const Expr smaller = FloorDiv(total, 2);
      w.begin.push_back(auto_pad == "SAME_UPPER" ? smaller : total - smaller);
      w.end.push_back(total - w.begin.back());
      w.out.push_back(out);
      continue;
    }
    const int64_t before = given ? pads[i] : 0, after = given ? pads[rank + i] : 0;
    const Expr room = size + (before + after - reach);
    if (s = CheckFits(i, size, room, reach); !s.ok()) return s;
    Expr out = FloorDiv(room, stride) + 1;
    // Without explicit padding, both forms are the same.
    if (ceil_mode && given) {
      out = CeilDiv(room, stride) + 1;
      // A window that would start in the padding at the end is dropped.
      out = out - MinOf(1, MaxOf(0, (out - 1) * stride - size - before + 1));
    }
    w.begin.push_back(before);
    w.end.push_back(after);
    w.out.push_back(out);
  }
  w.kernel = std::move(kernel);
  w.strides = std::move(strides);
  w.dilations = std::move(dilations);
  return w;
}

}  // namespace athanor::onnx
