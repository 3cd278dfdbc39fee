#include "compiler/codegen/cuda/compile_log.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace athanor {
namespace {

// Words of a resource line, and where their number goes: "864 bytes spill stores, used 1 barriers".
struct Resource {
  absl::string_view words;
  int64_t KernelResources::* to;
};
constexpr Resource kResources[] = {
    {"bytes stack frame", &KernelResources::stack_bytes},
    {"bytes spill stores", &KernelResources::spill_store_bytes},
    {"bytes spill loads", &KernelResources::spill_load_bytes},
    {"registers", &KernelResources::registers},
    {"barriers", &KernelResources::barriers},
    {"bytes smem", &KernelResources::shared_bytes},
};

// Returns what stands between the first `open` and the next `close`; empty if they do not.
absl::string_view Between(absl::string_view line, char open, char close) {
  const size_t begin = line.find(open);
  const size_t end = begin == line.npos ? line.npos : line.find(close, begin + 1);
  return end == line.npos ? absl::string_view() : line.substr(begin + 1, end - begin - 1);
}

// Sets the resources that a line states as "NUMBER words", with other words before the number.
void ReadResources(absl::string_view line, KernelResources* kernel) {
  for (absl::string_view item : absl::StrSplit(line, ',')) {
    for (const Resource& resource : kResources) {
      if (!absl::ConsumeSuffix(&item, resource.words)) continue;
      item = absl::StripAsciiWhitespace(item);
      int64_t number = 0;
      if (absl::SimpleAtoi(item.substr(item.find_last_of(' ') + 1), &number)) {
        kernel->*resource.to = number;
      }
      break;
    }
  }
}

}  // namespace

bool CompileLog::Warns(absl::string_view code) const {
  return std::any_of(warnings.begin(), warnings.end(),
                     [&](const CompileWarning& warning) { return warning.code == code; });
}

bool CompileLog::serialised() const {
  return std::any_of(warnings.begin(), warnings.end(), [](const CompileWarning& warning) {
    return absl::StrContains(warning.text, "wgmma.mma_async instructions are serialized");
  });
}

CompileLog ParseCompileLog(absl::string_view text) {
  CompileLog log;
  // The kernel that "Used" and the properties are of; null after another function's heading.
  KernelResources* kernel = nullptr;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    // Some releases begin the line of a function's stack with spaces alone.
    if (!absl::StartsWith(line, "ptxas") && !absl::StartsWith(line, "    ")) continue;
    const absl::string_view code = Between(line, '(', ')');
    if (code.size() > 1 && code[0] == 'C' &&
        std::all_of(code.begin() + 1, code.end(), absl::ascii_isdigit)) {
      const absl::string_view rest = line.substr(code.end() - line.begin() + 1);
      log.warnings.push_back({std::string(code), std::string(absl::StripAsciiWhitespace(rest))});
    } else if (absl::StrContains(line, ": Compiling entry function '")) {
      kernel = &log.kernels.emplace_back();
      kernel->name = std::string(Between(line, '\'', '\''));
      kernel->arch = std::string(Between(line.substr(line.find("' for ") + 1), '\'', '\''));
    } else if (const size_t at = line.find(": Function properties for "); at != line.npos) {
      if (kernel != nullptr && !absl::EndsWith(line, " " + kernel->name)) kernel = nullptr;
    } else if (kernel != nullptr) {
      ReadResources(line.substr(line.find_first_of(":.") + 1), kernel);
    }
  }
  return log;
}

}  // namespace athanor
