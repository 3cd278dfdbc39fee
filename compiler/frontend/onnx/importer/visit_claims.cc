// Compares what the file states about values with the inferred types; stated types are never used.
// A wrong shape is a common leftover of exporters and editors. The right one is known, so it is
// only noted. A wrong type is refused, because its author meant other numbers.
#include <string>

#include "compiler/frontend/onnx/importer/visit.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {

// Checks the claims about values that no node makes: inputs that are initializers, inputs of
// sub-graphs, and either of them as outputs.
void GraphVisitor::CheckStated(const GraphProto& graph, const Scope& scope, const Frame& frame,
                               const GraphInfo& info) {
  const auto check = [&](const std::string& name) {
    const Value* value = scope.Find(name).value;
    if (value == nullptr || value->poisoned) return;
    if (absl::Status s = CheckClaims(name, *value, frame, info); !s.ok()) {
      Refuse(nullptr, frame, 0, s);
    }
  };
  for (const auto& input : graph.input()) check(input.name());
  for (const auto& tensor : graph.initializer()) {
    if (!info.inputs.contains(tensor.name())) check(tensor.name());
  }
}

absl::Status GraphVisitor::CheckClaims(std::string_view name, const Value& value,
                                       const Frame& frame, const GraphInfo& info) {
  const auto [begin, end] = info.claims.equal_range(name);
  for (auto claim = begin; claim != end; ++claim) {
    RETURN_IF_ERROR(CheckClaim(name, value, frame, claim->second));
  }
  return absl::OkStatus();
}

absl::Status GraphVisitor::CheckClaim(std::string_view name, const Value& value, const Frame& frame,
                                      const Claim& claim) {
  const ::onnx::TypeProto& type = claim.info->type();
  const std::string what = Cat(claim.kind, " ", Quoted(Cat(frame.path, name)));
  if (type.value_case() == ::onnx::TypeProto::VALUE_NOT_SET) return absl::OkStatus();
  if (!type.has_tensor_type()) {
    return Invalid(what, " has a stated type other than a tensor's, but is a tensor");
  }
  const int32_t number = type.tensor_type().elem_type();
  if (number != 0 && number != Row(value.elem).number) {
    const std::optional<Elem> stated = ElemOf(number);
    return Invalid(what, " is stated to be of type ",
                   stated ? std::string(ElemName(*stated)) : Cat("number ", number), ", but is of ",
                   ElemName(value.elem));
  }
  std::string wrong = state_.dims->WrongClaim(what, type, value.shape, state_.b->bounds());
  const bool of_output = claim.kind == kOutput && frame.path.empty();
  if (!wrong.empty()) state_.log.Note(std::move(wrong), of_output);
  return absl::OkStatus();
}

}  // namespace athanor::onnx
