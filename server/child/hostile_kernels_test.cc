// Kernels that are wrong, and worse: each costs its candidate, none the tuner or what is beside it.
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/child/tuner_process.h"
#include "server/child/tuner_process_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

TEST_F(TunerProcessTest, WrongValuesAreFound) {
  const struct {
    const char* body;
    const char* message;
  } rows[] = {
      {"for (long i = begin; i < end; ++i) y[i] = x[i]; return;", "output \"y\""},
      {"for (long i = begin; i < end; ++i) y[i] = 2.00001f * x[i]; return;", "off by"},
      {"if (begin < 36 && end > 36) end = 36;", "of 37"},  // one element never written
      {"for (long i = begin; i < end; ++i) y[i] = 0.0f / 0.0f; return;", "nan"},
      {"y[-1] = 1;", "written before its beginning"},
  };
  for (const auto& row : rows) {
    const absl::Status status = CompileAndCheck(Kernel(row.body));
    EXPECT_EQ(status.code(), Code::kDataLoss) << row.body << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.message)) << row.body;
  }
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST_F(TunerProcessTest, ErrorIsInUnitsOfTheTolerance) {
  absl::StatusOr<std::string> object = tuner_->Compile(Kernel(""), target_);
  ASSERT_TRUE(object.ok()) << object.status();
  absl::StatusOr<internal::CheckReply> exact = tuner_->CheckReport(DoublingCheck(*object));
  ASSERT_TRUE(exact.ok()) << exact.status();
  EXPECT_EQ(exact->worst_error(), 0);
}

// More ways to be a bad neighbour than any kernel has had in earnest. Each costs its candidate.
TEST_F(TunerProcessTest, HostileKernels) {
  const std::string deep_macros = [] {
    std::string text = "#define M0 x[0] = x[0] * 1.5f + 2.0f;\n";
    for (int i = 1; i < 12; ++i) {
      absl::StrAppend(&text, "#define M", i);
      for (int j = 0; j < 8; ++j) absl::StrAppend(&text, " M", i - 1);
      absl::StrAppend(&text, "\n");
    }
    return text + "void f(float* x) { M11 }\n";
  }();
  const std::string libc =
      "extern int kill(int, int); extern int getpid(void); extern int getppid(void);"
      "extern int fork(void); extern void abort(void); extern void exit(int);"
      "extern void _exit(int); extern void* malloc(unsigned long); extern int close(int);"
      "extern long write(int, const void*, unsigned long); extern int open(const char*, int, ...);"
      "extern void* memset(void*, int, unsigned long); extern int raise(int);"
      "extern int socket(int, int, int); extern void* signal(int, void*);"
      "extern int execl(const char*, const char*, ...); extern int unlink(const char*);"
      "extern int setrlimit(int, const void*); extern long syscall(long, ...);"
      "extern int setpgid(int, int); extern int memfd_create(const char*, unsigned);"
      "extern int _setjmp(void*); extern void longjmp(void*, int);";
  const struct {
    const char* name;
    std::string source;
    std::vector<Code> codes;
    const char* message;
  } rows[] = {
      {"endless loop", Kernel("for (;;) *(volatile float*)y = 1;"), {Code::kDeadlineExceeded}, ""},
      {"endless sleep",
       Kernel("for (;;) pause();", "extern int pause(void);"),
       {Code::kDeadlineExceeded},
       ""},
      {"nested macros", deep_macros, {Code::kDeadlineExceeded, Code::kResourceExhausted}, ""},
      {"huge array",
       "char f[1ul << 36] = {1}; " + Kernel(""),
       {Code::kResourceExhausted, Code::kInvalidArgument, Code::kInternal, Code::kDeadlineExceeded},
       ""},
      {"huge unrolling",
       Kernel("_Pragma(\"clang loop unroll(full)\") for (int i = 0; i < 200000; ++i)"
              " _Pragma(\"clang loop unroll(full)\") for (int j = 0; j < 1000; ++j)"
              " y[(i * j) & 7] += x[(i ^ j) & 7];"),
       // Clang may also refuse to unroll; then the loop only takes long, or is wrong.
       {Code::kDeadlineExceeded, Code::kResourceExhausted, Code::kInternal, Code::kDataLoss},
       ""},
      {"deep parentheses",
       Kernel("y[0] = " + std::string(200000, '(') + "1" + std::string(200000, ')') + ";"),
       {Code::kInvalidArgument, Code::kInternal},
       ""},
      {"deep unary operators",
       Kernel("y[0] = " + std::string(400000, '!') + "1;"),
       {Code::kInternal, Code::kInvalidArgument},
       ""},
      {"20 GB touched",
       Kernel("for (int i = 0; i < 20; ++i) { volatile char* p = malloc(1ul << 30);"
              " for (long j = 0; j < 1l << 30; j += 4096) p[j] = 1; }",
              libc),
       // Fresh pages come slowly on some machines.
       {Code::kResourceExhausted, Code::kDeadlineExceeded},
       ""},
      {"20 GB in one",
       Kernel("volatile char* p = malloc(20ul << 30);"
              " for (long j = 0; j < 20l << 30; j += 4096) p[j] = 1;",
              libc),
       {Code::kResourceExhausted, Code::kInternal, Code::kDeadlineExceeded},
       ""},
      {"wild write", Kernel("*(volatile int*)0x123456789000 = 1;"), {Code::kInternal}, "SIGSEGV"},
      {"wild read",
       Kernel("y[0] = *(volatile float*)0x123456789000;"),
       {Code::kInternal},
       "SIGSEGV"},
      {"read past the end",
       Kernel("y[0] = *(volatile float*)&x[s == 0 ? 1000 : 1 << 12];"),
       {Code::kInternal},
       "SIGSEGV"},
      {"write past the end",
       Kernel("for (long i = begin; i < end + 1; ++i) y[i] = 0;"),
       {Code::kInternal},
       "SIGSEGV"},
      {"write to an input", Kernel("*(volatile float*)x = 1;"), {Code::kInternal}, "SIGSEGV"},
      {"null call",
       Kernel("((void (*)(void))s)(); ((void (*)(void))scratch)();"),
       {Code::kInternal},
       "SIGSEGV"},
      {"stack overflow",
       Kernel("volatile char a[1 << 30]; for (int i = 0; i < 1 << 30; i += 4096)"
              " a[i] = 1;"),
       {Code::kInternal},
       "SIGSEGV"},
      {"infinite recursion",
       Kernel("y[0] = f(1);",
              "__attribute__((noinline)) float f(int n) { volatile int a[64];"
              " a[n & 63] = n; return n ? f(n + 2) + a[n & 63] : 0; }"),
       {Code::kInternal},
       "SIGSEGV"},
      {"division trap",
       Kernel("volatile int z = 0; volatile int q = 7 / z;"),
       {Code::kInternal},
       "SIGFPE"},
      {"illegal instruction", Kernel("__builtin_trap();"), {Code::kInternal}, "SIGILL"},
      {"abort", Kernel("abort();", libc), {Code::kInternal}, "SIG"},
      {"exit(0)", Kernel("exit(0);", libc), {Code::kInternal}, "status 0"},
      {"_exit(0)", Kernel("_exit(0);", libc), {Code::kInternal}, "status 0"},
      {"kills its parent", Kernel("kill(getppid(), 9);", libc), {Code::kInternal}, "SIGSYS"},
      {"kills its group", Kernel("kill(0, 9);", libc), {Code::kInternal}, "SIGSYS"},
      {"kills everyone", Kernel("kill(-1, 9);", libc), {Code::kInternal}, "SIGSYS"},
      {"kills itself", Kernel("kill(getpid(), 15);", libc), {Code::kInternal}, "SIGSYS"},
      {"fork bomb", Kernel("for (;;) fork();", libc), {Code::kInternal}, "SIGSYS"},
      {"fork by clone3",
       Kernel("if (syscall(435, 0, 0) == -1) fork();", libc),
       {Code::kInternal},
       "SIGSYS"},
      {"opens a socket", Kernel("socket(2, 1, 0);", libc), {Code::kInternal}, "SIGSYS"},
      {"starts a program",
       Kernel("execl(\"/bin/true\", \"true\", (void*)0);", libc),
       {Code::kInternal},
       "SIGSYS"},
      {"leaves its group", Kernel("setpgid(0, 0);", libc), {Code::kInternal}, "SIGSYS"},
      {"raises its limits",
       Kernel("long l[2] = {-1, -1}; setrlimit(0, l);", libc),
       {Code::kInternal},
       "SIGSYS"},
      {"huge output",
       Kernel("static char a[1 << 20]; int f = memfd_create(\"a\", 0);"
              " for (int i = 0; i < 1 << 20; ++i) write(f, a, 1 << 20);",
              libc),
       {Code::kInternal},
       "SIGXFSZ"},
      {"signal handlers",
       Kernel("for (int i = 1; i < 32; ++i) signal(i, h); *(volatile int*)8 = 1;",
              libc + "static void h(int n) { for (;;); }"),
       {Code::kDeadlineExceeded},
       ""},
      {"longjmp",
       Kernel("static long j[64]; if (!_setjmp(j)) f(j);"
              " for (int i = 0; i < 100; ++i) longjmp((void*)((char*)x - 64), 1);",
              libc + "__attribute__((noinline)) static void f(void* j) { longjmp(j, 1); }"),
       {Code::kInternal},
       "SIG"},
      {"runs when loaded",
       Kernel("",
              libc + "__attribute__((constructor)) static void f(void) { kill(getppid(), 9); }"),
       {Code::kInternal},
       "SIGSYS"},
      {"broken source", "void athanor_kernel( {", {Code::kInvalidArgument}, "error:"},
      {"no kernel",
       "int x;",
       {Code::kNotFound, Code::kInvalidArgument, Code::kFailedPrecondition, Code::kInternal},
       "athanor_kernel"},
      {"undefined symbol",
       Kernel("nowhere();", "extern void nowhere(void);"),
       {Code::kInvalidArgument},
       "nowhere"},
      {"reads a file", "#include \"/etc/passwd\"\n" + Kernel(""), {Code::kInvalidArgument}, "file"},
      {"bytes that are no text",
       std::string("\xff\xfe\0\x80", 4) + Kernel(""),
       {Code::kInvalidArgument},
       "UTF-8"},
      {"100 MB", std::string(100 << 20, ' ') + Kernel(""), {Code::kInvalidArgument}, "at most"},
  };
  const std::string good = Kernel("");
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const int64_t children = tuner_->starts();
    const absl::Status status = CompileAndCheck(row.source);
    EXPECT_THAT(row.codes, ::testing::Contains(status.code())) << status.ToString().substr(0, 400);
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.message));
    const absl::Status after = CompileAndCheck(good);
    EXPECT_TRUE(after.ok()) << after;
    // At most the child that had it; where nothing ended it, neither would this test end.
    EXPECT_LE(tuner_->starts(), children + 1);
    RecordProperty(row.name, status.ToString().substr(0, 120));
  }
}

// What a hostile kernel does silently, and is neither seen nor gains anything by.
TEST_F(TunerProcessTest, HarmlessTricksPass) {
  const std::string libc =
      "extern int close(int); extern long write(int, const void*, unsigned long);"
      "extern int open(const char*, int, ...); extern int unlink(const char*);"
      "extern int prctl(int, long, long, long, long);";
  const std::string victim = ::testing::TempDir() + "/victim";
  std::ofstream(victim) << "mine";
  const std::string sources[] = {
      Kernel("for (int i = 0; i < 64; ++i) write(i, \"garbage\", 7);", libc),
      Kernel("for (int i = 0; i < 64; ++i) close(i);", libc),
      Kernel(absl::StrCat("int f = open(\"", victim,
                          "\", 01001); write(f, \"theirs\", 6); unlink(\"", victim, "\");"),
             libc),
      Kernel("prctl(1, 0, 0, 0, 0);", libc),
  };
  for (const std::string& source : sources) {
    const absl::Status status = CompileAndCheck(source);
    EXPECT_TRUE(status.ok()) << status << "\n" << source;
  }
  EXPECT_EQ(tuner_->starts(), 1);
  std::string content;
  std::ifstream(victim) >> content;
  EXPECT_EQ(content, "mine");
}

}  // namespace
}  // namespace athanor
