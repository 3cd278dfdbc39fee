#include "compiler/codegen/cpu/clang.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Compiles a kernel for this machine and loads it with a small loader of the test's own.
class Kernel {
 public:
  explicit Kernel(absl::string_view source, const ClangOptions& options = {}) {
    absl::StatusOr<std::string> object = CompileToSharedObject(source, HostCpuTarget(), options);
    EXPECT_TRUE(object.ok()) << object.status();
    if (!object.ok()) return;
    const int fd = memfd_create("kernel", MFD_CLOEXEC);
    EXPECT_EQ(write(fd, object->data(), object->size()), static_cast<ssize_t>(object->size()));
    static int loads = 0;
    handle_ = dlopen(absl::StrCat("/proc/self/fd/", std::string(++loads, '/'), fd).c_str(),
                     RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle_, nullptr) << dlerror();
    close(fd);
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel() {
    if (handle_ != nullptr) dlclose(handle_);
  }

  template <typename Function>
  Function* Get(const char* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_ = nullptr;
};

absl::Status CompileError(absl::string_view source, const CpuTarget& target = HostCpuTarget(),
                          const ClangOptions& options = {}) {
  return CompileToSharedObject(source, target, options).status();
}

CpuTarget Aarch64() { return {"aarch64-unknown-linux-gnu", "generic", {}}; }

size_t OpenDescriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

TEST(ClangTest, KernelRuns) {
  Kernel kernel("void twice(float* x) { *x += *x; }");
  auto* twice = kernel.Get<void(float*)>("twice");
  ASSERT_NE(twice, nullptr);
  float x = 21;
  twice(&x);
  EXPECT_EQ(x, 42);
}

TEST(ClangTest, HostTargetIsThisMachine) {
  const CpuTarget target = HostCpuTarget();
  EXPECT_THAT(target.triple, HasSubstr("linux"));
  EXPECT_FALSE(target.cpu.empty());
#if defined(__x86_64__)
  const auto has = [&](const std::string& feature) {
    return std::count(target.features.begin(), target.features.end(), feature);
  };
  EXPECT_EQ(has("+avx2"), __builtin_cpu_supports("avx2") ? 1 : 0);
  EXPECT_EQ(has("+avx512f"), __builtin_cpu_supports("avx512f") ? 1 : 0);
#endif
}

TEST(ClangTest, VersionIsClang19) { EXPECT_EQ(ClangVersion().substr(0, 3), "19."); }

// The register tile that every f32 contraction is made of.
constexpr char kTile[] = R"(
typedef float v16 __attribute__((ext_vector_type(16)));
typedef float v16u __attribute__((ext_vector_type(16), aligned(4)));
void tile(const float* a, const float* b, float* c, long k) {
  v16 acc[12][2];
#pragma clang loop unroll(full)
  for (int i = 0; i < 12; ++i) acc[i][0] = acc[i][1] = (v16)0.0f;
  for (long p = 0; p < k; ++p) {
    v16 b0 = *(const v16u*)(b + p * 32), b1 = *(const v16u*)(b + p * 32 + 16);
#pragma clang loop unroll(full)
    for (int i = 0; i < 12; ++i) {
      v16 x = (v16)a[p * 12 + i];
      acc[i][0] = __builtin_elementwise_fma(x, b0, acc[i][0]);
      acc[i][1] = __builtin_elementwise_fma(x, b1, acc[i][1]);
    }
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < 12; ++i) {
    *(v16u*)(c + i * 32) = acc[i][0];
    *(v16u*)(c + i * 32 + 16) = acc[i][1];
  }
}
)";

TEST(ClangTest, RegisterTileIsRight) {
  Kernel kernel(kTile);
  auto* tile = kernel.Get<void(const float*, const float*, float*, long)>("tile");
  ASSERT_NE(tile, nullptr);
  constexpr int kDepth = 37;
  std::vector<float> a(kDepth * 12), b(kDepth * 32), c(12 * 32, -1);
  for (size_t i = 0; i < a.size(); ++i) a[i] = std::sin(0.7f * i);
  for (size_t i = 0; i < b.size(); ++i) b[i] = std::cos(0.3f * i);
  tile(a.data(), b.data(), c.data(), kDepth);
  for (int i = 0; i < 12; ++i) {
    for (int j = 0; j < 32; ++j) {
      float expected = 0;
      for (int p = 0; p < kDepth; ++p) {
        expected = std::fma(a[p * 12 + i], b[p * 32 + j], expected);
      }
      EXPECT_EQ(c[i * 32 + j], expected) << i << "," << j;
    }
  }
}

TEST(ClangTest, CallsLibm) {
  Kernel kernel("float erff(float); float f(float x) { return erff(x); }");
  auto* f = kernel.Get<float(float)>("f");
  ASSERT_NE(f, nullptr);
  EXPECT_NEAR(f(0.5f), 0.5204999f, 1e-6f);
}

#if defined(__x86_64__) && defined(__GLIBC__)
TEST(ClangTest, CallsVectorMath) {
  Kernel kernel(R"(
typedef float v4 __attribute__((ext_vector_type(4)));
v4 _ZGVbN4v_expf(v4);
void f(float* x) { *(v4*)x = _ZGVbN4v_expf(*(const v4*)x); }
)");
  auto* f = kernel.Get<void(float*)>("f");
  ASSERT_NE(f, nullptr);
  alignas(16) float x[4] = {0, 1, -std::numeric_limits<float>::infinity(), 2};
  f(x);
  EXPECT_EQ(x[0], 1);
  EXPECT_NEAR(x[1], 2.7182818f, 1e-6f);
  EXPECT_EQ(x[2], 0);
  EXPECT_NEAR(x[3], 7.389056f, 3e-6f);
}
#endif

TEST(ClangTest, GeneratedLibcCallsResolve) {
  Kernel kernel("void clear(char* x, long n) { for (long i = 0; i < n; ++i) x[i] = 0; }");
  auto* clear = kernel.Get<void(char*, long)>("clear");
  ASSERT_NE(clear, nullptr);
  std::string text(100, 'x');
  clear(text.data(), 99);
  EXPECT_EQ(text, std::string(99, '\0') + "x");
}

// Neither operation has an instruction on every x86-64, so both become library calls.
TEST(ClangTest, CompilerSupportCallsResolve) {
  for (CpuTarget target : {HostCpuTarget(), CpuTarget{}}) {
    if (target.triple.empty()) target.triple = HostCpuTarget().triple;
    EXPECT_TRUE(CompileError("_Float16 f(double x) { return x; }\n"
                             "__int128 g(__int128 a, __int128 b) "
                             "{ return a / b; }\n"
                             "float h(float a, float b, float c) "
                             "{ return __builtin_fmaf(a, b, c); }",
                             target)
                    .ok());
  }
}

TEST(ClangTest, ArithmeticIsTheSourcesUnlessFastMath) {
  constexpr char kSource[] =
      "float f(float a, float b, float c) { return a * b + c; }\n"
      "int nan(float x) { return x != x; }";
  Kernel exact(kSource);
  auto* f = exact.Get<float(float, float, float)>("f");
  auto* nan = exact.Get<int(float)>("nan");
  ASSERT_NE(f, nullptr);
  ASSERT_NE(nan, nullptr);
  const float a = 1 + std::ldexp(1.0f, -12);
  const float c = -(1 + std::ldexp(1.0f, -11));
  EXPECT_EQ(f(a, a, c), 0) << "the product must be rounded before the sum";
  EXPECT_EQ(nan(std::numeric_limits<float>::quiet_NaN()), 1);

  ClangOptions options;
  options.fast_math = true;
  Kernel fast(kSource, options);
  auto* fast_nan = fast.Get<int(float)>("nan");
  ASSERT_NE(fast_nan, nullptr);
  EXPECT_EQ(fast_nan(std::numeric_limits<float>::quiet_NaN()), 0);
}

TEST(ClangTest, SameInputSameBytes) {
  absl::StatusOr<std::string> first = CompileToSharedObject(kTile, HostCpuTarget(), {});
  absl::StatusOr<std::string> second = CompileToSharedObject(kTile, HostCpuTarget(), {});
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*first, *second);
}

TEST(ClangTest, SourceNeedNotEndWithNul) {
  const std::string text = "int f(void) { return 7; }garbage";
  EXPECT_TRUE(
      CompileToSharedObject(absl::string_view(text).substr(0, text.size() - 7), HostCpuTarget(), {})
          .ok());
}

TEST(ClangTest, LeavesNothingOpen) {
  ASSERT_TRUE(CompileError("int f(void) { return 1; }").ok());
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(CompileError("int f(void) { return 1; }").ok());
    EXPECT_FALSE(CompileError("int f(void) { return x; }").ok());
    EXPECT_FALSE(CompileError("int g(void); int f(void) { return g(); }").ok());
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(ClangTest, SyntaxErrorSaysWhere) {
  ClangOptions options;
  options.source_name = "softmax.c";
  const absl::Status status =
      CompileError("void f(void) {\n  retrun;\n}", HostCpuTarget(), options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("softmax.c:2:3"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("retrun"));
}

TEST(ClangTest, UndefinedSymbolIsNamed) {
  const absl::Status status = CompileError(
      "int absent_function(int);\n"
      "int f(int x) { return absent_function(x); }");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("absent_function"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("kernel.o"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("/proc/")));
}

TEST(ClangTest, UndeclaredFunctionIsRefused) {
  const absl::Status status = CompileError("int f(int x) { return g(x); }");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'g'"));
}

TEST(ClangTest, SourceCannotReadFiles) {
  for (const char* path : {"\"/etc/passwd\"", "<stdio.h>", "<stddef.h>"}) {
    const absl::Status status = CompileError(absl::StrCat("#include ", path));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(status.message()), HasSubstr("file not found"));
  }
}

TEST(ClangTest, CppRuns) {
  ClangOptions options;
  options.cpp = true;
  Kernel kernel(R"(
      template <typename T> struct Pair { T first, second; T Sum() const { return first + second; } };
      extern "C" int sum(int x) {
        const auto pair = [=] { return Pair<int>{x, 2}; }();
        if constexpr (sizeof(x) == 4) return pair.Sum();
        return 0;
      })",
                options);
  auto* sum = kernel.Get<int(int)>("sum");
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(sum(40), 42);
}

TEST(ClangTest, CppHasNoExceptionsTypesOrLibrary) {
  ClangOptions options;
  options.cpp = true;
  for (const char* source :
       {"void f() { throw 1; }", "#include <typeinfo>",
        "struct A { virtual int g(); }; bool f(A* a) { return dynamic_cast<struct B*>(a); }",
        "#include <cstdint>", "#include \"/etc/passwd\"",
        "asm(\".incbin \\\"/etc/passwd\\\"\");"}) {
    EXPECT_EQ(CompileError(source, HostCpuTarget(), options).code(),
              absl::StatusCode::kInvalidArgument)
        << source;
  }
}

TEST(ClangTest, HeadersAreIncludedByTheirNames) {
  ClangOptions options;
  // From a header's own folder, and from the root.
  options.headers = {{"a/outer.h", "#include \"inner.h\"\n#include \"a/inner.h\"\n"},
                     {"a/inner.h", "#pragma once\nenum { kValue = 42 };"}};
  for (const bool cpp : {false, true}) {
    options.cpp = cpp;
    Kernel kernel(absl::StrCat("#include \"a/outer.h\"\n", cpp ? "extern \"C\" " : "",
                               "int value() { return kValue; }"),
                  options);
    auto* value = kernel.Get<int()>("value");
    ASSERT_NE(value, nullptr);
    EXPECT_EQ(value(), 42);
    for (const char* name : {"inner.h", "a/other.h", "/etc/passwd"}) {
      EXPECT_THAT(std::string(CompileError(absl::StrCat("#include \"", name, "\""), HostCpuTarget(),
                                           options)
                                  .message()),
                  HasSubstr("file not found"))
          << name;
    }
  }
}

TEST(ClangTest, AnErrorInAHeaderNamesIt) {
  ClangOptions options;
  options.headers = {{"broken.h", "int f(void) {\n  retrun;\n}"}};
  EXPECT_THAT(
      std::string(CompileError("#include \"broken.h\"", HostCpuTarget(), options).message()),
      HasSubstr("broken.h:2:3"));
}

TEST(ClangTest, InlineAssemblyIsRefused) {
  for (const char* source :
       {"__asm__(\".incbin \\\"/etc/passwd\\\"\");", "void f(void) { __asm__(\"nop\"); }"}) {
    const absl::Status status = CompileError(source);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << source;
    EXPECT_THAT(std::string(status.message()), HasSubstr("inline assembly"));
  }
}

TEST(ClangTest, LongMessagesAreCut) {
  std::string source;
  for (int i = 0; i < 18; ++i) {
    absl::StrAppend(&source, "int a", i, " = ", std::string(1000, 'x'), ";\n");
  }
  const absl::Status status = CompileError(source);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_LT(status.message().size(), 5000);
  EXPECT_THAT(std::string(status.message()), HasSubstr("[...]"));
}

TEST(ClangTest, UnknownTargetsAndOptionsAreNamed) {
  constexpr char kSource[] = "int f(void) { return 1; }";
  CpuTarget target = HostCpuTarget();
  target.triple = "vax-dec-ultrix";
  EXPECT_THAT(std::string(CompileError(kSource, target).message()), HasSubstr("vax-dec-ultrix"));
  target = HostCpuTarget();
  target.cpu = "abacus";
  EXPECT_THAT(std::string(CompileError(kSource, target).message()), HasSubstr("'abacus'"));
  for (const char* feature : {"+beads", "beads", "", "avx2", "+"}) {
    target = HostCpuTarget();
    target.features.push_back(feature);
    const absl::Status status = CompileError(kSource, target);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("'", feature, "'")));
  }
  ClangOptions options;
  options.opt_level = 4;
  EXPECT_THAT(std::string(CompileError(kSource, HostCpuTarget(), options).message()),
              HasSubstr("opt_level is 4"));
}

TEST(ClangTest, CompilesForAnotherArchitecture) {
  absl::StatusOr<std::string> object = CompileToSharedObject(kTile, Aarch64(), {});
  ASSERT_TRUE(object.ok()) << object.status();
  ASSERT_GT(object->size(), sizeof(Elf64_Ehdr));
  Elf64_Ehdr header;
  std::memcpy(&header, object->data(), sizeof(header));
  EXPECT_EQ(header.e_machine, EM_AARCH64);
  EXPECT_EQ(header.e_type, ET_DYN);

  const absl::Status status =
      CompileError("float erff(float); float f(float x) { return erff(x); }", Aarch64());
  EXPECT_THAT(std::string(status.message()), HasSubstr("erff"));
}

// Long sources are compiled with other options, which must not stay for the next one.
TEST(ClangTest, ALongSourceChangesNothingForTheNext) {
  const std::string kernel =
      "void sum(const float* x, float* y, long n) {"
      "  for (long i = 0; i < n; ++i) y[3 * i] += x[5 * i];"
      "}";
  const std::string padded = kernel + std::string(50'000, ' ');
  const auto compile = [](const std::string& source) {
    return CompileToSharedObject(source, HostCpuTarget(), {}).value();
  };
  const std::string before = compile(kernel);
  Kernel lengthy(padded);
  float x[6] = {1, 0, 0, 0, 0, 2}, y[4] = {};
  lengthy.Get<void(const float*, float*, long)>("sum")(x, y, 2);
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[3], 2);
  EXPECT_EQ(compile(kernel), before);
}

}  // namespace
}  // namespace athanor
