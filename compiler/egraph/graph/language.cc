#include "compiler/egraph/graph/language.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::egraph {
namespace {

absl::Status CheckSpec(const OpSpec& op) {
  const std::string where = absl::StrCat("operator \"", op.name, "\": ");
  if (op.name.empty() || op.name[0] == '?' ||
      op.name.find_first_of(" \t\r\n()[]\"") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, "a name is not empty, has no blanks, brackets or quotes, and no leading '?'"));
  }
  if (op.arity < OpSpec::kVariadic) {
    return absl::InvalidArgumentError(absl::StrCat(where, "arity ", op.arity, " is negative"));
  }
  if (op.payload && !(op.payload->print && op.payload->parse)) {
    return absl::InvalidArgumentError(absl::StrCat(where, "payload text needs print and parse"));
  }
  if (op.literal && (op.arity != 0 || !op.payload)) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "a literal has a payload and no children"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Language> Language::Make(std::vector<OpSpec> ops) {
  Language language;
  for (size_t i = 0; i < ops.size(); ++i) {
    RETURN_IF_ERROR(CheckSpec(ops[i]));
    const OpId id{static_cast<uint32_t>(i)};
    if (!language.by_name_.try_emplace(ops[i].name, id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("operator \"", ops[i].name, "\": declared twice"));
    }
  }
  language.ops_ = std::move(ops);
  return language;
}

OpId Language::Find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? OpId{} : it->second;
}

std::optional<Language::Literal> Language::ParseLiteral(std::string_view atom) const {
  for (size_t i = 0; i < ops_.size(); ++i) {
    if (!ops_[i].literal) continue;
    if (const auto payload = ops_[i].payload->parse(atom)) {
      return Literal{OpId{static_cast<uint32_t>(i)}, *payload};
    }
  }
  return std::nullopt;
}

absl::Status Language::CheckNode(OpId op, PayloadId payload, size_t num_children) const {
  if (!Has(op)) {
    return absl::InvalidArgumentError(
        absl::StrCat("operator ", op.value, " is not one of the language's ", ops_.size()));
  }
  const OpSpec& row = spec(op);
  if (row.arity != OpSpec::kVariadic && num_children != static_cast<size_t>(row.arity)) {
    return absl::InvalidArgumentError(
        absl::StrCat("operator ", row.name, " takes ", row.arity, " children, not ", num_children));
  }
  if (payload.valid() != row.payload.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "operator ", row.name, row.payload ? " needs a payload" : " takes no payload"));
  }
  return absl::OkStatus();
}

std::string Language::NodeText(OpId op, PayloadId payload) const {
  const OpSpec& row = spec(op);
  if (!row.payload || !payload.valid()) return row.name;
  const std::string text = row.payload->print(payload);
  return row.literal ? text : absl::StrCat(row.name, "[", text, "]");
}

}  // namespace athanor::egraph
