// A libnvrtc.so.13 that compiles kernels for the device of module.cc: their text as it is, with an
// athanor/device.h of its own in place of the one given, by Clang for this machine.
//
// A text that has the word ATHANOR_EMULATOR_SPILLS is said to spill registers. A file spoil.h in
// the library's folder, read at each compilation, goes behind device.h: it may redefine what
// kernels use, and so spoil whatever is compiled from then on.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "compiler/codegen/cpu/clang.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {
namespace {

// nvrtcResult
constexpr int kSuccess = 0, kInvalidInput = 3, kInvalidProgram = 4, kInvalidOption = 5,
              kCompilation = 6;

constexpr char kDeviceHeader[] = "athanor/device.h";
constexpr absl::string_view kSpills = "ATHANOR_EMULATOR_SPILLS";
constexpr absl::string_view kDeviceText =
#include "tests/emulator/device_header.inc"
    ;
constexpr absl::string_view kArchs[] = {"sm_80", "sm_90a"};
// Hold of everything here: arithmetic is never contracted, the log has the resources, and no
// warning.
constexpr absl::string_view kOptions[] = {"--std=c++17", "--ptxas-options=-v", "--no-cache",
                                          "--fmad=false", "--diag-suppress=177"};

struct Source {
  std::string text, name;
  std::vector<ClangOptions::Header> headers;
  std::string code, log;
};

// Returns an empty message if all options are known; sets the architecture.
std::string ReadOptions(int count, const char* const* options, absl::string_view* arch) {
  for (int i = 0; i < count; ++i) {
    absl::string_view option = options[i];
    if (absl::ConsumePrefix(&option, "--gpu-architecture=")) {
      *arch = "";
      for (absl::string_view known : kArchs) {
        if (option == known) *arch = known;
      }
      if (arch->empty()) {
        return absl::StrCat("nvrtc: error: invalid value for --gpu-architecture: ", option,
                            "; the emulator has sm_80 and sm_90a\n");
      }
      continue;
    }
    bool known = false;
    for (absl::string_view one : kOptions) known |= option == one;
    if (!known) return absl::StrCat("nvrtc: error: unrecognized option ", option, "\n");
  }
  return arch->empty() ? "nvrtc: error: no --gpu-architecture\n" : "";
}

// Returns the kernels that an object defines, each of which has a symbol of this end.
std::set<std::string> KernelNames(absl::string_view code) {
  constexpr absl::string_view kEnd("_argument_bytes\0", 16);
  std::set<std::string> names;
  for (size_t at = code.find(kEnd); at != code.npos; at = code.find(kEnd, at + 1)) {
    const size_t begin = code.rfind('\0', at) + 1;
    names.emplace(code.substr(begin, at - begin));
  }
  return names;
}

// Says in the words of ptxas what kernels take: the registers are of no chip.
std::string ResourceLog(absl::string_view code, absl::string_view arch, bool spills) {
  const int bytes = spills ? 8 : 0;
  std::string log = "ptxas info    : 0 bytes gmem\n";
  for (const std::string& name : KernelNames(code)) {
    absl::StrAppend(&log, "ptxas info    : Compiling entry function '", name, "' for '", arch,
                    "'\nptxas info    : Function properties for ", name, "\n    ", bytes,
                    " bytes stack frame, ", bytes, " bytes spill stores, ", bytes,
                    " bytes spill loads\nptxas info    : Used 32 registers, used 0 barriers\n");
  }
  return log;
}

// Returns the text of spoil.h; "" if there is none.
std::string SpoilingText() {
  Dl_info here;
  if (dladdr(kDeviceHeader, &here) == 0) return "";
  std::string path = here.dli_fname;
  std::ifstream file(path.substr(0, path.rfind('/') + 1) + "spoil.h");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int Compile(Source& source, absl::string_view arch) {
  CpuTarget target;
  target.triple = HostCpuTarget().triple;  // its oldest processor: objects are kept in caches
  ClangOptions options;
  options.opt_level = 1;
  options.source_name = source.name;
  options.cpp = true;
  options.headers = source.headers;
  for (ClangOptions::Header& header : options.headers) {
    if (header.name != kDeviceHeader) continue;
    header.text = absl::StrCat(
        "#define ATHANOR_ARCH \"", arch, "\"\n",
        std::getenv("ATHANOR_EMULATOR_COUNTS") != nullptr ? "#define ATHANOR_COUNTS\n" : "",
        kDeviceText, SpoilingText());
  }
  static Mutex mutex;
  MutexLock lock(mutex);
  absl::StatusOr<std::string> code = CompileToSharedObject(source.text, target, options);
  if (!code.ok()) {
    source.log = std::string(code.status().message());
    return kCompilation;
  }
  source.code = *std::move(code);
  source.log = ResourceLog(source.code, arch, absl::StrContains(source.text, kSpills));
  return kSuccess;
}

}  // namespace
}  // namespace athanor

using athanor::Source;

#define NVRTC extern "C" __attribute__((visibility("default"))) int

NVRTC nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return athanor::kSuccess;
}
NVRTC nvrtcCreateProgram(void** program, const char* text, const char* name, int headers,
                         const char* const* texts, const char* const* names) {
  if (text == nullptr || program == nullptr) return athanor::kInvalidInput;
  auto source = std::make_unique<Source>();
  source->text = text;
  source->name = name != nullptr ? name : "default_program";
  for (int i = 0; i < headers; ++i) source->headers.push_back({names[i], texts[i]});
  *program = source.release();
  return athanor::kSuccess;
}
NVRTC nvrtcDestroyProgram(void** program) {
  if (*program == nullptr) return athanor::kInvalidProgram;
  delete static_cast<Source*>(*program);
  *program = nullptr;
  return athanor::kSuccess;
}
NVRTC nvrtcCompileProgram(void* program, int count, const char* const* options) {
  Source& source = *static_cast<Source*>(program);
  absl::string_view arch;
  source.log = athanor::ReadOptions(count, options, &arch);
  return source.log.empty() ? athanor::Compile(source, arch) : athanor::kInvalidOption;
}
NVRTC nvrtcGetCUBINSize(void* program, size_t* bytes) {
  *bytes = static_cast<Source*>(program)->code.size();
  return athanor::kSuccess;
}
NVRTC nvrtcGetCUBIN(void* program, char* code) {
  const Source& source = *static_cast<Source*>(program);
  std::memcpy(code, source.code.data(), source.code.size());
  return athanor::kSuccess;
}
NVRTC nvrtcGetProgramLogSize(void* program, size_t* bytes) {
  *bytes = static_cast<Source*>(program)->log.size() + 1;
  return athanor::kSuccess;
}
NVRTC nvrtcGetProgramLog(void* program, char* log) {
  const Source& source = *static_cast<Source*>(program);
  std::memcpy(log, source.log.c_str(), source.log.size() + 1);
  return athanor::kSuccess;
}
