#include "server/plans/kernel_resources.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

// The message, its size in four bytes, and these.
constexpr absl::string_view kEnd = "athanor resources";

}  // namespace

std::string WithResources(std::string object, const v1::KernelResources& resources) {
  const std::string message = resources.SerializeAsString();
  const auto bytes = static_cast<uint32_t>(message.size());
  absl::StrAppend(&object, message,
                  absl::string_view(reinterpret_cast<const char*>(&bytes), sizeof(bytes)), kEnd);
  return object;
}

std::optional<v1::KernelResources> ResourcesOf(absl::string_view object) {
  uint32_t bytes = 0;
  if (!absl::EndsWith(object, kEnd)) return std::nullopt;
  object.remove_suffix(kEnd.size());
  if (object.size() < sizeof(bytes)) return std::nullopt;
  std::memcpy(&bytes, object.end() - sizeof(bytes), sizeof(bytes));
  object.remove_suffix(sizeof(bytes));
  v1::KernelResources resources;
  if (bytes > object.size() ||
      !resources.ParseFromArray(object.end() - bytes, static_cast<int>(bytes))) {
    return std::nullopt;
  }
  return resources;
}

}  // namespace athanor
