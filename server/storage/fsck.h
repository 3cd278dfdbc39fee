// Checks everything in a state directory without a server, for `athanor fsck`.
//
//   absl::Status done = CheckStateDirectory(dir, [](const FsckFinding& f) { Print(f); });
//
// Reads every row and every byte, even of files that are unchanged since a server verified them.
// Repairs and moves nothing, but migrates registry.db to this program's schema, as a start would.
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
    kNote,     // nothing is lost, but an operator may want to know
    kDamaged,  // a model is lost or not served because of it
  };
  Verdict verdict = kOk;
  std::string kind;    // "registry", "version", "tensor", "pinned plan", "aside", "quarantine", ...
  std::string name;    // what was checked: a model and its version, a hash, a file
  std::string detail;  // what was found, and what to do
};

// Returns "ok", "note" or "damaged".
absl::string_view VerdictText(FsckFinding::Verdict verdict);

// Reports each thing it checks. Returns FAILED_PRECONDITION if a server uses the directory or it
// does not exist. Damage that it finds is reported, not returned as an error.
absl::Status CheckStateDirectory(const std::string& state_dir,
                                 absl::FunctionRef<void(const FsckFinding&)> report);

}  // namespace athanor

#endif  // ATHANOR_SERVER_STORAGE_FSCK_H_
