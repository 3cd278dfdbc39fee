#include "compiler/egraph/graph/term.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::egraph {
namespace {

// Appends the nodes of `sexpr`; the last one is its root.
absl::Status AppendNodes(const Language& language, const Sexpr& sexpr, Term* term) {
  ASSIGN_OR_RETURN(Head head, ParseHead(language, sexpr));
  if (sexpr.payload) {
    ASSIGN_OR_RETURN(head.payload, ParsePayload(language, head.op, *sexpr.payload));
  }
  TermNode node{head.op, head.payload, {}};
  for (const Sexpr& child : sexpr.children) {
    RETURN_IF_ERROR(AppendNodes(language, child, term));
    node.children.push_back(static_cast<uint32_t>(term->nodes.size() - 1));
  }
  RETURN_IF_ERROR(language.CheckNode(node.op, node.payload, node.children.size()));
  term->nodes.push_back(std::move(node));
  return absl::OkStatus();
}

// Not recursive, because extracted terms may be deep.
void AppendText(const Language& language, const Term& term, size_t max_chars, std::string* text) {
  struct Frame {
    const TermNode& node;
    size_t next;  // child
  };
  std::vector<Frame> path;
  const auto enter = [&](size_t index) {
    const TermNode& node = term.nodes[index];
    if (!node.children.empty()) *text += '(';
    *text += language.NodeText(node.op, node.payload);
    if (!node.children.empty()) path.push_back({node, 0});
  };
  enter(term.nodes.size() - 1);
  while (!path.empty() && text->size() <= max_chars) {
    Frame& frame = path.back();
    if (frame.next == frame.node.children.size()) {
      *text += ')';
      path.pop_back();
      continue;
    }
    *text += ' ';
    enter(frame.node.children[frame.next++]);
  }
}

}  // namespace

absl::StatusOr<Head> ParseHead(const Language& language, const Sexpr& sexpr) {
  const OpId op = language.Find(sexpr.head);
  if (op.valid()) return Head{op, {}};
  if (sexpr.atom && !sexpr.payload) {
    if (const auto literal = language.ParseLiteral(sexpr.head)) {
      return Head{literal->op, literal->payload};
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", sexpr.head, "\" is neither an operator",
                                                 sexpr.atom ? " nor a literal" : "",
                                                 " of the language"));
}

absl::StatusOr<PayloadId> ParsePayload(const Language& language, OpId op, const std::string& text) {
  const OpSpec& spec = language.spec(op);
  if (!spec.payload) {
    return absl::InvalidArgumentError(
        absl::StrCat("operator ", spec.name, " takes no payload, got [", text, "]"));
  }
  if (const std::optional<PayloadId> payload = spec.payload->parse(text)) return *payload;
  return absl::InvalidArgumentError(
      absl::StrCat("operator ", spec.name, ": [", text, "] is not a payload of this operator"));
}

absl::StatusOr<Term> ParseTerm(const Language& language, const std::string& text) {
  ASSIGN_OR_RETURN(const Sexpr sexpr, ParseSexpr(text));
  Term term;
  if (absl::Status s = AppendNodes(language, sexpr, &term); !s.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\": ", std::string(s.message())));
  }
  return term;
}

std::string TermText(const Language& language, const Term& term, size_t max_chars) {
  if (term.nodes.empty()) return "";
  std::string text;
  AppendText(language, term, max_chars, &text);
  if (text.size() > max_chars) text = text.substr(0, max_chars) + "...";
  return text;
}

absl::StatusOr<ClassId> AddTerm(EGraph* graph, const Term& term, Cause cause) {
  if (term.nodes.empty()) return absl::InvalidArgumentError("AddTerm: the term has no nodes");
  std::vector<ClassId> classes, children;
  for (const TermNode& node : term.nodes) {
    children.clear();
    for (const uint32_t child : node.children) children.push_back(classes[child]);
    ASSIGN_OR_RETURN(const ClassId id, graph->Add(node.op, node.payload, children, cause));
    classes.push_back(id);
  }
  return classes.back();
}

ClassId LookupTerm(const EGraph& graph, const Term& term) {
  std::vector<ClassId> classes, children;
  for (const TermNode& node : term.nodes) {
    children.clear();
    for (const uint32_t child : node.children) children.push_back(classes[child]);
    classes.push_back(graph.Lookup(node.op, node.payload, children));
    if (!classes.back().valid()) return ClassId{};
  }
  return classes.empty() ? ClassId{} : classes.back();
}

}  // namespace athanor::egraph
