// The parent's side of a child process athanor-tuner: lowers graphs, compiles and checks kernels
// without risk to this process.
//
//   std::unique_ptr<TunerProcess> tuner = TunerProcess::Start({}).value();
//   absl::StatusOr<internal::LowerReply> lowered = tuner->Lower(graph, target);
//   absl::StatusOr<std::string> object = tuner->Compile(source, target);
//   absl::Status passed = tuner->Check(request);
//
// A call that runs out of time or memory, kills the child or makes it answer nonsense costs that
// call: the child is ended and the next one started in its place. A child for a GPU has a device
// worker beside it (server/tuner/worker), which starts and ends with it.
#ifndef ATHANOR_SERVER_CHILD_TUNER_PROCESS_H_
#define ATHANOR_SERVER_CHILD_TUNER_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/base/traffic.h"
#include "server/child/child_reaper.h"
#include "server/child/measuring_turns.h"
#include "server/child/wake_event.h"

namespace athanor {

struct TunerOptions {
  std::string binary;                       // empty: athanor-tuner beside this executable
  int64_t memory_limit = int64_t{4} << 30;  // bytes, of the child or of a checked kernel
  std::chrono::milliseconds start_timeout{10000};
  std::chrono::milliseconds lower_timeout{120000};
  std::chrono::milliseconds compile_timeout{30000};
  // Half of it for the kernels themselves. A plan's check, which runs plans twice, has twice that.
  std::chrono::milliseconds check_timeout{30000};
  int64_t max_graph_text_bytes = int64_t{512} << 20;  // large literals are in hexadecimal
  int64_t max_source_bytes = int64_t{8} << 20;
  int64_t max_reply_bytes = int64_t{512} << 20;
  // The requests that measuring and work in the background yield to; null: to none. Outlives the
  // process.
  const Traffic* traffic = nullptr;
  // Of background work, with the processes that share it; null: none are taken. Outlives the
  // process.
  MeasuringTurns* turns = nullptr;
  // Where the child has a file without a name for what checks of large models hold
  // (server/tuner/run/scratch.h). Empty, or a file system that has no such files: in memory.
  std::string scratch_folder;
  // CPUs, by the system's numbers, that the child may use besides its parent's, and where its work
  // in the background goes first while there are requests. None: the parent's.
  std::vector<int> search_cpus;
  // The GPU that kernels are for, by its number; -1: the CPU. Its compiler lies in `nvrtc` or, if
  // that is empty, where the child finds it.
  int gpu = -1;
  std::string nvrtc;
};

// The binary it starts: `wanted`, or the one beside this executable where that is empty.
// FAILED_PRECONDITION if there is none.
absl::StatusOr<std::string> FindTuner(const std::string& wanted);

// Used by one thread at a time, but for Interrupt. The child dies with the thread that started it
// (Start, the first call, or the call after a loss), and with this object.
class TunerProcess {
 public:
  // Returns when the child has been spawned; its own start-up goes on meanwhile.
  // FAILED_PRECONDITION if there is no such binary.
  static absl::StatusOr<std::unique_ptr<TunerProcess>> Start(TunerOptions options);
  // As Start, but the child is started by the first call that needs it.
  static absl::StatusOr<std::unique_ptr<TunerProcess>> Create(TunerOptions options);
  ~TunerProcess();
  TunerProcess(const TunerProcess&) = delete;
  TunerProcess& operator=(const TunerProcess&) = delete;

  // The baseline plan and the checks of its kernels. The pipeline's errors come through as they
  // are: UNIMPLEMENTED names the node and dtype that the target cannot compute. RESOURCE_EXHAUSTED:
  // the graph, or what it becomes, is larger than the limits above.
  // `exact`: of the graph's twin in f64 (compiler/ir/sample/widen.h) instead. `plain`: the simplest
  // way (compiler/pipeline/pipeline.h).
  absl::StatusOr<internal::LowerReply> Lower(const Graph& graph, const v1::Target& target,
                                             bool exact = false, bool plain = false);
  // INVALID_ARGUMENT: such a source is not compiled.
  absl::Status CheckSource(absl::string_view source) const;
  // A kernel's object, as server/tuner/compile.h has them: of code or, with `library_call`, of what
  // target.blas proposes for it. INVALID_ARGUMENT: the compiler refuses the source, or it is
  // no call. OUT_OF_RANGE: the library has no such proposal. FAILED_PRECONDITION: there is none for
  // the target.
  absl::StatusOr<std::string> Compile(absl::string_view source, const v1::Target& target,
                                      bool library_call = false);
  // OK if every output is within its tolerance (server/tuner/check/check.h). DATA_LOSS: a value is
  // wrong. INVALID_ARGUMENT: the request is.
  absl::StatusOr<internal::CheckReply> CheckReport(const internal::CheckRequest& request);
  absl::Status Check(const internal::CheckRequest& request) {
    return CheckReport(request).status();
  }
  // OK if the candidate's errors are within what the baseline's allow
  // (server/tuner/check/plan_check.h). DATA_LOSS: it is wrong.
  absl::StatusOr<internal::PlanCheckReply> CheckPlan(const internal::PlanCheckRequest& request);
  // Times of plans, measured in turn (server/tuner/measure/measure.h).
  absl::StatusOr<internal::MeasureReply> Measure(const internal::MeasureRequest& request);
  // Tries kernels of a search (server/tuner/kernel_trials.h). `take` gets each part of an outcome
  // as it comes, and those that came before an error hold. All that lack objects have these, or
  // have ended, before the first is measured. OK: all have ended, some perhaps as ABORTED.
  absl::Status Try(const internal::TryRequest& request,
                   absl::FunctionRef<void(internal::TryOutcome)> take);
  // The machine's limits with `threads` (server/tuner/measure/machine.h).
  absl::StatusOr<internal::MachineReply> Machine(const v1::Target& target, int threads);
  // The next step of a search (compiler/pipeline/search_session.h). FAILED_PRECONDITION: this child
  // does not know the session; it begins one when request.start is set.
  absl::StatusOr<internal::SearchReply> Search(const internal::SearchRequest& request);
  // The machine as LLVM and the system see it, without target.threads.
  absl::StatusOr<internal::TargetReply> Target();
  // Besides these, every call: DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED (memory), INTERNAL (the child
  // crashed or left, or its reply is senseless), CANCELLED (Interrupt), UNAVAILABLE (the child was
  // killed by another process or by the system, or none can be started: not the request's fault).

  // Calls made while one lives are background work: at low priority while there are
  // requests, and with four times the time, since others go first. From `end` on none is begun, and
  // none waits for its turn or measures: ABORTED. One that goes on for a quarter of a second longer
  // costs the child.
  class Background {
   public:
    explicit Background(TunerProcess* tuner, std::chrono::steady_clock::time_point end =
                                                 std::chrono::steady_clock::time_point::max())
        : tuner_(*tuner),
          before_(std::exchange(tuner->background_, true)),
          end_before_(std::exchange(tuner->end_, end)) {}
    ~Background() {
      tuner_.background_ = before_;
      tuner_.end_ = end_before_;
    }
    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;

   private:
    TunerProcess& tuner_;
    const bool before_;
    const std::chrono::steady_clock::time_point end_before_;
  };

  // From any thread: the call that is running, and those after it until ClearInterrupt, return
  // CANCELLED.
  void Interrupt() { interrupt_.Set(); }
  // Before work that may go on whatever was interrupted before it. Whoever interrupts says so where
  // it can be seen first: look there after this.
  void ClearInterrupt() { interrupt_.Clear(); }
  // The child may forget the search; told with the next request of another.
  void EndSearch(uint64_t session) { ended_.push_back(session); }

  pid_t pid() const { return pid_; }  // of the child now; -1 between a loss and the next call
  // Tells the process that keeps the child's device worker (server/tuner/worker); -1: there is
  // none.
  pid_t worker_pid() const { return worker_pid_; }
  // What the child denies itself (server/tuner/sandbox/sandbox.h), in words; empty before the first
  // reply.
  const std::string& walls() const { return walls_; }
  int64_t starts() const { return starts_; }  // children so far

 private:
  explicit TunerProcess(TunerOptions options) : options_(std::move(options)) {}

  absl::Status Spawn();
  bool Over() const { return std::chrono::steady_clock::now() >= end_; }
  // A request that was sent, and how long its reply, or the next part of it, may take.
  struct Question {
    std::string doing;
    MeasuringTurns::Turn turn = {};
    std::chrono::milliseconds timeout{};
    std::chrono::steady_clock::time_point deadline = {};
    bool cut_short = false;  // by the end of background work
  };
  absl::StatusOr<Question> Ask(internal::TunerRequest& request, absl::string_view doing,
                               std::chrono::milliseconds timeout);
  // A reply of any code, or how the child was lost.
  absl::StatusOr<internal::TunerReply> Answer(const Question& question);
  absl::Status LoseAt(const Question& question, const absl::Status& why);
  // The reply has `timeout` from now on, or what is left until the end of background work.
  void SetDeadline(std::chrono::milliseconds timeout, Question* question) const;
  absl::StatusOr<internal::TunerReply> Exchange(internal::TunerRequest& request,
                                                absl::string_view doing,
                                                std::chrono::milliseconds timeout);
  // As Exchange; the child's errors are this call's, with `doing` before them.
  absl::StatusOr<internal::TunerReply> Call(internal::TunerRequest& request,
                                            absl::string_view doing,
                                            std::chrono::milliseconds timeout);
  // Ends the child and says what became of it.
  absl::Status Lose(const absl::Status& why, absl::string_view doing,
                    std::chrono::milliseconds timeout);
  int Reap();
  // Returns the end of what it and the keeper of its device worker said.
  std::string Words() const;
  // Returns that without the line in which it names its walls.
  std::string LastWords() const;
  void TakeWalls();

  const TunerOptions options_;
  std::string binary_;
  pid_t pid_ = -1;
  std::unique_ptr<ChildReaper> child_;  // of that; null: none
  pid_t worker_pid_ = -1;
  std::unique_ptr<ChildReaper> worker_;  // of that; null: none
  int fd_ = -1;                          // our end of the socket pair
  int words_fd_ = -1;                    // memory file: standard error of both
  std::string walls_;
  WakeEvent interrupt_;
  bool warm_ = false;  // this child has answered before
  bool background_ = false;
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::time_point::max();
  int64_t starts_ = 0;
  std::vector<uint64_t> ended_;  // searches, not told yet
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CHILD_TUNER_PROCESS_H_
