// Wording of messages about a limit that outside data exceeds: the limit and the server flag that
// sets it.
//
//   return Invalid("rank ", 17, " is too high; ", LimitIs(limits.max_rank, "max_rank"));
//   // "rank 17 is too high; the limit is 16 (--max_rank)"
#ifndef ATHANOR_COMPILER_IR_VALUE_LIMIT_TEXT_H_
#define ATHANOR_COMPILER_IR_VALUE_LIMIT_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/ir/value/message.h"

namespace athanor {

inline std::string LimitIs(int64_t limit, std::string_view flag) {
  return Cat("the limit is ", limit, " (--", flag, ")");
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_VALUE_LIMIT_TEXT_H_
