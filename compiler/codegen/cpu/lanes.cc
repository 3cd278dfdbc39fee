#include "compiler/codegen/cpu/lanes.h"

namespace athanor::kir {
namespace {

bool IsFloatElement(const std::string& element) { return element[0] == 'f'; }

// Returns the suffix of the masked moves' builtins: "ups", "upd", "dqusi", ...
std::string MoveSuffix(const std::string& element) {
  if (element == "f32") return "ups";
  if (element == "f64") return "upd";
  switch (ElementBits(element)) {
    case 8:
      return "dquqi";
    case 16:
      return "dquhi";
    case 32:
      return "dqusi";
    default:
      return "dqudi";
  }
}

std::string Avx2Suffix(const std::string& element, int bits) {
  const bool wide = ElementBits(element) == 64;
  return Cat(IsFloatElement(element) ? (wide ? "pd" : "ps") : (wide ? "q" : "d"),
             bits == 256 ? "256" : "");
}

// Reports whether masked moves take a mask register for vectors of so many lanes.
bool HasMaskRegisters(const CpuFeatures& has, const std::string& element, int lanes) {
  const int width = ElementBits(element), bits = lanes * width;
  return has.avx512f && (bits == 512 || (has.avx512vl && (bits == 128 || bits == 256))) &&
         (width >= 32 || has.avx512bw);
}

// Reports whether there are masked moves, by a mask register or a vector.
bool HasMaskedMoves(const CpuFeatures& has, const std::string& element, int lanes) {
  const int width = ElementBits(element), bits = lanes * width;
  return HasMaskRegisters(has, element, lanes) ||
         (has.avx2 && (bits == 128 || bits == 256) && width >= 32);
}

// Defines the mask register of the lanes below a count.
std::string CountBits(Prelude& p, int lanes) {
  return p.Define(Cat("bits_below_", lanes),
                  "FN $t $n(i64 n) {\n"
                  "  return ($t)(n <= 0 ? 0 : n >= $l ? $a : (1UL << n) - 1);\n}\n",
                  {{"t", Cat("u", lanes < 8 ? 8 : lanes)},
                   {"l", Cat(lanes)},
                   {"a", lanes == 64 ? "~0UL" : Cat("((1UL << ", lanes, ") - 1)")}});
}

// Defines the mask register of a mask's lanes. Fewer than eight of them fill a part of a byte.
std::string MaskBits(Prelude& p, int lanes) {
  auto lane = [&](int i) { return Cat(i < lanes ? i : lanes); };
  const std::string wide =
      lanes < 8 ? Call("__builtin_shufflevector", {"m", Cat("(i32x", lanes, ")0"), List(8, lane)})
                : "m";
  return p.Define(Cat("bits_", lanes),
                  "FN u$w $n(i32x$l m) {\n"
                  "  const bitx$w b = __builtin_convertvector($v, bitx$w);\n"
                  "  u$w bits;\n  __builtin_memcpy(&bits, &b, sizeof(bits));\n  return bits;\n}\n",
                  {{"w", Cat(lanes < 8 ? 8 : lanes)}, {"l", Cat(lanes)}, {"v", wide}});
}

// Moves by the widest masked move there is: with a mask register, with a mask vector, by halves,
// or lane by lane.
std::string MoveSome(Prelude& p, bool store, By by, const std::string& element, int lanes) {
  const CpuFeatures& has = p.features();
  const std::string type = VectorName(element, lanes);
  const bool count = by == By::kCount;
  const int bits = lanes * ElementBits(element), half = lanes / 2;
  Prelude::Blanks blanks = {{"T", type}, {"e", element}, {"l", Cat(lanes)}};
  std::string text = Cat(store ? "FN void $n($eu* p, $T x, " : "FN $T $n(const $eu* p, ",
                         count ? "i64 n" : "i32x$l m", ") {\n");
  if (HasMaskRegisters(has, element, lanes)) {
    const std::string mask =
        count ? Call(CountBits(p, lanes), {"n"}) : Call(MaskBits(p, lanes), {"m"});
    const std::string move =
        Cat("__builtin_ia32_", store ? "store" : "load", MoveSuffix(element), bits, "_mask");
    text += store ? Cat("  ", Call(move, {"(void*)p", "x", mask}), ";\n")
                  : Cat("  return ($T)", Call(move, {"(const void*)p", "($T)0", mask}), ";\n");
  } else if (HasMaskedMoves(has, element, lanes) && count) {
    const std::string move = MoveSome(p, store, By::kMask, element, lanes);
    const std::string mask = Call(LaneMask(p, lanes), {"n"});
    text += store ? Cat("  ", Call(move, {"p", "x", mask}), ";\n")
                  : Cat("  return ", Call(move, {"p", mask}), ";\n");
  } else if (HasMaskedMoves(has, element, lanes)) {
    const std::string mask = Convert(SignedOf(element), lanes, "m");
    const std::string move =
        Cat("__builtin_ia32_mask", store ? "store" : "load", Avx2Suffix(element, bits));
    text += store ? Cat("  ", Call(move, {"(void*)p", mask, "x"}), ";\n")
                  : Cat("  return ($T)", Call(move, {"(const void*)p", mask}), ";\n");
  } else if (lanes >= 4 && HasMaskedMoves(has, element, half)) {
    const std::string move = MoveSome(p, store, by, element, half);
    const std::string low = count ? "n" : "m.lo", high = count ? Cat("n - ", half) : "m.hi";
    const std::string upper = Cat("p + ", half);
    text += store ? Cat("  ", Call(move, {"p", "x.lo", low}), ";\n  ",
                        Call(move, {upper, "x.hi", high}), ";\n")
                  : Cat("  return ",
                        Call("__builtin_shufflevector",
                             {Call(move, {"p", low}), Call(move, {upper, high}), Numbers(lanes)}),
                        ";\n");
  } else {
    if (!store) text += "  $T x = ($T)0;\n";
    for (int i = 0; i < lanes; ++i) {
      text += Cat("  if (", count ? Cat("n > ", i) : Cat("m[", i, "]"), ") ",
                  store ? Cat("p[", i, "] = x[", i, "]") : Cat("x[", i, "] = p[", i, "]"), ";\n");
    }
    if (!store) text += "  return x;\n";
  }
  return p.Define(Cat(store ? "store_" : "load_", count ? "below_" : "where_", type), text + "}\n",
                  blanks);
}

}  // namespace

std::string LaneMask(Prelude& p, int lanes) {
  return p.Define(
      Cat("lanes_", lanes),
      "FN i32x$l $n(i64 n) {\n"
      "  return (i32x$l)((i32x$l){$c} < (i32x$l)(i32)(n < 0 ? 0 : n > $l ? $l : n));\n}\n",
      {{"l", Cat(lanes)}, {"c", Numbers(lanes)}});
}

std::string AnyLane(Prelude& p, int lanes) {
  return p.Define(Cat("any_", lanes),
                  "FN i32 $n(i32x$l m) {\n  return __builtin_reduce_or(m) != 0;\n}\n",
                  {{"l", Cat(lanes)}});
}

std::string LoadSome(Prelude& p, By by, const std::string& element, int lanes) {
  return MoveSome(p, /*store=*/false, by, element, lanes);
}

std::string StoreSome(Prelude& p, By by, const std::string& element, int lanes) {
  return MoveSome(p, /*store=*/true, by, element, lanes);
}

std::string Gather(Prelude& p, const std::string& element, int lanes, bool strided, bool masked) {
  const std::string type = VectorName(element, lanes);
  std::string text = Cat("FN $T $n(const $eu* p, ", strided ? "i64 d" : "i64x$l d",
                         masked ? ", i32x$l m) {\n" : ") {\n");
  auto at = [&](int i) { return strided ? Cat("p[", i, " * d]") : Cat("p[d[", i, "]]"); };
  if (masked && !strided) {
    // A mask of checked positions is usually full: tests that once instead of branching per lane.
    const std::string any = AnyLane(p, lanes);
    text += Cat("  if (__builtin_expect(!", any, "(~m), 1)) return ",
                Gather(p, element, lanes, strided, /*masked=*/false), "(p, d);\n");
  }
  if (masked) {
    text += "  $T x = ($T)0;\n";
    for (int i = 0; i < lanes; ++i) text += Cat("  if (m[", i, "]) x[", i, "] = ", at(i), ";\n");
    text += "  return x;\n}\n";
  } else {
    text += Cat("  return ($T){", List(lanes, at), "};\n}\n");
  }
  return p.Define(Cat(strided ? "stride_" : "gather_", masked ? "where_" : "", type), text,
                  {{"T", type}, {"e", element}, {"l", Cat(lanes)}});
}

std::string Scatter(Prelude& p, const std::string& element, int lanes, bool strided, bool masked) {
  const std::string type = VectorName(element, lanes);
  std::string text = Cat("FN void $n($eu* p, ", strided ? "i64 d" : "i64x$l d", ", $T x",
                         masked ? ", i32x$l m) {\n" : ") {\n");
  for (int i = 0; i < lanes; ++i) {
    text += Cat(masked ? Cat("  if (m[", i, "]) ") : "  ",
                strided ? Cat("p[", i, " * d]") : Cat("p[d[", i, "]]"), " = x[", i, "];\n");
  }
  return p.Define(Cat(strided ? "stride_store_" : "scatter_", masked ? "where_" : "", type),
                  text + "}\n", {{"T", type}, {"e", element}, {"l", Cat(lanes)}});
}

std::string Every(Prelude& p, const std::string& element, int lanes, int step, bool masked) {
  const std::string type = VectorName(element, lanes);
  Prelude::Blanks blanks = {{"T", type}, {"e", element}, {"l", Cat(lanes)}};
  if (masked) blanks.push_back({"w", LoadSome(p, By::kMask, element, lanes)});
  std::string text = Cat("FN $T $n(const $eu* p", masked ? ", i32x$l m" : "", ") {\n");
  for (int part = 0; part < step; ++part) {
    // The last vector ends with the last lane's element.
    const int start = part + 1 < step ? part * lanes : (lanes - 1) * step - lanes + 1;
    const std::string at = Cat("p + ", start), mask = List(lanes, [&](int k) {
                                                 const bool wanted = (start + k) % step == 0;
                                                 return Cat(wanted ? (start + k) / step : lanes);
                                               });
    // Keeps the lanes that earlier vectors hold; takes from this one the lanes that it adds.
    const std::string order = List(lanes, [&](int lane) {
      const int place = lane * step - start;
      const bool here = place >= 0 && place < lanes && lane * step >= part * lanes;
      return Cat(part == 0 ? (place < lanes ? place : 0) : here ? lanes + place : lane);
    });
    text += Cat("  const $T v", part, " = ",
                masked ? Cat("$w(", at, ", __builtin_shufflevector(m, (i32x$l)0, ", mask, "))")
                       : Cat("*(const $Tu*)(", at, ")"),
                ";\n");
    text += part == 0 ? Cat("  $T x = __builtin_shufflevector(v0, v0, ", order, ");\n")
                      : Cat("  x = __builtin_shufflevector(x, v", part, ", ", order, ");\n");
  }
  return p.Define(Cat("every_", step, "_", masked ? "where_" : "", type), text + "  return x;\n}\n",
                  blanks);
}

}  // namespace athanor::kir
