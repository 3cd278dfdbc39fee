// Composes error messages from strings and numbers.
//
//   return Invalid("operand ", 1, " has dtype ", DTypeName(t));
//
// Debian's Abseil has its own string_view, to which std::string_view does not convert. These
// helpers take the standard's types and plain numbers.
#ifndef ATHANOR_COMPILER_IR_VALUE_MESSAGE_H_
#define ATHANOR_COMPILER_IR_VALUE_MESSAGE_H_

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"

namespace athanor {

template <typename T>
void AppendPiece(std::string* text, const T& piece) {
  if constexpr (std::is_arithmetic_v<T>) {
    char buffer[40];
    *text += std::string_view(buffer, std::to_chars(buffer, buffer + sizeof(buffer), piece).ptr);
  } else {
    *text += std::string_view(piece);
  }
}

template <typename... T>
std::string Cat(const T&... pieces) {
  std::string text;
  (AppendPiece(&text, pieces), ...);
  return text;
}

template <typename... T>
absl::Status Invalid(const T&... pieces) {
  return absl::InvalidArgumentError(Cat(pieces...));
}

template <typename... T>
absl::Status Unimplemented(const T&... pieces) {
  return absl::UnimplementedError(Cat(pieces...));
}

// Returns an outside text as messages show it: in quotes, escaped, shortened, always valid UTF-8.
std::string Quoted(std::string_view text);
bool IsValidUtf8(std::string_view text);

// Returns the same status with `prefix` before its message.
inline absl::Status Prefixed(std::string_view prefix, const absl::Status& status) {
  if (status.ok()) return status;
  const absl::string_view message = status.message();
  return absl::Status(status.code(), Cat(prefix, std::string(message)));
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_VALUE_MESSAGE_H_
