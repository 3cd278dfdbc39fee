// A known number of independent multiply-adds on all threads of a device: how fast the cores are at
// the moment. Beside requests, searches run at low priority with clock ticks of their own
// (yielding.h), and other machines' work or heat may slow the cores; times of different moments
// compare only as multiples of it.
//
//   std::string object = Yardstick::Compile(target).value();
//   Yardstick yard = Yardstick::Create(device, object, 64, threads).value();
//   ... time yard.Run() ...   // yard.flops() of f32
#ifndef ATHANOR_SERVER_TUNER_MEASURE_YARDSTICK_H_
#define ATHANOR_SERVER_TUNER_MEASURE_YARDSTICK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/athanor/v1/target.pb.h"
#include "runtime/device/device.h"

namespace athanor {

// Used by one thread at a time. Must die before its device.
class Yardstick {
 public:
  // Returns a kernel object, as every process of this machine may use it.
  static absl::StatusOr<std::string> Compile(const v1::Target& target);
  // `vector_bytes`: of the target that it was compiled for.
  static absl::StatusOr<Yardstick> Create(Device* device, absl::string_view object,
                                          int vector_bytes, int threads);

  // Takes about half a millisecond.
  absl::Status Run();
  double flops() const { return flops_; }  // of one run; a multiply-add is two

 private:
  Yardstick() = default;

  std::unique_ptr<DeviceKernel> kernel_;
  std::unique_ptr<DeviceMemory> out_;
  std::unique_ptr<DeviceQueue> queue_;
  int64_t items_ = 0;
  double flops_ = 0;
};

// Compiles C for `target` at the flags of kernels; "$BYTES" in it stands for the bytes of a vector.
absl::StatusOr<std::string> CompileForMeasuring(absl::string_view source, const v1::Target& target);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_YARDSTICK_H_
