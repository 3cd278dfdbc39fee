// Memory that loading a plan takes, known before anything is loaded, and the keys by which its
// weights are shared with other plans.
//
//   PlanMemory memory = MemoryOf(plan, {{"w", content_hash}}, /*host_memory=*/true).value();
//   memory.NewBytes(pool)   // bytes of weights that no other plan holds
//
// A key is the SHA-256 over the chain of steps that make a buffer: the kernel's source, its size
// arguments and grid, and the keys of what it reads. A parameter's key is the hash of its contents,
// a constant's that of its bytes. So equal keys mean equal bytes, and no plan has to carry keys.
#ifndef ATHANOR_RUNTIME_MEMORY_PLAN_MEMORY_H_
#define ATHANOR_RUNTIME_MEMORY_PLAN_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/memory/prepared_pool.h"
#include "runtime/program/program.h"

namespace athanor {

// Content hashes of parameters, by name. Buffers made from a parameter without a hash are not
// shared.
using ParameterHashes = absl::flat_hash_map<std::string, std::string>;

// Returns the keys by index in program.fixed; empty: not shared. REQUIRES: `program` was built from
// `plan`.
std::vector<PreparedKey> PreparedKeys(const v1::Plan& plan, const Program& program,
                                      const ParameterHashes& hashes);

// Returns the key of a parameter's own bytes on a device; empty for an empty hash.
PreparedKey WeightKey(const std::string& content_hash);

struct PlanMemory {
  struct Weight {
    PreparedKey key;  // empty: not shared
    int64_t bytes = 0;
  };
  // Lists the constants and prepared weights that runs use and, copied to a device that does not
  // compute in host memory, the parameters, each key once.
  std::vector<Weight> weights;
  // Read by `prepare` alone, so loading takes and gives it back; less where other plans hold some
  // of the weights.
  int64_t brief = 0;
  // Per call, at the bucket's largest sizes; committed on use. With the places of inputs, outputs
  // and loops' turns on a device that does not compute in host memory, of which small ones lie in
  // the call's block.
  int64_t arena = 0;
  int64_t scratch = 0;  // per call and thread

  int64_t WeightBytes() const;
  // Returns the bytes of weights that the pool does not hold yet.
  int64_t NewBytes(const PreparedPool& pool) const;
};

// `keys` as PreparedKeys returns them; `host_memory` as of the device that is to run the plan.
PlanMemory MemoryOf(const Program& program, const std::vector<PreparedKey>& keys,
                    const ParameterHashes& hashes, bool host_memory);
// INVALID_ARGUMENT names what is wrong in the plan.
absl::StatusOr<PlanMemory> MemoryOf(const v1::Plan& plan, const ParameterHashes& hashes,
                                    bool host_memory);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_MEMORY_PLAN_MEMORY_H_
