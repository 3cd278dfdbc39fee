// Identifies this machine and this compiler without running the compiler. The cache keeps what the
// compiler reported under these ids (TargetTier::Find), so a start needs no child process.
//
//   cache.targets().Find(MachineFingerprint(), BuildIdOf(path_of_athanor_tuner));
#ifndef ATHANOR_SERVER_BASE_MACHINE_ID_H_
#define ATHANOR_SERVER_BASE_MACHINE_ID_H_

#include <string>

namespace athanor {

// Returns an id of the CPU, its caches and the BLAS library: "AuthenticAMD-25-97-2 8f3a...". On x86
// the CPU part covers vendor, family, model, stepping, features and what the system has switched
// on; elsewhere, what the system reports.
std::string MachineFingerprint();

// Returns the build id of an ELF file in hex, or the size and change time of a file without one.
// Empty if the file cannot be read.
std::string BuildIdOf(const std::string& path);

// Returns the nominal clock of the first CPU and its governor: "3701000 kHz performance". Empty if
// the system reports neither. Momentary clock changes are not part of it.
std::string ClocksText();

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_MACHINE_ID_H_
