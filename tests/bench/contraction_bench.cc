// Compares f32 contractions with OpenBLAS, alternating in one process. Checks values first.
//
//   contraction_bench [--json] [--rounds N] [--search SECONDS] [--threads N] [--only MxNxK]
//
// Prints a row per size, kind and number of threads (one and all). Kind "inputs" takes both
// operands in every call, as sgemm does; in kind "weight" the right operand is known ahead. Our
// side runs the baseline plan; with --search also the best plan that a search of that many seconds
// finds (search_plan, which lies beside this binary). A product of one row is compared with the
// faster of sgemm and sgemv. Each round also measures the machine's limits: the multiply-add peak,
// and for few rows the memory bandwidth. Times are processor time for one thread, wall time for
// more (machine_limits.h).
#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/value/digest.h"
#include "tests/bench/inprocess.h"
#include "tests/bench/machine_limits.h"

extern "C" void openblas_set_num_threads(int);

namespace athanor {
namespace {

[[noreturn]] void Fail(const std::string& text) {
  std::fprintf(stderr, "contraction_bench: %s\n", text.c_str());
  std::exit(1);
}

struct Arguments {
  bool json = false;
  int rounds = 15;
  double search = 0;  // seconds; 0: no search
  int threads = 0;    // 0: with one thread, then with all
  std::string only;
  std::filesystem::path folder;  // folder of this binary
};

struct Case {
  int64_t m, n, k;
  bool weight;
  int threads;

  int64_t bytes() const { return 4 * (m * k + k * n + m * n); }  // each operand once
  double flops() const { return 2.0 * m * n * k; }
  bool few_rows() const { return m <= 16; }
  std::string name() const { return absl::StrCat(m, "x", n, "x", k); }
};

// Magnitude that the server would find for weights with such values
// (compiler/ir/graph/magnitude.h).
constexpr int kMagnitude = 20;

// Fills with reproducible values in [-1, 1).
void Fill(const HugeBuffer& buffer, uint64_t state) {
  for (int64_t i = 0; i < buffer.bytes() / 4; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    buffer.floats()[i] = static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
  }
}

// The operands, read by all sides, and a result of each side.
struct Operands {
  explicit Operands(const Case& c) : a(4 * c.m * c.k), b(4 * c.k * c.n) {
    Fill(a, 1);
    Fill(b, 2);
  }
  HugeBuffer a, b;
};

v1::Graph GraphOf(const Case& c, const Operands& operands) {
  Graph g;
  GraphBuilder builder(&g);
  NodeId x = builder.Input("a", {DType::kF32, {c.m, c.k}}).value();
  TensorType right{DType::kF32, {c.k, c.n}};
  NodeId w = c.weight ? builder.Parameter("b", right).value() : builder.Input("b", right).value();
  builder.Output("c",
                 builder.Add(Op::kContract, {x, w}, {{"spec", std::string("mk,kn->mn")}}).value());
  std::vector<std::string> hashes;
  if (c.weight) {
    hashes.push_back(
        Sha256Bytes({static_cast<const char*>(operands.b.data()), size_t(4 * c.k * c.n)}));
  }
  return GraphToProto(g, hashes);
}

// A plan of ours, bound to the operands.
class Ours {
 public:
  // `plan` is a folder; nullptr: the baseline plan.
  Ours(const Case& c, const std::string& graph, const Operands& operands, const char* plan)
      : result_(4 * c.m * c.n) {
    const char* name = "b";
    const void* data = operands.b.data();
    const size_t size = 4 * c.k * c.n;
    char error[4096] = "";
    model_ = athanor_load(graph.data(), graph.size(), &name, &data, &size, c.weight ? 1 : 0,
                          c.threads, plan, error, sizeof error);
    if (model_ == nullptr) Fail(absl::StrCat(c.name(), ": ", error));
    for (int i = 0; athanor_input(model_, i) != nullptr; ++i) {
      const bool left = std::strcmp(athanor_input(model_, i), "a") == 0;
      inputs_.push_back(left ? operands.a.data() : data);
      bytes_.push_back(left ? size_t(4 * c.m * c.k) : size);
    }
    result_bytes_ = 4 * c.m * c.n;
  }
  Ours(const Ours&) = delete;
  ~Ours() { athanor_free(model_); }

  void operator()() const {
    char error[4096] = "";
    void* out = result_.data();
    if (athanor_run(model_, inputs_.data(), bytes_.data(), nullptr, &out, &result_bytes_, error,
                    sizeof error) != 0) {
      Fail(error);
    }
  }
  const HugeBuffer& result() const { return result_; }

 private:
  HugeBuffer result_;
  size_t result_bytes_;
  void* model_;
  std::vector<const void*> inputs_;
  std::vector<size_t> bytes_;
};

// Runs search_plan, which leaves its plan in `folder`. Returns the JSON object that it prints;
// nullopt if it failed, with the reason on stderr.
std::optional<std::string> Search(const Arguments& arguments, const Case& c,
                                  const std::string& graph, const std::string& folder) {
  std::ofstream(folder + "/graph.pb", std::ios::binary) << graph;
  const std::string command = absl::StrCat(
      "'", (arguments.folder / "search_plan").string(), "' --graph '", folder, "/graph.pb' --out '",
      folder, "' --tuner '", (arguments.folder / "../../server/athanor-tuner").string(),
      "' --threads ", c.threads, " --magnitude ", kMagnitude, " --budget ", arguments.search);
  FILE* child = popen(command.c_str(), "r");
  if (child == nullptr) Fail("search_plan cannot be started");
  std::string said;
  char part[4096];
  while (size_t bytes = std::fread(part, 1, sizeof part, child)) said.append(part, bytes);
  if (pclose(child) != 0) return std::nullopt;
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return said;
}

// An empty folder, deleted with this object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "contraction-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) Fail(absl::StrCat("no folder ", name));
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

using Call = std::function<void()>;

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// Returns sgemm, or for one row the faster of sgemm and sgemv, with its name.
std::pair<std::string, Call> FasterPeer(const Case& c, const Operands& operands, float* d) {
  const float *a = operands.a.floats(), *b = operands.b.floats();
  Call gemm = [=] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, c.m, c.n, c.k, 1, a, c.k, b, c.n, 0, d,
                c.n);
  };
  if (c.m != 1) return {"sgemm", gemm};
  Call gemv = [=] { cblas_sgemv(CblasRowMajor, CblasTrans, c.k, c.n, 1, b, c.n, a, 1, 0, d, 1); };
  auto median = [&c](const Call& call) {
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) {
      const double start = Now(c.threads);
      call();
      times.push_back(Now(c.threads) - start);
    }
    return Median(times);
  };
  return median(gemv) < median(gemm) ? std::pair("sgemv", gemv) : std::pair("sgemm", gemm);
}

void CheckParity(const Case& c, const float* ours, const float* theirs) {
  for (int64_t i = 0; i < c.m * c.n; ++i) {
    if (!(std::abs(ours[i] - theirs[i]) <= 1e-3 * std::sqrt(static_cast<double>(c.k)))) {
      Fail(absl::StrFormat("%s: element %d is %g, OpenBLAS %g", c.name(), i, ours[i], theirs[i]));
    }
  }
}

struct Row {
  Case size;
  std::string peer;
  std::string search;                              // JSON from search_plan; empty: no search
  std::vector<double> baseline, searched, theirs;  // seconds per call, by round
  std::vector<double> peak;                        // flops per second
  std::vector<double> read;                        // bytes per second; few rows only
};

// Returns the seconds per call, from about 20 ms of calls.
double Turn(const Call& call, int calls, int threads) {
  // OpenBLAS's threads spin for some 30 ms after a call; this keeps them out of the next side's
  // measurement.
  if (threads > 1) std::this_thread::sleep_for(std::chrono::milliseconds(40));
  call();
  const double start = Now(threads);
  for (int i = 0; i < calls; ++i) call();
  return (Now(threads) - start) / calls;
}

// Measures peak and bandwidth with the row's number of threads.
struct Limits {
  explicit Limits(int threads) : peak(threads), memory(threads) {}
  ArithmeticPeak peak;
  MemoryReader memory;
};

Row Measure(const Arguments& arguments, const Case& c, const Limits& limits) {
  const Operands operands(c);
  const std::string graph = GraphOf(c, operands).SerializeAsString();
  Row row{.size = c};
  const Ours baseline(c, graph, operands, nullptr);
  std::optional<Ours> searched;
  if (arguments.search > 0) {
    const TemporaryFolder folder;
    const std::optional<std::string> found = Search(arguments, c, graph, folder.path());
    row.search = found.value_or("{\"error\":\"search_plan failed\"}");
    if (found) searched.emplace(c, graph, operands, folder.path().c_str());
  }
  const HugeBuffer d(4 * c.m * c.n);
  openblas_set_num_threads(c.threads);
  Call product;
  std::tie(row.peer, product) = FasterPeer(c, operands, d.floats());
  // Our plan may call the same library, with one thread each.
  const Call theirs = [&] {
    openblas_set_num_threads(c.threads);
    product();
    openblas_set_num_threads(1);
  };
  struct Side {
    Call call;
    std::vector<double>* times;
  };
  std::vector<Side> sides = {{std::cref(baseline), &row.baseline}, {theirs, &row.theirs}};
  if (searched) sides.insert(sides.begin(), {std::cref(*searched), &row.searched});
  for (const Side& side : sides) side.call();
  CheckParity(c, baseline.result().floats(), d.floats());
  if (searched) CheckParity(c, searched->result().floats(), d.floats());
  const double expected = std::max(c.flops() / 2e11, 4.0 * c.k * c.n / 4e10);
  const int calls = std::max(1, static_cast<int>(0.02 / expected));
  for (int round = 0; round < arguments.rounds; ++round) {
    for (const Side& side : sides) side.times->push_back(Turn(side.call, calls, c.threads));
    row.peak.push_back(limits.peak.FlopsPerSecond());
    if (c.few_rows()) row.read.push_back(limits.memory.BytesPerSecond());
    std::reverse(sides.begin(), sides.end());
  }
  return row;
}

// A side of ours, round by round next to what it is compared with.
struct Standing {
  double us;
  std::vector<double> ratio;  // time relative to OpenBLAS's; sorted, like the next ones
  std::vector<double> percent_of_peak, percent_of_read;
};

Standing StandingOf(const Row& row, const std::vector<double>& ours) {
  Standing s{.us = 1e6 * Median(ours)};
  for (size_t i = 0; i < ours.size(); ++i) {
    s.ratio.push_back(ours[i] / row.theirs[i]);
    s.percent_of_peak.push_back(100 * row.size.flops() / ours[i] / row.peak[i]);
    if (!row.read.empty())
      s.percent_of_read.push_back(100 * row.size.bytes() / ours[i] / row.read[i]);
  }
  for (auto* v : {&s.ratio, &s.percent_of_peak, &s.percent_of_read})
    std::sort(v->begin(), v->end());
  return s;
}

double At(const std::vector<double>& sorted, double part) {
  return sorted[static_cast<size_t>(part * (sorted.size() - 1))];
}

// Formats members of a JSON object, with `prefix` before their names.
std::string Json(const Row& row, const Standing& s, const std::string& prefix) {
  std::string text = absl::StrFormat(",\"%sus\":%.2f,\"%sgflops\":%.1f", prefix, s.us, prefix,
                                     row.size.flops() / s.us / 1e3);
  for (auto [name, part] :
       {std::pair("ratio", 0.5), std::pair("ratio_p10", 0.1), std::pair("ratio_q1", 0.25),
        std::pair("ratio_q3", 0.75), std::pair("ratio_p90", 0.9)}) {
    absl::StrAppendFormat(&text, ",\"%s%s\":%.3f", prefix, name, At(s.ratio, part));
  }
  absl::StrAppendFormat(&text, ",\"%spercent_of_peak\":%.1f", prefix, At(s.percent_of_peak, 0.5));
  if (s.percent_of_read.empty()) return text;
  return absl::StrCat(
      text, absl::StrFormat(",\"%sgb_s\":%.2f", prefix, row.size.bytes() / s.us / 1e3),
      absl::StrFormat(",\"%spercent_of_read_bandwidth\":%.1f", prefix, At(s.percent_of_read, 0.5)),
      absl::StrFormat(",\"%spercent_of_read_bandwidth_q1\":%.1f", prefix,
                      At(s.percent_of_read, 0.25)),
      absl::StrFormat(",\"%spercent_of_read_bandwidth_q3\":%.1f", prefix,
                      At(s.percent_of_read, 0.75)));
}

std::string Text(const Row& row, const Standing& s, const char* side) {
  std::string text = absl::StrFormat(
      "  %-8s %10.1f us %8.1f GFLOP/s  %.3f [%.3f, %.3f] of OpenBLAS's time  %5.1f %% of peak",
      side, s.us, row.size.flops() / s.us / 1e3, At(s.ratio, 0.5), At(s.ratio, 0.25),
      At(s.ratio, 0.75), At(s.percent_of_peak, 0.5));
  if (!s.percent_of_read.empty()) {
    absl::StrAppendFormat(&text, "  %.2f GB/s, %.1f %% [%.1f, %.1f] of read bandwidth",
                          row.size.bytes() / s.us / 1e3, At(s.percent_of_read, 0.5),
                          At(s.percent_of_read, 0.25), At(s.percent_of_read, 0.75));
  }
  return text + "\n";
}

void Print(const Row& row, bool json) {
  const Case& c = row.size;
  const char* kind = c.weight ? "weight" : "inputs";
  const double theirs = 1e6 * Median(row.theirs), peak = Median(row.peak) / 1e9;
  const Standing baseline = StandingOf(row, row.baseline);
  std::string text;
  if (json) {
    text = absl::StrFormat(
        "{\"bench\":\"contraction\",\"kind\":\"%s\",\"threads\":%d,\"m\":%d,\"n\":%d,\"k\":%d,"
        "\"clock\":\"%s\",\"openblas\":\"%s\",\"openblas_core\":\"%s\",\"openblas_us\":%.2f,"
        "\"openblas_gflops\":%.1f,\"peak_gflops\":%.1f",
        kind, c.threads, c.m, c.n, c.k, c.threads == 1 ? "cpu" : "wall", row.peer,
        openblas_get_corename(), theirs, c.flops() / theirs / 1e3, peak);
    if (!row.read.empty())
      absl::StrAppendFormat(&text, ",\"read_gb_s\":%.2f", Median(row.read) / 1e9);
    text += Json(row, baseline, "");
    if (!row.searched.empty()) text += Json(row, StandingOf(row, row.searched), "searched_");
    if (!row.search.empty()) absl::StrAppend(&text, ",\"search\":", row.search);
    text += "}\n";
  } else {
    text = absl::StrFormat("%s, %s, threads %d: OpenBLAS %s %.1f us, %.1f GFLOP/s; peak %.1f",
                           c.name(), kind, c.threads, row.peer, theirs, c.flops() / theirs / 1e3,
                           peak);
    if (!row.read.empty()) absl::StrAppendFormat(&text, "; read %.2f GB/s", Median(row.read) / 1e9);
    text += "\n" + Text(row, baseline, "baseline");
    if (!row.searched.empty()) text += Text(row, StandingOf(row, row.searched), "searched");
    if (!row.search.empty()) absl::StrAppend(&text, "  search ", row.search, "\n");
  }
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

std::vector<Case> Cases(int threads) {
  std::vector<Case> cases;
  auto add = [&](int64_t m, int64_t n, int64_t k) {
    for (bool weight : {false, true}) cases.push_back({m, n, k, weight, threads});
  };
  for (int64_t size : {512, 1024, 2048}) add(size, size, size);
  for (int64_t m : {1, 4, 16}) add(m, 4096, 4096);
  // The weight is larger than the last-level cache, so the next call finds none of it there.
  for (int64_t m : {1, 4, 16}) cases.push_back({m, 16384, 8192, true, threads});
  cases.push_back({128, 1536, 384, true, threads});
  cases.push_back({128, 384, 1536, true, threads});
  return cases;
}

Arguments Parse(int argc, char** argv) {
  Arguments a;
  a.folder = std::filesystem::canonical("/proc/self/exe").parent_path();
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--json") {
      a.json = true;
      continue;
    }
    if (i + 1 == argc) Fail(absl::StrCat(name, " needs a value, or there is no such option"));
    const char* value = argv[++i];
    if (name == "--rounds") {
      a.rounds = std::atoi(value);
    } else if (name == "--search") {
      a.search = std::atof(value);
    } else if (name == "--threads") {
      a.threads = std::atoi(value);
    } else if (name == "--only") {
      a.only = value;
    } else {
      Fail(absl::StrCat("there is no ", name));
    }
  }
  if (a.rounds < 1 || a.threads < 0) Fail("--rounds and --threads are positive numbers");
  return a;
}

int Main(const Arguments& arguments) {
  std::vector<int> threads = {1, static_cast<int>(std::thread::hardware_concurrency())};
  if (arguments.threads > 0) threads = {arguments.threads};
  bool any = false, all_searched = true;
  for (int count : threads) {
    const Limits limits(count);
    for (const Case& c : Cases(count)) {
      if (!arguments.only.empty() && c.name() != arguments.only) continue;
      any = true;
      const Row row = Measure(arguments, c, limits);
      Print(row, arguments.json);
      all_searched = all_searched && row.search.empty() == row.searched.empty();
    }
  }
  if (!any) Fail(absl::StrCat("there is no row ", arguments.only));
  return all_searched ? 0 : 1;
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) { return athanor::Main(athanor::Parse(argc, argv)); }
