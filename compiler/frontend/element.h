// Elements of inputs and outputs that no dtype of ours is: "int4", "float8e4m3fnuz". Their values
// travel as those of a dtype, which alone says too little.
#ifndef ATHANOR_COMPILER_FRONTEND_ELEMENT_H_
#define ATHANOR_COMPILER_FRONTEND_ELEMENT_H_

#include <string_view>

#include "compiler/frontend/elem_type.h"

namespace athanor {

// nullptr: no such element, or a dtype says all of it.
constexpr const onnx::ElemRow* FindElement(std::string_view name) {
  for (const onnx::ElemRow& row : onnx::kElems) {
    const bool carried = row.carry != onnx::Carry::kSame && row.carry != onnx::Carry::kNone;
    if (carried && row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_ELEMENT_H_
