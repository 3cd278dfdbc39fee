// Version numbers of stored data. Raise one when data stored under the old number would be misread.
#ifndef ATHANOR_COMPILER_IR_GRAPH_VERSIONS_H_
#define ATHANOR_COMPILER_IR_GRAPH_VERSIONS_H_

#include <cstdint>

namespace athanor {

// Version of the ops' semantics (op.h), and so of the meaning of a graph's hash. Also raised when
// older plans may compute something else: stored plans are then no longer served.
inline constexpr int64_t kSemanticsVersion = 1;
// Value of Plan.format.
inline constexpr int64_t kPlanFormat = 1;
// Format of the text of a region's genome (RegionRecipe.genome).
inline constexpr int32_t kRecipeFormat = 1;

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_VERSIONS_H_
