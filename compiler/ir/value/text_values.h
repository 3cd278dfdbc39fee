// Numbers of the text form, written so that they read back bit for bit.
//
//   FloatText(DType::kF32, 0x3fc00000) == "1.5"
//   FloatText(DType::kF32, 0x7fc00001) == "nan(0x7fc00001)"
//   ParseFloat(DType::kF32, "1.5") == 0x3fc00000
#ifndef ATHANOR_COMPILER_IR_VALUE_TEXT_VALUES_H_
#define ATHANOR_COMPILER_IR_VALUE_TEXT_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "compiler/ir/value/tensor.h"

namespace athanor {

// Returns the float with these bits as the shortest decimal that reads back. It always has a point,
// an exponent or a word, so that it never looks like an integer. NaNs are written by their bits.
std::string FloatText(DType dtype, uint64_t bits);
// Returns the bits; nullopt if the text is no float or is out of the dtype's range.
std::optional<uint64_t> ParseFloat(DType dtype, std::string_view text);

// ElementText writes element `index` of a tensor. AppendElement reads one and appends its bytes; it
// returns false if the text is not an element of the dtype.
std::string ElementText(const Tensor& tensor, int64_t index);
bool AppendElement(DType dtype, std::string_view text, std::string* bytes);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_VALUE_TEXT_VALUES_H_
