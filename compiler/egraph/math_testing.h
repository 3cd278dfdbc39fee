// The language of this folder's tests: arithmetic over integers and names, as in egg's own tests.
//
//   const Math math;
//   EGraph graph(&math.language());
//   ClassId c = math.Add(&graph, "(* (+ a 2) b)");
#ifndef ATHANOR_COMPILER_EGRAPH_MATH_TESTING_H_
#define ATHANOR_COMPILER_EGRAPH_MATH_TESTING_H_

#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "compiler/egraph/graph/analysis.h"
#include "compiler/egraph/graph/egraph.h"
#include "compiler/egraph/graph/interner.h"
#include "compiler/egraph/graph/language.h"
#include "compiler/egraph/graph/term.h"
#include "gtest/gtest.h"

namespace athanor::egraph {

enum MathOp : uint32_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kDiff,
  kIntegral,
  kSin,
  kCos,
  kLn,
  kList,
  kRound,
  kNum,
  kSym
};

class Math {
 public:
  Math() : language_(*Language::Make(Rows())) {}
  Math(const Math&) = delete;

  const Language& language() const { return language_; }
  int64_t Value(PayloadId id) const { return numbers_.Get(id); }
  PayloadId Number(int64_t v) const { return numbers_.Intern(v); }

  Term Parse(const std::string& text) const {
    absl::StatusOr<Term> term = ParseTerm(language_, text);
    EXPECT_TRUE(term.ok()) << term.status();
    return term.ok() ? *term : Term{};
  }
  ClassId Add(EGraph* graph, const std::string& text) const {
    const absl::StatusOr<ClassId> id = AddTerm(graph, Parse(text));
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(ClassId{});
  }
  ClassId Lookup(const EGraph& graph, const std::string& text) const {
    return LookupTerm(graph, Parse(text));
  }

 private:
  std::vector<OpSpec> Rows() {
    const PayloadText number{[this](PayloadId id) { return std::to_string(numbers_.Get(id)); },
                             [this](std::string_view text) -> std::optional<PayloadId> {
                               int64_t v = 0;
                               const auto [end, error] =
                                   std::from_chars(text.data(), text.data() + text.size(), v);
                               if (error != std::errc() || end != text.data() + text.size())
                                 return std::nullopt;
                               return numbers_.Intern(v);
                             }};
    const PayloadText name{
        [this](PayloadId id) { return names_.Get(id); },
        [this](std::string_view text) -> std::optional<PayloadId> {
          if (text.empty() || !std::isalpha(static_cast<unsigned char>(text[0]))) {
            return std::nullopt;
          }
          return names_.Intern(std::string(text));
        }};
    return {{"+", 2},
            {"-", 2},
            {"*", 2},
            {"/", 2},
            {"pow", 2},
            {"d", 2},
            {"i", 2},
            {"sin", 1},
            {"cos", 1},
            {"ln", 1},
            {"list", OpSpec::kVariadic},
            {"round", 1, number},
            {"num", 0, number, true},
            {"sym", 0, name, true}};
  }

  mutable Interner<int64_t> numbers_;
  mutable Interner<std::string> names_;
  Language language_;
};

// The number that a class equals, if there is one; two different numbers do not merge. `fold` adds
// the number to its class.
class MathConstants : public TypedAnalysis<std::optional<int64_t>> {
 public:
  explicit MathConstants(const Math* math, bool fold = true) : math_(*math), fold_(fold) {}

  absl::StatusOr<std::optional<int64_t>> Make(const EGraph& graph, NodeId n) const override {
    if (graph.op(n) == OpId{kNum}) return math_.Value(graph.payload(n));
    const auto children = graph.children(n);
    if (children.size() != 2) return std::optional<int64_t>();
    const auto a = Get(graph, children[0]), b = Get(graph, children[1]);
    if (!a || !b) return std::optional<int64_t>();
    // Wraps, so that random terms do no undefined arithmetic.
    const uint64_t x = static_cast<uint64_t>(*a), y = static_cast<uint64_t>(*b);
    switch (graph.op(n).value) {
      case kAdd:
        return static_cast<int64_t>(x + y);
      case kSub:
        return static_cast<int64_t>(x - y);
      case kMul:
        return static_cast<int64_t>(x * y);
      default:
        return std::optional<int64_t>();
    }
  }
  absl::StatusOr<DidMerge> Merge(std::optional<int64_t>* into,
                                 const std::optional<int64_t>& from) const override {
    if (*into && from && **into != *from) {
      return absl::FailedPreconditionError("value " + std::to_string(**into) + " is not " +
                                           std::to_string(*from));
    }
    return MergeKnown(into, from, "values");
  }
  void Modify(EGraph* graph, ClassId id) override {
    const std::optional<int64_t> value = Get(*graph, id);
    if (!fold_ || !value) return;
    const auto number = graph->Add(OpId{kNum}, math_.Number(*value), {}, Cause::kAnalysis);
    ASSERT_TRUE(number.ok()) << number.status();
    graph->Union(id, *number, Cause::kAnalysis).status().IgnoreError();
  }
  std::string ValueText(const EGraph& graph, ClassId id) const override {
    const std::optional<int64_t> value = Get(graph, id);
    return value ? "= " + std::to_string(*value) : "";
  }

 private:
  const Math& math_;
  const bool fold_;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_MATH_TESTING_H_
