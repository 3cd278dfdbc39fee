// The op table: the rows of all families, with the traits that follow from their classes.
#include <algorithm>

#include "compiler/ir/ops/family.h"

namespace athanor {
namespace {

void Complete(OpRow* row) {
  OpTraits& traits = row->traits;
  const auto set = [&](OpForm form, ErrorRule errors) {
    if (traits.form == OpForm::kByClass) traits.form = form;
    if (traits.errors == ErrorRule::kByClass) traits.errors = errors;
  };
  traits.linear = traits.linear || !row->composite();
  switch (row->op_class) {
    case OpClass::kElementwise:
      set(OpForm::kElementwise, ErrorRule::kMonotone);
      if (traits.rows.flow == nullptr) traits.rows.flow = AlikeFlow;
      if (traits.sample == nullptr) traits.sample = SampleElementwise;
      break;
    case OpClass::kReduction:
      set(OpForm::kReduce, ErrorRule::kByClass);
      if (traits.rows.flow == nullptr) traits.rows.flow = ReduceFlow;
      if (traits.sample == nullptr) traits.sample = SampleReduce;
      break;
    case OpClass::kComposite:
      set(OpForm::kDecomposed, ErrorRule::kDecomposed);
      break;
    case OpClass::kLeaf:
      set(OpForm::kByClass, ErrorRule::kNone);
      break;
    case OpClass::kMovement:
    case OpClass::kControl:
      break;
  }
}

}  // namespace

absl::Span<const OpRow> OpTable() {
  static const Rows& table = *[] {
    auto* rows = new Rows;
    for (const auto add :
         {AddLeaves, AddFunctions, AddTrigonometry, AddArithmetic, AddLogic, AddConversions,
          AddIndexing, AddReductions, AddWindows, AddContract, AddActivations, AddNorms,
          AddAttention, AddPagedAttention, AddBags, AddOrder, AddTransformers, AddLoop}) {
      add(rows);
    }
    std::sort(rows->begin(), rows->end(),
              [](const OpRow& a, const OpRow& b) { return a.op < b.op; });
    for (OpRow& row : *rows) Complete(&row);
    return rows;
  }();
  return table;
}

}  // namespace athanor
