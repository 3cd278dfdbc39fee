// Which buckets get a plan of their own, and which, where there is not memory for all: prepared
// weights are shared between plans, so they are chosen together.
//
//   std::vector<int> chosen = ChoosePlans({.buckets = 4, .candidates = candidates,
//                                          .bytes_free = ledger.limit() - ledger.used()});
#ifndef ATHANOR_SERVER_PLANS_BUCKET_CHOICE_H_
#define ATHANOR_SERVER_PLANS_BUCKET_CHOICE_H_

#include <cstdint>
#include <vector>

#include "runtime/plan_memory.h"

namespace athanor {

struct BucketCandidate {
  int bucket = 0;   // from 0
  double gain = 1;  // what the plan is worth there; above 0
  // What would have to be held for it, without what is held already. Weights with equal keys are
  // held once for all candidates; an empty key is shared with nobody.
  std::vector<PlanMemory::Weight> weights;
  int64_t bytes = 0;  // beside the weights
};

struct BucketChoiceInput {
  int buckets = 0;
  std::vector<BucketCandidate> candidates;
  int64_t bytes_free = 0;
};

// By bucket the position of a candidate, or -1 for none. Never more than `bytes_free` together.
// The greatest sum of gains, by trying all, while there are at most kMostTried choices; else the
// better of gain per further byte and gain alone, taken greedily, and then improved by exchanging
// one choice for another as long as that helps. Among equals the one that takes fewer bytes.
std::vector<int> ChoosePlans(const BucketChoiceInput& input);

// Bytes that the choice takes.
int64_t BytesOf(const BucketChoiceInput& input, const std::vector<int>& chosen);

inline constexpr int64_t kMostTried = 1 << 14;

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_BUCKET_CHOICE_H_
