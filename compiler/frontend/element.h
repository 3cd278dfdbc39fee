// Element types of inputs and outputs that are not our dtypes: "int4", "float8e4m3fnuz". Their
// values are sent as those of a dtype, which alone does not tell their meaning.
#ifndef ATHANOR_COMPILER_FRONTEND_ELEMENT_H_
#define ATHANOR_COMPILER_FRONTEND_ELEMENT_H_

#include <string_view>

#include "compiler/frontend/elem_type.h"

namespace athanor {

// Returns nullptr if there is no such element type, or if a dtype of ours is that type.
constexpr const onnx::ElemRow* FindElement(std::string_view name) {
  for (const onnx::ElemRow& row : onnx::kElems) {
    const bool carried = row.carry != onnx::Carry::kSame && row.carry != onnx::Carry::kNone;
    if (carried && row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_ELEMENT_H_
