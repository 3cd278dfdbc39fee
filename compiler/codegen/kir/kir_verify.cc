// Verifies what printers rely on, in one walk in program order with the set of registers in scope.
#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/codegen/kir/barriers.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/codegen/kir/tickets.h"
#include "compiler/ir/value/message.h"
#include "compiler/search/kernels/matrix_instructions.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::kir {
namespace {

constexpr int kMaxLanes = 64;
constexpr int kMaxNesting = 256;
// Bytes that one access of a fragment's row moves, and one copy.
constexpr int kAccessBytes = 16;
constexpr int kMostGroups = 7;  // of copies under way

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel)
      : kernel_(kernel), types_(kernel.vars), state_(kernel.vars, State::kUndefined) {
    symbols_.insert(kGrid);
    for (size_t i = 0; i < kernel.sizes.size(); ++i) {
      symbols_.insert(Cat("s", i));
      sizes_.insert(Cat("s", i));
    }
  }

  absl::Status Run() {
    const int team = kernel_.team;
    const bool part = team >= 1 && team <= kWaveThreads && (team & (team - 1)) == 0;
    if (!part && team != kBlockThreads) {
      return Invalid("a team of ", team, " threads; it must be a power of two up to ", kWaveThreads,
                     ", or ", kBlockThreads);
    }
    std::set<std::string> used;
    kernel_.grid.CollectSymbols(&used);
    if (kernel_.grid.overflow()) return Invalid("grid: the expression is too large");
    for (const std::string& s : used) {
      if (!sizes_.contains(s))
        return Invalid("grid: symbol \"", s, "\" is not a size of the kernel");
    }
    Space space = Space::kGlobal;
    for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
      const Buffer& b = kernel_.buffers[i];
      if (b.space < space) {
        return Invalid("b", i, ": after one of ", space == Space::kScratch ? "scratch" : "a launch",
                       "; global buffers come first, then those of a launch, then scratch");
      }
      space = b.space;
      if (b.space != Space::kGlobal && b.elements < 0) {
        return Invalid("b", i, ": ", b.elements, " elements; it must be 0 or more");
      }
    }
    RETURN_IF_ERROR(Block(kernel_.body, 0));
    if (CallOf(kernel_) != nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(CheckTickets(kernel_));
    return CheckBarriers(kernel_);
  }

 private:
  enum class State : uint8_t { kUndefined, kInScope, kMutable, kOutOfScope };

  absl::Status Block(const std::vector<Stmt>& body, int depth) {
    if (depth > kMaxNesting) return Invalid("loops nested deeper than ", kMaxNesting, " levels");
    std::vector<Var> defined;
    for (const Stmt& s : body) {
      absl::Status status = Statement(s, depth);
      if (!status.ok()) return Prefixed(Cat(Where(s), ": "), status);
      if (Defines(s)) defined.push_back(s.result);
    }
    for (Var v : defined) {
      state_[v] = State::kOutOfScope;
      symbols_.erase(Cat("v", v));
    }
    return absl::OkStatus();
  }

  static bool Defines(const Stmt& s) {
    return s.opcode != Opcode::kStore && s.opcode != Opcode::kPrefetch &&
           s.opcode != Opcode::kAssign && s.opcode != Opcode::kFor && s.opcode != Opcode::kIf &&
           s.opcode != Opcode::kGemm && s.opcode != Opcode::kCall && s.opcode != Opcode::kSort &&
           s.opcode != Opcode::kBarrier && !Copies(s);
  }

  static bool Copies(const Stmt& s) {
    return s.opcode == Opcode::kCopy || s.opcode == Opcode::kCommit || s.opcode == Opcode::kWait;
  }

  static std::string Where(const Stmt& s) {
    if (s.opcode == Opcode::kFor) return Cat("loop ", s.loop);
    if (s.opcode == Opcode::kStore) return Cat("store to b", s.buffer);
    if (s.opcode == Opcode::kPrefetch) return Cat("prefetch of b", s.buffer);
    if (s.opcode == Opcode::kIf) return "if";
    if (s.opcode == Opcode::kGemm) return "gemm";
    if (s.opcode == Opcode::kCall) return "call";
    if (s.opcode == Opcode::kSort) return "sort";
    if (s.opcode == Opcode::kBarrier) return "barrier";
    if (s.opcode == Opcode::kCopy) return Cat("copy to b", s.buffer);
    if (s.opcode == Opcode::kCommit) return "commit";
    if (s.opcode == Opcode::kWait) return "wait";
    return Cat("v", s.result);
  }

  absl::Status Statement(const Stmt& s, int depth) {
    for (Var v : s.args) {
      RETURN_IF_ERROR(Defined(v));
    }
    RETURN_IF_ERROR(Access(s));
    if (s.opcode == Opcode::kFor) return Loop(s, depth);
    if (s.opcode == Opcode::kIf) {
      RETURN_IF_ERROR(Args(s, {Type{DType::kBool, 1}}));
      return Block(s.body, depth + 1);
    }
    if (s.opcode == Opcode::kBarrier) {
      return kernel_.team > 1 ? absl::OkStatus() : Invalid("in a kernel of teams of one");
    }
    if (s.opcode == Opcode::kGemm || s.opcode == Opcode::kSort) {
      if (kernel_.team > 1) return Invalid("in a kernel of teams of ", kernel_.team);
      return s.opcode == Opcode::kGemm ? Gemm(s) : Sort(s);
    }
    if (s.opcode == Opcode::kCall) return Call(s);
    RETURN_IF_ERROR(Lanes(s.type));
    if (Copies(s)) return Copy(s);
    RETURN_IF_ERROR(Fragments(s));
    RETURN_IF_ERROR(Operands(s));
    return Result(s);
  }

  absl::Status Result(const Stmt& s) {
    if (s.opcode == Opcode::kStore || s.opcode == Opcode::kPrefetch) return absl::OkStatus();
    if (s.result < 0 || s.result >= kernel_.vars) {
      return Invalid("registers are v0 to v", kernel_.vars - 1);
    }
    if (s.opcode == Opcode::kAssign) {
      if (state_[s.result] != State::kMutable)
        return Invalid("assigned but not a mutable register in scope");
      return types_[s.result] == s.type
                 ? absl::OkStatus()
                 : Invalid("is a ", TypeText(types_[s.result]), ", assigned a ", TypeText(s.type));
    }
    if (state_[s.result] != State::kUndefined) return Invalid("defined twice");
    state_[s.result] = s.opcode == Opcode::kMutable ? State::kMutable : State::kInScope;
    types_[s.result] = s.type;
    if (s.type.dtype == DType::kI64) symbols_.insert(Cat("v", s.result));
    return absl::OkStatus();
  }

  absl::Status Lanes(Type t) const {
    if (kernel_.team > 1) {
      return t.lanes == 1 || t.lanes == kernel_.team
                 ? absl::OkStatus()
                 : Invalid(t.lanes, " lanes; a team of ", kernel_.team, " has 1 or as many");
    }
    const bool power = t.lanes >= 1 && t.lanes <= kMaxLanes && (t.lanes & (t.lanes - 1)) == 0;
    return power ? absl::OkStatus()
                 : Invalid(t.lanes, " lanes; it must be a power of two up to ", kMaxLanes);
  }

  absl::Status Defined(Var v) const {
    if (v < 0 || v >= kernel_.vars || state_[v] == State::kUndefined) {
      return Invalid("v", v, " is used before it is defined");
    }
    return state_[v] == State::kOutOfScope ? Invalid("v", v, " is used outside its scope")
                                           : absl::OkStatus();
  }

  absl::Status Symbols(const Expr& e, bool lane, bool vectors) const {
    if (e.overflow()) return Invalid("an index expression is too large");
    std::set<std::string> used;
    e.CollectSymbols(&used);
    for (const std::string& s : used) {
      if (s == kLane) {
        if (!lane) return Invalid("\"lane\" where all lanes share one value");
      } else if (!symbols_.contains(s)) {
        return Invalid("symbol \"", s, "\" is not a size, loop variable or i64 register in scope");
      } else if (s[0] == 'v' && !vectors && types_[std::stoi(s.substr(1))].lanes > 1) {
        return Invalid(s, " differs by lane where all lanes share one value");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Loop(const Stmt& s, int depth) {
    const bool named = s.loop.size() > 1 && s.loop.size() < 10 && s.loop[0] == 'i' &&
                       s.loop.find_first_not_of("0123456789", 1) == std::string::npos;
    if (!named) return Invalid("loop variables are named i0, i1, ...");
    if (symbols_.contains(s.loop)) return Invalid("the name is taken by an enclosing loop");
    if (s.step <= 0) return Invalid("step ", s.step, "; it must be positive");
    for (const Expr* e : {&s.begin, &s.end}) {
      RETURN_IF_ERROR(Symbols(*e, false, false));
    }
    symbols_.insert(s.loop);
    absl::Status status = Block(s.body, depth + 1);
    symbols_.erase(s.loop);
    return status;
  }

  // Checks index, count, predicate and buffer.
  absl::Status Access(const Stmt& s) {
    const bool memory =
        s.opcode == Opcode::kLoad || s.opcode == Opcode::kStore || s.opcode == Opcode::kPrefetch;
    const bool vector = s.type.lanes > 1;
    if (memory || s.opcode == Opcode::kIndex || s.opcode == Opcode::kCheckIndex) {
      RETURN_IF_ERROR(Symbols(s.index, vector, vector));
    }
    if (s.opcode == Opcode::kLaneMask) return Symbols(s.index, false, false);
    if (!memory && s.opcode != Opcode::kCheckIndex) return absl::OkStatus();
    if (s.count) {
      RETURN_IF_ERROR(Symbols(*s.count, false, false));
    }
    RETURN_IF_ERROR(Predicate(s));
    if (!memory) return absl::OkStatus();
    RETURN_IF_ERROR(Holds(s.buffer, s.type));
    return s.opcode == Opcode::kStore ? Writable(s.buffer) : absl::OkStatus();
  }

  absl::Status Predicate(const Stmt& s) const {
    if (s.predicate == kNoVar) return absl::OkStatus();
    RETURN_IF_ERROR(Defined(s.predicate));
    const Type p = types_[s.predicate];
    return p.dtype == DType::kBool && (p.lanes == 1 || p.lanes == s.type.lanes)
               ? absl::OkStatus()
               : Invalid("predicate v", s.predicate, " is a ", TypeText(p),
                         "; it must be a bool, scalar or of ", s.type.lanes, " lanes");
  }

  absl::Status Holds(int buffer, Type type) const {
    if (buffer < 0 || buffer >= static_cast<int>(kernel_.buffers.size())) {
      return Invalid("the kernel has no buffer b", buffer);
    }
    const DType holds = kernel_.buffers[buffer].dtype;
    return holds == type.dtype ? absl::OkStatus()
                               : Invalid("b", buffer, " holds ", DTypeName(holds),
                                         ", the register is a ", TypeText(type));
  }

  absl::Status Writable(int buffer) const {
    const Buffer& b = kernel_.buffers[buffer];
    return b.space == Space::kGlobal && !b.written ? Invalid("b", buffer, " is read only")
                                                   : absl::OkStatus();
  }

  // Checks which statements take and make fragments.
  absl::Status Fragments(const Stmt& s) const {
    const bool moves = s.opcode == Opcode::kMutable || s.opcode == Opcode::kAssign;
    const bool takes = moves || s.opcode == Opcode::kMma || s.opcode == Opcode::kSlot;
    for (Var v : s.args) {
      if (types_[v].part == Part::kNone || takes) continue;
      return Invalid("operand v", v, " is a ", TypeText(types_[v]), "; it must be no fragment");
    }
    const bool makes = moves || s.opcode == Opcode::kFragment || s.opcode == Opcode::kMma ||
                       (s.opcode == Opcode::kBroadcast && s.type.part == Part::kSums);
    if (s.type.part != Part::kNone && !makes) {
      return Invalid("is a ", TypeText(s.type), ", a fragment; it must be a scalar or a vector");
    }
    if (s.type.part == Part::kNone && s.opcode != Opcode::kSlot) return absl::OkStatus();
    return OfBlock();
  }

  absl::Status OfBlock() const {
    return kernel_.team == kBlockThreads
               ? absl::OkStatus()
               : Invalid("in a kernel of teams of ", kernel_.team, "; it needs a block's ",
                         kBlockThreads, " threads");
  }

  // Reports whether an expression is proved to be a multiple of so many.
  static bool IsMultiple(const Expr& e, int64_t of) {
    return std::all_of(e.terms().begin(), e.terms().end(),
                       [&](const Expr::Term& t) { return t.coefficient % of == 0; });
  }

  // Checks that the element lies in scratch, at a multiple of what one access moves.
  absl::Status InScratch(int buffer, Type type, const Expr& index) const {
    RETURN_IF_ERROR(Holds(buffer, {type.dtype}));
    if (kernel_.buffers[buffer].space != Space::kScratch) {
      return Invalid("b", buffer, " is global; it must be scratch");
    }
    const int64_t elements = kAccessBytes / DTypeBytes(type.dtype);
    return IsMultiple(index, elements)
               ? absl::OkStatus()
               : Invalid("index ", index.ToString(), " is not proved to be a multiple of ",
                         elements, ", the elements of ", kAccessBytes, " bytes");
  }

  // Reports whether the threads of a wave have one index: tried where all else is large.
  static bool SameInWave(const Expr& index) {
    std::set<std::string> used;
    index.CollectSymbols(&used);
    Expr::Env env;
    int64_t value = 4099;
    for (const std::string& symbol : used) {
      env[symbol] = value;
      value += 1006;
    }
    for (int wave = 0; wave < kBlockThreads; wave += kWaveThreads) {
      env[kLane] = wave;
      const std::optional<int64_t> first = index.Evaluate(env);
      for (int lane = wave; lane < wave + kWaveThreads; ++lane) {
        env[kLane] = lane;
        if (!first || index.Evaluate(env) != first) return false;
      }
    }
    return true;
  }

  absl::Status Fragment(const Stmt& s) const {
    if (s.type.part != Part::kLeft && s.type.part != Part::kRight) {
      return Invalid("is a ", TypeText(s.type), "; only operands are loaded, .left and .right");
    }
    if (FindMatrixInstruction(s.type.dtype) == nullptr) {
      return Invalid("no matrix instruction multiplies ", DTypeName(s.type.dtype));
    }
    RETURN_IF_ERROR(Args(s, {}));
    if (s.matrices.size() != 1) return Invalid(s.matrices.size(), " matrices; it must have 1");
    const Matrix& m = s.matrices[0];
    RETURN_IF_ERROR(Symbols(m.index, true, false));
    RETURN_IF_ERROR(Symbols(m.stride, false, false));
    RETURN_IF_ERROR(InScratch(m.buffer, s.type, m.index));
    RETURN_IF_ERROR(InScratch(m.buffer, s.type, m.stride));
    if (!SameInWave(m.index)) {
      return Invalid("index ", m.index.ToString(), " differs by thread of a wave");
    }
    const bool left = s.type.part == Part::kLeft;
    if (DTypeBytes(s.type.dtype) == 1 && m.transposed == left) {
      return Invalid("elements of one byte must lie side by side along the sums: ",
                     left ? "a left operand is not" : "a right operand is", " transposed");
    }
    return absl::OkStatus();
  }

  absl::Status Mma(const Stmt& s) const {
    if (s.args.size() != 3) return Args(s, std::vector<Type>(3, s.type));
    const Type left{types_[s.args[0]].dtype, kBlockThreads, Part::kLeft};
    const MatrixInstruction* const row = FindMatrixInstruction(left.dtype);
    if (row == nullptr) {
      return Invalid("no matrix instruction multiplies ", DTypeName(left.dtype));
    }
    const Type sums{row->sums, kBlockThreads, Part::kSums};
    if (s.type != sums) return Invalid("is a ", TypeText(s.type), "; it must be ", TypeText(sums));
    return Args(s, {left, {left.dtype, kBlockThreads, Part::kRight}, sums});
  }

  absl::Status Slot(const Stmt& s) const {
    constexpr int kSlots = 4;
    if (s.step < 0 || s.step >= kSlots) {
      return Invalid("slot ", s.step, "; a thread has slots 0 to ", kSlots - 1, " of the sums");
    }
    return Args(s, {{s.type.dtype, kBlockThreads, Part::kSums}});
  }

  absl::Status Ticket(const Stmt& s) const {
    RETURN_IF_ERROR(OfBlock());
    RETURN_IF_ERROR(Symbols(s.index, false, false));
    RETURN_IF_ERROR(Holds(s.buffer, {DType::kU32}));
    if (!kernel_.buffers[s.buffer].zeroed) {
      return Invalid("b", s.buffer, " holds no counters; it must be zeroed memory of the launch");
    }
    if (s.step < 1 || s.step > INT32_MAX) {
      return Invalid("of ", s.step, " teams; it must be 1 to ", INT32_MAX);
    }
    return s.type == Type{DType::kI32} ? Args(s, {})
                                       : Invalid("is a ", TypeText(s.type), "; it must be i32");
  }

  // Checks a kCopy, kCommit or kWait; which copies are under way where is for CheckBarriers.
  absl::Status Copy(const Stmt& s) const {
    RETURN_IF_ERROR(OfBlock());
    if (s.opcode == Opcode::kCommit) return absl::OkStatus();
    if (s.opcode == Opcode::kWait) {
      return s.step >= 0 && s.step <= kMostGroups
                 ? absl::OkStatus()
                 : Invalid("for all but ", s.step, " groups; it must be 0 to ", kMostGroups);
    }
    if (s.type.lanes != kBlockThreads || s.type.part != Part::kNone) {
      return Invalid("of ", TypeText(s.type), "; each of ", kBlockThreads, " threads copies");
    }
    if (s.step * DTypeBytes(s.type.dtype) != kAccessBytes) {
      return Invalid("of ", s.step, " elements of ", DTypeName(s.type.dtype), "; it must be ",
                     kAccessBytes, " bytes");
    }
    if (s.matrices.size() != 1) return Invalid(s.matrices.size(), " sources; it must have 1");
    const Matrix& from = s.matrices[0];
    RETURN_IF_ERROR(Symbols(s.index, true, true));
    RETURN_IF_ERROR(Symbols(from.index, true, true));
    RETURN_IF_ERROR(InScratch(s.buffer, s.type, s.index));
    RETURN_IF_ERROR(Holds(from.buffer, {s.type.dtype}));
    const Buffer& source = kernel_.buffers[from.buffer];
    if (source.space != Space::kGlobal || source.written) {
      return Invalid("from b", from.buffer, "; it must be a global buffer that is only read");
    }
    return s.count ? Invalid("has a count; a predicate says which lanes copy") : Predicate(s);
  }

  absl::Status Gemm(const Stmt& s) const {
    if (s.type != Type{DType::kF32, 1} && s.type != Type{DType::kF64, 1}) {
      return Invalid("of ", TypeText(s.type), "; it must be f32 or f64");
    }
    if (s.matrices.size() != 3 || s.extents.size() != 3) {
      return Invalid(s.matrices.size(), " matrices and ", s.extents.size(),
                     " extents; it must have 3");
    }
    for (const Matrix& m : s.matrices) {
      RETURN_IF_ERROR(Holds(m.buffer, s.type));
      for (const Expr* e : {&m.index, &m.stride}) {
        RETURN_IF_ERROR(Symbols(*e, false, false));
      }
    }
    for (const Expr& e : s.extents) {
      RETURN_IF_ERROR(Symbols(e, false, false));
    }
    const Matrix& result = s.matrices[0];
    if (result.transposed) return Invalid("the result is transposed; the operands may be");
    if (result.buffer == s.matrices[1].buffer || result.buffer == s.matrices[2].buffer) {
      return Invalid("b", result.buffer, " is the result and an operand");
    }
    return Writable(result.buffer);
  }

  absl::Status Call(const Stmt& s) const {
    if (kernel_.team != 1 || !kernel_.grid.IsConstant(1) || kernel_.body.size() != 1) {
      return Invalid("it must be all of its kernel, of one item and a team of one");
    }
    if (s.matrices.size() != 3 || s.extents.size() != 4) {
      return Invalid(s.matrices.size(), " matrices and ", s.extents.size(),
                     " extents; it must have 3 and 4");
    }
    RETURN_IF_ERROR(CallBuffers(s));
    for (const Matrix& m : s.matrices) {
      if (!m.index.constant() || !m.stride.constant()) {
        return Invalid("b", m.buffer, ": index and stride must be constant");
      }
    }
    if (s.matrices[0].transposed) return Invalid("the result is transposed; the operands may be");
    RETURN_IF_ERROR(Symbols(s.extents[0], false, false));
    for (size_t i = 1; i < s.extents.size(); ++i) {
      if (s.extents[i].constant()) continue;
      return Invalid("extent ", s.extents[i].ToString(), "; only the rows need not be constant");
    }
    if (s.ways.empty() || s.ways[0] < 1 ||
        std::adjacent_find(s.ways.begin(), s.ways.end(), std::greater_equal<>()) != s.ways.end()) {
      return Invalid("its ways must be one or more numbers of rows, ascending from 1");
    }
    return s.proposal >= 0 ? absl::OkStatus()
                           : Invalid("proposal ", s.proposal, "; it must be 0 or more");
  }

  // Checks that the buffers are result, left, right, bias if there is one, and workspace.
  absl::Status CallBuffers(const Stmt& s) const {
    const size_t own = s.buffer < 0 ? 3 : 4, all = kernel_.buffers.size();
    const bool bias = s.buffer < 0 || s.buffer == 3;
    if (s.matrices[0].buffer != 0 || s.matrices[1].buffer != 1 || s.matrices[2].buffer != 2 ||
        !bias || all < own || all > own + 1) {
      return Invalid("its buffers must be result, left, right, bias and workspace, from b0 on");
    }
    for (size_t i = 0; i < all; ++i) {
      const Space wanted = i < own ? Space::kGlobal : Space::kLaunch;
      if (kernel_.buffers[i].space == wanted) continue;
      return Invalid("b", i, ": operands are global, and a workspace is of the launch");
    }
    const DType result = kernel_.buffers[0].dtype;
    for (int operand : {1, 2}) {
      RETURN_IF_ERROR(Holds(operand, {s.type.dtype}));
    }
    if (s.buffer >= 0) {
      RETURN_IF_ERROR(Holds(s.buffer, {result}));
    }
    return Writable(0);
  }

  absl::Status Sort(const Stmt& s) const {
    if (!IsUnsigned(s.type.dtype) || s.type.lanes != 1) {
      return Invalid("by keys of ", TypeText(s.type), "; it must be u8, u16, u32 or u64");
    }
    if (s.matrices.size() != 4 || s.extents.size() != 1) {
      return Invalid(s.matrices.size(), " rows and ", s.extents.size(),
                     " extents; it must have 4 and 1");
    }
    std::set<int> buffers;
    Type wanted = s.type;
    for (size_t i = 0; i < 4; ++i) {
      const Matrix& m = s.matrices[i];
      if (i == 1 && m.buffer >= 0 && m.buffer < static_cast<int>(kernel_.buffers.size())) {
        wanted.dtype = kernel_.buffers[m.buffer].dtype;
        if (wanted.dtype != DType::kI32 && wanted.dtype != DType::kI64) {
          return Invalid("b", m.buffer, " holds ", DTypeName(wanted.dtype),
                         "; positions must be i32 or i64");
        }
      }
      const Type own = i % 2 == 0 ? s.type : wanted;
      absl::Status status = Holds(m.buffer, own);
      if (status.ok()) status = Writable(m.buffer);
      if (status.ok()) status = Symbols(m.index, false, false);
      if (!status.ok()) return status;
      if (!buffers.insert(m.buffer).second) return Invalid("b", m.buffer, " is there twice");
    }
    return Symbols(s.extents[0], false, false);
  }

  absl::Status Args(const Stmt& s, const std::vector<Type>& wanted) const {
    if (s.args.size() != wanted.size()) {
      return Invalid(s.args.size(), " operands; it must have ", wanted.size());
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (types_[s.args[i]] == wanted[i]) continue;
      return Invalid("operand v", s.args[i], " is a ", TypeText(types_[s.args[i]]), "; it must be ",
                     TypeText(wanted[i]));
    }
    return absl::OkStatus();
  }

  absl::Status ResultIs(const Stmt& s, DType dtype) const {
    return s.type.dtype == dtype
               ? absl::OkStatus()
               : Invalid("is a ", TypeText(s.type), "; it must be ", DTypeName(dtype));
  }

  absl::Status Operands(const Stmt& s) const {
    const Type t = s.type;
    switch (s.opcode) {
      case Opcode::kConst:
        if (!s.args.empty()) return Args(s, {});
        return ResultIs(s, s.constant.dtype);
      case Opcode::kIndex:
        return ResultIs(s, DType::kI64);
      case Opcode::kLoad:
        return Args(s, {});
      case Opcode::kPrefetch:
        if (t.lanes != 1) return Invalid("a prefetch takes one address, not ", t.lanes);
        return Args(s, {});
      case Opcode::kStore:
      case Opcode::kMutable:
      case Opcode::kAssign:
        return Args(s, {t});
      case Opcode::kCompute:
        return Compute(s);
      case Opcode::kFma:
        if (!Computes(t.dtype) || t.dtype == DType::kBool)
          return Invalid("no arithmetic on ", DTypeName(t.dtype));
        return Args(s, {t, t, t});
      case Opcode::kBroadcast:
        return Args(s, {{t.dtype, 1}});
      case Opcode::kReduce:
        return Reduce(s);
      case Opcode::kLaneMask:
        return ResultIs(s, DType::kBool);
      case Opcode::kCheckIndex:
        RETURN_IF_ERROR(ResultIs(s, DType::kBool));
        return Args(s, {{DType::kI64, t.lanes}});
      case Opcode::kFragment:
        return Fragment(s);
      case Opcode::kMma:
        return Mma(s);
      case Opcode::kSlot:
        return Slot(s);
      case Opcode::kTicket:
        return Ticket(s);
      case Opcode::kRandomBits:
        RETURN_IF_ERROR(ResultIs(s, DType::kU32));
        return Args(s, {{DType::kI64, t.lanes}, {DType::kU64, t.lanes}});
      default:
        return absl::OkStatus();
    }
  }

  absl::Status Reduce(const Stmt& s) const {
    if (!CanReduce(s.op)) {
      return Invalid("no reduction by ", OpName(s.op),
                     "; it must be Add, Mul, Min, Max, And or Or");
    }
    if (s.type.lanes != 1) return Invalid("a reduction gives one lane, not ", s.type.lanes);
    if (s.args.size() != 1) return Args(s, {s.type});
    const Type from = types_[s.args[0]];
    if (from.dtype != s.type.dtype) return Args(s, {{s.type.dtype, from.lanes}});
    return Elementwise(s.op, {from, from}, {from.dtype, from.lanes}, /*cast_to=*/from.dtype, false);
  }

  absl::Status Compute(const Stmt& s) const {
    std::vector<Type> types;
    for (Var v : s.args) {
      types.push_back(types_[v]);
      if (types_[v].lanes != s.type.lanes) {
        return Invalid("operand v", v, " has ", types_[v].lanes, " lanes, the result ",
                       s.type.lanes);
      }
    }
    return Elementwise(s.op, types, s.type, s.type.dtype, s.shift_left);
  }

  // Applies the op table's own rule for dtypes, with scalars.
  static absl::Status Elementwise(Op op, const std::vector<Type>& args, Type result, DType cast_to,
                                  bool left) {
    const OpRow& row = OpInfo(op);
    if (row.op_class != OpClass::kElementwise) return Invalid(row.name, " is not elementwise");
    if (static_cast<int>(args.size()) != row.min_inputs) {
      return Invalid(row.name, " of ", args.size(), " operands; it must have ", row.min_inputs);
    }
    std::vector<TensorType> operands;
    for (const Type& t : args) operands.push_back({t.dtype, {}});
    Attrs attrs;
    const Rounding rounding = row.traits.rounding;
    if (rounding == Rounding::kConverts || rounding == Rounding::kBits) attrs["dtype"] = cast_to;
    if (HasDirection(op)) attrs["direction"] = std::string(left ? "left" : "right");
    absl::StatusOr<TensorType> type = row.infer(operands, attrs, Bounds());
    if (!type.ok()) return Prefixed(Cat(row.name, ": "), type.status());
    return type->dtype == result.dtype ? absl::OkStatus()
                                       : Invalid(row.name, " gives ", DTypeName(type->dtype),
                                                 ", the register is a ", TypeText(result));
  }

  const Kernel& kernel_;
  std::vector<Type> types_;
  std::vector<State> state_;
  std::set<std::string> symbols_, sizes_;
};

}  // namespace

absl::Status Verify(const Kernel& kernel) {
  if (kernel.vars < 0) return Invalid("kernel: ", kernel.vars, " registers; it must be 0 or more");
  return Prefixed(Cat("kernel ", Quoted(kernel.name), ": "), Verifier(kernel).Run());
}

}  // namespace athanor::kir
