// Holds a checkpoint's tensors against those that its spec asks for.
//
//   MatchWanted({{"model.norm.weight", {576}}}, tensors, &refusals);
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_MATCH_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_MATCH_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/frontend/checkpoint/files/stored.h"
#include "compiler/frontend/refusal.h"

namespace athanor::checkpoint {

// By name; names are unique in a checkpoint.
using Tensors = std::map<std::string, FileTensor, std::less<>>;
// Shapes by name.
using WantedTensors = std::map<std::string, std::vector<int64_t>>;

void RefuseTensor(std::string_view tensor, std::string reason,
                  std::vector<ImportRefusal>* refusals);
// Refuses tensors that are missing, have another shape, or hold no weights. The tensor is named as
// its file does.
void MatchWanted(const WantedTensors& wanted, const Tensors& tensors,
                 std::vector<ImportRefusal>* refusals);

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_MATCH_H_
