#include "server/base/machine_id.h"

#include <elf.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/sha256.h"
#include "runtime/cpu/blas.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace athanor {
namespace {

constexpr char kCpu[] = "/sys/devices/system/cpu/cpu0/";

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

struct CpuId {
  std::string name;   // for people to read
  std::string facts;  // everything CPUID reports
};

#ifdef __x86_64__

uint64_t SwitchedOn() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

CpuId ReadCpu() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  CpuId id;
  if (__get_cpuid(0, &a, &b, &c, &d) != 0) {
    char vendor[12];
    std::memcpy(vendor, &b, 4);
    std::memcpy(vendor + 4, &d, 4);
    std::memcpy(vendor + 8, &c, 4);
    id.name.assign(vendor, sizeof(vendor));
  }
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) {
    uint32_t family = (a >> 8) & 0xf, model = (a >> 4) & 0xf;
    if (family == 0xf || family == 6) model |= (a >> 12) & 0xf0;
    if (family == 0xf) family += (a >> 20) & 0xff;
    absl::StrAppend(&id.name, "-", family, "-", model, "-", a & 0xf);
    // Leaves out b: it depends on the core that runs this.
    absl::StrAppend(&id.facts, c, " ", d);
    constexpr uint32_t kOsXsave = 1U << 27;
    if ((c & kOsXsave) != 0) absl::StrAppend(&id.facts, " ", SwitchedOn());
  }
  for (uint32_t subleaf : {0U, 1U}) {
    if (__get_cpuid_count(7, subleaf, &a, &b, &c, &d) == 0) continue;
    absl::StrAppend(&id.facts, " ", a, " ", b, " ", c, " ", d);
  }
  if (__get_cpuid(0x80000001U, &a, &b, &c, &d) != 0) {
    absl::StrAppend(&id.facts, " ", c, " ", d);
  }
  return id;
}

#else

CpuId ReadCpu() {
  const std::string midr = ReadLine(absl::StrCat(kCpu, "regs/identification/midr_el1"));
  return {midr.empty() ? "cpu" : midr,
          absl::StrCat(getauxval(AT_HWCAP), " ", getauxval(AT_HWCAP2))};
}

#endif

// Returns the value of the NT_GNU_BUILD_ID note among `notes`.
std::string BuildIdIn(absl::string_view notes) {
  constexpr absl::string_view kOwner("GNU\0", 4);
  const auto padded = [](uint64_t bytes) { return (bytes + 3) / 4 * 4; };
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data(), sizeof(note));
    notes.remove_prefix(sizeof(note));
    if (notes.size() < padded(note.n_namesz)) return "";
    const absl::string_view owner = notes.substr(0, note.n_namesz);
    notes.remove_prefix(padded(note.n_namesz));
    if (notes.size() < note.n_descsz) return "";
    if (note.n_type == NT_GNU_BUILD_ID && owner == kOwner) {
      return absl::BytesToHexString(notes.substr(0, note.n_descsz));
    }
    notes.remove_prefix(std::min<uint64_t>(notes.size(), padded(note.n_descsz)));
  }
  return "";
}

constexpr uint64_t kMostNoteBytes = 1 << 16;

std::string BuildIdOfElf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header;
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header))) return "";
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    return "";
  }
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    file.seekg(static_cast<std::streamoff>(header.e_phoff + i * sizeof(segment)));
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof(segment))) return "";
    if (segment.p_type != PT_NOTE) continue;
    std::string notes(std::min<uint64_t>(segment.p_filesz, kMostNoteBytes), '\0');
    file.seekg(static_cast<std::streamoff>(segment.p_offset));
    if (!file.read(notes.data(), static_cast<std::streamsize>(notes.size()))) return "";
    if (std::string id = BuildIdIn(notes); !id.empty()) return id;
  }
  return "";
}

}  // namespace

std::string MachineFingerprint() {
  const CpuId cpu = ReadCpu();
  std::string facts = absl::StrCat(cpu.name, "\n", cpu.facts, "\n", BlasVersion(), "\n");
  for (int i = 0; i < 8; ++i) {
    const std::string folder = absl::StrCat(kCpu, "cache/index", i, "/");
    absl::StrAppend(&facts, ReadLine(folder + "level"), " ", ReadLine(folder + "type"), " ",
                    ReadLine(folder + "size"), "\n");
  }
  for (int name : {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE}) {
    absl::StrAppend(&facts, sysconf(name), "\n");
  }
  return absl::StrCat(cpu.name, " ", Sha256Hex(facts).substr(0, 32));
}

std::string BuildIdOf(const std::string& path) {
  if (std::string id = BuildIdOfElf(path); !id.empty()) return id;
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return "";
  return absl::StrCat("bytes ", info.st_size, " changed ", info.st_mtim.tv_sec, ".",
                      info.st_mtim.tv_nsec);
}

std::string ClocksText() {
  const std::string most = ReadLine(absl::StrCat(kCpu, "cpufreq/cpuinfo_max_freq"));
  const std::string governor = ReadLine(absl::StrCat(kCpu, "cpufreq/scaling_governor"));
  if (most.empty() && governor.empty()) return "";
  return absl::StrCat(most, " kHz ", governor);
}

}  // namespace athanor
