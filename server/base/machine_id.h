// Which machine and which compiler this is, without asking the compiler: what it says of them is
// kept (Cache::FindTarget), so that a start needs no child process.
//
//   cache.FindTarget(MachineFingerprint(), BuildIdOf(path_of_athanor_tuner));
#ifndef ATHANOR_SERVER_BASE_MACHINE_ID_H_
#define ATHANOR_SERVER_BASE_MACHINE_ID_H_

#include <string>

namespace athanor {

// Of the CPU (x86: vendor, family, model, stepping, features, what the system has switched on;
// others: what the system says), its caches and the BLAS library: "AuthenticAMD-25-97-2 8f3a...".
std::string MachineFingerprint();

// The build id of an ELF file, in hex; size and time of change of a file that has none. Empty: it
// cannot be read.
std::string BuildIdOf(const std::string& path);

// The nominal clock of the first CPU and its governor: "3701000 kHz performance". Empty where the
// system tells neither. What clocks do from moment to moment is not in it.
std::string ClocksText();

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_MACHINE_ID_H_
