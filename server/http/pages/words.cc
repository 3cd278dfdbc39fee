#include "server/http/pages/words.h"

namespace athanor {
namespace {

constexpr WordRow kWords[] = {
    // Memory, by what it is held for.
    {"parameters", "Weights of models, as they were uploaded."},
    {"prepared", "Weights in the layouts that plans want."},
    {"arenas", "Inner values of calls, one arena for each call that can run at once."},
    {"scratch", "Memory that kernels need while they run."},
    {"uploads", "Parts of models that are being uploaded."},
    {"requests", "Inputs and outputs of calls in progress."},
    {"states", "Tensors that outlive a call, such as keys and values of language models."},
    {"resident", "All memory of the server's process, as the system counts it."},
    // Calls.
    {"wait for a run", "Calls that have arrived and do not run yet."},
    {"uploads now", "Uploads of models in progress."},
    {"refused", "Calls, uploads, jobs and connections refused since the server started, by why."},
    {"draining", "Refused because the server is about to end."},
    {"pending", "Refused because too many calls were in progress (--max_pending)."},
    {"queue", "A call's time from its arrival to its run. Refused by it: too many calls waited."},
    {"memory", "Refused because the memory limit was reached (--memory_limit)."},
    {"compile jobs", "Refused because too many compile jobs waited."},
    {"streams", "Refused because too many streams were open (--max_streams)."},
    {"connections", "Refused because too many connections were open (--max_connections)."},
    // Server and devices.
    {"jobs unfinished", "Jobs that make plans, now: waiting or in progress."},
    {"compile workers", "Jobs that can be in progress at once (--compile_workers)."},
    {"threads", "Threads that execute calls: of the CPU, those of --threads; of a GPU, all."},
    {"memory held", "Memory of the device that the server holds."},
    {"memory limit", "Most memory of the device that the server takes."},
    {"memory in all", "Memory that the device has."},
    {"core MHz", "Clock of the GPU's cores now."},
    {"memory MHz", "Clock of the GPU's memory now."},
    {"compute capability", "Generation of the GPU, as NVIDIA numbers them."},
    {"driver", "Newest version of CUDA that the GPU's driver knows."},
    {"compiler", "Compiler of the device's kernels."},
    {"lost", "The device failed; its models are refused until the server starts again."},
    // Cache.
    {"plans", "Finished plans, found again after a restart."},
    {"recipes", "Choices of plans without their binaries, for other machines and sizes."},
    {"timings", "Measured times of kernels."},
    {"kernels", "Compiled pieces of programs. One call runs the steps of a plan, each a kernel."},
    {"checks", "Kernels that were compared with the reference and found right."},
    {"failures", "Kernels that do not compile or are wrong, so that nobody tries them again."},
    {"searches", "Searches that ended, so that they are not repeated."},
    {"targets", "What was measured of this machine."},
    {"quarantine", "Damaged rows, set aside."},
    // Models.
    {"model", "Its name, version and state: ready models answer; others are compiled or failed."},
    {"serves", "Calls that name no version go to this one."},
    {"deterministic", "Keeps its plan until another one is pinned."},
    {"plan", "The program that answers calls. A search replaces it by a faster one."},
    {"baseline", "A plan made from estimates alone, ready first."},
    {"search", "Measures other plans while the model answers; kept is what is faster and right."},
    {"pinned", "Stays until it is unpinned; no search replaces it."},
    {"steps", "Parts of a plan that run one after another."},
    {"swaps", "How often a plan took another one's place."},
    {"dims", "Sizes that calls may choose, with their bounds."},
    {"buckets", "Ranges of sizes with a plan of their own; other sizes use the full range's plan."},
    {"device", "The device that executes the model."},
    {"compile job", "Makes the plans of a version: baseline first, then the search."},
    {"ended", "Why the job ended: its budget, nothing left to gain, a limit, an error."},
    {"now", "The job's phase."},
    {"time", "Time from the job's start to its end, or to now."},
    {"from the cache", "Kernels that were found compiled already."},
    {"candidates", "Programs that the search has measured."},
    {"plans taken", "How often the search found a faster plan, which serves since."},
    {"time over baseline's", "Time of the plan that serves over the baseline's; less is faster."},
    {"roofline", "Least share of the baseline's time that the machine's limits allow."},
    // Calls of a model.
    {"calls/s", "Calls that ended in the last second, answered or failed."},
    {"answered", "Calls answered since the server started."},
    {"failed", "Calls that ended with an error since the server started."},
    {"tokens/s", "Tokens generated in the last second."},
    {"p50", "Half of the calls took at most so long, since the server started."},
    {"p95", "95 of 100 took at most so long."},
    {"p99", "99 of 100 calls took at most so long, since the server started."},
    {"last 10 minutes", "p50 (line) and p99 (faint) of every ten seconds; gaps are without calls."},
    {"call", "A call from its arrival to the end of its answer."},
    {"batch", "Wait for other calls to share a run with."},
    {"run", "The run of a call's plan, alone."},
    {"stall", "Wait for a plan that was not compiled yet."},
    {"rows a run", "Mean of the rows that one run answered, of calls that share runs."},
    // Language models.
    {"engine", "Runs the sequences of a language model together, step by step."},
    {"running", "Sequences that get tokens in each step."},
    {"waiting", "Sequences that wait for a place."},
    {"paused", "Sequences that wait until their clients have read."},
    {"TTFT", "Time to first token: from a sequence's arrival to its first token."},
    {"ITL", "Inter-token latency: the time between two tokens of a sequence."},
    {"TPOT", "Time per output token: mean of a sequence's times between tokens."},
    {"blocks", "Memory for keys and values, in pieces that sequences hold."},
    {"prefix hits", "Share of the prompts' tokens that were found computed, so were not again."},
    {"keys and values", "What an engine remembers of its sequences' tokens."},
};

}  // namespace

absl::Span<const WordRow> WordTable() { return kWords; }

absl::string_view MeaningOf(absl::string_view word) {
  for (const WordRow& row : kWords) {
    if (row.word == word) return row.meaning;
  }
  return "";
}

}  // namespace athanor
