#include "server/generate/schedule/block_key.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/sha256.h"

namespace athanor {
namespace {

static_assert(sizeof(BlockKey) == kSha256Bytes);

BlockKey KeyOf(absl::string_view parent, absl::string_view content) {
  const std::string hash = Sha256().Update(parent).Update(content).Finish();
  BlockKey key;
  std::copy(hash.begin(), hash.end(), key.begin());
  return key;
}

}  // namespace

BlockKey RootKey(absl::string_view group, absl::string_view salt) {
  // The length keeps the two apart.
  return KeyOf(absl::StrCat(group.size(), ":", group), salt);
}

void AddKeys(const BlockKey& root, absl::Span<const int32_t> tokens, int64_t block,
             std::vector<BlockKey>* keys) {
  const int64_t whole = static_cast<int64_t>(tokens.size()) / block;
  keys->reserve(whole);
  for (auto next = static_cast<int64_t>(keys->size()); next < whole; ++next) {
    const BlockKey& parent = next == 0 ? root : keys->back();
    const absl::Span<const int32_t> content = tokens.subspan(next * block, block);
    keys->push_back(
        KeyOf({parent.data(), parent.size()},
              {reinterpret_cast<const char*>(content.data()), content.size() * sizeof(int32_t)}));
  }
}

}  // namespace athanor
