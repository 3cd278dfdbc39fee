// Kernels for tests of dialects: some written here from every op, load, store and dtype, and those
// of the golden files.
#ifndef ATHANOR_COMPILER_CODEGEN_KIR_WRITTEN_KERNELS_TESTING_H_
#define ATHANOR_COMPILER_CODEGEN_KIR_WRITTEN_KERNELS_TESTING_H_

#include <map>
#include <string>
#include <vector>

#include "compiler/codegen/kir/emitter.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/ir/graph/op.h"
#include "compiler/ir/value/tensor.h"

namespace athanor {

// A kernel that stores what each elementwise op makes of operands of one dtype. Buffer 0 holds the
// condition, at 0; buffer 1 three operands, at 0, 100 and 200.
struct WrittenOps {
  // Operands of a result: the number of one of the three, or one of these.
  static constexpr int kCondition = -1, kTwo = -2;
  struct Result {
    Op op;
    Attrs attrs;
    std::vector<int> operands;
    DType dtype;
    int buffer;
  };
  kir::Kernel kernel;
  std::vector<Result> results;
  int fma = -1;  // the buffer of operand 0 * operand 1 + operand 2; -1 if the dtype has none
};
// `f64`: results may be f64.
WrittenOps WriteOps(DType dtype, int lanes, bool f64 = true);

// The places that WriteMemory loads from and stores to, one after another under each mask. `n` is
// the size, `place` what buffer 2 holds.
std::vector<Expr> WrittenPlaces(const Expr& n, const Expr& lane, const Expr& place);
// `on` is a scalar condition, `some` one by lane.
std::vector<kir::Mask> WrittenMasks(const Expr& n, kir::Var on, kir::Var some);
// Copies from buffer 0 to buffer 1 in every pattern under every kind of mask. Buffer 2 holds a
// place, buffer 3 a bool, by lane.
kir::Kernel WriteMemory(DType dtype, int lanes);

// The index expressions that WriteIndices stores in buffer 4, one over another's place.
std::vector<Expr> WrittenIndices(const Expr& n, const Expr& lane, const Expr& at);
// Checks positions, draws random bits and divides indices; writes constants of every dtype. Buffer
// 0 holds places, 1 a seed, 2 receives bools, 3 random bits.
kir::Kernel WriteIndices(int lanes);

// Returns all of these by name, for each number of lanes.
std::map<std::string, kir::Kernel> WrittenKernels(const std::vector<int>& lanes, bool f64 = true);

// Returns operand number `which` of two: all pairs of edge values, then random values. The length
// is never a multiple of the vector length.
Tensor EdgeOperand(DType dtype, int which);

// Returns the text of a file; fails the test if there is none.
std::string ReadFile(const std::string& path);
// Returns the kernels of all .kir files of some folders, named by file and number; of equal names
// the last.
std::map<std::string, kir::Kernel> KernelsIn(const std::vector<std::string>& folders);

// Compares a list of lines "name hash" with the golden one, line by line.
void ExpectSameLines(const std::string& got, const std::string& golden);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_KIR_WRITTEN_KERNELS_TESTING_H_
