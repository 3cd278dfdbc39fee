// SHA-256 of canonical bytes: the keys of graphs, kernels and plans.
//
//   Sha256Hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#ifndef ATHANOR_COMPILER_IR_VALUE_DIGEST_H_
#define ATHANOR_COMPILER_IR_VALUE_DIGEST_H_

#include <string>
#include <string_view>

namespace athanor {

std::string Sha256Bytes(std::string_view bytes);  // 32 bytes
std::string Sha256Hex(std::string_view bytes);    // 64 lower-case hex digits

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_VALUE_DIGEST_H_
