#include "compiler/egraph/graph/variables.h"

#include "absl/strings/str_cat.h"

namespace athanor::egraph {
namespace {

const char* KindText(VariableKind kind) {
  switch (kind) {
    case VariableKind::kClass:
      return "a class";
    case VariableKind::kPayload:
      return "a payload";
    case VariableKind::kRest:
      return "further children";
  }
  return "";
}

}  // namespace

absl::StatusOr<uint32_t> Variables::Intern(const std::string& name, VariableKind kind) {
  const uint32_t i = Find(name);
  if (i == kNone) {
    variables_.push_back({name, kind});
    return static_cast<uint32_t>(variables_.size() - 1);
  }
  if (variables_[i].kind == kind) return i;
  return absl::InvalidArgumentError(absl::StrCat("variable ?", name, " stands for ",
                                                 KindText(variables_[i].kind), " and for ",
                                                 KindText(kind)));
}

uint32_t Variables::AddNameless(VariableKind kind) {
  variables_.push_back({"", kind});
  return static_cast<uint32_t>(variables_.size() - 1);
}

uint32_t Variables::Find(std::string_view name) const {
  for (size_t i = 0; i < variables_.size() && !name.empty(); ++i) {
    if (variables_[i].name == name) return static_cast<uint32_t>(i);
  }
  return kNone;
}

ClassId Match::Class(uint32_t i) const {
  return Is(i, VariableKind::kClass) ? graph_->Find(ClassId{values_[i]}) : ClassId{};
}

PayloadId Match::Payload(uint32_t i) const {
  return Is(i, VariableKind::kPayload) ? PayloadId{values_[i]} : PayloadId{};
}

absl::Span<const ClassId> Match::Rest(uint32_t i) const {
  if (!Is(i, VariableKind::kRest)) return {};
  return graph_->children(NodeId{values_[i]}).subspan((*variables_)[i].rest_begin);
}

}  // namespace athanor::egraph
