// Keys of the cache's tiers. A field that gates decides whether a row may be used at all; the other
// fields, its conditions, only decide whether a new search is due.
//
//   PlanKey key{.semantics_version = 1, .graph_hash = hash, .dim_box = "d0=1..64", ...};
//   GateHash(key.Fields());        // the row's key
//   ConditionHash(key.Fields());   // what it was made under
//
// A field's column has its name in the tier's table, so a miss can be explained.
#ifndef ATHANOR_COMPILER_CACHE_KEYS_H_
#define ATHANOR_COMPILER_CACHE_KEYS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// Raised when objects built under the old calling convention no longer fit the runtime.
inline constexpr int64_t kCodegenVersion = 1;

struct KeyField {
  absl::string_view column;  // a literal
  std::string value;
  bool gates = true;

  bool operator==(const KeyField&) const = default;
};
using KeyFields = std::vector<KeyField>;

// Returns SHA-256, 32 bytes, over the fields that gate, in order and each with its length.
std::string GateHash(const KeyFields& fields);
// Returns the same over the conditions.
std::string ConditionHash(const KeyFields& fields);

// The machine and software that a plan or a time was made under.
struct MachineConditions {
  v1::Target target;  // includes threads
  std::string compiler_version;
  std::string rule_set;   // hash of the rules
  std::string libraries;  // with versions: "OpenBLAS 0.3.21"
  // Names a GPU's product and what its driver knows, "NVIDIA H200, CUDA 13.0", since chips of one
  // architecture are not equally fast; empty for the CPU.
  std::string driver;
  std::string clocks;  // nominal clock rate, and the governor
};

struct PlanKey {
  int64_t semantics_version = 0;
  int64_t plan_format = 0;
  int64_t codegen_version = kCodegenVersion;
  std::string graph_hash;      // hex
  std::string interface_hash;  // hex, InterfaceHash
  std::string dim_box;         // "d0=1..64 d1=1..512", canonical names
  bool approximate = false;
  std::vector<std::string> disabled_rules;  // a condition; in any order
  MachineConditions made_under;

  KeyFields Fields() const;
};

// Key of a recipe. It has no target: recipes are portable between machines.
struct RecipeKey {
  std::string region_hash;  // hex
  std::string dim_box;
  std::string facts;  // known about the region's inputs and weights
  int64_t semantics_version = 0;
  int64_t recipe_format = 0;

  KeyFields Fields() const;
};

struct TimingKey {
  std::string kernel;   // SHA-256 of the C text, 64 hex digits, as in KernelKey
  std::string sizes;    // of the step: its size arguments and its grid, not the model's dims
  std::string flags;    // of the compiler
  std::string context;  // contents of the caches: bytes of weights and of activations
  int64_t measure_version = 0;
  MachineConditions made_under;

  KeyFields Fields() const;  // all gate: a time is valid nowhere else
};

// Everything that a kernel object depends on.
struct KernelKey {
  std::string source_hash;  // SHA-256 of the C text, 64 hex digits
  std::string flags;        // of the compiler, as text
  std::string triple;
  std::string cpu;
  std::string features;          // joined with commas
  std::string compiler_version;  // "19.1.7"
  int64_t codegen_version = 0;

  KeyFields Fields() const;
  std::string Hash() const;  // GateHash of all fields; 32 bytes
};

KernelKey MakeKernelKey(absl::string_view source, const v1::Target& target, absl::string_view flags,
                        absl::string_view compiler_version);

// Returns SHA-256, 32 bytes, over the whole request, objects included. `check_version` is that of
// the checker; it is raised when the checker finds more.
std::string CheckKey(const internal::CheckRequest& request, int64_t check_version);

// Returns a hash of the names that plan messages hold and a graph's hash drops: equal graphs with
// other names cannot share a plan. Names in canonical order; 64 hex digits.
std::string InterfaceHash(absl::Span<const std::string> inputs,
                          absl::Span<const std::string> parameters,
                          absl::Span<const std::string> outputs,
                          absl::Span<const std::string> dims);

struct KeyDifference {
  std::string column;
  std::string wanted;
  std::string found;
  bool gates = true;

  bool operator==(const KeyDifference&) const = default;
};
// Returns the fields that differ, in the order of `wanted`; a column that `found` lacks is found
// empty.
std::vector<KeyDifference> Differences(const KeyFields& wanted, const KeyFields& found);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_KEYS_H_
