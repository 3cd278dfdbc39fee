// Names what the keys and values of a block were computed from, so that equal beginnings of prompts
// are found.
//
//   const BlockKey root = RootKey(cache_group, cache_salt);
//   std::vector<BlockKey> keys;
//   AddKeys(root, prompt, /*block=*/16, &keys);   // one for each whole block of the prompt
//
// A block's key is the SHA-256 of the key before it and of the block's tokens: equal keys mean
// equal tokens from the sequence's beginning on. Roots keep apart what must not be shared.
#ifndef ATHANOR_SERVER_GENERATE_SCHEDULE_BLOCK_KEY_H_
#define ATHANOR_SERVER_GENERATE_SCHEDULE_BLOCK_KEY_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor {

using BlockKey = std::array<char, 32>;

// Returns the key ahead of a sequence's first block. Requests of another `group`, which the server
// chooses, or of another `salt`, which the client chooses, share nothing.
BlockKey RootKey(absl::string_view group, absl::string_view salt);
// Appends the keys that are missing from `keys`: it has those of the first blocks, and gets one for
// each further whole block of `tokens`. REQUIRES: block >= 1
void AddKeys(const BlockKey& root, absl::Span<const int32_t> tokens, int64_t block,
             std::vector<BlockKey>* keys);

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_SCHEDULE_BLOCK_KEY_H_
