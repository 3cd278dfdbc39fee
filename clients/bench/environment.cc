#include "clients/bench/environment.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"

namespace athanor::bench {
namespace {

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (absl::StartsWith(line, "model name") && colon != std::string::npos) {
      return std::string(absl::StripAsciiWhitespace(absl::string_view(line).substr(colon + 1)));
    }
  }
  return "";
}

int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

}  // namespace

nlohmann::json Environment() {
  utsname system = {};
  uname(&system);
  double load = 0;
  const bool known = getloadavg(&load, 1) == 1;
  return {{"host", std::string(system.nodename)},
          {"cpu", CpuName()},
          {"cores", UsableCores()},
          {"kernel", std::string(system.release)},
          {"load", known ? nlohmann::json(load) : nlohmann::json()},
          {"grpc", grpc::Version()}};
}

std::string NowText() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
}

}  // namespace athanor::bench
