// Writes kernels, as the Metal dialect prints them, as one C++ text for printed_kernels_test: each
// in a namespace of its name, and a table of them behind.
#include <iostream>
#include <map>
#include <string>

#include "compiler/codegen/kir/written_kernels_testing.h"
#include "compiler/codegen/metal/dialect.h"
#include "compiler/ir/value/message.h"

using athanor::Cat;

int main() {
  std::map<std::string, athanor::kir::Kernel> kernels = athanor::WrittenKernels({1}, /*f64=*/false);
  kernels.merge(athanor::KernelsIn({"compiler/codegen/cuda/testdata"}));
  std::string table;
  for (const auto& [name, kernel] : kernels) {
    if (!athanor::VerifyMetal(kernel).ok()) continue;
    std::cout << "namespace " << name << " {\n"
              << athanor::PrintMetalKernel(kernel) << "}  // namespace " << name << "\n";
    // Stands for what the device gives to each thread, of threadgroups of one team.
    const std::string place = kernel.team == 1 ? "host.team, host.teams"
                                               : Cat("host.team, host.teams, host_lane / 32, ",
                                                     kernel.team / 32, ", host_lane % 32");
    table += Cat("    {\"", name, "\", ", kernel.team, ", ", athanor::MetalWorkspaceBytes(kernel),
                 ", sizeof(", name, "::Arguments), [](const void* a) {\n       ", name,
                 "::athanor_kernel(*static_cast<const ", name, "::Arguments*>(a), ", place,
                 ");\n     }},\n");
  }
  std::cout << "const Printed kPrinted[] = {\n" << table << "};\n";
  for (const char* word : {"kernel", "constant", "device", "threadgroup"}) {
    std::cout << "#undef " << word << "\n";
  }
}
