#include "clients/bench/figures/svg.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace athanor::bench {
namespace {

constexpr double kWidth = 640, kHeight = 260;
constexpr double kLeft = 64, kRight = 16, kTop = 36, kBottom = 44;
constexpr double kMostNines = 5;
constexpr double kNineShares[] = {0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999};

double Transform(double value, Scale scale) {
  switch (scale) {
    case Scale::kLinear:
      return value;
    case Scale::kLog:
      return value > 0 ? std::log10(value) : std::numeric_limits<double>::quiet_NaN();
    case Scale::kNines:
      return std::min(kMostNines, -std::log10(std::max(1 - value, 1e-12)));
  }
  return value;
}

// Range of an axis's values, and where it lies in the drawing.
struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(double value, Scale scale) {
    if (!std::isfinite(Transform(value, scale))) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

void Widen(Scale scale, Range* range) {
  if (scale == Scale::kLinear) {
    range->low = std::min(range->low, 0.0);
    if (range->high <= range->low) range->high = range->low + 1;
  } else if (scale == Scale::kLog) {
    if (range->high < range->low * 2) {
      const double middle = std::sqrt(range->low * range->high);
      range->low = middle / 2;
      range->high = middle * 2;
    }
  } else {
    range->low = 0;
    range->high = std::max(range->high, 0.9);
  }
}

double Place(double value, const Range& range, Scale scale, double from, double to) {
  const double low = Transform(range.low, scale), high = Transform(range.high, scale);
  return from + (Transform(value, scale) - low) / (high - low) * (to - from);
}

std::string TickText(double value, Scale scale) {
  if (scale == Scale::kNines) return absl::StrFormat("%.10g %%", value * 100);
  return absl::StrFormat("%.6g", value);
}

class Drawing {
 public:
  explicit Drawing(const Plot& plot) : plot_(plot) {
    for (const Series& series : plot.series) {
      for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
        if (!std::isfinite(Transform(series.x[i], plot.x.scale)) ||
            !std::isfinite(Transform(series.y[i], plot.y.scale))) {
          continue;
        }
        x_.Add(series.x[i], plot.x.scale);
        y_.Add(series.y[i], plot.y.scale);
      }
    }
  }

  std::string Draw() {
    absl::StrAppendFormat(&out_,
                          "<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\" "
                          "xmlns=\"http://www.w3.org/2000/svg\">\n",
                          kWidth, kHeight, Escape(plot_.title));
    Text(kLeft, 20, "title", "start", plot_.title);
    if (x_.empty()) {
      Text(kLeft, kHeight / 2, "label", "start", "nothing was measured");
    } else {
      Widen(plot_.x.scale, &x_);
      Widen(plot_.y.scale, &y_);
      DrawAxes();
      for (const Series& series : plot_.series) DrawLine(series);
      for (const Series& series : plot_.series) DrawPoints(series);
    }
    return absl::StrCat(out_, "</svg>\n");
  }

 private:
  double X(double value) const { return Place(value, x_, plot_.x.scale, kLeft, kWidth - kRight); }
  double Y(double value) const { return Place(value, y_, plot_.y.scale, kHeight - kBottom, kTop); }

  void Text(double x, double y, absl::string_view kind, absl::string_view anchor,
            absl::string_view text) {
    absl::StrAppendFormat(&out_,
                          "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n",
                          kind, x, y, anchor, Escape(text));
  }

  void DrawAxes() {
    for (double tick : Ticks(y_.low, y_.high, plot_.y.scale, 5)) {
      absl::StrAppendFormat(
          &out_, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", kLeft,
          kWidth - kRight, Y(tick), Y(tick));
      Text(kLeft - 8, Y(tick) + 4, "tick", "end", TickText(tick, plot_.y.scale));
    }
    for (double tick : Ticks(x_.low, x_.high, plot_.x.scale, 7)) {
      absl::StrAppendFormat(
          &out_, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
          X(tick), X(tick), kTop, kHeight - kBottom);
      Text(X(tick), kHeight - kBottom + 16, "tick", "middle", TickText(tick, plot_.x.scale));
    }
    Text(kWidth - kRight, kHeight - 8, "label", "end", plot_.x.label);
    Text(kWidth - kRight, 20, "label", "end", plot_.y.label);
  }

  void DrawLine(const Series& series) {
    std::string path;
    bool broken = true;
    for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
      const double x = X(series.x[i]), y = Y(series.y[i]);
      if (!std::isfinite(x) || !std::isfinite(y)) {
        broken = true;
        continue;
      }
      absl::StrAppendFormat(&path, "%s%.1f %.1f", broken ? "M" : "L", x, y);
      broken = false;
    }
    absl::StrAppendFormat(&out_, "<path class=\"line s%d%s\" d=\"%s\"/>\n", series.color % kColors,
                          series.dashed ? " dashed" : "", path);
  }

  // Draws points that show a name and a value under the pointer. A point without neighbours is
  // visible by itself, since no line runs through it.
  void DrawPoints(const Series& series) {
    const size_t count = std::min(series.x.size(), series.y.size());
    const auto drawn = [&](size_t i) {
      return i < count && std::isfinite(X(series.x[i])) && std::isfinite(Y(series.y[i]));
    };
    for (size_t i = 0; i < count; ++i) {
      if (!drawn(i)) continue;
      const bool alone = !drawn(i + 1) && (i == 0 || !drawn(i - 1));
      absl::StrAppendFormat(
          &out_, "<circle class=\"point s%d%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>",
          series.color % kColors, alone ? " alone" : "", X(series.x[i]), Y(series.y[i]));
      absl::StrAppend(&out_, Escape(series.name), ": ", TickText(series.y[i], plot_.y.scale), " ",
                      Escape(plot_.y.label), " at ", TickText(series.x[i], plot_.x.scale), " ",
                      Escape(plot_.x.label), "</title></circle>\n");
    }
  }

  const Plot& plot_;
  Range x_, y_;
  std::string out_;
};

}  // namespace

std::vector<double> Ticks(double low, double high, Scale scale, int count) {
  std::vector<double> ticks;
  if (scale == Scale::kNines) {
    std::copy_if(std::begin(kNineShares), std::end(kNineShares), std::back_inserter(ticks),
                 [&](double share) { return low <= share && share <= high; });
    return ticks;
  }
  if (scale == Scale::kLog) {
    const bool few = std::log10(high / low) <= count / 3.0;
    for (double decade = std::pow(10, std::floor(std::log10(low))); decade <= high; decade *= 10) {
      for (double digit : {1.0, 2.0, 5.0}) {
        const double tick = decade * digit;
        if ((digit == 1 || few) && low <= tick && tick <= high) ticks.push_back(tick);
      }
    }
    return ticks;
  }
  const double rough = (high - low) / std::max(1, count);
  const double decade = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * decade;
  for (double digit : {5.0, 2.0, 1.0}) {
    if (digit * decade >= rough) step = digit * decade;
  }
  for (double i = std::ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); ++i) {
    ticks.push_back(i * step + 0.0);  // + 0.0 turns negative zero into zero
  }
  return ticks;
}

std::string Escape(absl::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        const bool control = static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t';
        out += control ? std::string("\xef\xbf\xbd") : std::string(1, c);
    }
  }
  return out;
}

std::string PlotSvg(const Plot& plot) { return Drawing(plot).Draw(); }

}  // namespace athanor::bench
