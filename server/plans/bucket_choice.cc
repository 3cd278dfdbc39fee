#include "server/plans/bucket_choice.h"

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace athanor {
namespace {

// A choice that grows and shrinks, and the bytes that it takes.
class Choice {
 public:
  explicit Choice(const BucketChoiceInput& input) : input_(input), chosen_(input.buckets, -1) {}

  // Gives the bucket `candidate`, or none (-1), instead of the one it has.
  void Set(int bucket, int candidate) {
    if (chosen_[bucket] >= 0) Count(chosen_[bucket], -1);
    chosen_[bucket] = candidate;
    if (candidate >= 0) Count(candidate, 1);
  }
  bool Fits() const { return bytes_ <= input_.bytes_free; }
  bool BetterThan(const Choice& other) const {
    const double own = gain(), others = other.gain();
    return own != others ? own > others : bytes_ < other.bytes_;
  }
  Choice& operator=(const Choice& other) {
    chosen_ = other.chosen_;
    held_ = other.held_;
    bytes_ = other.bytes_;
    return *this;
  }
  Choice(const Choice&) = default;

  // Adds up anew, so that equal choices have equal gains whatever the order of their changes.
  double gain() const {
    double gain = 0;
    for (const int candidate : chosen_) {
      if (candidate >= 0) gain += input_.candidates[candidate].gain;
    }
    return gain;
  }
  int64_t bytes() const { return bytes_; }
  const std::vector<int>& chosen() const { return chosen_; }

 private:
  void Count(int candidate, int times) {
    const BucketCandidate& c = input_.candidates[candidate];
    bytes_ += times * c.bytes;
    for (const PlanMemory::Weight& weight : c.weights) {
      if (weight.key.empty()) {
        bytes_ += times * weight.bytes;
        continue;
      }
      int& held = held_[weight.key];
      if (held == 0 || held + times == 0) bytes_ += times * weight.bytes;
      held += times;
    }
  }

  const BucketChoiceInput& input_;
  std::vector<int> chosen_;
  absl::flat_hash_map<std::string, int> held_;
  int64_t bytes_ = 0;
};

using Options = std::vector<std::vector<int>>;  // by bucket: candidates

void TryAll(const Options& options, int bucket, Choice* choice, Choice* best) {
  if (bucket == static_cast<int>(options.size())) {
    if (choice->Fits() && choice->BetterThan(*best)) *best = *choice;
    return;
  }
  for (const int candidate : options[bucket]) {
    choice->Set(bucket, candidate);
    TryAll(options, bucket + 1, choice, best);
  }
  choice->Set(bucket, -1);
  TryAll(options, bucket + 1, choice, best);
}

// Adds the best candidate that still fits until none does.
Choice Greedy(const BucketChoiceInput& input, const Options& options, bool per_byte) {
  Choice choice(input);
  for (;;) {
    int best = -1;
    double best_worth = 0;
    for (size_t b = 0; b < options.size(); ++b) {
      if (choice.chosen()[b] >= 0) continue;
      for (const int candidate : options[b]) {
        const int64_t before = choice.bytes();
        choice.Set(static_cast<int>(b), candidate);
        const double more = static_cast<double>(std::max<int64_t>(1, choice.bytes() - before));
        const double gain = input.candidates[candidate].gain;
        const double worth = per_byte ? gain / more : gain;
        if (choice.Fits() && (best < 0 || worth > best_worth)) {
          best = candidate;
          best_worth = worth;
        }
        choice.Set(static_cast<int>(b), -1);
      }
    }
    if (best < 0) return choice;
    choice.Set(input.candidates[best].bucket, best);
  }
}

// Changes the candidates of one or two buckets as long as that makes the choice better.
void Exchange(const Options& options, Choice* choice) {
  const int buckets = static_cast<int>(options.size());
  for (bool better = true; better;) {
    better = false;
    for (int a = 0; a < buckets; ++a) {
      for (int b = 0; b < buckets; ++b) {
        Choice best = *choice, tried = *choice;
        std::vector<int> for_a = options[a], for_b = options[b];
        for_a.push_back(-1);
        for_b.push_back(-1);
        for (const int first : for_a) {
          tried.Set(a, first);
          for (const int second : for_b) {
            if (a == b) break;
            tried.Set(b, second);
            if (tried.Fits() && tried.BetterThan(best)) best = tried;
          }
          if (a == b && tried.Fits() && tried.BetterThan(best)) best = tried;
        }
        if (!best.BetterThan(*choice)) continue;
        *choice = best;
        better = true;
      }
    }
  }
}

}  // namespace

std::vector<int> ChoosePlans(const BucketChoiceInput& input) {
  Options options(input.buckets);
  for (size_t i = 0; i < input.candidates.size(); ++i) {
    options[input.candidates[i].bucket].push_back(static_cast<int>(i));
  }
  int64_t tried = 1;
  for (const auto& of_bucket : options) {
    tried = std::min<int64_t>(kMostTried + 1, tried * static_cast<int64_t>(of_bucket.size() + 1));
  }
  // Takes all candidates if each bucket has at most one and they fit together.
  Choice all(input);
  bool one_each = true;
  for (int b = 0; b < input.buckets; ++b) {
    one_each &= options[b].size() <= 1;
    if (!options[b].empty()) all.Set(b, options[b].front());
  }
  if (one_each && all.Fits()) return all.chosen();
  if (tried <= kMostTried) {
    Choice choice(input), best(input);
    TryAll(options, 0, &choice, &best);
    return best.chosen();
  }
  Choice by_byte = Greedy(input, options, /*per_byte=*/true);
  Choice by_gain = Greedy(input, options, /*per_byte=*/false);
  Exchange(options, &by_byte);
  Exchange(options, &by_gain);
  return (by_gain.BetterThan(by_byte) ? by_gain : by_byte).chosen();
}

int64_t BytesOf(const BucketChoiceInput& input, const std::vector<int>& chosen) {
  Choice choice(input);
  for (size_t b = 0; b < chosen.size(); ++b) choice.Set(static_cast<int>(b), chosen[b]);
  return choice.bytes();
}

}  // namespace athanor
