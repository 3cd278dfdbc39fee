#include "server/shared_memory/shared_regions.h"

#include <algorithm>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/access/identity.h"
#include "server/text/base/utf8.h"

namespace athanor {
namespace {

constexpr size_t kMostNameBytes = 256;

absl::Status CheckName(const std::string& name) {
  if (name.empty()) return Invalid("the region has no name");
  if (name.size() > kMostNameBytes) {
    return Invalid("the region's name has ", name.size(), " bytes; at most ", kMostNameBytes,
                   " are allowed");
  }
  if (!FindBrokenUtf8(name).has_value()) return absl::OkStatus();
  return Invalid("the region's name ", Quoted(name), " is not valid UTF-8");
}

}  // namespace

absl::Status SharedRegions::Check(const SharedUser& user) const {
  if (!on()) {
    return absl::FailedPreconditionError(
        "shared memory is off: send tensors in requests, or start the server with --shared_memory");
  }
  if (user.local) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "shared memory is for clients on the server's machine, which call it by a loopback address "
      "or a Unix socket: send tensors in requests");
}

absl::Status SharedRegions::Register(const SharedUser& user, SharedPlace place) {
  RETURN_IF_ERROR(Check(user));
  RETURN_IF_ERROR(CheckName(place.name));
  // shm_open takes both for the same object.
  if (place.key.empty() || place.key[0] != '/') place.key.insert(0, "/");
  if (!MatchesPattern(keys_, place.key) && !MatchesPattern(keys_, place.key.substr(1))) {
    return absl::PermissionDeniedError(Cat("key ", Quoted(place.key),
                                           " may not be registered: --shared_memory allows ",
                                           Quoted(keys_)));
  }
  const std::string key = place.key;
  ASSIGN_OR_RETURN(SharedRegion found, SharedRegion::Find(std::move(place)));
  auto region = std::make_shared<const SharedRegion>(std::move(found));
  const std::string& name = region->place().name;
  MutexLock lock(mu_);
  for (const auto& [id, other] : regions_) {
    if (other->place().key != key || id.first == user.owner) continue;
    return absl::PermissionDeniedError(
        Cat("key ", Quoted(key), " is registered by another identity"));
  }
  if (regions_.contains({user.owner, name})) {
    return absl::AlreadyExistsError(
        Cat("there is a shared memory region ", Quoted(name), " already; unregister it first"));
  }
  RETURN_IF_ERROR(CheckRoom(user.owner));
  regions_.emplace(std::make_pair(user.owner, name), std::move(region));
  return absl::OkStatus();
}

absl::Status SharedRegions::CheckRoom(const std::string& owner) const {
  const auto all = static_cast<int64_t>(regions_.size());
  if (all >= most_) {
    return absl::ResourceExhaustedError(
        Cat("the server has ", most_,
            " shared memory regions, the most allowed (--max_shared_regions); unregister some"));
  }
  if (owner.empty()) return absl::OkStatus();  // of all clients together
  const int64_t own = std::count_if(regions_.begin(), regions_.end(),
                                    [&](const auto& entry) { return entry.first.first == owner; });
  const int64_t left = most_ - (all - own);  // by the others
  if (own < (left + 1) / 2) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      Cat(owner, " has ", own, " shared memory regions, half of what others leave of ", most_,
          " (--max_shared_regions), the most that one identity may have; unregister some"));
}

absl::Status SharedRegions::Unregister(const SharedUser& user, const std::string& name) {
  RETURN_IF_ERROR(Check(user));
  MutexLock lock(mu_);
  std::erase_if(regions_, [&](const auto& entry) {
    return entry.first.first == user.owner && (name.empty() || entry.first.second == name);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SharedPlace>> SharedRegions::List(const SharedUser& user,
                                                             const std::string& name) const {
  if (!name.empty()) {
    ASSIGN_OR_RETURN(const RegionPtr region, Find(user, name));
    return std::vector<SharedPlace>{region->place()};
  }
  RETURN_IF_ERROR(Check(user));
  std::vector<SharedPlace> places;
  MutexLock lock(mu_);
  for (const auto& [id, region] : regions_) {
    if (id.first == user.owner) places.push_back(region->place());
  }
  return places;
}

absl::StatusOr<SharedRegions::RegionPtr> SharedRegions::Find(const SharedUser& user,
                                                             const std::string& name) const {
  RETURN_IF_ERROR(Check(user));
  MutexLock lock(mu_);
  const auto found = regions_.find({user.owner, name});
  if (found != regions_.end()) return found->second;
  return absl::NotFoundError(Cat("there is no shared memory region ", Quoted(name),
                                 "; register it first (SystemSharedMemoryRegister)"));
}

}  // namespace athanor
