#include "runtime/cpu/module.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Object(const std::string& name) {
  const std::string path = absl::StrCat("runtime/cpu/", name, ".so");
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::unique_ptr<CpuModule> LoadOrFail(const std::string& object) {
  absl::StatusOr<std::unique_ptr<CpuModule>> module = CpuModule::Load(object);
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? *std::move(module) : nullptr;
}

int Call(const CpuModule& module, const std::string& name) {
  absl::StatusOr<void*> symbol = module.Symbol(name);
  EXPECT_TRUE(symbol.ok()) << symbol.status();
  return symbol.ok() ? reinterpret_cast<int (*)()>(*symbol)() : -1;
}

void ExpectRefused(const std::string& object, absl::StatusCode code, const std::string& text) {
  const absl::Status status = CpuModule::Load(object).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("/proc/")));
}

size_t OpenDescriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

TEST(CpuModuleTest, LoadsAndCalls) {
  auto module = LoadOrFail(Object("module_one"));
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(Call(*module, "Answer"), 1);
}

TEST(CpuModuleTest, CallsIntoLibraries) {
  auto module = LoadOrFail(Object("module_libm"));
  ASSERT_NE(module, nullptr);
  absl::StatusOr<void*> erf = module->Symbol("Erf");
  ASSERT_TRUE(erf.ok()) << erf.status();
  EXPECT_NEAR(reinterpret_cast<float (*)(float)>(*erf)(0.5f), 0.5204999f, 1e-6);
}

TEST(CpuModuleTest, SetsLibraryFunctions) {
  auto module = LoadOrFail(Object("module_gemm"));
  ASSERT_NE(module, nullptr);
  absl::StatusOr<void*> times = module->Symbol("Times");
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(reinterpret_cast<float (*)(float, float)>(*times)(6, 7), 42);
}

// Descriptor numbers are reused at once, so the second object is opened under the number that the
// first one had, which is still loaded.
TEST(CpuModuleTest, ObjectsNeverAlias) {
  const std::string one = Object("module_one"), two = Object("module_two");
  auto first = LoadOrFail(one);
  const int free_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(free_fd);
  auto second = LoadOrFail(two);
  const int still_free_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(still_free_fd);
  EXPECT_EQ(free_fd, still_free_fd);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(Call(*first, "Answer"), 1);
  EXPECT_EQ(Call(*second, "Answer"), 2);
}

TEST(CpuModuleTest, EqualObjectsHaveTheirOwnData) {
  const std::string one = Object("module_one");
  auto first = LoadOrFail(one);
  auto second = LoadOrFail(one);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(Call(*first, "Count"), 1);
  EXPECT_EQ(Call(*first, "Count"), 2);
  EXPECT_EQ(Call(*second, "Count"), 1);
}

TEST(CpuModuleTest, UnloadingOneKeepsTheOther) {
  auto first = LoadOrFail(Object("module_one"));
  auto second = LoadOrFail(Object("module_two"));
  ASSERT_NE(second, nullptr);
  first.reset();
  EXPECT_EQ(Call(*second, "Answer"), 2);
}

TEST(CpuModuleTest, NeedsNeitherTheBytesNorADescriptor) {
  const size_t before = OpenDescriptors();
  std::string bytes = Object("module_two");
  auto module = LoadOrFail(bytes);
  bytes.assign(bytes.size(), '\0');
  EXPECT_EQ(OpenDescriptors(), before);
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(Call(*module, "Answer"), 2);
}

TEST(CpuModuleTest, MissingSymbolIsNamed) {
  auto module = LoadOrFail(Object("module_libm"));
  ASSERT_NE(module, nullptr);
  for (const char* name : {"Answer", "", "erff"}) {  // erff is libm's
    const absl::Status status = module->Symbol(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("'", name, "'")));
  }
}

TEST(CpuModuleTest, RefusesWhatIsNotElf) {
  ExpectRefused("", absl::StatusCode::kInvalidArgument, "not an ELF file");
  ExpectRefused(
      "\x7f"
      "EL",
      absl::StatusCode::kInvalidArgument, "not an ELF file");
  ExpectRefused(std::string(5000, 'x'), absl::StatusCode::kInvalidArgument, "not an ELF file");
}

TEST(CpuModuleTest, RefusesEveryTruncation) {
  const std::string whole = Object("module_one");
  for (size_t size = SELFMAG; size < whole.size(); size += size < 1024 ? 1 : 97) {
    ExpectRefused(whole.substr(0, size), absl::StatusCode::kInvalidArgument, "truncated");
  }
  ExpectRefused(whole.substr(0, whole.size() - 1), absl::StatusCode::kInvalidArgument, "truncated");
}

TEST(CpuModuleTest, RefusesHeadersThatPointOutside) {
  const std::string whole = Object("module_one");
  ElfW(Ehdr) header;
  std::memcpy(&header, whole.data(), sizeof(header));
  header.e_phoff = ~ElfW(Off){0} - 8;
  std::string broken = whole;
  std::memcpy(broken.data(), &header, sizeof(header));
  ExpectRefused(broken, absl::StatusCode::kInvalidArgument, "truncated");
}

TEST(CpuModuleTest, RefusesAnotherArchitecture) {
  std::string object = Object("module_one");
  ElfW(Ehdr) header;
  std::memcpy(&header, object.data(), sizeof(header));
  header.e_machine = EM_S390;
  std::memcpy(object.data(), &header, sizeof(header));
  ExpectRefused(object, absl::StatusCode::kInvalidArgument, "machine 22");
}

TEST(CpuModuleTest, RefusesARelocatableObject) {
  std::string object = Object("module_one");
  ElfW(Ehdr) header;
  std::memcpy(&header, object.data(), sizeof(header));
  header.e_type = ET_REL;
  std::memcpy(object.data(), &header, sizeof(header));
  ExpectRefused(object, absl::StatusCode::kInvalidArgument, "ELF type 1");
}

TEST(CpuModuleTest, UndefinedSymbolIsNamed) {
  ExpectRefused(Object("module_undefined"), absl::StatusCode::kFailedPrecondition,
                "AbsentFunction");
}

TEST(CpuModuleTest, ManyThreadsLoadAndUnload) {
  const std::string objects[] = {Object("module_one"), Object("module_two")};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::unique_ptr<CpuModule> kept;
      for (int i = 0; i < 50; ++i) {
        const int which = (t + i) % 2;
        auto module = LoadOrFail(objects[which]);
        ASSERT_NE(module, nullptr);
        EXPECT_EQ(Call(*module, "Answer"), which + 1);
        EXPECT_EQ(Call(*module, "Count"), 1);
        if (i % 3 == 0) kept = std::move(module);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace athanor
