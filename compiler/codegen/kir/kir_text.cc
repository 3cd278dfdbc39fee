// The text form of kernels, which kir_parse.cc reads:
//
//   kernel(s0) grid floordiv(s0 + 15, 16)
//   b0: f32 in
//   b1: f32 out
//   b2: f32 scratch 64
//   v0: f32x16 = load b0[16*g + lane] count -16*g + s0
//   v1: f32x16 = Exp(v0)
//   mut v2: f32x16 = v1
//   for i0 in [0, s0) step 4 unroll {
//     v2 := v1
//   }
//   prefetch b0[16*g + 128]
//   store b1[16*g + lane] = v2: f32x16 count -16*g + s0 if v3
//   gemm b2[0] stride s1 = b0[64*g] stride 64 * b1[0] stride s0 transposed: f32 rows 4 columns s1
//       sums s0                                                                   (on one line)
//   call b0[0] stride 64 = b1[0] stride 32 * b2[0] stride 64 + b3: f16 rows 8*s0 columns 64
//       sums 32 batch 1 ways 64 128 proposal 2                                    (on one line)
//   sort b3[0], b4[0] by way of b5[0], b6[0]: u32 elements s0
//   i32 v5: i64 = index 4*g + 1         (any statement whose indices may be computed in i32)
//   copy b3[8*lane] = b0[64*g + 8*lane] elements 8: f16x128 if v3
//   commit
//   wait 1
//   v6: f16x128.left = fragment b3[640*floordiv(lane, 64)] stride 40
//   v7: f16x128.right = fragment b4[0] stride 40 transposed
//   v9: f32x128.sums = mma(v6, v7, v8)
//   v10: f32x128 = slot 2 of v9
//   v11: i32 = ticket b4[floordiv(g, 4)] of 4
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/ir/value/digest.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

// Writes floats by their bits: exact, and the same for equal values only.
std::string ConstantText(const Scalar& s) {
  if (IsFloat(s.dtype)) {
    const uint64_t bits = EncodeFloat(s.dtype, s.f);
    return absl::StrFormat("0x%x (%g)", bits, DecodeFloat(s.dtype, bits));
  }
  return IsSigned(s.dtype) ? Cat(s.i) : Cat(s.u);
}

std::string VarList(const std::vector<Var>& vars) {
  std::string text;
  for (Var v : vars) text += Cat(text.empty() ? "v" : ", v", v);
  return text;
}

class Writer {
 public:
  std::string Write(const Kernel& k) {
    std::string sizes;
    for (size_t i = 0; i < k.sizes.size(); ++i) sizes += Cat(i == 0 ? "s" : ", s", i);
    text_ = Cat("kernel(", sizes, ")", k.team == 1 ? "" : Cat(" team ", k.team), " grid ",
                k.grid.ToString(), "\n");
    for (size_t i = 0; i < k.buffers.size(); ++i) {
      const Buffer& b = k.buffers[i];
      text_ += Cat("b", i, ": ", DTypeName(b.dtype));
      text_ += b.space == Space::kScratch  ? Cat(" scratch ", b.elements)
               : b.space == Space::kLaunch ? Cat(" launch ", b.elements, b.zeroed ? " zeroed" : "")
               : b.written                 ? " out"
                                           : " in";
      text_ += "\n";
    }
    Block(k.body, 0);
    return std::move(text_);
  }

 private:
  void Block(const std::vector<Stmt>& body, int indent) {
    for (const Stmt& s : body) {
      text_.append(indent, ' ');
      if (s.narrow) text_ += "i32 ";
      Statement(s, indent);
    }
  }

  static std::string Mask(const Stmt& s) {
    return Cat(s.count ? Cat(" count ", s.count->ToString()) : "",
               s.predicate == kNoVar ? "" : Cat(" if v", s.predicate));
  }

  void Statement(const Stmt& s, int indent) {
    switch (s.opcode) {
      case Opcode::kStore:
        text_ += Cat("store b", s.buffer, "[", s.index.ToString(), "] = ", VarList(s.args), ": ",
                     TypeText(s.type), Mask(s), "\n");
        return;
      case Opcode::kPrefetch:
        text_ += Cat("prefetch b", s.buffer, "[", s.index.ToString(), "]\n");
        return;
      case Opcode::kGemm:
        text_ += Cat("gemm ", MatrixText(s.matrices[0]), " = ", MatrixText(s.matrices[1]), " * ",
                     MatrixText(s.matrices[2]), ": ", TypeText(s.type), " rows ",
                     s.extents[0].ToString(), " columns ", s.extents[1].ToString(), " sums ",
                     s.extents[2].ToString(), "\n");
        return;
      case Opcode::kCall:
        text_ += CallText(s);
        return;
      case Opcode::kSort:
        text_ += Cat("sort ", RowText(s.matrices[0]), ", ", RowText(s.matrices[1]), " by way of ",
                     RowText(s.matrices[2]), ", ", RowText(s.matrices[3]), ": ", TypeText(s.type),
                     " elements ", s.extents[0].ToString(), "\n");
        return;
      case Opcode::kBarrier:
        text_ += "barrier\n";
        return;
      case Opcode::kCopy:
        text_ += Cat("copy b", s.buffer, "[", s.index.ToString(), "] = ", RowText(s.matrices[0]),
                     " elements ", s.step, ": ", TypeText(s.type), Mask(s), "\n");
        return;
      case Opcode::kCommit:
        text_ += "commit\n";
        return;
      case Opcode::kWait:
        text_ += Cat("wait ", s.step, "\n");
        return;
      case Opcode::kAssign:
        text_ += Cat("v", s.result, " := ", VarList(s.args), "\n");
        return;
      case Opcode::kFor:
        text_ += Cat("for ", s.loop, " in [", s.begin.ToString(), ", ", s.end.ToString(), ") step ",
                     s.step, s.role == AxisRole::kUnroll ? " unroll" : "", " {\n");
        break;
      case Opcode::kIf:
        text_ += Cat("if ", VarList(s.args), " {\n");
        break;
      default:
        text_ += Cat(s.opcode == Opcode::kMutable ? "mut v" : "v", s.result, ": ", TypeText(s.type),
                     " = ", Value(s), "\n");
        return;
    }
    Block(s.body, indent + 2);
    text_.append(indent, ' ');
    text_ += "}\n";
  }

  static std::string RowText(const Matrix& m) {
    return Cat("b", m.buffer, "[", m.index.ToString(), "]");
  }

  static std::string MatrixText(const Matrix& m) {
    return Cat(RowText(m), " stride ", m.stride.ToString(),
               m.batch_stride == 0 ? "" : Cat(" batch_stride ", m.batch_stride),
               m.transposed ? " transposed" : "");
  }

  static std::string CallText(const Stmt& s) {
    std::string ways;
    for (int64_t rows : s.ways) ways += Cat(" ", rows);
    return Cat("call ", MatrixText(s.matrices[0]), " = ", MatrixText(s.matrices[1]), " * ",
               MatrixText(s.matrices[2]), s.buffer < 0 ? "" : Cat(" + b", s.buffer), ": ",
               TypeText(s.type), " rows ", s.extents[0].ToString(), " columns ",
               s.extents[1].ToString(), " sums ", s.extents[2].ToString(), " batch ",
               s.extents[3].ToString(), " ways", ways, " proposal ", s.proposal, "\n");
  }

  static std::string Value(const Stmt& s) {
    const std::string args = VarList(s.args);
    switch (s.opcode) {
      case Opcode::kConst:
        return Cat("const ", ConstantText(s.constant));
      case Opcode::kIndex:
        return Cat("index ", s.index.ToString());
      case Opcode::kLoad:
        return Cat("load b", s.buffer, "[", s.index.ToString(), "]", Mask(s));
      case Opcode::kCompute:
        return Cat(OpName(s.op), HasDirection(s.op) && s.shift_left ? ".left" : "", "(", args, ")");
      case Opcode::kFma:
        return Cat("fma(", args, ")");
      case Opcode::kBroadcast:
        return Cat("broadcast(", args, ")");
      case Opcode::kReduce:
        return Cat("reduce.", OpName(s.op), "(", args, ")");
      case Opcode::kLaneMask:
        return Cat("lanes ", s.index.ToString());
      case Opcode::kCheckIndex:
        return Cat("check ", args, " below ", s.index.ToString(), Mask(s));
      case Opcode::kRandomBits:
        return Cat("randombits(", args, ")");
      case Opcode::kFragment:
        return Cat("fragment ", MatrixText(s.matrices[0]));
      case Opcode::kMma:
        return Cat("mma(", args, ")");
      case Opcode::kSlot:
        return Cat("slot ", s.step, " of ", args);
      case Opcode::kTicket:
        return Cat("ticket b", s.buffer, "[", s.index.ToString(), "] of ", s.step);
      default:
        return args;  // kMutable
    }
  }

  std::string text_;
};

}  // namespace

std::string TypeText(Type t) {
  const char* const parts[] = {"", ".left", ".right", ".sums"};
  return Cat(DTypeName(t.dtype), t.lanes == 1 ? "" : Cat("x", t.lanes),
             parts[static_cast<size_t>(t.part)]);
}

std::string ToText(const Kernel& kernel) { return Writer().Write(kernel); }

std::string KirHash(const Kernel& kernel) { return Sha256Hex(ToText(kernel)); }

}  // namespace athanor::kir
