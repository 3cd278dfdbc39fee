// The parameters of one Executable where its kernels read them: as the caller holds them if the
// device computes in host memory, else copied into blocks of the pool, which plans with the same
// weights share.
//
//   UploadedWeights weights(pool, /*shares=*/true, device->host_memory());
//   absl::Status s = weights.Reserve(program, hashes, fixed.steps());  // takes memory
//   s = weights.Upload(program, parameters, queue);                    // checks and copies
//   ... run the steps of `prepare` with weights.data(place), wait for the queue ...
//   weights.Keep(program);
#ifndef ATHANOR_RUNTIME_MEMORY_UPLOADED_WEIGHTS_H_
#define ATHANOR_RUNTIME_MEMORY_UPLOADED_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/device/device.h"
#include "runtime/memory/plan_memory.h"
#include "runtime/memory/prepared_pool.h"
#include "runtime/program/program.h"

namespace athanor {

// A weight as uploaded. Its bytes need no alignment and must not change while `owner` is alive,
// which the Executable keeps as long as it reads them: until it is loaded if the device copies
// them, else as long as it lives.
struct ParameterView {
  std::string name;
  absl::string_view data;
  std::shared_ptr<const void> owner;
  // Hash of `data`: equal hashes mean equal bytes. Empty: neither its copy nor what is prepared
  // from it is shared with other Executables.
  std::string hash = {};
};

// Filled by one thread; after Keep(), read by any number.
class UploadedWeights {
 public:
  // `pool` must outlive it. Without `shares` it neither looks for blocks in the pool nor publishes
  // any.
  UploadedWeights(PreparedPool* pool, bool shares, bool host_memory)
      : pool_(*pool), shares_(shares), host_memory_(host_memory) {}

  // Allocates memory for the weights that runs or these steps of program.prepare read and that
  // nobody holds yet; none if the device computes in host memory. RESOURCE_EXHAUSTED says what the
  // plan needs.
  absl::Status Reserve(const Program& program, const ParameterHashes& hashes,
                       absl::Span<const int> steps);
  // Takes the parameters, and queues copies to the memory that Reserve allocated. `parameters` may
  // hold more than the plan needs, in any order, and must stay until the queue's next Wait()
  // returns. INVALID_ARGUMENT names the one that is missing or has a wrong byte count.
  absl::Status Upload(const Program& program, absl::Span<const ParameterView> parameters,
                      DeviceQueue& queue);
  // Returns null for a weight that only steps of `prepare` use, if it was released or not needed.
  void* data(int64_t place) const;
  // Ends loading, after the steps have run: publishes what runs use for other plans, and releases
  // what only the steps needed.
  void Keep(const Program& program);
  // Blocks by index in program.parameters, some of which other Executables may hold too; those of
  // weights that runs do not read are empty. None in host memory.
  const std::vector<PreparedPool::Block>& blocks() const { return blocks_; }

 private:
  PreparedPool& pool_;
  const bool shares_, host_memory_;
  // By index in program.parameters. `views_` only in host memory, the others only elsewhere.
  std::vector<ParameterView> views_;
  std::vector<PreparedKey> keys_;
  std::vector<bool> made_;  // by this load, into a block of its own
  std::vector<PreparedPool::Block> blocks_;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_MEMORY_UPLOADED_WEIGHTS_H_
