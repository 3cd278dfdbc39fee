#include "compiler/codegen/cpu/dialect.h"

#include <bit>
#include <cmath>

#include "absl/strings/str_format.h"
#include "compiler/codegen/cpu/cpu_dialect.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {

std::string RegisterElement(DType dtype) {
  if (dtype == DType::kBool) return "i32";
  return MemoryElement(dtype);
}

std::string MemoryElement(DType dtype) {
  if (dtype == DType::kBool || IsNarrow(dtype)) return Cat("u", 8 * DTypeBytes(dtype));
  return std::string(DTypeName(dtype));
}

std::string CpuDialect::TypeName(Type type) {
  return VectorName(RegisterElement(type.dtype), type.lanes);
}

std::string CpuDialect::Constant(const Scalar& value) {
  const DType dtype = value.dtype;
  if (dtype == DType::kBool) return value.u != 0 ? "1" : "0";
  const int bits = 8 * DTypeBytes(dtype);
  if (IsFloat(dtype)) {
    const uint64_t code = EncodeFloat(dtype, value.f);
    if (IsNarrow(dtype)) return absl::StrFormat("0x%xu", code);
    const std::string type = RegisterElement(dtype), raw = UnsignedOf(type);
    if (!std::isfinite(DecodeFloat(dtype, code))) {
      return absl::StrFormat("%s(0x%x%s)", prelude_.Bits(type, raw), code, bits == 64 ? "UL" : "u");
    }
    return absl::StrFormat("%a%s", DecodeFloat(dtype, code), bits == 64 ? "" : "f");
  }
  const uint64_t kept = bits == 64 ? value.u : value.u & ((uint64_t{1} << bits) - 1);
  return absl::StrFormat("(%s)0x%x%s", RegisterElement(dtype), kept, bits == 64 ? "UL" : "u");
}

std::string CpuDialect::Broadcast(Type type, const Operand& scalar) {
  const char* sign = type.dtype == DType::kBool ? "-" : "";
  return Cat("(", TypeName(type), ")(", sign, scalar.text, ")");
}

std::string CpuDialect::Fma(Type type, absl::Span<const Operand> args) {
  if (IsInteger(type.dtype)) {
    const std::string element = RegisterElement(type.dtype);
    const Operand product{IntegerOp(Op::kMul, element, type.lanes, args.subspan(0, 2)), type,
                          nullptr};
    return IntegerOp(Op::kAdd, element, type.lanes, {product, args[2]});
  }
  const char* name = "__builtin_elementwise_fma";
  const std::string call = Cat("(", args[0].text, ", ", args[1].text, ", ", args[2].text, ")");
  if (IsNarrow(type.dtype)) return Cat(prelude_.NarrowFma(type.dtype, type.lanes), call);
  return Cat(name, call);
}

std::string CpuDialect::Reduce(Op op, const Operand& vector) {
  const std::string type = TypeName(vector.type);
  const std::string name =
      Cat("reduce_", OpName(op), "_", DTypeName(vector.type.dtype), "x", vector.type.lanes);
  const int half = vector.type.lanes / 2;
  const DType dtype = vector.type.dtype;
  if (!prelude_.Has(name)) {
    // Combines halves until one lane is left: the tree has the same shape for every target.
    std::string text = "x";
    std::string body;
    for (int lanes = half; lanes >= 1; lanes /= 2) {
      const Type t{dtype, lanes};
      const std::string v = Cat("x", lanes), lo = lanes == 1 ? ".x" : ".lo",
                        hi = lanes == 1 ? ".y" : ".hi";
      std::string a = Cat(text, lo), b = Cat(text, hi);
      if (dtype == DType::kBool && lanes == 1) {
        a = Cat("-", a);
        b = Cat("-", b);
      }
      const Operand args[] = {{a, t, nullptr}, {b, t, nullptr}};
      body += Cat("  const ", TypeName(t), " ", v, " = ", Binary(op, dtype, lanes, args), ";\n");
      text = v;
    }
    prelude_.Define(name, Cat("FN ", TypeName({dtype, 1}), " ", name, "(", type, " x) {\n", body,
                              "  return x1;\n}\n"));
  }
  return Cat(name, "(", vector.text, ")");
}

std::string CpuDialect::LaneMask(const std::string& count, int lanes) {
  if (lanes == 1) return Cat("(i32)(", count, " > 0)");
  return Cat(prelude_.LaneMask(lanes), "(", count, ")");
}

CpuDialect::Active CpuDialect::ActiveOf(const std::string& count,
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
    return {Active::kMask,
            Cat("(", predicate->text, " & ", prelude_.LaneMask(lanes), "(", count, "))")};
  }
  if (count.empty()) return {Active::kScalar, predicate->text};
  return {Active::kCount, Cat("(", predicate->text, " ? ", count, " : 0)")};
}

std::string CpuDialect::MaskOf(const Active& active, int lanes) {
  switch (active.kind) {
    case Active::kAll:
      return Cat("(i32x", lanes, ")(-1)");
    case Active::kScalar:
      return Cat("(i32x", lanes, ")(-", active.text, ")");
    case Active::kCount:
      return Cat(prelude_.LaneMask(lanes), "(", active.text, ")");
    default:
      return active.text;
  }
}

std::string CpuDialect::Load(const Access& access) {
  const std::string element = MemoryElement(access.type.dtype);
  const bool is_bool = access.type.dtype == DType::kBool;
  const int lanes = access.type.lanes;
  if (lanes > 1) {
    const std::string value = LoadVector(access, element);
    return is_bool ? AsBool(8, lanes, Cat("(", value, " != 0)")) : value;
  }
  const Active active = ActiveOf(access.count, access.predicate, 1);
  const std::string at = Cat("b", access.buffer, "[", access.index, "]", is_bool ? " != 0" : "");
  if (active.kind == Active::kAll) return at;
  return Cat(active.text, " ? ", at, " : 0");
}

std::string CpuDialect::LoadVector(const Access& access, const std::string& element) {
  const int lanes = access.type.lanes;
  const std::string type = VectorName(element, lanes);
  const Active active = ActiveOf(access.count, access.predicate, lanes);
  const std::string at = Cat("b", access.buffer, " + ", access.index);
  switch (access.pattern) {
    case Access::Pattern::kUniform: {
      const std::string value = Cat("b", access.buffer, "[", access.index, "]");
      if (active.kind == Active::kAll) return Cat("(", type, ")", value);
      if (active.kind == Active::kScalar)
        return Cat("(", type, ")(", active.text, " ? ", value, " : 0)");
      const std::string mask = MaskOf(active, lanes);
      const std::string any = Cat(prelude_.AnyLane(lanes), "(", mask, ")");
      return Cat("(", AsMask(ElementBits(element), lanes, mask), " ? (", type, ")(", any, " ? ",
                 value, " : 0) : (", type, ")0)");
    }
    case Access::Pattern::kContiguous:
      if (active.kind == Active::kAll) return Cat("*(const ", type, "u*)(", at, ")");
      if (active.kind == Active::kMask) {
        return Cat(prelude_.LoadMask(element, lanes), "(", at, ", ", active.text, ")");
      }
      return Cat(prelude_.LoadCount(element, lanes), "(", at, ", ",
                 active.kind == Active::kCount ? active.text
                                               : Cat("(", active.text, " ? ", lanes, " : 0)"),
                 ")");
    default:
      break;
  }
  const bool strided = access.pattern == Access::Pattern::kStrided,
             masked = active.kind != Active::kAll;
  if (strided && access.step >= 2 && access.step <= Prelude::kMostStep) {
    return Cat(prelude_.Every(element, lanes, static_cast<int>(access.step), masked), "(", at,
               masked ? Cat(", ", MaskOf(active, lanes)) : "", ")");
  }
  const std::string name = prelude_.Gather(element, lanes, strided, masked);
  return Cat(name, "(", strided ? at : Cat("b", access.buffer), ", ",
             strided ? access.stride : access.index, masked ? Cat(", ", MaskOf(active, lanes)) : "",
             ")");
}

std::string CpuDialect::Store(const Access& access, const Operand& value) {
  const std::string element = MemoryElement(access.type.dtype);
  const bool is_bool = access.type.dtype == DType::kBool;
  const int lanes = access.type.lanes;
  if (lanes > 1) {
    std::string text = value.text;
    if (is_bool) text = Cat("__builtin_convertvector(", text, " & 1, u8x", lanes, ")");
    return StoreVector(access, element, text);
  }
  const Active active = ActiveOf(access.count, access.predicate, 1);
  const std::string store = Cat("b", access.buffer, "[", access.index, "] = ", value.text);
  return active.kind == Active::kAll ? store : Cat("if (", active.text, ") ", store);
}

std::string CpuDialect::StoreVector(const Access& access, const std::string& element,
                                    const std::string& value) {
  const int lanes = access.type.lanes;
  const std::string type = VectorName(element, lanes);
  Active active = ActiveOf(access.count, access.predicate, lanes);
  const std::string at = Cat("b", access.buffer, " + ", access.index);
  Access::Pattern pattern = access.pattern;
  std::string stride = access.stride;
  if (pattern == Access::Pattern::kUniform) {  // the last active lane wins
    pattern = Access::Pattern::kStrided;
    stride = "0";
  }
  if (pattern == Access::Pattern::kContiguous) {
    const std::string all = Cat("*(", type, "u*)(", at, ") = ", value);
    switch (active.kind) {
      case Active::kAll:
        return all;
      case Active::kScalar:
        return Cat("if (", active.text, ") ", all);
      case Active::kCount:
        return Cat(prelude_.StoreCount(element, lanes), "(", at, ", ", value, ", ", active.text,
                   ")");
      default:
        return Cat(prelude_.StoreMask(element, lanes), "(", at, ", ", value, ", ", active.text,
                   ")");
    }
  }
  const bool strided = pattern == Access::Pattern::kStrided, masked = active.kind != Active::kAll;
  const std::string name = prelude_.Scatter(element, lanes, strided, masked);
  return Cat(name, "(", strided ? at : Cat("b", access.buffer), ", ",
             strided ? stride : access.index, ", ", value,
             masked ? Cat(", ", MaskOf(active, lanes)) : "", ")");
}

std::string CpuDialect::Prefetch(int buffer, const std::string& index) {
  // Prefetches into the second-level cache: lines a power of two apart share few sets of the first.
  return Cat("__builtin_prefetch((const void*)((u64)b", buffer, " + ",
             DTypeBytes(kernel_.buffers[buffer].dtype), "UL * (u64)", index, "), 0, 2)");
}

std::string CpuDialect::Gemm(Type type, absl::Span<const MatrixOperand> matrices,
                             absl::Span<const std::string> extents) {
  std::string call = Cat(prelude_.Gemm(type.dtype), "(");
  for (const std::string& extent : extents) call += Cat(extent, ", ");
  for (const MatrixOperand* m : {&matrices[1], &matrices[2]}) {
    call +=
        Cat("b", m->buffer, " + ", m->index, ", ", m->stride, ", ", m->transposed ? 1 : 0, ", ");
  }
  return Cat(call, "b", matrices[0].buffer, " + ", matrices[0].index, ", ", matrices[0].stride,
             ")");
}

std::string CpuDialect::Sort(Type key, absl::Span<const MatrixOperand> rows,
                             const std::string& elements) {
  std::string call = Cat(
      prelude_.Sort(MemoryElement(key.dtype), MemoryElement(kernel_.buffers[rows[1].buffer].dtype)),
      "(");
  for (const MatrixOperand& row : rows) call += Cat("b", row.buffer, " + ", row.index, ", ");
  return Cat(call, elements, ")");
}

std::string CpuDialect::CheckIndex(const Operand& index, const std::string& extent,
                                   const std::string& count,
                                   const std::optional<Operand>& predicate) {
  const int lanes = index.type.lanes;
  const Active active = ActiveOf(count, predicate, lanes);
  const std::string mask = lanes > 1                     ? MaskOf(active, lanes)
                           : active.kind == Active::kAll ? "1"
                                                         : active.text;
  return Cat(prelude_.CheckIndex(lanes), "(error, g, ", index.text, ", ", extent, ", ", mask, ")");
}

std::string CpuDialect::RandomBits(const Operand& index, const Operand& seed) {
  return Cat(prelude_.RandomBits(index.type.lanes), "(", index.text, ", ", seed.text, ")");
}

std::string CpuDialect::Lane(int lanes) {
  if (lanes == 1) return "0L";
  std::string text = Cat("(i64x", lanes, "){0");
  for (int i = 1; i < lanes; ++i) text += Cat(", ", i);
  return text + "}";
}

// A shift rounds down, as a floor division does, and a dividend that is never negative needs no
// correction.
std::string CpuDialect::FloorDivide(const std::string& a, const std::string& b, int lanes,
                                    std::optional<int64_t> divisor, bool natural) {
  if (divisor && *divisor > 0 && (*divisor & (*divisor - 1)) == 0) {
    return Cat("(", a, " >> ", std::countr_zero(static_cast<uint64_t>(*divisor)), ")");
  }
  if (natural) return Cat("(", a, " / ", b, ")");
  return Cat(prelude_.FloorDivide(lanes), "(", a, ", ", b, ")");
}

std::string CpuDialect::Extreme(bool max, const std::string& a, const std::string& b, int) {
  return Cat("(", a, max ? " > " : " < ", b, " ? ", a, " : ", b, ")");
}

std::string CpuDialect::LoopHint(AxisRole role, bool vectors) {
  if (role == AxisRole::kUnroll) return "#pragma clang loop unroll(full)";
  // Unrolling a loop over many accumulators would spill them.
  return vectors ? "#pragma clang loop unroll(disable)" : "";
}

}  // namespace athanor::kir

namespace athanor {

std::string PrintCpuKernel(const kir::Kernel& kernel, const v1::Target& target) {
  using kir::Buffer;
  kir::CpuDialect dialect(kir::CpuFeatures::Of(target), &kernel);
  const std::string body = PrintBody(kernel, &dialect, 4);
  std::string text =
      "void athanor_kernel(void* const* buffers, const i64* sizes, i64 begin, i64 end, void* "
      "scratch,\n"
      "                    struct KernelError* error) {\n";
  for (size_t i = 0; i < kernel.sizes.size(); ++i) {
    text += Cat("  const i64 s", i, " = sizes[", i, "];\n  __builtin_assume(s", i, " >= 0);\n");
  }
  int64_t offset = 0;
  int global = 0;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Buffer& b = kernel.buffers[i];
    const std::string element = Cat(kir::MemoryElement(b.dtype), "u");
    if (b.space == kir::Space::kGlobal) {
      const char* access = b.written ? "" : "const ";
      text += Cat("  ", access, element, "* const b", i, " = buffers[", global++, "];\n");
    } else {
      text +=
          Cat("  ", element, "* const b", i, " = (", element, "*)((u8*)scratch + ", offset, ");\n");
      offset += (b.elements * DTypeBytes(b.dtype) + 63) / 64 * 64;
    }
  }
  text += Cat("#pragma clang loop unroll(disable)\n  for (i64 g = begin; g < end; ++g) {\n", body,
              "  }\n}\n");
  text = Cat("#define FN static inline __attribute__((always_inline))\n",
             "struct KernelError {\n  i64 code, index, extent, item;\n};\n",
             dialect.prelude().text(), text);
  return Cat(kir::Typedefs(text), text);
}

}  // namespace athanor
