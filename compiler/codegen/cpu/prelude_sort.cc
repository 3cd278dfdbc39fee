// Sorting of integer keys with their positions.
#include "compiler/codegen/cpu/prelude.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {

// Least significant digit radix sort: one stable pass per digit, so that equal keys keep their
// order. A digit that all keys share takes no pass. Few elements are sorted by insertion instead.
std::string Prelude::Sort(const std::string& key, const std::string& place) {
  const std::string name = Cat("sort_", key, "_", place);
  // Not inlined, because a kernel calls it at several places.
  const char* text =
      "static __attribute__((noinline)) void $n($ku* restrict k, $pu* restrict p,\n"
      "                                         $ku* restrict k2, $pu* restrict p2, i64 n) {\n"
      "  if (n <= $f) {\n"
      "    for (i64 i = 1; i < n; ++i) {\n"
      "      const $k own = k[i];\n"
      "      const $p place = p[i];\n"
      "      i64 at = i;\n"
      "      for (; at > 0 && k[at - 1] > own; --at) {\n"
      "        k[at] = k[at - 1];\n        p[at] = p[at - 1];\n      }\n"
      "      k[at] = own;\n      p[at] = place;\n    }\n"
      "    return;\n  }\n"
      "  $p count[$b][256];\n"
      "  for (i32 d = 0; d < $b; ++d) {\n"
      "    for (i32 v = 0; v < 256; ++v) count[d][v] = 0;\n  }\n"
      "  for (i64 i = 0; i < n; ++i) {\n"
      "    const $k own = k[i];\n"
      "#pragma clang loop unroll(full)\n"
      "    for (i32 d = 0; d < $b; ++d) ++count[d][own >> 8 * d & 255];\n  }\n"
      "  $ku *from = k, *to = k2;\n"
      "  $pu *places = p, *moved = p2;\n"
      "  for (i32 d = 0; d < $b; ++d) {\n"
      "    $p* const at = count[d];\n"
      "    if (at[from[0] >> 8 * d & 255] == n) continue;\n"
      "    $p next = 0;\n"
      "    for (i32 v = 0; v < 256; ++v) {\n"
      "      const $p own = at[v];\n      at[v] = next;\n      next += own;\n    }\n"
      "    for (i64 i = 0; i < n; ++i) {\n"
      "      const $k own = from[i];\n"
      "      const $p here = at[own >> 8 * d & 255]++;\n"
      "      to[here] = own;\n      moved[here] = places[i];\n    }\n"
      "    $ku* const keys = from;\n    from = to;\n    to = keys;\n"
      "    $pu* const was = places;\n    places = moved;\n    moved = was;\n  }\n"
      "  if (from == k) return;\n"
      "  for (i64 i = 0; i < n; ++i) k[i] = from[i];\n"
      "  for (i64 i = 0; i < n; ++i) p[i] = places[i];\n"
      "}\n";
  const int bytes = ElementBits(key) / 8;
  return Define(name, Fill(text, {{"n", name},
                                  {"k", key},
                                  {"p", place},
                                  {"b", Cat(bytes)},
                                  {"f", Cat(bytes == 8 ? 64 : 32)}}));
}

}  // namespace athanor::kir
