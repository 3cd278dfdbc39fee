#include "server/http/outgoing.h"

#include <utility>

namespace athanor {
namespace {

constexpr size_t kWrite = size_t{256} << 10;  // in one of HttpLimits::write

}  // namespace

void Outgoing::Put(HttpWire::Piece piece, bool head_only, Framing* framing) {
  const bool whole = piece.head.has_value() && piece.last;
  const bool begins = piece.head.has_value() && !piece.last;
  if (begins && framing->http_1_0) framing->closes = true;
  if (piece.head.has_value()) {
    framing->length.reset();
    if (whole) framing->length = piece.bytes.size();
    rows_.push_back({HeadText(*piece.head, *framing)});
  }
  if (begins) return;
  if (!whole && !framing->http_1_0) {
    piece.bytes = ChunkText(piece.bytes);
    if (piece.last) piece.bytes.append(kLastChunk.data(), kLastChunk.size());
  }
  if (head_only) piece.bytes.clear();
  rows_.push_back({std::move(piece.bytes), /*piece=*/true, piece.last, std::move(piece.kept)});
}

std::vector<absl::string_view> Outgoing::Next() const {
  std::vector<absl::string_view> pieces;
  size_t bytes = 0;
  for (auto at = rows_.begin(); at != rows_.end() && bytes < kWrite; ++at) {
    const absl::string_view left = absl::string_view(at->bytes).substr(pieces.empty() ? sent_ : 0);
    pieces.push_back(left.substr(0, kWrite - bytes));
    bytes += pieces.back().size();
  }
  return pieces;
}

std::vector<bool> Outgoing::Written(size_t bytes) {
  std::vector<bool> ended;
  sent_ += bytes;
  while (!rows_.empty() && sent_ >= rows_.front().bytes.size()) {
    if (rows_.front().piece) ended.push_back(rows_.front().last);
    sent_ -= rows_.front().bytes.size();
    rows_.pop_front();
  }
  return ended;
}

}  // namespace athanor
