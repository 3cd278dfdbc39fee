#include "server/child/tuner_process.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "compiler/ir/value/message.h"
#include "server/child/trial_states.h"
#include "server/child/tuner_channel.h"
#include "server/child/tuner_spawn.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;

constexpr off_t kMaxWords = 2000;
// What has begun may go on for so long when the time is up; a kernel is compiled in less.
constexpr milliseconds kGrace{250};
constexpr double kFastest = 1e18;  // bytes or operations per second, of any machine

MeasuringTurns::Kind KindOf(const internal::TunerRequest& request) {
  const bool measures = request.has_measure() || request.has_machine() || request.has_try_kernels();
  return measures ? MeasuringTurns::Kind::kMeasures : MeasuringTurns::Kind::kWorks;
}

std::string SignalName(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? absl::StrCat("signal ", number) : absl::StrCat("SIG", name);
}

std::string Describe(int wait_status) {
  return WIFSIGNALED(wait_status)
             ? absl::StrCat("was ended by ", SignalName(WTERMSIG(wait_status)))
             : absl::StrCat("left with exit status ", WEXITSTATUS(wait_status));
}

absl::Status TimeIsUp(absl::string_view doing) {
  return absl::AbortedError(absl::StrCat(doing, ": the search's time is up"));
}

}  // namespace

absl::StatusOr<std::string> FindTuner(const std::string& wanted) {
  std::string path = wanted;
  if (path.empty()) {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) return absl::FailedPreconditionError("/proc/self/exe cannot be read");
    path = self.parent_path() / "athanor-tuner";
  }
  if (access(path.c_str(), X_OK) == 0) return path;
  return absl::FailedPreconditionError(
      absl::StrCat("compile worker's child process: ", path, ": ", std::strerror(errno),
                   "; athanor-tuner belongs beside the server's binary"));
}

absl::StatusOr<std::unique_ptr<TunerProcess>> TunerProcess::Start(TunerOptions options) {
  absl::StatusOr<std::unique_ptr<TunerProcess>> tuner = Create(std::move(options));
  if (!tuner.ok()) return tuner;
  if (absl::Status s = (*tuner)->Spawn(); !s.ok()) return s;
  return tuner;
}

absl::StatusOr<std::unique_ptr<TunerProcess>> TunerProcess::Create(TunerOptions options) {
  absl::StatusOr<std::string> binary = FindTuner(options.binary);
  if (!binary.ok()) return binary.status();
  std::unique_ptr<TunerProcess> tuner(new TunerProcess(std::move(options)));
  tuner->binary_ = *std::move(binary);
  if (tuner->interrupt_.fd() < 0) return absl::UnavailableError("eventfd: no descriptor left");
  return tuner;
}

TunerProcess::~TunerProcess() {
  if (pid_ >= 0) Reap();
}

absl::Status TunerProcess::Spawn() {
  absl::StatusOr<SpawnedTuner> child = SpawnTuner(binary_, options_);
  if (!child.ok()) return child.status();
  fd_ = child->socket;
  words_fd_ = child->words;
  pid_ = child->pid;
  child_ = std::make_unique<ChildReaper>(pid_);
  worker_pid_ = child->worker;
  if (worker_pid_ >= 0) worker_ = std::make_unique<ChildReaper>(worker_pid_);
  warm_ = false;
  ++starts_;
  return absl::OkStatus();
}

// Kills, waits and gives back all that belonged to the child. Returns its wait status.
int TunerProcess::Reap() {
  const int status = child_->End();
  child_.reset();
  worker_.reset();
  pid_ = worker_pid_ = -1;
  CloseFd(&fd_);
  CloseFd(&words_fd_);
  return status;
}

std::string TunerProcess::Words() const {
  struct stat info;
  if (fstat(words_fd_, &info) != 0) return "";
  const off_t from = std::max(info.st_size - kMaxWords, off_t{0});
  std::string words(info.st_size - from, '\0');
  const ssize_t n = pread(words_fd_, words.data(), words.size(), from);
  words.resize(std::max<ssize_t>(n, 0));
  return words;
}

// Leaves out what the child says first. A keeper may have said something before it.
std::string TunerProcess::LastWords() const {
  const std::string words = Words();
  std::vector<absl::string_view> lines = absl::StrSplit(words, '\n');
  std::erase_if(lines, [](absl::string_view line) { return absl::StartsWith(line, kTunerWalls); });
  return std::string(absl::StripAsciiWhitespace(absl::StrJoin(lines, "\n")));
}

void TunerProcess::TakeWalls() {
  const std::string words = Words();
  for (absl::string_view line : absl::StrSplit(words, '\n')) {
    if (!absl::ConsumePrefix(&line, kTunerWalls)) continue;
    walls_ = std::string(line);
    return;
  }
}

absl::Status TunerProcess::Lose(const absl::Status& why, absl::string_view doing,
                                milliseconds timeout) {
  if (absl::IsInvalidArgument(why)) return why;  // nothing was sent
  // A child that closed the socket is dying: its own end tells more than our signal would.
  if (absl::IsUnavailable(why)) child_->Await(std::chrono::seconds(1));
  if (!warm_) TakeWalls();
  const std::string words = LastWords();
  const int status = Reap();
  if (absl::IsCancelled(why)) return absl::CancelledError(absl::StrCat(doing, ": interrupted"));
  if (absl::IsDeadlineExceeded(why) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)) {
    return absl::DeadlineExceededError(
        absl::StrCat(doing, ": not finished after the ", timeout.count(), " ms it may take"));
  }
  if (!absl::IsUnavailable(why)) {
    return absl::InternalError(
        absl::StrCat(doing, ": the tuner's reply is no reply: ", why.message()));
  }
  const bool memory = (WIFEXITED(status) && WEXITSTATUS(status) == kTunerExitMemory) ||
                      absl::StrContains(words, "out of memory");
  if (memory) {
    return absl::ResourceExhaustedError(absl::StrCat(
        doing, ": needs more than the ", options_.memory_limit, " bytes of memory it may have"));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kTunerExitWorker) {
    return absl::UnavailableError(absl::StrCat(doing, ": the tuner's device worker is gone",
                                               words.empty() ? "" : ": ", words));
  }
  const bool killed = WIFSIGNALED(status) && !IsCrash(WTERMSIG(status));
  return absl::Status(
      killed ? absl::StatusCode::kUnavailable : absl::StatusCode::kInternal,
      absl::StrCat(doing, ": the tuner ", Describe(status), words.empty() ? "" : ": ", words));
}

absl::Status TunerProcess::LoseAt(const Question& question, const absl::Status& why) {
  absl::Status lost = Lose(why, question.doing, question.timeout);
  return question.cut_short && absl::IsDeadlineExceeded(why) ? TimeIsUp(question.doing) : lost;
}

void TunerProcess::SetDeadline(milliseconds timeout, Question* question) const {
  question->timeout = background_ ? timeout * kBackgroundPatience : timeout;
  question->deadline = std::chrono::steady_clock::now() + question->timeout;
  if (!warm_) question->deadline += options_.start_timeout;
  question->cut_short = end_ < question->deadline - kGrace;
  if (question->cut_short) question->deadline = end_ + kGrace;
}

absl::StatusOr<TunerProcess::Question> TunerProcess::Ask(internal::TunerRequest& request,
                                                         absl::string_view doing,
                                                         milliseconds timeout) {
  request.set_background(background_);
  Question question{.doing = std::string(doing)};
  if (background_ && options_.turns != nullptr) {
    question.turn =
        options_.turns->Take(KindOf(request), [this] { return interrupt_.IsSet() || Over(); });
  }
  if (interrupt_.IsSet()) return absl::CancelledError(absl::StrCat(doing, ": interrupted"));
  if (Over()) return TimeIsUp(doing);
  request.set_end_us(end_.time_since_epoch() / std::chrono::microseconds(1));
  if (pid_ < 0) {
    if (absl::Status s = Spawn(); !s.ok()) return s;
  }
  SetDeadline(timeout, &question);
  const absl::Status sent = WriteFrame(fd_, request, {question.deadline, interrupt_.fd()});
  if (!sent.ok()) return LoseAt(question, sent);
  return question;
}

absl::StatusOr<internal::TunerReply> TunerProcess::Answer(const Question& question) {
  absl::StatusOr<std::string> bytes =
      ReadFrame(fd_, options_.max_reply_bytes, {question.deadline, interrupt_.fd()});
  if (!bytes.ok()) return LoseAt(question, bytes.status());
  internal::TunerReply reply;
  if (!reply.ParseFromString(*bytes)) {
    return LoseAt(question, absl::DataLossError("it does not parse"));
  }
  if (!IsStatusCode(reply.code()) ||
      (reply.code() == 0 && static_cast<int>(reply.kind_case()) == 0)) {
    return LoseAt(question,
                  absl::DataLossError(absl::StrCat("code ", reply.code(), " without a value")));
  }
  if (!std::exchange(warm_, true)) TakeWalls();
  return reply;
}

absl::StatusOr<internal::TunerReply> TunerProcess::Exchange(internal::TunerRequest& request,
                                                            absl::string_view doing,
                                                            milliseconds timeout) {
  absl::StatusOr<Question> question = Ask(request, doing, timeout);
  if (!question.ok()) return question.status();
  return Answer(*question);
}

absl::StatusOr<internal::TunerReply> TunerProcess::Call(internal::TunerRequest& request,
                                                        absl::string_view doing,
                                                        milliseconds timeout) {
  absl::StatusOr<internal::TunerReply> reply = Exchange(request, doing, timeout);
  if (!reply.ok() || reply->code() == 0) return reply;
  return absl::Status(static_cast<absl::StatusCode>(reply->code()),
                      absl::StrCat(doing, ": ", reply->message()));
}

absl::StatusOr<internal::LowerReply> TunerProcess::Lower(const Graph& graph,
                                                         const v1::Target& target, bool exact,
                                                         bool plain) {
  constexpr absl::string_view kDoing = "lowering the graph";
  internal::TunerRequest request;
  std::string text = ToText(graph);
  if (static_cast<int64_t>(text.size()) > options_.max_graph_text_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kDoing, ": its text is ", text.size(), " bytes, at most ",
                     options_.max_graph_text_bytes, " are lowered"));
  }
  request.mutable_lower()->set_graph_text(std::move(text));
  *request.mutable_lower()->mutable_target() = target;
  request.mutable_lower()->set_exact(exact);
  request.mutable_lower()->set_plain(plain);
  absl::StatusOr<internal::TunerReply> reply = Exchange(request, kDoing, options_.lower_timeout);
  if (!reply.ok()) return reply.status();
  if (reply->code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(reply->code()), reply->message());
  }
  internal::LowerReply& lowered = *reply->mutable_lower();
  const uint32_t kernels = static_cast<uint32_t>(lowered.plan().kernels_size());
  bool fits = lowered.has_plan();
  for (const internal::KernelCheck& check : lowered.checks()) fits &= check.kernel() < kernels;
  if (!fits) return Lose(absl::DataLossError("its plan and checks do not fit"), kDoing, {});
  return std::move(lowered);
}

absl::Status TunerProcess::CheckSource(absl::string_view source) const {
  if (static_cast<int64_t>(source.size()) > options_.max_source_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("kernel source: ", source.size(),
                                                   " bytes, at most ", options_.max_source_bytes,
                                                   " are compiled"));
  }
  const std::string_view text(source.data(), source.size());
  if (!IsValidUtf8(text)) return absl::InvalidArgumentError("kernel source: it is not UTF-8");
  return absl::OkStatus();
}

absl::StatusOr<std::string> TunerProcess::Compile(absl::string_view source,
                                                  const v1::Target& target, bool library_call) {
  if (absl::Status s = CheckSource(source); !s.ok()) return s;
  internal::TunerRequest request;
  request.mutable_compile()->set_source(source.data(), source.size());
  *request.mutable_compile()->mutable_target() = target;
  request.mutable_compile()->set_library_call(library_call);
  absl::StatusOr<internal::TunerReply> reply =
      Call(request, "compiling a kernel", options_.compile_timeout);
  if (!reply.ok()) return reply.status();
  if (reply->compile().object().empty()) {
    return Lose(absl::DataLossError("it holds no object"), "compiling a kernel", {});
  }
  return std::move(*reply->mutable_compile()->mutable_object());
}

absl::StatusOr<internal::CheckReply> TunerProcess::CheckReport(
    const internal::CheckRequest& request) {
  internal::TunerRequest message;
  *message.mutable_check() = request;
  absl::StatusOr<internal::TunerReply> reply =
      Call(message, "checking a kernel", options_.check_timeout);
  if (!reply.ok()) return reply.status();
  // Also false for NaN and for the reply to something else.
  if (!reply->has_check() || !(reply->check().worst_error() <= 1)) {
    return Lose(absl::DataLossError("a check that neither passed nor failed"), "checking a kernel",
                {});
  }
  return std::move(*reply->mutable_check());
}

absl::StatusOr<internal::PlanCheckReply> TunerProcess::CheckPlan(
    const internal::PlanCheckRequest& request) {
  constexpr absl::string_view kDoing = "checking a plan";
  internal::TunerRequest message;
  *message.mutable_plan_check() = request;
  // Its two processes may take half of the time of a check each, and its values are compared.
  absl::StatusOr<internal::TunerReply> reply = Call(message, kDoing, 2 * options_.check_timeout);
  if (!reply.ok()) return reply.status();
  // Also false for NaN and for the reply to something else.
  if (!reply->has_plan_check() || !(reply->plan_check().worst_error() <= 1)) {
    return Lose(absl::DataLossError("a check that neither passed nor failed"), kDoing, {});
  }
  return std::move(*reply->mutable_plan_check());
}

absl::StatusOr<internal::MeasureReply> TunerProcess::Measure(
    const internal::MeasureRequest& request) {
  constexpr absl::string_view kDoing = "measuring plans";
  internal::TunerRequest message;
  *message.mutable_measure() = request;
  absl::StatusOr<internal::TunerReply> reply = Call(message, kDoing, options_.check_timeout);
  if (!reply.ok()) return reply.status();
  bool fits = reply->measure().plans_size() == request.plans_size();
  for (const internal::PlanTimes& plan : reply->measure().plans()) {
    fits = fits && plan.sizes_size() == request.sizes_size();
    for (const internal::SizeTimes& size : plan.sizes()) {
      fits = fits && IsTime(size) && (&plan == &reply->measure().plans(0) || IsRatio(size));
    }
  }
  if (!fits) return Lose(absl::DataLossError("its times do not fit"), kDoing, {});
  return std::move(*reply->mutable_measure());
}

absl::Status TunerProcess::Try(const internal::TryRequest& request,
                               absl::FunctionRef<void(internal::TryOutcome)> take) {
  internal::TunerRequest message;
  *message.mutable_try_kernels() = request;
  TrialStates states(request);
  absl::StatusOr<Question> question = Ask(message, "compiling a kernel", options_.compile_timeout);
  if (!question.ok()) return question.status();
  for (;;) {
    const TrialState at_work = states.AtWork();
    switch (at_work) {
      case TrialState::kCompiling:
        question->doing = "compiling a kernel";
        SetDeadline(options_.compile_timeout, &*question);
        break;
      case TrialState::kMeasuring:
      case TrialState::kEnded:
      case TrialState::kMeasuringAgain:
        question->doing = "measuring a kernel";
        SetDeadline(3 * options_.check_timeout, &*question);  // in turn, alone, and once more
        break;
      case TrialState::kChecking:
        question->doing = "checking a kernel";
        SetDeadline(2 * options_.check_timeout, &*question);  // perhaps once more
        break;
    }
    absl::StatusOr<internal::TunerReply> reply = Answer(*question);
    if (!reply.ok()) return reply.status();
    if (reply->code() != 0) {
      return absl::Status(static_cast<absl::StatusCode>(reply->code()),
                          absl::StrCat("trying kernels: ", reply->message()));
    }
    const bool all = at_work == TrialState::kEnded;
    if (reply->has_try_kernels() && all) return absl::OkStatus();
    if (!reply->has_tried() || !states.Take(reply->tried())) {
      return LoseAt(*question, absl::DataLossError("an outcome of no kernel that was to be tried"));
    }
    take(std::move(*reply->mutable_tried()));
  }
}

absl::StatusOr<internal::MachineReply> TunerProcess::Machine(const v1::Target& target,
                                                             int threads) {
  constexpr absl::string_view kDoing = "measuring this machine";
  internal::TunerRequest message;
  message.mutable_machine()->set_threads(threads);
  *message.mutable_machine()->mutable_target() = target;
  absl::StatusOr<internal::TunerReply> reply = Call(message, kDoing, options_.compile_timeout);
  if (!reply.ok()) return reply.status();
  // Limits only ever rise: one that is no number would stay.
  const internal::MachineReply& machine = reply->machine();
  for (double limit : {machine.read_bytes_per_second(), machine.cache_bytes_per_second(),
                       machine.near_bytes_per_second(), machine.f32_flops_per_second()}) {
    if (!(limit > 0 && limit < kFastest)) {
      return Lose(absl::DataLossError(absl::StrCat("a limit of ", limit, " per second")), kDoing,
                  {});
    }
  }
  return std::move(*reply->mutable_machine());
}

absl::StatusOr<internal::SearchReply> TunerProcess::Search(const internal::SearchRequest& request) {
  constexpr absl::string_view kDoing = "searching";
  internal::TunerRequest message;
  *message.mutable_search() = request;
  message.mutable_search()->mutable_ended()->Assign(ended_.begin(), ended_.end());
  absl::StatusOr<internal::TunerReply> reply = Call(message, kDoing, options_.lower_timeout);
  if (!reply.ok()) return reply.status();
  ended_.clear();
  const internal::SearchReply& step = reply->search();
  const bool names = request.start().name_regions();
  if (!names && step.kernels().empty() && !step.has_plan() && !step.done()) {
    return Lose(absl::DataLossError("a step that asks for nothing"), kDoing, {});
  }
  return std::move(*reply->mutable_search());
}

absl::StatusOr<internal::TargetReply> TunerProcess::Target() {
  internal::TunerRequest request;
  request.mutable_target();
  absl::StatusOr<internal::TunerReply> reply =
      Call(request, "describing this machine", options_.compile_timeout);
  if (!reply.ok()) return reply.status();
  if (!reply->has_target()) {
    return Lose(absl::DataLossError("it holds no target"), "describing this machine", {});
  }
  return std::move(*reply->mutable_target());
}

}  // namespace athanor
