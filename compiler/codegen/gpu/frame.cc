#include "compiler/codegen/gpu/frame.h"

#include <algorithm>
#include <vector>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::kir {
namespace {

// Reductions and tickets of a team that is a block take these shared bytes (kReduceBytes of
// team.h.txt).
constexpr int64_t kReduceBytes = 64;

absl::Status LanesOfTeam(int team, const char* language, const std::vector<Stmt>& body) {
  for (const Stmt& s : body) {
    if (s.opcode == Opcode::kGemm || s.opcode == Opcode::kCall) {
      return absl::InternalError(
          Cat("a ", language, " kernel calls no library: lower the contraction to loops"));
    }
    if (s.type.lanes != 1 && s.type.lanes != team) {
      return absl::InternalError(Cat("v", s.result, " has ", s.type.lanes, " lanes; a ", language,
                                     " kernel's registers have one",
                                     team > 1 ? Cat(", or the ", team, " of its team") : ""));
    }
    RETURN_IF_ERROR(LanesOfTeam(team, language, s.body));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyTeam(const Kernel& kernel, const char* language) {
  return LanesOfTeam(kernel.team, language, kernel.body);
}

bool HasMatrices(const std::vector<Stmt>& body) {
  return std::any_of(body.begin(), body.end(), [](const Stmt& s) {
    return s.type.part != Part::kNone || s.opcode == Opcode::kCopy || HasMatrices(s.body);
  });
}

int64_t ReservedBytes(const Kernel& kernel) {
  return kernel.team > kWaveThreads ? kReduceBytes : 0;
}

bool SharesScratch(const Kernel& kernel, int64_t most) {
  const int64_t bytes = ReservedBytes(kernel) + kernel.ScratchBytes();
  return kernel.team > 1 && bytes <= most / (kBlockThreads / kernel.team);
}

int64_t SharedBytes(const Kernel& kernel, int64_t most) {
  return ReservedBytes(kernel) + (SharesScratch(kernel, most) ? kernel.ScratchBytes() : 0);
}

void DefineArguments(const Kernel& kernel, const char* space, CodeText* code) {
  code->Line("struct Arguments {");
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    if (IsArgument(kernel.buffers[i])) code->Line("  Buffer b", i, ";");
  }
  for (size_t i = 0; i < kernel.sizes.size(); ++i) code->Line("  i64 s", i, ";");
  code->Line("  i64 items;");
  code->Line("  ", space, "u8* workspace;");
  code->Line("  i64 stride;");
  code->Line("  ", space, "ErrorSlot* error;");
  code->Line("};");
}

std::string UnrollHint(AxisRole role, bool) {
  return role == AxisRole::kUnroll ? "#pragma unroll" : "";
}

}  // namespace athanor::kir
