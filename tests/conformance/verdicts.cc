#include "tests/conformance/verdicts.h"

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/dialect.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Ends a line that was written whole.
constexpr char kEnd[] = ".";

Verdict VerdictOf(const CompileLog& log) {
  Verdict verdict;
  for (const KernelResources& kernel : log.kernels) {
    verdict.registers = std::max(verdict.registers, kernel.registers);
    verdict.stack_bytes = std::max(verdict.stack_bytes, kernel.stack_bytes);
    verdict.shared_bytes = std::max(verdict.shared_bytes, kernel.shared_bytes);
    verdict.spill_bytes += kernel.spill_store_bytes + kernel.spill_load_bytes;
  }
  return verdict;
}

}  // namespace

std::string VerdictFolder() {
  const char* home = std::getenv("HOME");
  if (home == nullptr) {
    const passwd* const user = getpwuid(getuid());
    home = user != nullptr ? user->pw_dir : "/tmp";
  }
  return absl::StrCat(home, "/.cache/athanor/nvrtc");
}

absl::StatusOr<std::unique_ptr<Verdicts>> Verdicts::Open(const Nvrtc& nvrtc,
                                                         const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path =
      absl::StrCat(folder, "/", nvrtc.version(), "-", CudaHeadersHash().substr(0, 16), ".txt");
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " cannot be written: ", std::strerror(errno)));
  }
  std::unique_ptr<Verdicts> verdicts(new Verdicts(nvrtc, fd));
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string hash, arch, end;
    Verdict verdict;
    words >> hash >> arch >> verdict.registers >> verdict.stack_bytes >> verdict.spill_bytes >>
        verdict.shared_bytes >> end;
    if (words && end == kEnd) verdicts->known_[{hash, arch}] = verdict;
  }
  return verdicts;
}

Verdicts::~Verdicts() { close(fd_); }

absl::StatusOr<Verdict> Verdicts::Of(const std::string& text, const std::string& arch) {
  const std::pair<std::string, std::string> key = {Sha256Hex(text), arch};
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  ++compiled_;
  ASSIGN_OR_RETURN(const Cubin cubin, nvrtc_.Compile(CudaSourceOf(text, arch)));
  const Verdict verdict = VerdictOf(cubin.log);
  const std::string line =
      absl::StrCat(key.first, " ", arch, " ", verdict.registers, " ", verdict.stack_bytes, " ",
                   verdict.spill_bytes, " ", verdict.shared_bytes, " ", kEnd, "\n");
  // A later run compiles again what was not kept.
  if (write(fd_, line.data(), line.size()) < 0) errno = 0;
  known_[key] = verdict;
  return verdict;
}

}  // namespace athanor
