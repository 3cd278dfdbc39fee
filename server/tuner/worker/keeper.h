// Keeps a device worker: takes jobs from the tuner, forks the process that runs them, and forks
// another when that one is lost. The keeper itself never opens the GPU and runs no kernel.
//
//   WorkerJobs jobs(&traffic);
//   return KeepWorker({.socket = kTunerFd,
//                      .begin = [] { return TheGpu().status(); },
//                      .serve = [&](const auto& job, auto drawn) { return jobs.Serve(job, drawn);
//                      }});
//
// The process makes its context once and serves job after job. It ends by its own will when a
// kernel has ended its context, and is ended where a job takes too long or too much memory: that
// costs the job. So does the end that somebody else gives it, as UNAVAILABLE, since that says
// nothing of the kernel; and so does one that comes before what the job is about has begun to run,
// while it draws inputs, which may take half as long as the job. A reply to another job ends the
// process, and so does a success of what has not begun to run.
//
// Rejected: the server starts each process anew at the tuner's word. It would have to pass sockets
// through a tuner that may not have any, and a tuner would wait for the server.
#ifndef ATHANOR_SERVER_TUNER_WORKER_KEEPER_H_
#define ATHANOR_SERVER_TUNER_WORKER_KEEPER_H_

#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "proto/athanor/internal/worker.pb.h"

namespace athanor {

struct KeeperSetup {
  int socket = -1;               // the tuner is at the other end
  std::vector<int> descriptors;  // further ones that jobs need
  // Both run in the process: once, before the first job, and for each job. `serve` calls `drawn`
  // when it begins to run what the job is about.
  std::function<absl::Status()> begin;
  std::function<internal::WorkerReply(const internal::WorkerJob& job,
                                      absl::FunctionRef<void()> drawn)>
      serve;
};

// Returns this process's exit status once the tuner is gone. REQUIRES: this process has one thread
// and is confined (ConfineTuner).
int KeepWorker(const KeeperSetup& setup);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_WORKER_KEEPER_H_
