#include "compiler/rules/families/rule_row.h"

#include <algorithm>
#include <iterator>

#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

constexpr std::string_view kFamilies[] = {"algebra", "recognise", "decompose",
                                          "fuse",    "layout",    "library"};

// Returns the rows' names prefixed with the family's; made once and kept for the life of the
// program.
template <typename Rows>
std::vector<std::string> WithFamily(std::string_view family, const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.push_back(Cat(family, "_", row.name));
  return names;
}

}  // namespace

std::string_view RuleClassName(RuleClass rule_class) {
  switch (rule_class) {
    case RuleClass::kExact:
      return "exact";
    case RuleClass::kReassociating:
      return "reassociating";
    case RuleClass::kApproximate:
      return "approximate";
  }
  return "";
}

std::vector<RuleRow> RecogniseRows() {
  static const auto& names =
      *new std::vector<std::string>(WithFamily("recognise", RecognitionRows()));
  std::vector<RuleRow> rows;
  for (const RecognitionRow& row : RecognitionRows()) {
    rows.push_back({.name = names[rows.size()],
                    .family = "recognise",
                    .rule_class = RuleClass::kExact,
                    .algebra = row.algebra,
                    .recognises = &row,
                    .example = row.example});
  }
  return rows;
}

std::vector<RuleRow> DecomposeRows() {
  static const auto& names =
      *new std::vector<std::string>(WithFamily("decompose", DecompositionRows()));
  std::vector<RuleRow> rows;
  for (const DecompositionRow& row : DecompositionRows()) {
    rows.push_back({.name = names[rows.size()],
                    .family = "decompose",
                    .rule_class = RuleClass::kExact,
                    .algebra = row.algebra,
                    .decomposes = &row,
                    .example = row.example});
  }
  return rows;
}

absl::Span<const RuleRow> RuleRows() {
  static const std::vector<RuleRow>& rows = *[] {
    auto* all = new std::vector<RuleRow>();
    for (auto family :
         {AlgebraRows, RecogniseRows, DecomposeRows, FuseRows, LayoutRows, LibraryRows}) {
      const std::vector<RuleRow> some = family();
      all->insert(all->end(), some.begin(), some.end());
    }
    return all;
  }();
  return rows;
}

const RuleRow* FindRule(std::string_view name) {
  for (const RuleRow& row : RuleRows()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

absl::Span<const std::string_view> RuleFamilies() { return kFamilies; }

bool RuleChoice::Allows(const RuleRow& row) const {
  return !disabled.contains(std::string(row.name)) && !disabled.contains(std::string(row.family)) &&
         (approximate || row.rule_class != RuleClass::kApproximate);
}

std::string RuleChoice::ToText() const {
  std::string text;
  for (const std::string& name : disabled) text += Cat(text.empty() ? "-" : " -", name);
  if (approximate) text += text.empty() ? "+approximate" : " +approximate";
  return text.empty() ? "all" : text;
}

absl::Status CheckRuleChoice(const RuleChoice& choice) {
  for (const std::string& name : choice.disabled) {
    if (FindRule(name) != nullptr) continue;
    if (std::find(std::begin(kFamilies), std::end(kFamilies), name) != std::end(kFamilies))
      continue;
    std::string families;
    for (std::string_view family : kFamilies) {
      families += Cat(families.empty() ? "" : ", ", family);
    }
    return Invalid("disabled rule ", Quoted(name), " is neither a rule nor a family of rules (",
                   families, ")");
  }
  return absl::OkStatus();
}

}  // namespace athanor
