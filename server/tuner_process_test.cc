#include "server/tuner_process.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tuner_channel.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr char kSignature[] =
    "void athanor_kernel(void* const* b, const long* s, long begin, long end, void* scratch,"
    " void* error)";

// y = x + x over n elements, with something else before it.
std::string Kernel(const std::string& body, const std::string& before = "") {
  return absl::StrCat(before, "\n", kSignature, " {\n const float* x = b[0]; float* y = b[1];\n",
                      body, "\n for (long i = begin; i < end; ++i) y[i] = x[i] + x[i];\n}\n");
}

v1::SizeExpr Scaled(int64_t coefficient, const std::string& symbol) {
  v1::SizeExpr e;
  auto* term = e.add_terms();
  term->set_coefficient(coefficient);
  if (!symbol.empty()) term->add_factors()->set_symbol(symbol);
  return e;
}

// The check of a kernel that should double n floats.
internal::CheckRequest DoublingCheck(const std::string& object) {
  Graph graph;
  graph.name = "double";
  graph.dims = {{"n", 1, 1000}};
  GraphBuilder builder(&graph);
  const NodeId x = builder.Input("x", {DType::kF32, {Expr::Symbol("n")}}).value();
  builder.Output("y", builder.Add(Op::kAdd, {x, x}).value());

  internal::CheckRequest request;
  request.set_graph_text(ToText(graph));
  request.add_objects(object);
  request.set_seed(7);
  for (int64_t n : {1, 37, 1000}) request.add_sizes()->add_values(n);
  v1::Plan* plan = request.mutable_plan();
  plan->set_format(1);
  plan->set_plan_id("p-0000000000000000");
  auto* dim = plan->add_dims();
  dim->set_name("n");
  dim->set_min(1);
  dim->set_max(1000);
  plan->add_kernels()->set_name("double");
  for (const char* name : {"x", "y"}) {
    v1::Buffer* buffer = plan->add_buffers();
    buffer->set_kind(*name == 'x' ? v1::Buffer::INPUT : v1::Buffer::OUTPUT);
    buffer->set_name(name);
    buffer->set_dtype("f32");
    *buffer->add_shape() = Scaled(1, "n");
    *buffer->mutable_bytes() = Scaled(4, "n");
  }
  v1::Step* step = plan->add_run();
  step->set_label("double");
  step->add_buffers(0);
  step->add_buffers(1);
  *step->mutable_grid() = Scaled(1, "n");
  auto* output = plan->add_outputs();
  output->set_name("y");
  output->set_buffer(1);
  return request;
}

TunerOptions TestOptions() {
  TunerOptions options;
  options.binary = "server/athanor-tuner";
  options.memory_limit = int64_t{1} << 30;
  options.compile_timeout = milliseconds(6000);
  options.check_timeout = milliseconds(4000);
  return options;
}

class TunerProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<TunerProcess>> tuner = TunerProcess::Start(TestOptions());
    ASSERT_TRUE(tuner.ok()) << tuner.status();
    tuner_ = *std::move(tuner);
    absl::StatusOr<internal::TargetReply> target = tuner_->Target();
    ASSERT_TRUE(target.ok()) << target.status();
    target_ = target->target();
  }

  absl::Status CompileAndCheck(const std::string& source) {
    absl::StatusOr<std::string> object = tuner_->Compile(source, target_);
    if (!object.ok()) return object.status();
    return tuner_->Check(DoublingCheck(*object));
  }

  std::unique_ptr<TunerProcess> tuner_;
  v1::Target target_;
};

TEST_F(TunerProcessTest, DescribesThisMachine) {
  absl::StatusOr<internal::TargetReply> reply = tuner_->Target();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->compiler_version(), HasSubstr("clang 19"));
  EXPECT_EQ(reply->target().device(), "cpu");
  EXPECT_FALSE(reply->target().cpu().empty());
  EXPECT_GE(reply->target().features_size(), 1);
  EXPECT_GE(reply->target().vector_bytes(), 16);
  EXPECT_GE(reply->target().vector_registers(), 16);
  EXPECT_GE(reply->target().l1_bytes(), 8 << 10);
  EXPECT_GE(reply->target().l2_bytes(), reply->target().l1_bytes());
  EXPECT_EQ(reply->target().threads(), 0);
}

// y = tanh(tanh(... x)), each but the last under a name of its own.
Graph Chain(int length, const std::string& dim = "n") {
  Graph graph;
  graph.name = "chain";
  graph.dims = {{dim, 1, 1000}};
  GraphBuilder builder(&graph);
  NodeId x = builder.Input("x", {DType::kF32, {Expr::Symbol(dim)}}).value();
  for (int i = 0; i < length; ++i) x = builder.Add(Op::kTanh, {x}).value();
  builder.Output("y", x);
  return graph;
}

// Takes seconds to lower.
const Graph& LongChain() {
  static const Graph* const graph = new Graph(Chain(60'000));
  return *graph;
}

// Lowers a chain of three, and runs what its reply asks for: the child is in order.
void ExpectLowers(TunerProcess& tuner, const v1::Target& target) {
  absl::StatusOr<internal::LowerReply> lowered = tuner.Lower(Chain(3, "batch.size"), target);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->plan().kind(), "baseline");
  ASSERT_EQ(lowered->plan().dims_size(), 1);
  EXPECT_EQ(lowered->plan().dims(0).name(), "batch.size");
  EXPECT_EQ(lowered->plan().dims(0).max(), 1000);
  ASSERT_GE(lowered->plan().kernels_size(), 1);
  ASSERT_EQ(lowered->checks_size(), lowered->plan().kernels_size());
  for (const internal::KernelCheck& check : lowered->checks()) {
    internal::CheckRequest request = check.request();
    EXPECT_EQ(request.objects_size(), 0);
    for (const v1::Kernel& kernel : request.plan().kernels()) {
      absl::StatusOr<std::string> object = tuner.Compile(kernel.source(), target);
      ASSERT_TRUE(object.ok()) << object.status();
      request.add_objects(*std::move(object));
    }
    EXPECT_TRUE(tuner.Check(request).ok()) << tuner.Check(request);
  }
}

TEST_F(TunerProcessTest, LowersGraphs) {
  for (int i = 0; i < 3; ++i) ExpectLowers(*tuner_, target_);
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST_F(TunerProcessTest, LoweringKeepsTheUsersNamesAndLiterals) {
  Graph graph;
  graph.dims = {{"b", 0, 7}, {"in", 2, 9}};
  GraphBuilder builder(&graph);
  const Shape shape = {Expr::Symbol("b"), Expr::Symbol("in"), 100};
  const NodeId x = builder.Input("x \"1\"", {DType::kF32, shape}).value();
  Tensor literal = Tensor::Zeros(DType::kF32, {100});
  for (int i = 0; i < 100; ++i) literal.data<uint32_t>()[i] = 0x7fc00001u + i;  // NaNs
  const NodeId c = builder.Constant(literal).value();
  const NodeId wide =
      builder.Add(Op::kIndexMap, {c}, {{"map", IndexMap{shape, {Expr::Axis(2)}}}}).value();
  builder.Output("z", builder.Add(Op::kMul, {x, wide}).value());
  builder.Output("literal", c);
  builder.Output("a", x);
  absl::StatusOr<internal::LowerReply> lowered = tuner_->Lower(graph, target_);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const v1::Plan& plan = lowered->plan();
  EXPECT_EQ(plan.graph_hash(), CanonicalHash(graph));
  ASSERT_EQ(plan.dims_size(), 2);
  for (const v1::DimRange& dim : plan.dims()) {
    EXPECT_EQ(dim.min(), dim.name() == "in" ? 2 : 0);
    EXPECT_EQ(dim.max(), dim.name() == "in" ? 9 : 7);
  }
  ASSERT_EQ(plan.outputs_size(), 3);
  EXPECT_EQ(plan.outputs(0).name(), "z");
  EXPECT_EQ(plan.outputs(1).name(), "literal");
  EXPECT_EQ(plan.outputs(2).name(), "a");
  EXPECT_EQ(plan.buffers(plan.outputs(1).buffer()).literal(), literal.bytes);
  EXPECT_EQ(plan.buffers(plan.outputs(2).buffer()).name(), "x \"1\"");
}

TEST_F(TunerProcessTest, LoweringThatTakesTooLongCostsTheCall) {
  TunerOptions options = TestOptions();
  options.lower_timeout = milliseconds(200);
  auto tuner = TunerProcess::Start(options);
  ASSERT_TRUE(tuner.ok()) << tuner.status();
  ASSERT_TRUE((*tuner)->Target().ok());
  const absl::Status status = (*tuner)->Lower(LongChain(), target_).status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("lowering the graph"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the 200 ms it may take"));
  ExpectLowers(**tuner, target_);
  EXPECT_EQ((*tuner)->starts(), 2);
}

TEST_F(TunerProcessTest, LoweringThatTakesTooMuchMemoryCostsTheCall) {
  TunerOptions options = TestOptions();
  options.memory_limit = int64_t{512} << 20;
  auto tuner = TunerProcess::Start(options);
  ASSERT_TRUE(tuner.ok()) << tuner.status();
  Graph graph = Chain(3);
  GraphBuilder builder(&graph);
  for (int i = 0; i < 2; ++i) {
    builder.Output(absl::StrCat("c", i),
                   builder.Constant(Tensor::Zeros(DType::kU8, {60 << 20})).value());
  }
  const absl::Status status = (*tuner)->Lower(graph, target_).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("lowering the graph"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than the 536870912 bytes of memory"));
  ExpectLowers(**tuner, target_);
  EXPECT_EQ((*tuner)->starts(), 2);
}

TEST_F(TunerProcessTest, LoweringBeyondTheMessageLimitsIsRefused) {
  TunerOptions options = TestOptions();
  options.max_graph_text_bytes = 20'000;
  options.max_reply_bytes = 20'000;
  auto tuner = TunerProcess::Start(options);
  ASSERT_TRUE(tuner.ok()) << tuner.status();
  absl::Status status = (*tuner)->Lower(Chain(2'000), target_).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("at most 20000 are lowered"));
  status = (*tuner)->Lower(Chain(600), target_).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("at most 20000 are sent"));
  ExpectLowers(**tuner, target_);
  EXPECT_EQ((*tuner)->starts(), 1);
}

TEST_F(TunerProcessTest, LoweringIsInterrupted) {
  std::thread interrupter([this] {
    std::this_thread::sleep_for(milliseconds(300));
    tuner_->Interrupt();
  });
  const absl::Status status = tuner_->Lower(LongChain(), target_).status();
  interrupter.join();
  EXPECT_EQ(status.code(), Code::kCancelled) << status;
  ExpectLowers(*tuner_, target_);
  EXPECT_EQ(tuner_->starts(), 2);
}

TEST_F(TunerProcessTest, ChildKilledWhileLoweringIsReplaced) {
  const Graph& graph = LongChain();
  std::thread killer([pid = tuner_->pid()] {
    std::this_thread::sleep_for(milliseconds(300));
    kill(pid, SIGKILL);
  });
  const absl::Status status = tuner_->Lower(graph, target_).status();
  killer.join();
  EXPECT_EQ(status.code(), Code::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("SIGKILL"));
  ExpectLowers(*tuner_, target_);
  EXPECT_EQ(tuner_->starts(), 2);
}

TEST_F(TunerProcessTest, CompilesAndChecksManyTimesInOneChild) {
  for (int i = 0; i < 10; ++i) {
    const std::string source = Kernel(absl::StrCat("(void)", i, ";"));
    EXPECT_TRUE(CompileAndCheck(source).ok()) << CompileAndCheck(source);
  }
  EXPECT_EQ(tuner_->starts(), 1);
}

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
  absl::StatusOr<double> exact = tuner_->CheckError(DoublingCheck(*object));
  ASSERT_TRUE(exact.ok()) << exact.status();
  EXPECT_EQ(*exact, 0);
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
      {"abort", Kernel("abort();", libc), {Code::kInternal}, "SIGABRT"},
      {"exit(0)", Kernel("exit(0);", libc), {Code::kInternal}, "status 0"},
      {"_exit(0)", Kernel("_exit(0);", libc), {Code::kInternal}, "status 0"},
      {"kills its parent", Kernel("kill(getppid(), 9);", libc), {Code::kInternal}, "SIGSYS"},
      {"kills its group", Kernel("kill(0, 9);", libc), {Code::kInternal}, "SIGSYS"},
      {"kills everyone", Kernel("kill(-1, 9);", libc), {Code::kInternal}, "SIGSYS"},
      {"kills itself", Kernel("kill(getpid(), 15);", libc), {Code::kInternal}, "SIGTERM"},
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
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = CompileAndCheck(row.source);
    EXPECT_THAT(row.codes, ::testing::Contains(status.code())) << status.ToString().substr(0, 400);
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.message));
    const absl::Status after = CompileAndCheck(good);
    EXPECT_TRUE(after.ok()) << after;
    const auto took =
        std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
    EXPECT_LT(took, milliseconds(30000));
    RecordProperty(row.name, absl::StrCat(took.count(), " ms ", status.ToString().substr(0, 120)));
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

TEST_F(TunerProcessTest, ChildKilledBetweenCallsIsReplaced) {
  const pid_t first = tuner_->pid();
  kill(first, SIGKILL);
  const absl::Status lost = CompileAndCheck(Kernel(""));
  EXPECT_EQ(lost.code(), Code::kInternal) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("SIGKILL"));
  EXPECT_TRUE(CompileAndCheck(Kernel("")).ok());
  EXPECT_NE(tuner_->pid(), first);
  EXPECT_EQ(tuner_->starts(), 2);
}

TEST_F(TunerProcessTest, InterruptEndsTheRunningCallOnly) {
  std::thread interrupter([this] {
    std::this_thread::sleep_for(milliseconds(500));
    tuner_->Interrupt();
  });
  const absl::Status status = CompileAndCheck(Kernel("for (;;) *(volatile float*)y = 1;"));
  interrupter.join();
  EXPECT_EQ(status.code(), Code::kCancelled) << status;
  tuner_->Interrupt();
  EXPECT_TRUE(CompileAndCheck(Kernel("")).ok());
}

TEST_F(TunerProcessTest, BadRequestsAreRefusedByName) {
  const std::string object = tuner_->Compile(Kernel(""), target_).value();
  internal::CheckRequest request = DoublingCheck(object);
  request.clear_objects();
  EXPECT_THAT(std::string(tuner_->Check(request).message()), HasSubstr("0 objects for 1 kernels"));
  request = DoublingCheck(object);
  request.mutable_sizes(0)->clear_values();
  EXPECT_THAT(std::string(tuner_->Check(request).message()), HasSubstr("0 sizes for 1 dims"));
  request = DoublingCheck(object);
  request.set_graph_text("no graph");
  EXPECT_EQ(tuner_->Check(request).code(), Code::kInvalidArgument);
  request = DoublingCheck(object);
  request.mutable_plan()->mutable_outputs(0)->set_name("z");
  EXPECT_THAT(std::string(tuner_->Check(request).message()), HasSubstr("output \"z\""));
  request = DoublingCheck("no object");
  EXPECT_EQ(tuner_->Check(request).code(), Code::kInvalidArgument);
  v1::Target unknown = target_;
  unknown.set_cpu("pentium-99");
  EXPECT_THAT(std::string(tuner_->Compile(Kernel(""), unknown).status().message()),
              HasSubstr("pentium-99"));
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST(TunerProcessStartTest, MissingBinaryIsNamed) {
  TunerOptions options;
  options.binary = "/nowhere/athanor-tuner";
  absl::StatusOr<std::unique_ptr<TunerProcess>> tuner = TunerProcess::Start(options);
  EXPECT_EQ(tuner.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(tuner.status().message()), HasSubstr("/nowhere/athanor-tuner"));
}

// A child that answers nonsense: a shell script in its place.
TEST(TunerProcessStartTest, NonsenseFromTheChild) {
  const struct {
    const char* script;
    const char* message;
  } rows[] = {
      {"printf '\\377\\377\\377\\377' >&3; sleep 9", "a frame of 4294967295 bytes"},
      {"printf '\\003\\0\\0\\0\\377\\377\\377' >&3; sleep 9", "does not parse"},
      {"printf '\\0\\0\\0\\0' >&3; sleep 9", "without a value"},
      {"printf '\\002\\0\\0\\0\\010\\143' >&3; sleep 9", "code 99"},
      {"exit 3", "exit status 3"},
      {"echo last words >&2; exit 1", "last words"},
      {"printf '\\377\\0\\0\\0half' >&3", "exit status 0"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.script);
    const std::string path = ::testing::TempDir() + "/script";
    std::ofstream(path) << "#!/bin/sh\n" << row.script << "\n";
    chmod(path.c_str(), 0700);
    TunerOptions options;
    options.binary = path;
    auto tuner = TunerProcess::Start(options);
    ASSERT_TRUE(tuner.ok()) << tuner.status();
    const absl::Status status = (*tuner)->Target().status();
    EXPECT_EQ(status.code(), Code::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.message));
  }
}

// The CPU computes every dtype there is, so a script says it.
TEST(TunerProcessStartTest, WhatThePipelineRefusesComesThroughAsItIs) {
  const std::string path = ::testing::TempDir() + "/script";
  std::ofstream(path) << "#!/bin/sh\nprintf "
                         "'\\023\\0\\0\\0\\010\\014\\022\\017x (Sin): no f64' >&3; sleep 9\n";
  chmod(path.c_str(), 0700);
  TunerOptions options;
  options.binary = path;
  auto tuner = TunerProcess::Start(options);
  ASSERT_TRUE(tuner.ok()) << tuner.status();
  EXPECT_EQ((*tuner)->Lower(Chain(3), v1::Target()).status(),
            absl::UnimplementedError("x (Sin): no f64"));
  EXPECT_GE((*tuner)->pid(), 0);
}

TEST(TunerProcessStartTest, NonsenseInsteadOfAPlan) {
  // A description of a machine, no plan, and a check of a kernel that the plan lacks.
  for (const char* reply : {"\\002\\0\\0\\0\\052\\0", "\\002\\0\\0\\0\\062\\0",
                            "\\010\\0\\0\\0\\062\\006\\012\\0\\022\\002\\010\\005"}) {
    SCOPED_TRACE(reply);
    const std::string path = ::testing::TempDir() + "/script";
    std::ofstream(path) << "#!/bin/sh\nprintf '" << reply << "' >&3; sleep 9\n";
    chmod(path.c_str(), 0700);
    TunerOptions options;
    options.binary = path;
    auto tuner = TunerProcess::Start(options);
    ASSERT_TRUE(tuner.ok()) << tuner.status();
    const absl::Status status = (*tuner)->Lower(Chain(3), v1::Target()).status();
    EXPECT_EQ(status.code(), Code::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("its plan and checks do not fit"));
  }
}

TEST(TunerProcessStartTest, DiesWithItsOwner) {
  pid_t pid;
  {
    auto tuner = TunerProcess::Start(TestOptions());
    ASSERT_TRUE(tuner.ok());
    pid = (*tuner)->pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(TunerChannelTest, FramesAndDeadlines) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  internal::TunerRequest request;
  request.mutable_compile()->set_source("int x;");
  ASSERT_TRUE(WriteFrame(ends[0], request, {}).ok());
  internal::TunerRequest back;
  ASSERT_TRUE(back.ParseFromString(ReadFrame(ends[1], 100, {}).value()));
  EXPECT_EQ(back.compile().source(), "int x;");
  const auto soon = std::chrono::steady_clock::now() + milliseconds(50);
  EXPECT_EQ(ReadFrame(ends[1], 100, {.deadline = soon}).status().code(), Code::kDeadlineExceeded);
  ASSERT_TRUE(WriteFrame(ends[0], request, {}).ok());
  EXPECT_EQ(ReadFrame(ends[1], 3, {}).status().code(), Code::kDataLoss);
  // More than the socket holds, and nobody reads.
  request.mutable_compile()->set_source(std::string(8 << 20, 'x'));
  EXPECT_EQ(WriteFrame(ends[0], request,
                       {.deadline = std::chrono::steady_clock::now() + milliseconds(50)})
                .code(),
            Code::kDeadlineExceeded);
  close(ends[1]);
  EXPECT_EQ(WriteFrame(ends[0], request, {}).code(), Code::kUnavailable);
  EXPECT_EQ(ReadFrame(ends[0], 100, {}).status().code(), Code::kUnavailable);
  close(ends[0]);
}

}  // namespace
}  // namespace athanor
