// Holds what a connection has to write, in order: answers as HTTP/1.1 has them, and who is told.
//
//   outgoing.Put(std::move(piece), /*head_only=*/false, &framing);
//   write(outgoing.Next());                        // some bytes of it
//   for (bool last : outgoing.Written(bytes)) ...  // pieces that are written whole
//
// Used on a connection's strand alone.
#ifndef ATHANOR_SERVER_HTTP_OUTGOING_H_
#define ATHANOR_SERVER_HTTP_OUTGOING_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/http/answer_text.h"
#include "server/http/exchange.h"

namespace athanor {

class Outgoing {
 public:
  // Adds bytes ahead of an answer, of which nobody is told.
  void PutInterim(std::string bytes) { rows_.push_back({std::move(bytes)}); }
  // Adds a piece of an answer, framed. Completes `framing`, which is the same for all pieces of an
  // answer. `head_only`: leaves the body out.
  void Put(HttpWire::Piece piece, bool head_only, Framing* framing);

  bool empty() const { return rows_.empty(); }
  // Returns the next bytes, some 256 KiB at most. They stay where they are until Written.
  std::vector<absl::string_view> Next() const;
  // Takes `bytes` off. Returns an element for each piece that this ends: is it an answer's last?
  std::vector<bool> Written(size_t bytes);

 private:
  struct Row {
    std::string bytes;
    bool piece = false;
    bool last = false;
    std::vector<std::shared_ptr<void>> kept = {};
  };
  std::deque<Row> rows_;
  size_t sent_ = 0;  // of the first one
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_OUTGOING_H_
