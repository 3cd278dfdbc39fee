#include "server/tuner/run/host_target.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/cpu/blas.h"

namespace athanor {
namespace {

std::string ReadWord(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// Parses "48K", "1024K", "384M".
int64_t ParseCacheSize(absl::string_view text) {
  int64_t unit = 1;
  if (absl::ConsumeSuffix(&text, "K")) {
    unit = 1 << 10;
  } else if (absl::ConsumeSuffix(&text, "M")) {
    unit = 1 << 20;
  }
  int64_t count = 0;
  return absl::SimpleAtoi(text, &count) && count > 0 ? count * unit : 0;
}

// Returns the size of the first CPU's data or unified cache of a level; 0 if the system does not
// tell.
int64_t CacheBytes(int level) {
  for (int i = 0; i < 8; ++i) {
    const std::string folder = absl::StrCat("/sys/devices/system/cpu/cpu0/cache/index", i, "/");
    if (ReadWord(folder + "level") != std::to_string(level)) continue;
    if (ReadWord(folder + "type") == "Instruction") continue;
    if (const int64_t bytes = ParseCacheSize(ReadWord(folder + "size")); bytes > 0) return bytes;
  }
  static constexpr int kNames[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE,
                                   _SC_LEVEL3_CACHE_SIZE};
  return std::max<int64_t>(sysconf(kNames[level - 1]), 0);
}

}  // namespace

void SetVectors(v1::Target* target) {
  const auto has = [&](absl::string_view feature) {
    return std::find(target->features().begin(), target->features().end(), feature) !=
           target->features().end();
  };
  int bytes = 16, registers = 16;
  if (absl::StartsWith(target->triple(), "aarch64")) {
    registers = 32;
  } else if (has("+avx512f")) {
    bytes = 64;
    registers = 32;
  } else if (has("+avx")) {
    bytes = 32;
  }
  target->set_vector_bytes(bytes);
  target->set_vector_registers(registers);
}

v1::Target HostTarget() {
  const CpuTarget cpu = HostCpuTarget();
  v1::Target target;
  target.set_device("cpu");
  target.set_triple(cpu.triple);
  target.set_cpu(cpu.cpu);
  for (const std::string& feature : cpu.features) target.add_features(feature);
  SetVectors(&target);
  const auto either = [](int64_t told, int64_t common) { return told > 0 ? told : common; };
  target.set_l1_bytes(either(CacheBytes(1), 32 << 10));
  target.set_l2_bytes(either(CacheBytes(2), 512 << 10));
  target.set_l3_bytes(either(CacheBytes(3), 8 << 20));
  target.set_blas(BlasVersion());
  return target;
}

CpuTarget ToCpuTarget(const v1::Target& target) {
  return {target.triple(), target.cpu(), {target.features().begin(), target.features().end()}};
}

}  // namespace athanor
