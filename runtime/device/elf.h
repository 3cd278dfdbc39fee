// What loaders ask of an object before they hand it to a system that maps it without looking where
// it ends.
//
//   ASSIGN_OR_RETURN(ElfObject elf, CheckElf(object));
//   if (elf.machine != EM_X86_64) ...
#ifndef ATHANOR_RUNTIME_DEVICE_ELF_H_
#define ATHANOR_RUNTIME_DEVICE_ELF_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

struct ElfObject {
  int machine = 0;       // e_machine
  int type = 0;          // e_type: 3 is a shared object
  bool dynamic = false;  // has a dynamic section: it was linked
};

// Checks that `object` is a 64-bit little-endian ELF file and holds all that its headers announce:
// program and section headers, segments and sections. INVALID_ARGUMENT says what is missing.
absl::StatusOr<ElfObject> CheckElf(absl::string_view object);

// Returns the INVALID_ARGUMENT error of an object that is not what a loader takes.
absl::Status MalformedObject(absl::string_view what);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_DEVICE_ELF_H_
