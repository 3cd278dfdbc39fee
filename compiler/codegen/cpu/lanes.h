// Helpers that load and store some of a vector's lanes, or lanes apart from each other. Each
// function defines one and returns its name; the comment gives its signature in C, where T is a
// vector of `lanes` of `element`, and Tu the same at any address.
#ifndef ATHANOR_COMPILER_CODEGEN_CPU_LANES_H_
#define ATHANOR_COMPILER_CODEGEN_CPU_LANES_H_

#include <string>

#include "compiler/codegen/cpu/prelude.h"

namespace athanor::kir {

// i32xN(i64 n): lane < n.
std::string LaneMask(Prelude& p, int lanes);
// i32(i32xN): true if any lane is set.
std::string AnyLane(Prelude& p, int lanes);

// Lanes of a contiguous move: those below `i64 n`, or where `i32xN m` is set.
enum class By : uint8_t { kCount, kMask };
// T(const Tu* p, n or m): zero in the other lanes; and void(Tu* p, T x, n or m).
std::string LoadSome(Prelude& p, By by, const std::string& element, int lanes);
std::string StoreSome(Prelude& p, By by, const std::string& element, int lanes);

// T(const Tu* p, i64 stride) and T(const Tu* p, i64xN index); `masked` ones take a mask after
// that. Stores take the value after the stride or the index.
std::string Gather(Prelude& p, const std::string& element, int lanes, bool strided, bool masked);
std::string Scatter(Prelude& p, const std::string& element, int lanes, bool strided, bool masked);
// T(const Tu* p) or T(const Tu* p, i32xN mask): lane l is p[l * step]. Reads whole vectors, none
// of which begins before the first or ends behind the last lane's element.
inline constexpr int kMostStep = 4;
std::string Every(Prelude& p, const std::string& element, int lanes, int step, bool masked);

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_CPU_LANES_H_
