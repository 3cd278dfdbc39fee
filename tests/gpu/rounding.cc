// Measures the error of sums of products by mma.sync against exact sums. Products of 16-bit floats
// are exact in f64, and sums of these far more exact than those they are compared with.
//
// The bound that a sum of K terms in any order of f32 additions keeps is gamma(K) * sum |a b|, with
// gamma(K) = K u / (1 - K u) and u = 2^-24 for rounding to nearest; c is how many times that it is.
//
// Random operands come nowhere near it: errors of either sign cancel. The worst case of a unit that
// aligns the terms of a step to the largest, keeps x bits below the last one of f32 and cuts off
// the rest is one large term and others just below the last kept bit: each of them loses 2^(1-x) u.
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/fragments.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/gpu/number_formats.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

constexpr int kM = 16, kN = 8, kStep = 16;
constexpr int kBlocks = 32;
constexpr int kLongest = 4096;  // of the sums

struct Format {
  const char* name;
  const char* kernel;
  uint16_t (*bits)(float);
  float (*value)(uint16_t);
};
constexpr Format kFormats[] = {
    {"f16", "chain_f16", F16Bits, F16Value},
    {"bf16", "chain_bf16", Bf16Bits, Bf16Value},
};

// Kinds of operands by what they make hard.
enum class Kind { kUniform, kWide, kCancelling, kOneSign, kSwamped };
constexpr const char* kKindNames[] = {"uniform", "wide exponents", "cancelling", "one sign",
                                      "swamped"};
struct Operands {
  Kind kind;
  int k;
  int bits = 0;  // kSwamped: the others lie just below so many bits below the last one of f32
};

float Draw(Kind kind, std::mt19937& random) {
  const float sign = kind == Kind::kOneSign || random() % 2 ? 1.0f : -1.0f;
  const float mantissa = 0.5f + static_cast<float>(random() % 65536) / 131072.0f;
  const int exponent = kind == Kind::kWide ? static_cast<int>(random() % 13) - 6 : 0;
  return sign * std::ldexp(mantissa, exponent);
}

struct Worst {
  double c = 0;
  double lost_u = 0;  // the error as a share of sum |a b|, in u
};

constexpr double kU = 1.0 / (1 << 24);

// Makes the first product of each sum 2^10, and all others just below 2^(10 - 23 - bits).
void Swamp(const Format& format, const Operands& operands, std::vector<uint16_t>* a,
           std::vector<uint16_t>* b) {
  // The largest of the format below 2; its last bits are cut off.
  const float below = format.value(format.bits(std::nextafter(2.0f, 0.0f)));
  const uint16_t large = format.bits(32);
  const uint16_t left = format.bits(std::ldexp(below, -7));
  const uint16_t right = format.bits(std::ldexp(1.0f, -7 - operands.bits));
  for (size_t i = 0; i < a->size(); ++i) (*a)[i] = i % operands.k == 0 ? large : left;
  for (size_t i = 0; i < b->size(); ++i) (*b)[i] = i / kN % operands.k == 0 ? large : right;
}

// Runs kBlocks tiles of k terms and returns the largest errors of their elements.
absl::StatusOr<Worst> Compare(Gpu& gpu, const Format& format, const Operands& operands,
                              std::mt19937& random) {
  const auto [kind, k, bits] = operands;
  const Fragment& left = *FindFragment("mma.m16n8k16", MmaOperand::kLeft);
  const Fragment& right = *FindFragment("mma.m16n8k16", MmaOperand::kRight);
  const Fragment& sum = *FindFragment("mma.m16n8k16", MmaOperand::kSum);
  std::vector<uint16_t> a(size_t{kBlocks} * kM * k), b(size_t{kBlocks} * k * kN);
  for (uint16_t& x : a) x = format.bits(Draw(kind, random));
  for (uint16_t& x : b) x = format.bits(Draw(kind, random));
  if (kind == Kind::kSwamped) Swamp(format, operands, &a, &b);
  if (kind == Kind::kCancelling) {
    // The second half of each row repeats the first with the other sign, but for the last step.
    for (int row = 0; row < kBlocks * kM; ++row) {
      for (int i = 0; i < k / 2 - 1; ++i) a[row * k + k / 2 + i] = a[row * k + i] ^ 0x8000;
    }
    for (int block = 0; block < kBlocks; ++block) {
      uint16_t* const rows = &b[size_t{1} * block * k * kN];
      for (int i = 0; i < (k / 2 - 1) * kN; ++i) rows[k / 2 * kN + i] = rows[i];
    }
  }
  std::vector<uint16_t> lefts, rights;
  for (int block = 0; block < kBlocks; ++block) {
    for (int step = 0; step < k; step += kStep) {
      for (int thread = 0; thread < kWarpThreads; ++thread) {
        for (int slot = 0; slot < left.slots(); ++slot) {
          const TileElement e = left.At(thread, slot);
          lefts.push_back(a[(block * kM + e.row) * k + step + e.column]);
        }
        for (int slot = 0; slot < right.slots(); ++slot) {
          const TileElement e = right.At(thread, slot);
          rights.push_back(b[(block * k + step + e.row) * kN + e.column]);
        }
      }
    }
  }
  ASSIGN_OR_RETURN(const CudaFunction kernel, gpu.Kernel("fragments.cu", format.kernel));
  ASSIGN_OR_RETURN(const CudaPointer device_a, gpu.Upload(lefts));
  ASSIGN_OR_RETURN(const CudaPointer device_b, gpu.Upload(rights));
  const size_t count = size_t{kBlocks} * sum.elements();
  ASSIGN_OR_RETURN(const CudaPointer device_d, gpu.Allocate(count * 4));
  RETURN_IF_ERROR(gpu.Fill(device_d, 0xff, count * 4));
  RETURN_IF_ERROR(gpu.Launch(kernel, {kBlocks, 32}, device_a, device_b, device_d, k / kStep));
  ASSIGN_OR_RETURN(const std::vector<float> found, gpu.Download<float>(device_d, count));
  gpu.FreeAll();

  const double gamma = k * kU / (1 - k * kU);
  Worst worst;
  size_t at = 0;
  for (int block = 0; block < kBlocks; ++block) {
    for (int thread = 0; thread < kWarpThreads; ++thread) {
      for (int slot = 0; slot < sum.slots(); ++slot) {
        const TileElement e = sum.At(thread, slot);
        double exact = 0, magnitude = 0;
        for (int i = 0; i < k; ++i) {
          const double product = double{format.value(a[(block * kM + e.row) * k + i])} *
                                 format.value(b[(block * k + i) * kN + e.column]);
          exact += product;
          magnitude += std::abs(product);
        }
        const double error = std::abs(found[at++] - exact);
        // Not a number is as wrong as can be.
        worst.c = std::max(worst.c, error >= 0 ? error / (gamma * magnitude) : INFINITY);
        worst.lost_u = std::max(worst.lost_u, error >= 0 ? error / magnitude / kU : INFINITY);
      }
    }
  }
  return worst;
}

}  // namespace

absl::Status RunRounding(PartRun& run) {
  ASSIGN_OR_RETURN(Gpu * gpu, run.gpu());
  std::mt19937 random(17);
  std::vector<Operands> cases;
  for (const Kind kind : {Kind::kUniform, Kind::kWide, Kind::kCancelling, Kind::kOneSign}) {
    for (const int k : {16, 64, 256, 1024, kLongest}) cases.push_back({kind, k});
  }
  // In one step the large term is a product, in later ones it is the accumulator.
  for (const int k : {kStep, kLongest}) {
    for (int bits = -1; bits <= 4; ++bits) cases.push_back({Kind::kSwamped, k, bits});
  }
  for (const Format& format : kFormats) {
    double worst = 0, step = 0, chain = 0;
    Json rows = Json::array();
    for (const Operands& operands : cases) {
      ASSIGN_OR_RETURN(const Worst found, Compare(*gpu, format, operands, random));
      rows.push_back({{"operands", kKindNames[static_cast<int>(operands.kind)]},
                      {"k", operands.k},
                      {"bits", operands.bits},
                      {"c", found.c},
                      {"lost_u", found.lost_u}});
      worst = std::max(worst, found.c);
      if (operands.k == kStep && operands.kind == Kind::kSwamped) {
        step = std::max(step, found.lost_u);
      }
      if (operands.k == kLongest && operands.kind == Kind::kOneSign) {
        chain = found.lost_u / (kLongest / kStep);
      }
    }
    run.report().Answer(absl::StrCat("rounding.", format.name, "_c"), worst,
                        {{"cases", std::move(rows)}});
    run.report().Answer(absl::StrCat("rounding.", format.name, "_step"), step);
    run.report().Answer(absl::StrCat("rounding.", format.name, "_chain"), chain);
  }
  return absl::OkStatus();
}

}  // namespace athanor
