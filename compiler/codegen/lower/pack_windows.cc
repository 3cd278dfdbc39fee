#include "compiler/codegen/lower/pack_windows.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "compiler/codegen/lower/tile.h"

namespace athanor {
namespace {

using kir::Var;

// Most taps that are written out inside the loop over channels. Written out, each tap uses what is
// known of it (most inner windows of an image cross no edge), and an image's lines are read while
// they are near.
constexpr int64_t kMostWritten = 16;
// Elements (channels x taps) that are packed for all of a panel's columns before the next channels,
// because planes a power of two apart share few sets of the caches. Large enough to pay for the
// edge tests, which are made once per vector.
constexpr int64_t kElementsTogether = 36;

class WindowPacking {
 public:
  WindowPacking(KernelBuilder& b, const WindowPanel& panel)
      : b_(b),
        e_(b.emitter),
        p_(panel),
        columns_(panel.roles.columns),
        n_(panel.roles.SizeOf(columns_)),
        run_(panel.roles.extents.at(columns_.back())) {
    for (size_t i = 0; i < p_.roles.batch.size(); ++i) at_[p_.roles.batch[i]] = p_.batch[i];
  }

  void Pack();

 private:
  // Clears the vector that the panel's last column cuts off.
  void ClearBeyond(const Expr& end);
  void Runs(const Expr& end);
  // Packs the panel's columns in [from, from + run_).
  void Run(const Expr& from, const Expr& end);
  // Packs the vector of columns `column` at `place` of a panel's row.
  void Columns(const Expr& column, const Expr& place, const std::optional<Expr>& count);
  void Element(const Expr& k, const Expr& place, const std::optional<Expr>& count);
  // Bounds a loop variable or register to [0, extent).
  Expr Below(const Expr& symbol, const Expr& extent) {
    e_.bounds().Set(*symbol.symbol(), 0, extent - 1);
    return symbol;
  }
  Expr Bound(const Expr& value, const Expr& extent) {
    const Expr simple = e_.Simplify(value);
    return simple.symbol() ? simple : e_.Coordinate(simple, extent);
  }

  KernelBuilder& b_;
  kir::Emitter& e_;
  const WindowPanel& p_;
  const std::string columns_;
  const Expr n_, run_;
  std::map<char, Expr> at_;                    // coordinates by letter
  Expr first_channel_ = 0, last_channel_ = 0;  // range along the first of the sums' axes
};

void WindowPacking::Pack() {
  const Expr stop = p_.first + p_.vectors * p_.lanes;
  const Expr least = e_.Simplify(MinOf(n_, stop));
  const Expr end = Bound(least, n_ + 1);
  if (!Divides(e_, p_.lanes, n_) && least != e_.Simplify(stop)) ClearBeyond(end);
  const std::string& sums = p_.roles.sums;
  const std::optional<int64_t> taps =
      p_.roles.SizeOf(sums.empty() ? "" : sums.substr(1)).constant();
  if (sums.empty() || !taps) return Runs(end);
  if (*taps == 0) return;
  first_channel_ = FloorDiv(p_.k_begin, *taps);
  last_channel_ = FloorDiv(p_.k_end, *taps);
  if (*taps > kMostWritten) return Runs(end);
  const int64_t together = std::max<int64_t>(1, kElementsTogether / *taps);
  const Expr begin = e_.Simplify(first_channel_), last = e_.Simplify(last_channel_);
  e_.For(begin, last, together, [&](const Expr& first) {
    first_channel_ = first;
    last_channel_ = Bound(MinOf(last, first + together), p_.roles.extents.at(sums[0]) + 1);
    Runs(end);
  });
}

void WindowPacking::Runs(const Expr& end) {
  const std::string outer = columns_.substr(0, columns_.size() - 1);
  if (outer.empty()) return Run(0, end);
  const std::vector<Expr> extents = p_.roles.ExtentsOf(outer);
  e_.For(FloorDiv(p_.first, run_), CeilDiv(end, run_), 1, [&](const Expr& i) {
    const Expr row = Below(i, p_.roles.SizeOf(outer));
    const Coordinates places = Delinearize(row, extents);
    for (size_t a = 0; a < outer.size(); ++a) at_[outer[a]] = e_.Simplify(places[a]);
    Run(row * run_, end);
  });
}

void WindowPacking::ClearBeyond(const Expr& end) {
  const Expr whole = e_.Simplify(FloorDiv(end - p_.first, p_.lanes) * p_.lanes);
  const Expr cut = e_.Simplify(CeilDiv(end - p_.first, p_.lanes) * p_.lanes);
  ClearColumns(e_, p_.scratch, p_.k_end - p_.k_begin, p_.width, whole, cut, p_.dtype, p_.lanes);
}

void WindowPacking::Run(const Expr& from, const Expr& end) {
  const Expr begin = Bound(MaxOf(p_.first - from, 0), run_);
  const Expr stop = Bound(MinOf(end - from, run_), run_ + 1);
  const Expr whole = Bound(FloorDiv(stop - begin, p_.lanes) * p_.lanes, run_ + 1);
  const Expr rest = p_.lanes == 1 ? Expr(0) : Bound(stop - begin - whole, p_.lanes);
  // The ends are registers, so that a run's lanes are known to be inside it.
  const auto vectors = [&](const Expr& first, const Expr& last, const std::optional<Expr>& count) {
    const Expr lanes = count.value_or(p_.lanes);
    e_.For(first, last, p_.lanes, [&](const Expr& i) {
      e_.bounds().Set(*i.symbol(), 0, run_ - lanes);
      e_.bounds().Set(kir::kLane, 0, lanes - 1);
      const Expr column = i + e_.Lane(p_.lanes);
      Columns(column, from - p_.first + column, count);
    });
  };
  if (!whole.IsConstant(0)) vectors(begin, begin + whole, std::nullopt);
  if (!rest.IsConstant(0)) vectors(begin + whole, stop, rest);
  e_.bounds().Set(kir::kLane, 0, p_.lanes - 1);
}

void WindowPacking::Columns(const Expr& column, const Expr& place,
                            const std::optional<Expr>& count) {
  at_[columns_.back()] = column;
  const std::string& sums = p_.roles.sums;
  if (sums.empty()) return Element(0, place, count);
  const std::string letters = sums.substr(1);
  const std::optional<int64_t> taps = p_.roles.SizeOf(letters).constant();
  if (!taps) {
    // If a window's size is not known, a piece may hold parts of windows.
    const std::vector<Expr> extents = p_.roles.ExtentsOf(sums);
    e_.For(p_.k_begin, p_.k_end, 1, [&](const Expr& k) {
      const Coordinates places = Delinearize(Below(k, p_.roles.SizeOf(sums)), extents);
      for (size_t i = 0; i < sums.size(); ++i) at_[sums[i]] = e_.Simplify(places[i]);
      Element(k, place, count);
    });
    return;
  }
  const auto channels = [&](absl::FunctionRef<void(const Expr& k)> body) {
    e_.For(first_channel_, last_channel_, 1, [&](const Expr& i) {
      at_[sums[0]] = Below(i, p_.roles.extents.at(sums[0]));
      body(i * *taps);
    });
  };
  const std::vector<Expr> extents = p_.roles.ExtentsOf(letters);
  const auto set_taps = [&](const Expr& tap) {
    const Coordinates places = Delinearize(tap, extents);
    for (size_t i = 0; i < letters.size(); ++i) at_[letters[i]] = e_.Simplify(places[i]);
  };
  if (*taps <= kMostWritten) {
    channels([&](const Expr& k) {
      for (int64_t tap = 0; tap < *taps; ++tap) {
        set_taps(tap);
        Element(k + tap, place, count);
      }
    });
    return;
  }
  e_.For(0, *taps, 1, [&](const Expr& tap) {
    set_taps(Below(tap, *taps));
    channels([&](const Expr& k) { Element(k + tap, place, count); });
  });
}

void WindowPacking::Element(const Expr& k, const Expr& place, const std::optional<Expr>& count) {
  PointLowering::Context context(&b_.at, p_.lanes, count);
  Coordinates at;
  for (const char letter : p_.roles.letters[p_.roles.column_operand]) at.push_back(at_.at(letter));
  Var value = e_.Cast(b_.at.At(p_.operand, at), p_.dtype);
  value = e_.Broadcast(value, p_.lanes);
  e_.Store(p_.scratch, e_.Simplify((k - p_.k_begin) * p_.width + place), value, b_.at.mask());
}

}  // namespace

void PackWindows(KernelBuilder& b, const WindowPanel& panel) { WindowPacking(b, panel).Pack(); }

}  // namespace athanor
