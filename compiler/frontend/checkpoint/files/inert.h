// Keys of a checkpoint that change no number, and the refusal of keys that nobody knows.
//
//   constexpr InertRow kInert[] = {{CheckpointFormat::kHf, "use_cache", ""}};
//   RefuseOthers(keys, ignore_keys, [&](std::string_view key) {
//     return InertValues(kInert, {CheckpointFormat::kHf, "llama", "llama"}, key);
//   }, &read);
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_INERT_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_INERT_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "compiler/frontend/checkpoint/files/format.h"
#include "compiler/frontend/checkpoint/files/key_reader.h"
#include "compiler/frontend/checkpoint/files/keys.h"

namespace athanor::checkpoint {

// A key that changes no number at these values, separated by '|'; "": at any. A name that ends in
// '*' stands for all that begin so; "$." begins keys below GGUF's architecture. A row is for the
// families whose names begin with `family`; the first one counts.
struct InertRow {
  CheckpointFormat format;
  std::string_view key, values, family = "";
};

struct KeysOwner {
  CheckpointFormat format;
  std::string_view family, architecture;  // the latter of GGUF
};

// Returns the values at which the key changes no number, as config.json has them; empty: any.
// nullopt: no row has the key.
using InertKey = std::optional<std::vector<std::string_view>>;
InertKey InertValuesIn(absl::Span<const InertRow> rows, const KeysOwner& owner,
                       std::string_view key);

// Refuses keys that were neither read nor are inert. `ignore_keys` are taken for inert, and so is
// what is in objects of these names.
void RefuseOthers(const Keys& keys, absl::Span<const std::string> ignore_keys,
                  const std::function<InertKey(std::string_view key)>& inert, KeyReader* read);

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_INERT_H_
