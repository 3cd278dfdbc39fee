#include "server/child/child_reaper.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "gtest/gtest.h"

namespace athanor {
namespace {

// Leads a group, and waits to be killed or ends with `status`.
pid_t Fork(int status) {
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    while (status < 0) pause();
    _exit(status);
  }
  setpgid(pid, pid);
  return pid;
}

// As long as it takes: a test that waits for ever has failed. A zombie is not gone.
void AwaitGone(pid_t pid) {
  while (kill(pid, 0) == 0 || errno != ESRCH) std::this_thread::yield();
}

TEST(ChildReaperTest, AChildThatEndsByItselfIsGoneBeforeAnybodyAsks) {
  const pid_t pid = Fork(7);
  ChildReaper child(pid);
  AwaitGone(pid);
  const int status = child.End();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(child.End(), status);
}

TEST(ChildReaperTest, AChildThatIsKilledIsGoneBeforeAnybodyAsks) {
  const pid_t pid = Fork(-1);
  ChildReaper child(pid);
  kill(pid, SIGKILL);
  AwaitGone(pid);
  EXPECT_EQ(WTERMSIG(child.End()), SIGKILL);
}

TEST(ChildReaperTest, EndKills) {
  const pid_t pid = Fork(-1);
  {
    ChildReaper child(pid);
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(ChildReaperTest, AwaitLeavesTheChildItsOwnEnd) {
  const pid_t pid = Fork(3);
  ChildReaper child(pid);
  child.Await(std::chrono::hours(1));
  EXPECT_EQ(WEXITSTATUS(child.End()), 3);
}

// As where this is the first process of a container: who has lost a parent becomes its child.
TEST(ChildReaperTest, ItsGroupIsGoneToo) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      for (;;) pause();
    }
    if (write(ends[1], &grandchild, sizeof(grandchild)) < 0) _exit(1);
    for (;;) pause();
  }
  setpgid(pid, pid);
  ChildReaper child(pid);
  pid_t grandchild = -1;
  ASSERT_EQ(read(ends[0], &grandchild, sizeof(grandchild)),
            static_cast<ssize_t>(sizeof(grandchild)));
  kill(pid, SIGKILL);
  AwaitGone(grandchild);
  AwaitGone(pid);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace athanor
