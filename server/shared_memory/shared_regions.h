// The regions of shared memory that clients have registered.
//
//   SharedRegions regions("*", 256);
//   const SharedUser user{.owner = "team-a", .local = true};
//   RETURN_IF_ERROR(regions.Register(user, {.name = "in", .key = "/frames", .byte_size = 64}));
//   ASSIGN_OR_RETURN(auto region, regions.Find(user, "in"));
//   region->Read(...);
//
// Thread-safe. A region that was found stays usable when it is unregistered.
#ifndef ATHANOR_SERVER_SHARED_MEMORY_SHARED_REGIONS_H_
#define ATHANOR_SERVER_SHARED_MEMORY_SHARED_REGIONS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/shared_memory/shared_region.h"

namespace athanor {

// Names who registers and uses regions.
struct SharedUser {
  std::string owner;   // the identity; empty: the server asks nobody
  bool local = false;  // on this machine
};

class SharedRegions {
 public:
  using RegionPtr = std::shared_ptr<const SharedRegion>;

  // `keys` is a pattern of the keys that may be registered (MatchesPattern); empty: none, and all
  // calls are refused. `most`: regions at a time (--max_shared_regions), of which an identity may
  // have half of what others leave, rounded up, so that none takes all.
  SharedRegions(std::string keys, int64_t most) : keys_(std::move(keys)), most_(most) {}

  bool on() const { return !keys_.empty(); }

  // Each returns FAILED_PRECONDITION if shared memory is off, PERMISSION_DENIED if the user is not
  // on this machine.

  // Besides the errors of SharedRegion::Find: INVALID_ARGUMENT without a name, or with one that is
  // longer than 256 bytes or no UTF-8; ALREADY_EXISTS if the user has a region of that name,
  // PERMISSION_DENIED if the key is not allowed or another identity's, RESOURCE_EXHAUSTED if there
  // are too many, or too many of the user's.
  absl::Status Register(const SharedUser& user, SharedPlace place);
  // Forgets the user's region, or all of the user's if `name` is empty. There need not be one.
  absl::Status Unregister(const SharedUser& user, const std::string& name);
  // Returns the user's region, or all of the user's, in the order of their names, if `name` is
  // empty. NOT_FOUND: there is none of that name.
  absl::StatusOr<std::vector<SharedPlace>> List(const SharedUser& user,
                                                const std::string& name) const;
  // NOT_FOUND: there is none of that name.
  absl::StatusOr<RegionPtr> Find(const SharedUser& user, const std::string& name) const;

 private:
  absl::Status Check(const SharedUser& user) const;
  // Checks that there is room for one more region of the owner's.
  absl::Status CheckRoom(const std::string& owner) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string keys_;
  const int64_t most_;
  mutable Mutex mu_;
  // By owner and name.
  std::map<std::pair<std::string, std::string>, RegionPtr> regions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SHARED_MEMORY_SHARED_REGIONS_H_
