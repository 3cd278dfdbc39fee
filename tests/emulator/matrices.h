// Matrix instructions as the emulator computes them, by the map that says which thread of a wave
// has which element (compiler/codegen/cuda/fragments.h).
#ifndef ATHANOR_TESTS_EMULATOR_MATRICES_H_
#define ATHANOR_TESTS_EMULATOR_MATRICES_H_

#include "absl/types/span.h"
#include "tests/emulator/athanor/launch.h"

namespace athanor::emulator {

// Is Launch::element.
void ElementOf(const Launch* launch, MatrixSide side, int bytes, int slot, int* row, int* column);

// Computes the sums of all threads of a wave, one product each. Products of floats and their sum
// are computed in f64, then rounded once to f32; those of integers wrap.
void MultiplyMatrices(Factors factors, absl::Span<Product* const> wave);

}  // namespace athanor::emulator

#endif  // ATHANOR_TESTS_EMULATOR_MATRICES_H_
