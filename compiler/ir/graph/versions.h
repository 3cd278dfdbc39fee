// What things mean that outlive a process: raised where something kept under the old number would
// be read as something else.
#ifndef ATHANOR_COMPILER_IR_GRAPH_VERSIONS_H_
#define ATHANOR_COMPILER_IR_GRAPH_VERSIONS_H_

#include <cstdint>

namespace athanor {

// What the ops compute (op.h), and with it what a graph's hash stands for. Also raised when plans
// made before may compute something else: those that were kept serve no longer.
inline constexpr int64_t kSemanticsVersion = 1;
// Plan.format.
inline constexpr int64_t kPlanFormat = 1;
// What the text of a region's genome says (RegionRecipe.genome).
inline constexpr int32_t kRecipeFormat = 1;

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_VERSIONS_H_
