// Handlers: conversions between element types.
#include <string>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/ops/handlers_arith.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

absl::StatusOr<CastMode> ModeOf(HandlerContext& c) {
  CastMode mode;
  const int64_t version = c.version();
  if (version < 19) return mode;
  mode.saturate = c.Int("saturate") != 0;
  mode.fnuz_keeps_infinity = version < 24;
  if (version < 24) return mode;
  ASSIGN_OR_RETURN(const auto round, c.OneOf("round_mode", {"up", "down", "nearest"}));
  mode.round = round == "up"     ? CastMode::Round::kUp
               : round == "down" ? CastMode::Round::kDown
                                 : CastMode::Round::kNearest;
  return mode;
}

absl::Status CastTo(HandlerContext& c, Elem to) {
  ASSIGN_OR_RETURN(const CastMode mode, ModeOf(c));
  c.Set(0, Cast(c.b(), c.In(0), to, mode));
  return absl::OkStatus();
}

absl::Status Cast(HandlerContext& c) {
  const absl::StatusOr<Elem> to = ElemAttr(c, "to");
  return to.ok() ? CastTo(c, *to) : to.status();
}
absl::Status CastLike(HandlerContext& c) { return CastTo(c, c.In(1).elem); }

absl::Status BitCast(HandlerContext& c) {
  ASSIGN_OR_RETURN(const Elem to, ElemAttr(c, "to"));
  c.Set(0, Bitcast(c.b(), c.In(0), to));
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {
    {"", "BitCast", 1, BitCast},
    {"", "Cast", 6, Cast},
    {"", "CastLike", 1, CastLike},
};

}  // namespace

absl::Span<const HandlerRow> CastRows() { return kRows; }

}  // namespace athanor::onnx
