#include "compiler/codegen/cpu/memory.h"

#include <vector>

#include "compiler/codegen/cpu/lanes.h"

namespace athanor::kir {
namespace {

// i32xN(KernelError*, i64 item, index, extent, active).
std::string CheckHelper(Prelude& p, int lanes) {
  p.Define("record",
           "FN void record(struct KernelError* e, i64 item, i64 index, i64 extent) {\n"
           "  if (e->code) return;\n"
           "  e->code = 1;\n  e->index = index;\n  e->extent = extent;\n  e->item = item;\n}\n");
  if (lanes == 1) {
    return p.Define(
        "check_1",
        "FN i32 check_1(struct KernelError* e, i64 item, i64 index, i64 extent, i32 active) {\n"
        "  const i32 ok = (index >= 0) & (index < extent);\n"
        "  if (__builtin_expect(active & !ok, 0)) record(e, item, index, extent);\n"
        "  return ok;\n}\n");
  }
  AnyLane(p, lanes);
  return p.Define(
      Cat("check_", lanes),
      "FN i32x$l $n(struct KernelError* e, i64 item, i64x$l index, i64x$l extent, i32x$l "
      "active) {\n"
      "  const i32x$l ok = __builtin_convertvector((index >= 0) & (index < extent), i32x$l);\n"
      "  if (__builtin_expect(any_$l(active & ~ok), 0)) {\n"
      "    for (i32 l = 0; l < $l; ++l) {\n"
      "      if (active[l] & ~ok[l]) record(e, item, index[l], extent[l]);\n    }\n  }\n"
      "  return ok;\n}\n",
      {{"l", Cat(lanes)}});
}

// The library's product of f32 or f64 matrices, CpuGemm of runtime/device/kernel_abi.h: a variable
// that the loader of the kernel sets.
std::string GemmVariable(Prelude& p, DType dtype) {
  return p.Define(dtype == DType::kF64 ? "athanor_dgemm" : "athanor_sgemm",
                  "void (*$n)(i64 rows, i64 columns, i64 sums, const void* left, i64 left_stride,\n"
                  "    i64 left_transposed, const void* right, i64 right_stride, i64 "
                  "right_transposed,\n    void* result, i64 result_stride);\n");
}

// void(key* keys, place* places, key*, place*, i64 n): kir::Opcode::kSort. Least significant digit
// radix sort: one stable pass per digit, so that equal keys keep their order. A digit that all keys
// share takes no pass. Few elements are sorted by insertion instead.
std::string SortHelper(Prelude& p, const std::string& key, const std::string& place) {
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
  return p.Define(Cat("sort_", key, "_", place), text,
                  {{"k", key}, {"p", place}, {"b", Cat(bytes)}, {"f", Cat(bytes == 8 ? 64 : 32)}});
}

}  // namespace

CpuMemory::Active CpuMemory::ActiveOf(const std::string& count,
                                      const std::optional<Operand>& predicate, int lanes) {
  if (lanes == 1) {
    std::string text = count.empty() ? "" : Cat("(", count, " > 0)");
    if (predicate) text = Cat(text, text.empty() ? "" : " & ", predicate->text);
    if (text.empty()) return {};
    return {Active::kScalar, Cat("(", text, ")")};
  }
  if (!predicate) return count.empty() ? Active{} : Active{Active::kCount, count};
  if (predicate->type.lanes > 1) {
    if (count.empty()) return {Active::kMask, predicate->text};
    return {Active::kMask, Infix(predicate->text, "&", Call(LaneMask(prelude_, lanes), {count}))};
  }
  if (count.empty()) return {Active::kScalar, predicate->text};
  return {Active::kCount, Choose(predicate->text, count, "0")};
}

std::string CpuMemory::MaskOf(const Active& active, int lanes) {
  switch (active.kind) {
    case Active::kAll:
      return Cat("(i32x", lanes, ")(-1)");
    case Active::kScalar:
      return Cat("(i32x", lanes, ")(-", active.text, ")");
    case Active::kCount:
      return Call(LaneMask(prelude_, lanes), {active.text});
    default:
      return active.text;
  }
}

std::string CpuMemory::Load(const Access& access) {
  const std::string element = MemoryElement(access.type.dtype);
  const bool is_bool = access.type.dtype == DType::kBool;
  const int lanes = access.type.lanes;
  if (lanes > 1) {
    const std::string value = LoadVector(access, element);
    return is_bool ? AsBool(8, lanes, Infix(value, "!=", "0")) : value;
  }
  const Active active = ActiveOf(access.count, access.predicate, 1);
  const std::string at =
      Cat(BufferName(access.buffer), "[", access.index, "]", is_bool ? " != 0" : "");
  return active.kind == Active::kAll ? at : Cat(active.text, " ? ", at, " : 0");
}

std::string CpuMemory::LoadVector(const Access& access, const std::string& element) {
  const int lanes = access.type.lanes;
  const Active active = ActiveOf(access.count, access.predicate, lanes);
  const std::string at = Cat(BufferName(access.buffer), " + ", access.index);
  if (access.pattern == Access::Pattern::kUniform) return LoadUniform(access, element, active);
  if (access.pattern == Access::Pattern::kContiguous) {
    if (active.kind == Active::kAll)
      return Cat("*(const ", VectorName(element, lanes), "u*)(", at, ")");
    if (active.kind == Active::kMask) {
      return Call(LoadSome(prelude_, By::kMask, element, lanes), {at, active.text});
    }
    return Call(
        LoadSome(prelude_, By::kCount, element, lanes),
        {at, active.kind == Active::kCount ? active.text : Choose(active.text, Cat(lanes), "0")});
  }
  const bool strided = access.pattern == Access::Pattern::kStrided,
             masked = active.kind != Active::kAll,
             every = strided && access.step >= 2 && access.step <= kMostStep;
  const std::string name =
      every ? Every(prelude_, element, lanes, static_cast<int>(access.step), masked)
            : Gather(prelude_, element, lanes, strided, masked);
  std::vector<std::string> args = {strided ? at : BufferName(access.buffer)};
  if (!every) args.push_back(strided ? access.stride : access.index);
  if (masked) args.push_back(MaskOf(active, lanes));
  return Call(name, args);
}

std::string CpuMemory::LoadUniform(const Access& access, const std::string& element,
                                   const Active& active) {
  const int lanes = access.type.lanes;
  const std::string type = Cat("(", VectorName(element, lanes), ")");
  const std::string value = Cat(BufferName(access.buffer), "[", access.index, "]");
  if (active.kind == Active::kAll) return Cat(type, value);
  if (active.kind == Active::kScalar) return Cat(type, Choose(active.text, value, "0"));
  const std::string mask = MaskOf(active, lanes), any = Call(AnyLane(prelude_, lanes), {mask});
  return Choose(AsMask(ElementBits(element), lanes, mask), Cat(type, Choose(any, value, "0")),
                Cat(type, "0"));
}

std::string CpuMemory::Store(const Access& access, const Operand& value) {
  const std::string element = MemoryElement(access.type.dtype);
  const int lanes = access.type.lanes;
  if (lanes > 1) {
    const bool is_bool = access.type.dtype == DType::kBool;
    return StoreVector(access, element,
                       is_bool ? Convert("u8", lanes, Cat(value.text, " & 1")) : value.text);
  }
  const Active active = ActiveOf(access.count, access.predicate, 1);
  const std::string store = Cat(BufferName(access.buffer), "[", access.index, "] = ", value.text);
  return active.kind == Active::kAll ? store : Cat("if (", active.text, ") ", store);
}

std::string CpuMemory::StoreVector(const Access& access, const std::string& element,
                                   const std::string& value) {
  const int lanes = access.type.lanes;
  const Active active = ActiveOf(access.count, access.predicate, lanes);
  const std::string at = Cat(BufferName(access.buffer), " + ", access.index);
  if (access.pattern == Access::Pattern::kContiguous) {
    const std::string all = Cat("*(", VectorName(element, lanes), "u*)(", at, ") = ", value);
    if (active.kind == Active::kAll) return all;
    if (active.kind == Active::kScalar) return Cat("if (", active.text, ") ", all);
    const By by = active.kind == Active::kCount ? By::kCount : By::kMask;
    return Call(StoreSome(prelude_, by, element, lanes), {at, value, active.text});
  }
  // All lanes at one place are lanes at stride 0: the last active one wins.
  const bool uniform = access.pattern == Access::Pattern::kUniform,
             strided = uniform || access.pattern == Access::Pattern::kStrided,
             masked = active.kind != Active::kAll;
  const std::string name = Scatter(prelude_, element, lanes, strided, masked);
  std::vector<std::string> args = {strided ? at : BufferName(access.buffer),
                                   uniform   ? "0"
                                   : strided ? access.stride
                                             : access.index,
                                   value};
  if (masked) args.push_back(MaskOf(active, lanes));
  return Call(name, args);
}

std::string CpuMemory::Prefetch(int buffer, const std::string& index) {
  // Prefetches into the second-level cache: lines a power of two apart share few sets of the first.
  const int bytes = DTypeBytes(kernel_.buffers[buffer].dtype);
  const std::string at = Cat("((u64)", BufferName(buffer), " + ", bytes, "UL * (u64)", index, ")");
  return Call("__builtin_prefetch", {Cat("(const void*)", at), "0", "2"});
}

std::string CpuMemory::Gemm(Type type, absl::Span<const MatrixOperand> matrices,
                            absl::Span<const std::string> extents) {
  std::vector<std::string> args(extents.begin(), extents.end());
  const auto add = [&](const MatrixOperand& m) {
    args.push_back(Cat(BufferName(m.buffer), " + ", m.index));
    args.push_back(m.stride);
  };
  for (const MatrixOperand& operand : matrices.subspan(1)) {
    add(operand);
    args.push_back(operand.transposed ? "1" : "0");
  }
  add(matrices[0]);
  return Call(GemmVariable(prelude_, type.dtype), args);
}

std::string CpuMemory::Sort(Type key, absl::Span<const MatrixOperand> rows,
                            const std::string& elements) {
  std::vector<std::string> args;
  for (const MatrixOperand& row : rows)
    args.push_back(Cat(BufferName(row.buffer), " + ", row.index));
  args.push_back(elements);
  return Call(SortHelper(prelude_, MemoryElement(key.dtype),
                         MemoryElement(kernel_.buffers[rows[1].buffer].dtype)),
              args);
}

std::string CpuMemory::CheckIndex(const Operand& index, const std::string& extent,
                                  const std::string& count,
                                  const std::optional<Operand>& predicate) {
  const int lanes = index.type.lanes;
  const Active active = ActiveOf(count, predicate, lanes);
  const std::string mask = lanes > 1                     ? MaskOf(active, lanes)
                           : active.kind == Active::kAll ? "1"
                                                         : active.text;
  return Call(CheckHelper(prelude_, lanes), {"error", "g", index.text, extent, mask});
}

}  // namespace athanor::kir
