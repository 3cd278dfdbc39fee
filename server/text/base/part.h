// Pieces of a prompt: text that may hold special tokens, and text that may not.
#ifndef ATHANOR_SERVER_TEXT_BASE_PART_H_
#define ATHANOR_SERVER_TEXT_BASE_PART_H_

#include <string>

namespace athanor {

// A trusted part comes from the model's authors (a chat template): "<|im_end|>" in it is a special
// token. In a user's text it is text.
struct Part {
  std::string text;
  bool trusted = false;
  bool operator==(const Part&) const = default;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_BASE_PART_H_
