#include "compiler/egraph/match/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace athanor::egraph {
namespace {

class Planner {
 public:
  Planner(const Query& query, size_t first, bool delta)
      : query_(query), first_(first), delta_(delta) {
    plan_.registers.assign(query.variables().size(), Variables::kNone);
    condition_done_.assign(query.conditions().size(), false);
    for (size_t i = 0; i < query.atoms().size(); ++i) {
      if (i != first) pending_.push_back(i);
    }
  }

  Plan Make() {
    AddAtom(first_);
    while (!pending_.empty()) {
      const auto next = std::min_element(pending_.begin(), pending_.end(), [&](size_t a, size_t b) {
        return Unknown(query_.atoms()[a]) < Unknown(query_.atoms()[b]);
      });
      const size_t atom = *next;
      pending_.erase(next);
      AddAtom(atom);
    }
    return std::move(plan_);
  }

 private:
  bool Known(uint32_t variable) const { return plan_.registers[variable] != Variables::kNone; }

  // Returns how unknown an atom is: from 0 (at most one row matches) to 3 (all may).
  int Unknown(const Atom& atom) const {
    const auto known = [this](uint32_t v) { return Known(v); };
    const bool payload = atom.payload_variable == Variables::kNone || Known(atom.payload_variable);
    if (payload && atom.rest == Variables::kNone &&
        std::all_of(atom.children.begin(), atom.children.end(), known)) {
      return 0;
    }
    if (Known(atom.root)) return 1;
    return std::any_of(atom.children.begin(), atom.children.end(), known) ? 2 : 3;
  }

  // Registers below `before` were set by earlier steps.
  Column MakeColumn(uint32_t variable, uint32_t before) {
    uint32_t& reg = plan_.registers[variable];
    if (reg == Variables::kNone) {
      reg = next_register_++;
      return {Column::Use::kBind, reg};
    }
    return {reg < before ? Column::Use::kKey : Column::Use::kSame, reg};
  }

  void AddAtom(size_t index) {
    const Atom& atom = query_.atoms()[index];
    const uint32_t before = next_register_;
    JoinStep step;
    step.op = atom.op;
    if (delta_ && index <= first_) step.window = index == first_ ? Window::kNew : Window::kOld;
    step.payload = atom.payload;
    step.has_payload_column = atom.payload_variable != Variables::kNone;
    if (step.has_payload_column) step.payload_column = MakeColumn(atom.payload_variable, before);
    step.root = MakeColumn(atom.root, before);
    for (const uint32_t child : atom.children) step.children.push_back(MakeColumn(child, before));
    step.has_rest = atom.rest != Variables::kNone;
    if (step.has_rest) step.rest_reg = MakeColumn(atom.rest, before).reg;
    plan_.steps.push_back(std::move(step));
    AddConditions();
  }

  void AddConditions() {
    for (size_t i = 0; i < query_.conditions().size(); ++i) {
      if (condition_done_[i]) continue;
      std::optional<JoinStep> step = ConditionStep(query_.conditions()[i]);
      if (!step) continue;
      condition_done_[i] = true;
      plan_.steps.push_back(*std::move(step));
    }
  }

  // Returns nullopt while one of its variables has no value.
  std::optional<JoinStep> ConditionStep(const Condition& condition) const {
    JoinStep step;
    step.condition = std::make_shared<Condition>(condition);
    if (condition.variables().empty()) {
      if (!pending_.empty()) return std::nullopt;
      step.condition_variables = query_.variables();
      step.condition_regs = plan_.registers;
      return step;
    }
    for (const std::string& name : condition.variables()) {
      const uint32_t v = query_.variables().Find(name);
      if (!Known(v)) return std::nullopt;
      const uint32_t i = step.condition_variables.AddNameless(VariableKind::kClass);
      step.condition_variables[i] = query_.variables()[v];
      step.condition_regs.push_back(plan_.registers[v]);
    }
    return step;
  }

  const Query& query_;
  const size_t first_;
  const bool delta_;
  Plan plan_;
  std::vector<size_t> pending_;  // atoms
  std::vector<bool> condition_done_;
  uint32_t next_register_ = 0;
};

}  // namespace

Plan MakePlan(const Query& query, size_t first, bool delta) {
  return Planner(query, first, delta).Make();
}

bool JoinStep::SameAs(const JoinStep& other) const {
  if (condition || other.condition) {
    return condition && other.condition && condition->SameAs(*other.condition) &&
           condition_variables == other.condition_variables &&
           condition_regs == other.condition_regs;
  }
  return op == other.op && window == other.window && root == other.root &&
         children == other.children && has_rest == other.has_rest && rest_reg == other.rest_reg &&
         payload == other.payload && has_payload_column == other.has_payload_column &&
         payload_column == other.payload_column;
}

}  // namespace athanor::egraph
