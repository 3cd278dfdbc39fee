#include "compiler/rules/terms/term_language.h"

#include <deque>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/graph/canonical.h"
#include "compiler/ir/graph/check.h"

namespace athanor {

// Payloads are keyed by the canonical encoding of a node without operands; large literals are
// encoded as their hash.
struct TermLanguage::Payloads {
  struct Payload {
    Attrs attrs;
    Declaration declaration;
  };
  std::deque<Payload> values;
  absl::flat_hash_map<std::string, egraph::PayloadId> ids;
  size_t bytes = 0;

  egraph::PayloadId Intern(Node node) {
    std::string key;
    EncodeNode(node, &key);
    if (IsDeclared(node.op)) key += node.name;
    const egraph::PayloadId next{static_cast<uint32_t>(values.size())};
    const auto [entry, inserted] = ids.try_emplace(std::move(key), next);
    if (inserted) {
      bytes += sizeof(Payload) + 2 * entry->first.size() + LiteralBytes(node.attrs);
      Declaration declaration;
      if (IsDeclared(node.op))
        declaration = {std::move(node.name), std::move(node.type), node.attrs};
      values.push_back({std::move(node.attrs), std::move(declaration)});
    }
    return entry->second;
  }

  static size_t LiteralBytes(const Attrs& attrs) {
    size_t bytes = 0;
    for (const auto& [name, value] : attrs) {
      if (const auto* tensor = std::get_if<Tensor>(&value)) bytes += tensor->bytes.size();
    }
    return bytes;
  }
};

namespace {

bool HasPayload(const OpRow& row) { return IsDeclared(row.op) || !row.attrs.empty(); }

}  // namespace

TermLanguage::TermLanguage() : payloads_(std::make_unique<Payloads>()) {
  std::vector<egraph::OpSpec> specs(OpTable().size());
  for (const OpRow& row : OpTable()) {
    egraph::OpSpec& spec = specs[ToOpId(row.op).value];
    spec.name = std::string(row.name);
    spec.arity = row.min_inputs == row.max_inputs ? row.min_inputs : egraph::OpSpec::kVariadic;
    if (!HasPayload(row)) continue;
    const Op op = row.op;
    const auto print = [this, op](egraph::PayloadId p) {
      return IsDeclared(op) ? DeclarationText(declaration(p)) : AttrsText(attrs(p));
    };
    const auto parse = [this, op](std::string_view text) -> std::optional<egraph::PayloadId> {
      if (IsDeclared(op)) {
        const absl::StatusOr<Declaration> read = ParseDeclaration(text);
        if (!read.ok()) return std::nullopt;
        return InternDeclaration(op, *read);
      }
      const absl::StatusOr<Attrs> read = ParseAttrs(text);
      if (!read.ok()) return std::nullopt;
      return Intern(op, *read);
    };
    spec.payload = egraph::PayloadText{print, parse};
  }
  // The op table's names are valid operator names, so this has a value.
  operators_ = egraph::Language::Make(std::move(specs)).value();
}

TermLanguage::~TermLanguage() = default;

egraph::PayloadId TermLanguage::Intern(Op op, const Attrs& attrs) const {
  if (!HasPayload(OpInfo(op))) return {};
  return payloads_->Intern({op, {}, CanonicalAttrs(op, attrs), {}, ""});
}

egraph::PayloadId TermLanguage::InternDeclaration(Op op, const Declaration& declaration) const {
  return payloads_->Intern({op, {}, declaration.attrs, declaration.type, declaration.name});
}

egraph::PayloadId TermLanguage::Intern(const Node& node) const {
  return IsDeclared(node.op) ? InternDeclaration(node.op, {node.name, node.type, node.attrs})
                             : Intern(node.op, node.attrs);
}

const Attrs& TermLanguage::attrs(egraph::PayloadId payload) const {
  static const Attrs* const kNone = new Attrs();
  return payload.valid() ? payloads_->values[payload.value].attrs : *kNone;
}

const Declaration& TermLanguage::declaration(egraph::PayloadId payload) const {
  return payloads_->values[payload.value].declaration;
}

size_t TermLanguage::Bytes() const { return payloads_->bytes; }

}  // namespace athanor
