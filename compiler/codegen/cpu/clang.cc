#include "compiler/codegen/cpu/clang.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "clang/Basic/DiagnosticOptions.h"
#include "clang/Basic/Version.h"
#include "clang/CodeGen/CodeGenAction.h"
#include "clang/Frontend/CompilerInstance.h"
#include "clang/Frontend/CompilerInvocation.h"
#include "clang/Frontend/TextDiagnosticPrinter.h"
#include "lld/Common/Driver.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/PassInstrumentation.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/VirtualFileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"

LLD_HAS_DRIVER(elf)

namespace athanor {
namespace {

// Most characters of diagnostics in a Status.
constexpr size_t kMaxMessage = 4096;

absl::Status Rejected(absl::string_view what, absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(what, ":\n", text.substr(0, kMaxMessage),
                                                 text.size() > kMaxMessage ? "\n[...]" : ""));
}

bool IsHostArchitecture(const llvm::Triple& triple) {
  return triple.getArch() == llvm::Triple(llvm::sys::getDefaultTargetTriple()).getArch();
}

// Sets up all of LLVM's targets only for a foreign one, because that takes long.
void InitializeTargets(const llvm::Triple& triple) {
  static const bool native = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
    return true;
  }();
  if (native && IsHostArchitecture(triple)) return;
  static const bool all = [] {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
    llvm::InitializeAllAsmParsers();
    return true;
  }();
  (void)all;
}

// Checks the names of triple, cpu and features; LLVM itself only warns about unknown ones.
absl::Status CheckTarget(const CpuTarget& target, const llvm::Triple& triple) {
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple.str(), error);
  if (found == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("target triple '", target.triple, "': ", error));
  }
  if (!triple.isOSBinFormatELF()) {
    return absl::InvalidArgumentError(
        absl::StrCat("target triple '", target.triple,
                     "': kernels are ELF objects, and this target has others"));
  }
  const std::unique_ptr<llvm::MCSubtargetInfo> info(
      found->createMCSubtargetInfo(triple.str(), "", ""));
  if (!target.cpu.empty() && !info->isCPUStringValid(target.cpu)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cpu '", target.cpu, "' is unknown to LLVM for ", target.triple));
  }
  for (const std::string& feature : target.features) {
    const llvm::StringRef name = llvm::StringRef(feature).drop_front(feature.empty() ? 0 : 1);
    const auto features = info->getAllProcessorFeatures();
    const bool known = std::any_of(features.begin(), features.end(),
                                   [&](const auto& row) { return name == row.Key; });
    if (!known || (feature[0] != '+' && feature[0] != '-')) {
      return absl::InvalidArgumentError(absl::StrCat(
          "feature '", feature, "' is not '+' or '-' and one of LLVM's for ", target.triple));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const ClangOptions& options) {
  if (options.opt_level < 0 || options.opt_level > 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("opt_level is ", options.opt_level, " and must be in [0, 3]"));
  }
  if (options.prefer_vector_width <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prefer_vector_width is ", options.prefer_vector_width, " and must be positive"));
  }
  return absl::OkStatus();
}

// Returns the frontend's own arguments, as the driver would have derived them.
std::vector<std::string> FrontendArguments(const CpuTarget& target, const ClangOptions& options) {
  std::vector<std::string> args = {
      "-triple", target.triple, "-emit-obj", "-x", options.cpp ? "c++" : "c",
      options.cpp ? "-std=c++17" : "-std=gnu17", absl::StrCat("-O", options.opt_level),
      "-mrelocation-model", "pic", "-pic-level", "2", "-mframe-pointer=none", "-fno-rounding-math",
      "-fgnuc-version=4.2.1", "-nostdsysteminc", "-nobuiltininc",
      // The assembler could read files, as in .incbin.
      "-fno-gnu-inline-asm", "-disable-llvm-verifier", "-discard-value-names", "-ferror-limit",
      "20", "-w", absl::StrCat("-mprefer-vector-width=", options.prefer_vector_width)};
  // The frontend leaves exceptions out by itself.
  if (options.cpp) args.insert(args.end(), {"-nostdinc++", "-fno-rtti", "-fno-threadsafe-statics"});
  if (!options.headers.empty()) args.insert(args.end(), {"-I", "."});
  if (!target.cpu.empty()) {
    args.insert(args.end(), {"-target-cpu", target.cpu});
  }
  for (const std::string& feature : target.features) {
    args.insert(args.end(), {"-target-feature", feature});
  }
  // Without SLP: kernels come with their vectors.
  if (options.opt_level >= 2) args.push_back("-vectorize-loops");
  if (options.fast_math) {
    args.insert(args.end(),
                {"-menable-no-infs", "-menable-no-nans", "-fapprox-func",
                 "-funsafe-math-optimizations", "-fno-signed-zeros", "-mreassociate",
                 "-freciprocal-math", "-ffp-contract=fast", "-ffast-math", "-ffinite-math-only"});
  } else {
    args.push_back("-ffp-contract=off");
  }
  args.push_back(options.source_name);
  return args;
}

// Passes that took an eighth of the time and made no model faster: those that look across
// functions, of which a kernel has one, and the rewriting of loop counters, which have 64 bits
// already and at worst keep a comparison more. Objects that were compiled with them are as right:
// no key of the cache names them.
constexpr llvm::StringRef kSkippedPasses[] = {"CalledValuePropagationPass", "GlobalOptPass",
                                              "IPSCCPPass", "IndVarSimplifyPass", "OpenMPOptPass"};

void SkipPasses(clang::CodeGenOptions& options) {
  options.PassBuilderCallbacks.push_back([](llvm::PassBuilder& builder) {
    builder.getPassInstrumentationCallbacks()->registerShouldRunOptionalPassCallback(
        [](llvm::StringRef pass, llvm::Any) { return !llvm::is_contained(kSkippedPasses, pass); });
  });
}

// A longer source, in bytes, is a convolution's or another kernel's with many versions of its
// loops; products of matrices are shorter.
constexpr size_t kLongSource = 40'000;

// Sets what no option of the frontend does; for every compilation, because lld sets all of LLVM's
// options back. Leaves loop strength reduction out of long sources: it took a third of their time,
// and no such kernel is faster with it on x86, whose addresses scale and add an index for nothing.
// Products of matrices take 1 % longer without.
void SetGlobalOptions(const llvm::Triple& triple, absl::string_view source) {
  std::vector<const char*> args = {"clang"};
  if (triple.isX86() && source.size() > kLongSource) args.push_back("-disable-lsr");
  llvm::cl::ResetAllOptionOccurrences();
  llvm::cl::ParseCommandLineOptions(static_cast<int>(args.size()), args.data());
}

// Compiles to a relocatable object. The only files the frontend can open are the source and the
// options' headers, in a file system of its own.
absl::StatusOr<llvm::SmallVector<char, 0>> CompileToObject(absl::string_view source,
                                                           const CpuTarget& target,
                                                           const ClangOptions& options) {
  std::string messages;
  llvm::raw_string_ostream message_stream(messages);
  auto diagnostic_options = llvm::makeIntrusiveRefCnt<clang::DiagnosticOptions>();
  auto diagnostics = llvm::makeIntrusiveRefCnt<clang::DiagnosticsEngine>(
      llvm::makeIntrusiveRefCnt<clang::DiagnosticIDs>(), diagnostic_options,
      new clang::TextDiagnosticPrinter(message_stream, diagnostic_options.get()));

  auto invocation = std::make_shared<clang::CompilerInvocation>();
  const std::vector<std::string> args = FrontendArguments(target, options);
  std::vector<const char*> pointers;
  for (const std::string& arg : args) pointers.push_back(arg.c_str());
  if (!clang::CompilerInvocation::CreateFromArgs(*invocation, pointers, *diagnostics)) {
    return Rejected("Clang does not accept its options", messages);
  }
  invocation->getFrontendOpts().DisableFree = false;
  SkipPasses(invocation->getCodeGenOpts());

  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  // A copy, because Clang's lexer wants the text to end with a NUL.
  const auto add = [&](const std::string& name, absl::string_view text) {
    files->addFile(
        name, 0,
        llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(text.data(), text.size()), name));
  };
  add(options.source_name, source);
  for (const ClangOptions::Header& header : options.headers) add(header.name, header.text);

  llvm::SmallVector<char, 0> object;
  clang::CompilerInstance compiler;
  compiler.setInvocation(std::move(invocation));
  compiler.setDiagnostics(diagnostics.get());
  compiler.setVerboseOutputStream(llvm::nulls());  // drops "2 errors generated."
  compiler.createFileManager(files);
  compiler.setOutputStream(std::make_unique<llvm::raw_svector_ostream>(object));
  clang::EmitObjAction action;
  const bool ok = compiler.ExecuteAction(action);
  if (!ok || diagnostics->hasErrorOccurred()) {
    return Rejected("the kernel's source does not compile", messages);
  }
  return object;
}

// An open descriptor with a path, for lld: it reads and writes by path, although nothing here has a
// name on any disk.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { Close(); }

  int fd() const { return fd_; }
  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

absl::Status WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "writing the kernel's object");
    bytes.remove_prefix(n);
  }
  return absl::OkStatus();
}

// Reads a pipe to its end on a thread of its own. lld simply writes to a pipe; onto a regular
// output file it would rename a temporary one, which a memory file does not allow.
class PipeReader {
 public:
  explicit PipeReader(int fd) : thread_([this, fd] { Run(fd); }) {}

  // REQUIRES: every writing end is closed.
  absl::StatusOr<std::string> Finish() && {
    thread_.join();
    if (error_ != 0) {
      return absl::ErrnoToStatus(error_, "reading the linked kernel");
    }
    return std::move(bytes_);
  }

 private:
  void Run(int fd) {
    char buffer[1 << 16];
    for (;;) {
      const ssize_t n = read(fd, buffer, sizeof(buffer));
      if (n > 0) {
        bytes_.append(buffer, n);
      } else if (n == 0 || errno != EINTR) {
        error_ = n == 0 ? 0 : errno;
        return;
      }
    }
  }

  std::string bytes_;
  int error_ = 0;
  std::thread thread_;
};

// Returns the paths of the libraries that kernels may call, as this machine's loader finds them.
// libgcc_s has what the processor lacks, such as f64 to f16.
const std::vector<std::string>& HostLibraries() {
  static const auto* const paths = [] {
    auto* found = new std::vector<std::string>;
    for (const char* name : {"libm.so.6", "libmvec.so.1", "libc.so.6", "libgcc_s.so.1"}) {
      void* handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
      if (handle == nullptr) continue;
      link_map* map = nullptr;
      if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0) {
        found->push_back(map->l_name);
      }
      dlclose(handle);
    }
    return found;
  }();
  return *paths;
}

// Reports whether the object calls a library. Most kernels call none, and reading libm's and libc's
// tables costs lld more than all its other work.
bool NeedsLibraries(const llvm::SmallVector<char, 0>& object) {
  auto file = llvm::object::ObjectFile::createELFObjectFile(
      llvm::MemoryBufferRef(llvm::StringRef(object.data(), object.size()), "kernel.o"));
  if (!file) {
    llvm::consumeError(file.takeError());
    return true;
  }
  for (const llvm::object::SymbolRef& symbol : (*file)->symbols()) {
    llvm::Expected<uint32_t> flags = symbol.getFlags();
    if (!flags) {
      llvm::consumeError(flags.takeError());
      return true;
    }
    if (*flags & llvm::object::SymbolRef::SF_Undefined) return true;
  }
  return false;
}

absl::StatusOr<std::string> Link(const llvm::SmallVector<char, 0>& object, bool host_libraries) {
  Descriptor input(memfd_create("kernel.o", MFD_CLOEXEC));
  if (input.fd() < 0) return absl::ErrnoToStatus(errno, "memfd_create");
  absl::Status written = WriteAll(input.fd(), absl::string_view(object.data(), object.size()));
  if (!written.ok()) return written;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe2");
  Descriptor read_end(ends[0]), write_end(ends[1]);

  const std::string input_path = input.path(), output_path = write_end.path();
  std::vector<const char*> args = {"ld.lld",
                                   "-shared",
                                   "-z",
                                   "defs",
                                   "-z",
                                   "noseparate-code",
                                   "-Bsymbolic",
                                   "--hash-style=gnu",
                                   "--build-id=none",
                                   "--threads=1",
                                   "-o",
                                   output_path.c_str(),
                                   input_path.c_str(),
                                   "--as-needed"};
  if (host_libraries && NeedsLibraries(object)) {
    for (const std::string& path : HostLibraries()) {
      args.push_back(path.c_str());
    }
  }
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  PipeReader reader(read_end.fd());
  const lld::Result result = lld::lldMain(args, stream, stream, {{lld::Gnu, &lld::elf::link}});
  write_end.Close();
  absl::StatusOr<std::string> linked = std::move(reader).Finish();
  if (result.retCode != 0) {
    return Rejected(
        "the kernel does not link",
        absl::StrReplaceAll(messages, {{input_path, "kernel.o"}, {output_path, "kernel.so"}}));
  }
  return linked;
}

}  // namespace

CpuTarget HostCpuTarget() {
  CpuTarget target;
  target.triple = llvm::sys::getDefaultTargetTriple();
  target.cpu = llvm::sys::getHostCPUName().str();
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
    target.features.push_back(absl::StrCat(feature.second ? "+" : "-", feature.first().str()));
  }
  std::sort(target.features.begin(), target.features.end());
  return target;
}

absl::StatusOr<std::string> CompileToSharedObject(absl::string_view source, const CpuTarget& target,
                                                  const ClangOptions& options) {
  const llvm::Triple triple(target.triple);
  InitializeTargets(triple);
  absl::Status valid = CheckOptions(options);
  if (valid.ok()) valid = CheckTarget(target, triple);
  if (!valid.ok()) return valid;
  SetGlobalOptions(triple, source);
  absl::StatusOr<llvm::SmallVector<char, 0>> object = CompileToObject(source, target, options);
  if (!object.ok()) return object.status();
  return Link(*object, IsHostArchitecture(triple));
}

std::string ClangVersion() { return CLANG_VERSION_STRING; }

}  // namespace athanor
