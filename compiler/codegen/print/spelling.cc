#include "compiler/codegen/print/spelling.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {

std::string RegisterElement(DType dtype) {
  return dtype == DType::kBool ? "i32" : MemoryElement(dtype);
}

std::string MemoryElement(DType dtype) {
  if (dtype == DType::kBool || IsNarrow(dtype)) return Cat("u", 8 * DTypeBytes(dtype));
  return std::string(DTypeName(dtype));
}

std::optional<std::string> Literal(const Scalar& value) {
  const DType dtype = value.dtype;
  if (dtype == DType::kBool) return value.u != 0 ? "1" : "0";
  const int bits = 8 * DTypeBytes(dtype);
  if (IsFloat(dtype)) {
    const uint64_t code = EncodeFloat(dtype, value.f);
    if (IsNarrow(dtype)) return absl::StrFormat("0x%xu", code);
    const double kept = DecodeFloat(dtype, code);
    if (!std::isfinite(kept)) return std::nullopt;
    return absl::StrFormat("%a%s", kept, bits == 64 ? "" : "f");
  }
  const uint64_t kept = bits == 64 ? value.u : value.u & ((uint64_t{1} << bits) - 1);
  return absl::StrFormat("(%s)0x%x%s", RegisterElement(dtype), kept, bits == 64 ? "UL" : "u");
}

std::string LiteralOfBits(const Scalar& value) {
  return absl::StrFormat("0x%x%s", EncodeFloat(value.dtype, value.f),
                         value.dtype == DType::kF64 ? "UL" : "u");
}

std::vector<std::string> Texts(absl::Span<const Operand> args) {
  std::vector<std::string> texts;
  for (const Operand& a : args) texts.push_back(a.text);
  return texts;
}

bool NeverNan(const Operand& x) {
  return x.constant != nullptr && IsFloat(x.constant->dtype) && !std::isnan(x.constant->f);
}

std::string Pick(const std::string& a, const char* comparison, const std::string& b) {
  return Choose(Cat(a, " ", comparison, " ", b), a, b);
}

std::optional<std::string> IntegerText(Op op, const std::string& type, const std::string& wrap,
                                       absl::Span<const Operand> args) {
  const std::string& a = args[0].text;
  auto infix = [&](const char* o, const std::string& cast) {
    return Cat("(", type, ")", Infix(Cat(cast, a), o, Cat(cast, args[1].text)));
  };
  switch (op) {
    case Op::kAdd:
      return infix("+", wrap);
    case Op::kMul:
      return infix("*", wrap);
    case Op::kAnd:
      return infix("&", "");
    case Op::kOr:
      return infix("|", "");
    case Op::kXor:
      return infix("^", "");
    case Op::kNot:
      return Cat("(", type, ")~", a);
    case Op::kMin:
      return Pick(a, "<", args[1].text);
    case Op::kMax:
      return Pick(a, ">", args[1].text);
    default:
      return std::nullopt;
  }
}

std::string BufferName(int buffer) { return Cat("b", buffer); }

}  // namespace athanor::kir
