// Text that knows which of its bytes the model's authors wrote.
//
//   Marked line("<|im_start|>", /*trusted=*/true);
//   line.Append(Marked(message, false));
//   line.Slice(0, 4).trusted();                     // true: only the authors' bytes are in it
//
// The marks are runs: neighbours differ, the last one ends where the bytes end. All that is done
// with text is made of Append and Slice, so no operation can lose or win trust.
#ifndef ATHANOR_SERVER_TEXT_JINJA_MARKED_H_
#define ATHANOR_SERVER_TEXT_JINJA_MARKED_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace athanor::jinja {

class Marked {
 public:
  struct Run {
    size_t end;
    bool trusted;
  };

  Marked() = default;
  Marked(std::string bytes, bool trusted) : bytes_(std::move(bytes)) {
    if (!bytes_.empty()) runs_.push_back({bytes_.size(), trusted});
  }

  const std::string& bytes() const { return bytes_; }
  const std::vector<Run>& runs() const { return runs_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Returns true if no byte is from elsewhere; the empty text is trusted.
  bool trusted() const { return runs_.empty() || (runs_.size() == 1 && runs_[0].trusted); }
  // REQUIRES: at < size().
  bool TrustedAt(size_t at) const;

  void Append(absl::string_view bytes, bool trusted);
  void Append(const Marked& other) { AppendSlice(other, 0, other.size()); }
  // Appends bytes [begin, end) of `other`. REQUIRES: begin <= end <= other.size(), other is not
  // this.
  void AppendSlice(const Marked& other, size_t begin, size_t end);
  Marked Slice(size_t begin, size_t end) const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace athanor::jinja

#endif  // ATHANOR_SERVER_TEXT_JINJA_MARKED_H_
