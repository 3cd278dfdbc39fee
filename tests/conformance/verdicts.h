// Keeps what NVIDIA's compiler said of kernels between runs: it is asked about each text once.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Verdicts> verdicts, Verdicts::Open(*nvrtc, folder));
//   ASSIGN_OR_RETURN(Verdict verdict, verdicts->Of(PrintCudaKernel(kernel, {}), "sm_90a"));
//   if (verdict.spill_bytes > 0) ...
#ifndef ATHANOR_TESTS_CONFORMANCE_VERDICTS_H_
#define ATHANOR_TESTS_CONFORMANCE_VERDICTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "compiler/codegen/cuda/nvrtc.h"

namespace athanor {

// Says what a kernel takes: bytes per thread, but for `shared_bytes`, a block's. Spills are bytes
// stored and loaded.
struct Verdict {
  int64_t registers = 0, stack_bytes = 0, spill_bytes = 0, shared_bytes = 0;

  bool operator==(const Verdict&) const = default;
};

// Returns the folder of the user's other caches: ~/.cache/athanor/nvrtc.
std::string VerdictFolder();

// Keeps verdicts in one file per version of NVRTC, headers and options, to which any number of
// processes may append: a verdict is one line. A text that does not compile has none. Used by one
// thread.
class Verdicts {
 public:
  // Makes the folder. FAILED_PRECONDITION: the file cannot be opened. `nvrtc` must outlive it.
  static absl::StatusOr<std::unique_ptr<Verdicts>> Open(const Nvrtc& nvrtc,
                                                        const std::string& folder);
  ~Verdicts();
  Verdicts(const Verdicts&) = delete;
  Verdicts& operator=(const Verdicts&) = delete;

  // INVALID_ARGUMENT if the text does not compile.
  absl::StatusOr<Verdict> Of(const std::string& text, const std::string& arch);

  // Returns how many texts NVRTC was asked about, each architecture counted.
  int64_t compiled() const { return compiled_; }

 private:
  Verdicts(const Nvrtc& nvrtc, int fd) : nvrtc_(nvrtc), fd_(fd) {}

  const Nvrtc& nvrtc_;
  const int fd_;
  int64_t compiled_ = 0;
  std::map<std::pair<std::string, std::string>, Verdict> known_;  // by hash and architecture
};

}  // namespace athanor

#endif  // ATHANOR_TESTS_CONFORMANCE_VERDICTS_H_
