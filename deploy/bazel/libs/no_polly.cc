#include "llvm/Passes/PassPlugin.h"

// Stands in for Polly: Clang's static library asks for it, and no kernel uses it.
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "Polly", LLVM_VERSION_STRING, [](llvm::PassBuilder&) {}};
}
