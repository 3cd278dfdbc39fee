#include "compiler/egraph/match/pattern.h"

#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "compiler/egraph/graph/sexpr.h"
#include "compiler/egraph/graph/term.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::egraph {
namespace {

constexpr char kAny[] = "_";

// Converts S-expressions to nodes of one pattern.
class Builder {
 public:
  Builder(const Language& language, Variables* variables)
      : language_(language), variables_(*variables) {}

  // Appends the nodes of `sexpr`; the last one is its root.
  absl::Status Append(const Sexpr& sexpr) {
    if (sexpr.head[0] == '?') return AppendVariable(sexpr);
    ASSIGN_OR_RETURN(const Head head, ParseHead(language_, sexpr));
    PatternNode node{.op = head.op, .payload = head.payload};
    RETURN_IF_ERROR(SetPayload(sexpr, &node));
    RETURN_IF_ERROR(AppendChildren(sexpr, &node));
    RETURN_IF_ERROR(CheckShape(node));
    pattern_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  Pattern Take() { return std::move(pattern_); }

 private:
  absl::StatusOr<uint32_t> Intern(const std::string& name, VariableKind kind) {
    if (name.empty()) return absl::InvalidArgumentError("a variable without a name");
    return name == kAny ? variables_.AddNameless(kind) : variables_.Intern(name, kind);
  }

  absl::Status AppendVariable(const Sexpr& sexpr) {
    if (!sexpr.atom || sexpr.payload) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", sexpr.head, "\" is a variable and has neither children nor payload"));
    }
    ASSIGN_OR_RETURN(const uint32_t i, Intern(sexpr.head.substr(1), VariableKind::kClass));
    pattern_.nodes.push_back({.variable = i});
    return absl::OkStatus();
  }

  absl::Status SetPayload(const Sexpr& sexpr, PatternNode* node) {
    if (!sexpr.payload) return absl::OkStatus();
    const std::string& text = *sexpr.payload;
    if (text != kAny && text[0] != '?') {
      ASSIGN_OR_RETURN(node->payload, ParsePayload(language_, node->op, text));
      return absl::OkStatus();
    }
    if (!language_.spec(node->op).payload) {
      return absl::InvalidArgumentError(
          absl::StrCat("operator ", sexpr.head, " takes no payload, got [", text, "]"));
    }
    ASSIGN_OR_RETURN(node->payload_variable,
                     Intern(text == kAny ? text : text.substr(1), VariableKind::kPayload));
    return absl::OkStatus();
  }

  absl::Status AppendChildren(const Sexpr& sexpr, PatternNode* node) {
    for (const Sexpr& child : sexpr.children) {
      const bool last = &child == &sexpr.children.back();
      if (child.atom && child.head[0] == '?' && child.head.ends_with("...")) {
        if (!last) {
          return absl::InvalidArgumentError(
              absl::StrCat("\"", child.head, "\" is not the last child of ", sexpr.head));
        }
        return SetRest(child.head.substr(1, child.head.size() - 4), node);
      }
      RETURN_IF_ERROR(Append(child));
      node->children.push_back(static_cast<uint32_t>(pattern_.nodes.size() - 1));
    }
    return absl::OkStatus();
  }

  absl::Status SetRest(const std::string& name, PatternNode* node) {
    if (language_.spec(node->op).arity != OpSpec::kVariadic) {
      return absl::InvalidArgumentError(absl::StrCat("operator ", language_.name(node->op),
                                                     " has a fixed number of children, ?", name,
                                                     "... is for those that have any"));
    }
    ASSIGN_OR_RETURN(node->rest_variable, Intern(name, VariableKind::kRest));
    return absl::OkStatus();
  }

  absl::Status CheckShape(const PatternNode& node) const {
    // A variable stands for some payload; any valid id is enough for the check.
    const bool has_variable = node.payload_variable != Variables::kNone;
    return language_.CheckNode(node.op, has_variable ? PayloadId{0} : node.payload,
                               node.children.size());
  }

  const Language& language_;
  Variables& variables_;
  Pattern pattern_;
};

absl::Status InText(const std::string& text, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\": ", std::string(status.message())));
}

std::string VariableText(const Variables& variables, uint32_t i) {
  return absl::StrCat("?", variables[i].name.empty() ? kAny : variables[i].name);
}

void AppendText(const Language& language, const Pattern& pattern, const Variables& variables,
                uint32_t index, std::string* text) {
  const PatternNode& node = pattern.nodes[index];
  if (node.is_variable()) {
    *text += VariableText(variables, node.variable);
    return;
  }
  const bool has_children = !node.children.empty() || node.rest_variable != Variables::kNone;
  if (has_children) *text += '(';
  *text += language.NodeText(node.op, node.payload);
  if (node.payload_variable != Variables::kNone) {
    absl::StrAppend(text, "[", VariableText(variables, node.payload_variable), "]");
  }
  for (const uint32_t child : node.children) {
    *text += ' ';
    AppendText(language, pattern, variables, child, text);
  }
  if (node.rest_variable != Variables::kNone) {
    absl::StrAppend(text, " ", VariableText(variables, node.rest_variable), "...");
  }
  if (has_children) *text += ')';
}

}  // namespace

absl::StatusOr<Pattern> ParsePattern(const Language& language, const std::string& text,
                                     Variables* variables) {
  ASSIGN_OR_RETURN(const Sexpr sexpr, ParseSexpr(text));
  Builder builder(language, variables);
  if (absl::Status s = builder.Append(sexpr); !s.ok()) return InText(text, s);
  return builder.Take();
}

absl::StatusOr<Equation> ParseEquation(const Language& language, const std::string& text,
                                       Variables* variables) {
  Equation equation;
  std::string right = text;
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const size_t equals = text.find(" = ");
  if (begin != std::string::npos && text[begin] == '?' && equals != std::string::npos) {
    const std::string name = text.substr(begin + 1, equals - begin - 1);
    if (name.empty() || name.find_first_of(" \t\r\n()[]") != std::string::npos) {
      return InText(text, absl::InvalidArgumentError("expected one variable before the \"=\""));
    }
    const absl::StatusOr<uint32_t> root = variables->Intern(name, VariableKind::kClass);
    if (!root.ok()) return InText(text, root.status());
    equation.root = *root;
    right = text.substr(equals + 3);
  }
  ASSIGN_OR_RETURN(equation.pattern, ParsePattern(language, right, variables));
  return equation;
}

std::string PatternText(const Language& language, const Pattern& pattern,
                        const Variables& variables) {
  std::string text;
  AppendText(language, pattern, variables, static_cast<uint32_t>(pattern.nodes.size() - 1), &text);
  return text;
}

absl::StatusOr<ClassId> AddPattern(EGraph* graph, const Pattern& pattern, const Match& match,
                                   Cause cause) {
  absl::InlinedVector<ClassId, 16> classes;
  absl::InlinedVector<ClassId, 8> children;
  for (const PatternNode& node : pattern.nodes) {
    if (node.is_variable()) {
      classes.push_back(match.Class(node.variable));
      continue;
    }
    children.clear();
    for (const uint32_t child : node.children) children.push_back(classes[child]);
    for (const ClassId child : match.Rest(node.rest_variable)) children.push_back(child);
    const bool varies = node.payload_variable != Variables::kNone;
    ASSIGN_OR_RETURN(
        const ClassId id,
        graph->Add(node.op, varies ? match.Payload(node.payload_variable) : node.payload, children,
                   cause));
    classes.push_back(id);
  }
  return classes.back();
}

}  // namespace athanor::egraph
