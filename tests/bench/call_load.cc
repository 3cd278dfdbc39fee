// Calls of one model, one outstanding, and how long each took: the side of a client in
// neighbour.py.
//
//   call_load --server=127.0.0.1:50051 --model=mlp --input=x --shape=1x1024 --seconds=4 --rate=200
//
// With a rate, calls are due at equal distances and their time counts from when they were due, so
// that a server that stops answering for a while does not hide it; without one, each begins when
// the one before has ended. Prints one line of JSON; times are microseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "clients/cpp/client.h"

namespace athanor::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUp = 30;

struct Flags {
  std::string server = "127.0.0.1:50051";
  std::string model, input;
  std::vector<int64_t> shape;
  double seconds = 4;
  double rate = 0;  // calls per second; 0: one after the other
};

bool ParseFlags(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view arg = argv[i];
    bool known = true;
    if (absl::ConsumePrefix(&arg, "--server=")) {
      flags->server = std::string(arg);
    } else if (absl::ConsumePrefix(&arg, "--model=")) {
      flags->model = std::string(arg);
    } else if (absl::ConsumePrefix(&arg, "--input=")) {
      flags->input = std::string(arg);
    } else if (absl::ConsumePrefix(&arg, "--seconds=")) {
      known = absl::SimpleAtod(arg, &flags->seconds) && flags->seconds > 0;
    } else if (absl::ConsumePrefix(&arg, "--rate=")) {
      known = absl::SimpleAtod(arg, &flags->rate) && flags->rate >= 0;
    } else if (absl::ConsumePrefix(&arg, "--shape=")) {
      for (absl::string_view extent : absl::StrSplit(arg, 'x')) {
        flags->shape.push_back(0);
        known = known && absl::SimpleAtoi(extent, &flags->shape.back()) && flags->shape.back() > 0;
      }
    } else {
      known = false;
    }
    if (!known) return false;
  }
  return !flags->model.empty() && !flags->input.empty() && !flags->shape.empty();
}

client::Tensor Random(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::string bytes(static_cast<size_t>(count) * sizeof(float), '\0');
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal(random);
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
  }
  return {"f32", shape, std::move(bytes)};
}

double Percentile(const std::vector<double>& sorted, double p) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(p * sorted.size()))];
}

int Run(const Flags& flags) {
  client::Client client(flags.server);
  client::InferRequest request{flags.model};
  request.inputs[flags.input] = Random(flags.shape);
  std::vector<double> times;
  const auto interval = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(flags.rate > 0 ? 1 / flags.rate : 0));
  const auto length = std::chrono::duration<double>(flags.seconds);
  Clock::time_point due, begin;
  for (int i = -kWarmUp; i < 0 || Clock::now() - begin < length; ++i) {
    if (i <= 0) begin = due = Clock::now();
    if (i > 0) due = flags.rate > 0 ? due + interval : Clock::now();
    std::this_thread::sleep_until(due);
    const auto reply = client.Infer(request);
    if (!reply.ok()) {
      std::fprintf(stderr, "%s: %s\n", flags.model.c_str(), reply.status().ToString().c_str());
      return 1;
    }
    if (i >= 0)
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - due).count());
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"calls\": %zu, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"p999\": %.1f}\n",
              times.size(), Percentile(times, 0.5), Percentile(times, 0.9), Percentile(times, 0.99),
              Percentile(times, 0.999));
  return 0;
}

}  // namespace
}  // namespace athanor::bench

int main(int argc, char** argv) {
  athanor::bench::Flags flags;
  if (!athanor::bench::ParseFlags(argc, argv, &flags)) {
    std::fprintf(stderr, "call_load: a flag is unknown, wrong or missing; see call_load.cc\n");
    return 2;
  }
  return athanor::bench::Run(flags);
}
