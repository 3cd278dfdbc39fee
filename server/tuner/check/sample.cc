#include "server/tuner/check/sample.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

namespace athanor {
namespace {

constexpr int kMaxCornerAxes = 3;
constexpr int kSuspectsEachWay = 4;

int64_t ElementsOf(absl::Span<const int64_t> shape) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return n;
}

int64_t PositionOf(absl::Span<const int64_t> shape, absl::Span<const int64_t> at) {
  int64_t position = 0;
  for (size_t i = 0; i < shape.size(); ++i) position = position * shape[i] + at[i];
  return position;
}

void SortDistinct(std::vector<int64_t>* positions) {
  std::sort(positions->begin(), positions->end());
  positions->erase(std::unique(positions->begin(), positions->end()), positions->end());
}

// Returns a coordinate at an edge of tiled code.
int64_t TileEdge(int64_t size, std::mt19937_64& random) {
  const int64_t tile = int64_t{4} << random() % 6;
  const int64_t rest = size - size % tile;
  switch (random() % 4) {
    case 0:
      return size - 1;
    case 1:
      return std::min(rest, size - 1);
    case 2:
      return std::max<int64_t>(rest - 1, 0);
    default: {
      const int64_t first = static_cast<int64_t>(random() % (size / tile + 1)) * tile;
      return std::min(first + (random() % 2 == 0 ? 0 : tile - 1), size - 1);
    }
  }
}

// Visits 0..size-1 in steps near the golden section of size, so that the visited coordinates are
// evenly spread at any time: a Kronecker sequence.
struct Walk {
  Walk(int64_t n, std::mt19937_64& random) : size(n) {
    start = static_cast<int64_t>(random() % n);
    step = std::max<int64_t>(static_cast<int64_t>(static_cast<double>(n) * 0.6180339887), 1);
    step = std::max<int64_t>(step - static_cast<int64_t>(random() % (step / 16 + 1)), 1);
    while (std::gcd(step, n) != 1) ++step;
  }
  int64_t At(int64_t i) const {
    return static_cast<int64_t>((start + static_cast<__int128>(i) * step) % size);
  }
  int64_t size, start, step;
};

// Adds `count` elements with one axis at its last coordinate or another edge, and the others at
// equal distances from end to end.
void AddAxisEdges(absl::Span<const int64_t> shape, size_t edge, int64_t count,
                  std::mt19937_64& random, std::vector<int64_t>* positions) {
  const int64_t last = count * 2 / 3;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t round = i < last ? last : count - last;
    std::vector<int64_t> at;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      // Each axis has its own order.
      const int64_t place = i * (2 * static_cast<int64_t>(axis) + 1) % round;
      const double part = static_cast<double>(place) / std::max<double>(1, round - 1);
      at.push_back(static_cast<int64_t>(part * static_cast<double>(shape[axis] - 1)));
    }
    at[edge] = i < last ? shape[edge] - 1 : TileEdge(shape[edge], random);
    positions->push_back(PositionOf(shape, at));
  }
}

// Elements that are looked at together: so short that finding one among them costs nothing, so long
// that the loop over them is one of vectors.
constexpr int64_t kBlock = 256;

template <typename Bits>
Bits BitsAt(absl::string_view bytes, int64_t i) {
  Bits bits;
  std::memcpy(&bits, bytes.data() + i * sizeof(Bits), sizeof(Bits));
  return bits;
}

// Adds the first element that is not finite, and before that the first of the largest magnitude.
template <typename Float, typename Bits>
void AddExtremes(absl::string_view bytes, std::vector<int64_t>* positions) {
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(Bits));
  // Without the sign, bits are ordered as magnitudes are, and those of NaN come last.
  const auto magnitude = [&](int64_t i) { return static_cast<Bits>(BitsAt<Bits>(bytes, i) << 1); };
  const auto infinite =
      static_cast<Bits>(std::bit_cast<Bits>(std::numeric_limits<Float>::infinity()) << 1);
  int64_t largest = -1;
  Bits most = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    Bits here = 0;
    for (int64_t i = begin; i < end; ++i) here = std::max(here, magnitude(i));
    if (here < infinite && largest >= 0 && here <= most) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (magnitude(i) >= infinite) {
        positions->push_back(i);
        begin = count;
        break;
      }
      if (largest >= 0 && magnitude(i) <= most) continue;
      largest = i;
      most = magnitude(i);
    }
  }
  if (largest >= 0) positions->push_back(largest);
}

// Adds the first and the last few elements that still hold only noise.
template <typename Bits>
void AddUntouched(absl::string_view bytes, unsigned char noise, std::vector<int64_t>* positions) {
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(Bits));
  Bits untouched;
  std::memset(&untouched, noise, sizeof(Bits));
  const auto is_noise = [&](int64_t i) { return BitsAt<Bits>(bytes, i) == untouched; };
  int64_t first = 0;
  int found = 0;
  while (first < count && found < kSuspectsEachWay) {
    const int64_t end = std::min(first + kBlock, count);
    int any = 0;
    for (int64_t i = first; i < end; ++i) any |= static_cast<int>(is_noise(i));
    for (; any != 0 && first < end && found < kSuspectsEachWay; ++first) {
      if (!is_noise(first)) continue;
      positions->push_back(first);
      ++found;
    }
    if (any == 0) first = end;
  }
  found = 0;
  for (int64_t i = count; i-- > first && found < kSuspectsEachWay;) {
    if (!is_noise(i)) continue;
    positions->push_back(i);
    ++found;
  }
}

}  // namespace

std::vector<int64_t> EdgePositions(absl::Span<const int64_t> shape) {
  const int64_t elements = ElementsOf(shape);
  if (elements == 0) return {};
  std::vector<int64_t> positions = {0, elements - 1};
  const size_t axes = std::min<size_t>(shape.size(), kMaxCornerAxes);
  for (size_t corner = 0; corner < (size_t{1} << axes); ++corner) {
    std::vector<int64_t> at(shape.size(), 0);
    for (size_t i = 0; i < axes; ++i) {
      const size_t axis = shape.size() - 1 - i;
      if ((corner >> i & 1) != 0) at[axis] = shape[axis] - 1;
    }
    positions.push_back(PositionOf(shape, at));
  }
  SortDistinct(&positions);
  return positions;
}

std::vector<int64_t> SpreadPositions(absl::Span<const int64_t> shape, int64_t count,
                                     uint64_t seed) {
  const int64_t elements = ElementsOf(shape);
  std::vector<int64_t> positions;
  if (elements <= count) {
    positions.resize(elements);
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
  }
  std::mt19937_64 random(seed);
  std::vector<Walk> walks;
  for (int64_t size : shape) walks.emplace_back(size, random);
  for (int64_t i = 0; i < (count + 1) / 2; ++i) {
    std::vector<int64_t> at;
    for (const Walk& walk : walks) at.push_back(walk.At(i));
    positions.push_back(PositionOf(shape, at));
  }
  const auto axes = static_cast<int64_t>(shape.size());
  for (int64_t axis = 0; axis < axes; ++axis) {
    AddAxisEdges(shape, axis, count / 2 / axes, random, &positions);
  }
  SortDistinct(&positions);
  return positions;
}

std::vector<int64_t> SuspectPositions(absl::string_view bytes, DType dtype, unsigned char noise) {
  std::vector<int64_t> positions;
  switch (DTypeBytes(dtype)) {
    case 1:
      AddUntouched<uint8_t>(bytes, noise, &positions);
      break;
    case 2:
      AddUntouched<uint16_t>(bytes, noise, &positions);
      break;
    case 4:
      AddUntouched<uint32_t>(bytes, noise, &positions);
      break;
    default:
      AddUntouched<uint64_t>(bytes, noise, &positions);
  }
  if (dtype == DType::kF32) AddExtremes<float, uint32_t>(bytes, &positions);
  if (dtype == DType::kF64) AddExtremes<double, uint64_t>(bytes, &positions);
  SortDistinct(&positions);
  return positions;
}

}  // namespace athanor
