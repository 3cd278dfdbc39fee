// Tiny decoders in form kPaged with all plans that may serve their steps, and a pool of states for
// them.
//
//   std::unique_ptr<Decoder> decoder = Decoder::Create(CheckpointOf("wide_llama")).value();
//   Pool pool(*decoder);   // NaN in all blocks
//   std::vector<float> logits =
//       pool.Run(decoder->plans()[0], {{{token, 0, 0}}, {{1}}, {0}}).value();
#ifndef ATHANOR_TESTS_TOKENS_PAGED_PLANS_H_
#define ATHANOR_TESTS_TOKENS_PAGED_PLANS_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/frontend/checkpoint/import_testing.h"
#include "proto/athanor/v1/plan.pb.h"
#include "proto/athanor/v1/target.pb.h"
#include "runtime/cpu/device.h"
#include "runtime/executor/executor.h"
#include "runtime/memory/state_memory.h"
#include "server/plans/bucket_grid.h"

namespace athanor::checkpoint {

// Attention goes through the keys in splits of 256: some sequences are longer.
inline constexpr int64_t kContext = 320, kTokens = 96, kSequences = 8, kBlock = 16;
// Block 0 is nobody's, as in the server. The others are fewer than the sequences could use.
inline constexpr int32_t kBlocks = 56;
inline constexpr int32_t kWords = 48;

struct Row {
  int32_t token, sequence, position;
};
struct Step {
  std::vector<Row> rows;
  std::vector<std::vector<int32_t>> table;  // lines of equal length
  std::vector<int32_t> wanted;
};

struct LoadedPlan {
  std::string name, signature;
  std::array<DimSpan, 3> spans;  // of T, R, S
  std::shared_ptr<const Executable> executable;
};

// Returns a checkpoint whose context is that long: a tiny one by its name, or "wide_llama", whose
// sums are several vectors long and end within one, so that their order shows.
Checkpoint CheckpointOf(const std::string& family);

// A decoder of one family, compiled as a server does it, and more often.
class Decoder {
 public:
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(Checkpoint checkpoint);

  const Graph& graph() const { return graph_; }
  Device* device() const { return device_.get(); }
  // The first is of the full range, the second of one row.
  const std::vector<LoadedPlan>& plans() const { return plans_; }
  // Sums in another order, over the full range.
  const LoadedPlan& foreign() const { return foreign_[0]; }

 private:
  absl::Status LoadPlans();
  absl::Status Load(const Graph& graph, const std::string& name, const v1::Plan& plan,
                    const v1::Target& target, std::vector<LoadedPlan>* plans);

  Graph graph_;
  std::vector<Tensor> parameters_;
  std::unique_ptr<CpuDevice> device_;
  std::map<std::string, std::string> objects_;  // by source
  std::vector<LoadedPlan> plans_;
  std::vector<LoadedPlan> foreign_;  // one
};

// States over which all plans of a decoder run: blocks of all states lie side by side, as in the
// server.
class Pool {
 public:
  explicit Pool(const Decoder& decoder);

  // Makes all of a block NaN.
  void Clear(int32_t block);
  bool IsClear(int32_t block);
  // Returns logits, a row for each that is wanted.
  absl::StatusOr<std::vector<float>> Run(const LoadedPlan& plan, const Step& step);

 private:
  template <typename Use>
  void ForBlock(int32_t block, Use use) {
    for (size_t s = 0; s < states_->specs().size(); ++s) {
      const int64_t bytes = kBlock * states_->specs()[s].slot_bytes;
      use(states_->data(static_cast<int>(s)) + block * states_->stride() * bytes,
          static_cast<size_t>(bytes));
    }
  }

  std::unique_ptr<StateMemory> states_;
  std::map<const LoadedPlan*, std::unique_ptr<Executable::Context>> contexts_;
};

}  // namespace athanor::checkpoint

#endif  // ATHANOR_TESTS_TOKENS_PAGED_PLANS_H_
