#include "server/child/compile_flags.h"

#include "absl/strings/str_cat.h"

namespace athanor {

CompileFlags CompileFlags::For(const v1::Target& target) {
  CompileFlags flags;
  flags.nvrtc = target.device() == "cuda";
  if (target.vector_bytes() > 0) flags.prefer_vector_width = 8 * target.vector_bytes();
  return flags;
}

std::string CompileFlags::ToString() const {
  if (nvrtc) return "--std=c++17 --fmad=false";
  return absl::StrCat("-O", opt_level, " -mprefer-vector-width=", prefer_vector_width,
                      " -ffp-contract=off");
}

}  // namespace athanor
