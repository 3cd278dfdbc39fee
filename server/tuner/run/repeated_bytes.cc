#include "server/tuner/run/repeated_bytes.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "server/tuner/sandbox/sandbox.h"

namespace athanor {
namespace {

// Pages of a period: few, so that it is filled quickly, unless there are many mappings, which cost
// time too. Linux allows a process 65,530 mappings.
constexpr size_t kMinPages = 257;
constexpr size_t kManyMappings = 2048;
constexpr size_t kManyPages = 4099;
constexpr size_t kMaxMappings = 32768;
// The size of a tuner's files is limited (TunerLimits).
constexpr size_t kMaxPeriod = size_t{48} << 20;

absl::Status Exhausted(size_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a check's input of ", bytes, " bytes: ", std::strerror(errno)));
}

bool IsPrime(size_t n) {
  for (size_t d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return n > 1;
}

// Returns the period in bytes; `used` if nothing repeats.
size_t PeriodOf(size_t used, size_t page, absl::Span<const int64_t> strides) {
  const size_t total = used / page;
  size_t pages =
      std::max({kMinPages, std::min(total / kManyMappings, kManyPages), total / kMaxMappings + 1});
  const auto on_itself = [&](int64_t stride) {
    return stride != 0 && static_cast<size_t>(stride) % (pages * page) == 0;
  };
  while (!IsPrime(pages) || std::any_of(strides.begin(), strides.end(), on_itself)) ++pages;
  return std::min(pages * page, used);
}

}  // namespace

size_t RepeatedBytes::GuardBytes() {
  static const size_t page = sysconf(_SC_PAGESIZE);
  return page;
}

absl::Status RepeatedBytes::Map(char* base, size_t used, size_t period, size_t offset,
                                absl::string_view drawn) {
  const int file = memfd_create("check", MFD_CLOEXEC);
  if (file < 0) return Exhausted(used);
  absl::Cleanup closer = [file] { close(file); };
  if (ftruncate(file, static_cast<off_t>(period)) != 0) return Exhausted(used);
  void* content = mmap(nullptr, period, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (content == MAP_FAILED) return Exhausted(used);
  // The tensor begins at `offset` of the file; the bytes before that are the end of the period.
  for (size_t done = 0; done < period && !drawn.empty();) {
    const size_t to = (offset + done) % period;
    const size_t n = std::min({drawn.size() - done % drawn.size(), period - done, period - to});
    std::memcpy(static_cast<char*>(content) + to, drawn.data() + done % drawn.size(), n);
    done += n;
  }
  munmap(content, period);
  for (size_t done = 0; done < used; done += period) {
    if (mmap(base + done, std::min(period, used - done), PROT_READ,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED) {
      return Exhausted(used);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RepeatedBytes> RepeatedBytes::Create(size_t bytes, absl::Span<const int64_t> strides,
                                                    absl::string_view drawn) {
  const size_t page = GuardBytes();
  const size_t used = std::max<size_t>((bytes + page - 1) / page, 1) * page;
  const size_t period = drawn.size() >= bytes ? used : PeriodOf(used, page, strides);
  if (period > kMaxPeriod) {
    return absl::ResourceExhaustedError(absl::StrCat("a check's input of ", bytes, " bytes: its ",
                                                     period, " bytes of contents are more than ",
                                                     kMaxPeriod));
  }
  WidenAddressSpace(static_cast<int64_t>(used + page));
  void* base =
      mmap(nullptr, used + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    const absl::Status status = Exhausted(bytes);
    WidenAddressSpace(-static_cast<int64_t>(used + page));
    return status;
  }
  RepeatedBytes repeated(static_cast<char*>(base), used + page, bytes, period);
  const absl::Status mapped =
      Map(repeated.base_, used, period, (used - bytes) % period, drawn.substr(0, bytes));
  if (!mapped.ok()) return mapped;
  return repeated;
}

RepeatedBytes::~RepeatedBytes() {
  if (base_ == nullptr) return;
  munmap(base_, reserved_);
  WidenAddressSpace(-static_cast<int64_t>(reserved_));
}

}  // namespace athanor
