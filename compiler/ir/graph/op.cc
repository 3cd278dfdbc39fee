#include "compiler/ir/graph/op.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr std::string_view kOpNames[] = {
#define ATHANOR_X(name) #name,
    ATHANOR_OPS(ATHANOR_X)
#undef ATHANOR_X
};

absl::Status CheckLetters(std::string_view part, std::string_view spec) {
  for (size_t i = 0; i < part.size(); ++i) {
    if (!std::isalpha(static_cast<unsigned char>(part[i]))) {
      return Invalid("spec=", Quoted(spec),
                     ": axes are letters a to z or A to Z, as in \"mk,kn->mn\"");
    }
    if (part.find(part[i], i + 1) != std::string_view::npos) {
      return Invalid("spec=", Quoted(spec), ": letter ", part.substr(i, 1), " occurs twice in ",
                     Quoted(part), "; each operand and the result have a letter at most once");
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view OpName(Op op) {
  const size_t index = static_cast<size_t>(op);
  return index < std::size(kOpNames) ? kOpNames[index] : "an unknown op";
}

std::optional<Op> ParseOp(std::string_view name) {
  static const auto& ops = *[] {
    auto* map = new absl::flat_hash_map<std::string, Op>;
    for (size_t i = 0; i < std::size(kOpNames); ++i) {
      map->emplace(std::string(kOpNames[i]), static_cast<Op>(i));
    }
    return map;
  }();
  auto it = ops.find(std::string(name));
  if (it == ops.end()) return std::nullopt;
  return it->second;
}

const OpRow& OpInfo(Op op) {
  static const auto& rows = *[] {
    auto* by_op = new std::array<const OpRow*, std::size(kOpNames)>{};
    for (const OpRow& row : OpTable()) (*by_op)[static_cast<size_t>(row.op)] = &row;
    return by_op;
  }();
  return *rows[static_cast<size_t>(op)];
}

std::optional<int64_t> SelectedAxis(Op op, const Attrs& attrs) {
  const std::vector<OperandRole>& roles = OpInfo(op).traits.roles;
  if (roles.size() < 2 || roles[1] != OperandRole::kIndex) return std::nullopt;
  return GetAttrOr<int64_t>(attrs, "axis", 0);
}

std::string_view AttrTypeName(AttrType type) {
  switch (type) {
    case AttrType::kBool:
      return "bool";
    case AttrType::kInt:
      return "int";
    case AttrType::kFloat:
      return "float";
    case AttrType::kString:
      return "string";
    case AttrType::kDType:
      return "dtype";
    case AttrType::kInts:
      return "ints";
    case AttrType::kShape:
      return "shape";
    case AttrType::kIndexMap:
      return "index map";
    case AttrType::kTensor:
      return "tensor";
    case AttrType::kGraph:
      return "graph";
  }
  return "unknown";
}

std::string ShapeToString(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i].ToString();
  }
  return text + "]";
}

std::string TypeToString(const TensorType& type) {
  return Cat(DTypeName(type.dtype), ShapeToString(type.shape));
}

absl::StatusOr<ContractSpec> ContractSpec::Parse(std::string_view spec) {
  const size_t comma = spec.find(',');
  const size_t arrow = spec.find("->");
  if (comma == std::string_view::npos || arrow == std::string_view::npos || arrow < comma) {
    return Invalid("spec=", Quoted(spec), " must have the form \"mk,kn->mn\"");
  }
  ContractSpec parsed{std::string(spec.substr(0, comma)),
                      std::string(spec.substr(comma + 1, arrow - comma - 1)),
                      std::string(spec.substr(arrow + 2))};
  for (std::string_view part : {parsed.lhs, parsed.rhs, parsed.result}) {
    RETURN_IF_ERROR(CheckLetters(part, spec));
  }
  for (char letter : parsed.result) {
    if (parsed.lhs.find(letter) == std::string::npos &&
        parsed.rhs.find(letter) == std::string::npos) {
      return Invalid("spec=", Quoted(spec), ": letter ", std::string(1, letter),
                     " of the result is in neither operand");
    }
  }
  return parsed;
}

}  // namespace athanor
