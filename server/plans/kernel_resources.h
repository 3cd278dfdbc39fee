// Keeps what a kernel takes, as a GPU's compiler says, behind the kernel's object: it goes along
// wherever the object goes, into the cache, a pin's file or a bundle. Loaders read an object by
// its headers, and so no further than its end.
//
//   object = WithResources(std::move(cubin), resources);   // in the child, which has the log
//   ResourcesOf(object)->registers();                      // in the server
#ifndef ATHANOR_SERVER_PLANS_KERNEL_RESOURCES_H_
#define ATHANOR_SERVER_PLANS_KERNEL_RESOURCES_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/athanor/v1/model.pb.h"

namespace athanor {

std::string WithResources(std::string object, const v1::KernelResources& resources);

// Returns nullopt for an object without them, as all of the CPU are.
std::optional<v1::KernelResources> ResourcesOf(absl::string_view object);

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_KERNEL_RESOURCES_H_
