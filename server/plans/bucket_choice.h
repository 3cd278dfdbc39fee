// Chooses the buckets that get plans of their own if memory does not suffice for all. Plans share
// prepared weights, so they are chosen together.
//
//   std::vector<int> chosen = ChoosePlans({.buckets = 4, .candidates = candidates,
//                                          .bytes_free = ledger.free()});
#ifndef ATHANOR_SERVER_PLANS_BUCKET_CHOICE_H_
#define ATHANOR_SERVER_PLANS_BUCKET_CHOICE_H_

#include <cstdint>
#include <vector>

#include "runtime/memory/plan_memory.h"

namespace athanor {

struct BucketCandidate {
  int bucket = 0;   // from 0
  double gain = 1;  // the plan's worth for the bucket; above 0
  // Weights that the server would have to load for the plan, without those it holds already.
  // Candidates share weights with equal keys; a weight with an empty key is not shared.
  std::vector<PlanMemory::Weight> weights;
  int64_t bytes = 0;  // besides the weights
};

struct BucketChoiceInput {
  int buckets = 0;
  std::vector<BucketCandidate> candidates;
  int64_t bytes_free = 0;
};

// Returns, by bucket, the index of the chosen candidate, or -1 for none. The chosen plans take at
// most `bytes_free` together. With at most kMostTried possible choices it tries them all and
// returns one with the greatest sum of gains. Otherwise it takes the better of two greedy choices,
// by gain per further byte and by gain alone, and improves it by exchanges until none helps. Among
// equal gains it prefers fewer bytes.
std::vector<int> ChoosePlans(const BucketChoiceInput& input);

// Returns the bytes that the choice takes.
int64_t BytesOf(const BucketChoiceInput& input, const std::vector<int>& chosen);

inline constexpr int64_t kMostTried = 1 << 14;

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_BUCKET_CHOICE_H_
