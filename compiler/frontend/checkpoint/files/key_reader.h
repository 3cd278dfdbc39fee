// Reads a checkpoint's keys by type and range, remembers which were read, and collects refusals.
//
//   KeyReader read(keys, &refusals);
//   int64_t width = read.Integer("hidden_size", 1, 1 << 24);    // refused if it is not there
//
// A read that is refused returns its default, or the least value. Not thread-safe.
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_KEY_READER_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_KEY_READER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "compiler/frontend/checkpoint/files/keys.h"
#include "compiler/frontend/refusal.h"

namespace athanor::checkpoint {

class KeyReader {
 public:
  // Borrows both.
  KeyReader(const Keys& keys, std::vector<ImportRefusal>* refusals)
      : keys_(keys), refusals_(*refusals) {}

  bool Has(std::string_view key) const { return keys_.find(key) != keys_.end(); }
  // Reports whether a key begins with the prefix.
  bool HasBelow(std::string_view prefix) const;
  int64_t Integer(std::string_view key, int64_t least, int64_t most,
                  std::optional<int64_t> otherwise = std::nullopt);
  // A finite number in [least, most].
  double Number(std::string_view key, double least, double most,
                std::optional<double> otherwise = std::nullopt);
  bool Flag(std::string_view key, bool otherwise);
  std::string Text(std::string_view key, std::string_view otherwise);
  std::vector<std::string> Texts(std::string_view key);
  // A text, or a list of texts, of which there must be one.
  std::string Listed(std::string_view key);
  // Integers, of which there may be a single one.
  std::vector<int64_t> Integers(std::string_view key, int64_t least, int64_t most);

  void Refuse(absl::StatusCode code, std::string_view key, std::string reason);
  // Reports whether there are so many refusals that others are only counted.
  bool full() const { return refusals_.size() > kMostRefusals; }
  bool WasRead(std::string_view key) const { return read_.find(key) != read_.end(); }

 private:
  // Returns the value and takes the key for read; nullptr if there is none.
  const GgufValue* Take(std::string_view key);
  void RefuseType(std::string_view key, std::string_view right);

  const Keys& keys_;
  std::vector<ImportRefusal>& refusals_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_KEY_READER_H_
