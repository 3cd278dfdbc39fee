#include "server/plans/kernel_resources.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::KernelResources Some() {
  v1::KernelResources resources;
  resources.set_registers(64);
  resources.set_spill_store_bytes(24);
  resources.set_shared_bytes(1 << 14);
  return resources;
}

TEST(KernelResourcesTest, StayBehindTheObject) {
  for (const v1::KernelResources& resources : {Some(), v1::KernelResources()}) {
    const std::string object = WithResources(
        "\x7f"
        "ELF code",
        resources);
    EXPECT_TRUE(absl::StartsWith(object,
                                 "\x7f"
                                 "ELF code"));
    const auto read = ResourcesOf(object);
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->SerializeAsString(), resources.SerializeAsString());
  }
}

TEST(KernelResourcesTest, ObjectsWithoutThem) {
  EXPECT_FALSE(ResourcesOf("").has_value());
  EXPECT_FALSE(ResourcesOf("\x7f"
                           "ELF code")
                   .has_value());
  const std::string object = WithResources("", Some());
  for (size_t cut = 1; cut <= object.size(); ++cut) {
    EXPECT_FALSE(ResourcesOf(absl::string_view(object).substr(cut)).has_value()) << cut;
    EXPECT_FALSE(ResourcesOf(absl::string_view(object).substr(0, object.size() - cut)).has_value());
  }
  std::string longer = object;
  longer[object.size() - std::string("athanor resources").size() - 1] = '\x7f';
  EXPECT_FALSE(ResourcesOf(longer).has_value()) << "a size beyond the object";
}

}  // namespace
}  // namespace athanor
