#include "server/child/kernel_key.h"

#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Kernel KernelOf(bool library_call) {
  v1::Kernel kernel;
  kernel.set_source("kernel() grid 1");
  kernel.set_library_call(library_call);
  return kernel;
}

internal::TargetReply Machine() {
  internal::TargetReply machine;
  machine.mutable_target()->set_device("cuda");
  machine.mutable_target()->set_cpu("sm_90a");
  machine.mutable_target()->set_blas("cuBLASLt 13.1.0");
  machine.set_compiler_version("nvrtc 13.0");
  machine.set_driver("NVIDIA H200, CUDA 13.0");
  return machine;
}

MachineConditions ConditionsOf(const internal::TargetReply& machine) {
  return {.target = machine.target(),
          .compiler_version = machine.compiler_version(),
          .libraries = machine.target().blas(),
          .driver = machine.driver()};
}

std::string HashOf(bool library_call, const internal::TargetReply& machine) {
  const v1::Kernel kernel = KernelOf(library_call);
  const std::string hash = KernelKeyOf(kernel, machine).Hash();
  EXPECT_EQ(KernelKeyOf(kernel, ConditionsOf(machine)).Hash(), hash);
  return hash;
}

TEST(KernelKeyTest, ACallIsTheLibrarysAndTheDriversAndCodeTheCompilers) {
  struct Change {
    std::function<void(internal::TargetReply*)> make;
    bool of_calls, of_code;
  };
  const std::vector<Change> changes = {
      {[](auto* m) { m->mutable_target()->set_blas("cuBLASLt 13.2.0"); }, true, false},
      {[](auto* m) { m->mutable_target()->clear_blas(); }, true, false},
      {[](auto* m) { m->set_driver("NVIDIA H100 PCIe, CUDA 13.0"); }, true, false},
      {[](auto* m) { m->set_driver("NVIDIA H200, CUDA 13.1"); }, true, false},
      {[](auto* m) { m->set_compiler_version("nvrtc 13.1"); }, false, true},
      {[](auto* m) { m->mutable_target()->set_cpu("sm_80"); }, true, true},
      {[](auto* m) { m->mutable_target()->set_threads(7); }, false, false},
  };
  EXPECT_NE(HashOf(true, Machine()), HashOf(false, Machine()));
  for (size_t i = 0; i < changes.size(); ++i) {
    internal::TargetReply machine = Machine();
    changes[i].make(&machine);
    EXPECT_EQ(HashOf(true, machine) != HashOf(true, Machine()), changes[i].of_calls) << i;
    EXPECT_EQ(HashOf(false, machine) != HashOf(false, Machine()), changes[i].of_code) << i;
  }
}

}  // namespace
}  // namespace athanor
