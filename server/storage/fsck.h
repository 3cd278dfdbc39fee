// Looks at all that a state directory should hold, without a server: what `athanor fsck` prints.
//
//   absl::Status done = CheckStateDirectory(dir, [](const FsckFinding& f) { Print(f); });
//
// Every row and every byte is read, also those of files that have not changed since a server
// verified them. Nothing is mended or moved; registry.db is brought to this program's schema, as a
// start would.
#ifndef ATHANOR_SERVER_STORAGE_FSCK_H_
#define ATHANOR_SERVER_STORAGE_FSCK_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace athanor {

struct FsckFinding {
  enum Verdict : uint8_t {
    kOk,
    kNote,     // nothing is lost, but somebody may want to know
    kDamaged,  // a model is not served because of it, or is lost
  };
  Verdict verdict = kOk;
  std::string kind;    // "registry", "version", "tensor", "pinned plan", "aside", "quarantine", ...
  std::string name;    // of the thing: a model and its version, a hash, a file
  std::string detail;  // what was found, and what to do
};

// "ok", "note", "damaged".
absl::string_view VerdictText(FsckFinding::Verdict verdict);

// Reports each thing it looked at. FAILED_PRECONDITION: a server uses the directory, or there is
// none. What is damaged is no error of this call.
absl::Status CheckStateDirectory(const std::string& state_dir,
                                 absl::FunctionRef<void(const FsckFinding&)> report);

}  // namespace athanor

#endif  // ATHANOR_SERVER_STORAGE_FSCK_H_
