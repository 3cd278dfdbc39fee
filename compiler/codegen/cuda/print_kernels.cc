// Writes kernels, as the CUDA dialect prints them, as one C++ text for printed_kernels_test: each
// in a namespace of its name, and a table of them behind.
#include <iostream>
#include <map>
#include <string>

#include "compiler/codegen/cuda/dialect.h"
#include "compiler/codegen/written_kernels_testing.h"
#include "compiler/ir/value/message.h"

int main() {
  std::map<std::string, athanor::kir::Kernel> kernels = athanor::WrittenKernels({1});
  kernels.merge(athanor::KernelsIn({"compiler/codegen/cuda/testdata"}));
  std::string table;
  for (const auto& [name, kernel] : kernels) {
    std::cout << "namespace " << name << " {\n"
              << athanor::PrintCudaKernel(kernel, {}) << "}  // namespace " << name << "\n";
    const std::string shared =
        kernel.team > 1 ? athanor::Cat(name, "::athanor_kernel_shared_bytes") : "0";
    table += athanor::Cat(
        "    {\"", name, "\", ", kernel.team, ", ", athanor::CudaWorkspaceBytes(kernel), ", ",
        shared, ", sizeof(", name, "::Arguments), [](const void* a) {\n       ", name,
        "::athanor_kernel(*static_cast<const ", name, "::Arguments*>(a));\n", "     }},\n");
  }
  std::cout << "const Printed kPrinted[] = {\n" << table << "};\n";
}
