// A program that a test starts, signals and waits for, and whose output it reads.
//
//   TestProcess server({"server/athanord", "--listen=127.0.0.1:0"}, directory + "/log");
//   const int port = server.WaitForPort();
//   EXPECT_EQ(server.Stop(SIGTERM), 0);
#ifndef ATHANOR_SERVER_TESTING_TEST_PROCESS_H_
#define ATHANOR_SERVER_TESTING_TEST_PROCESS_H_

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

extern char** environ;

namespace athanor {

// The destructor kills the process. Used by one thread.
class TestProcess {
 public:
  // Appends both outputs to the file `output`.
  TestProcess(const std::vector<std::string>& command, std::string output)
      : output_(std::move(output)) {
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      posix_spawn_file_actions_addopen(&actions, fd, output_.c_str(), O_CREAT | O_WRONLY | O_APPEND,
                                       0644);
    }
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0) << argv[0];
    posix_spawn_file_actions_destroy(&actions);
  }
  ~TestProcess() { Kill(); }
  TestProcess(const TestProcess&) = delete;
  TestProcess& operator=(const TestProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Kill() { Stop(SIGKILL); }
  // Returns the exit code, or minus the signal that ended the process.
  int Stop(int signal) {
    if (pid_ > 0) kill(pid_, signal);
    return Wait();
  }
  int Wait() {
    if (pid_ <= 0) return 0;
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string Output() const { return TextOf(output_); }
  // Returns athanord's port once it reports that it serves; 0 if it does not within a minute. `log`
  // is the file of its log if that is not its output.
  int WaitForPort(const std::string& log = "") const {
    for (int i = 0; i < 6000; ++i) {
      const std::string output = TextOf(log.empty() ? output_ : log);
      const size_t at = output.find(" port=");
      if (at != std::string::npos && output.find(' ', at + 6) != std::string::npos) {
        return std::stoi(output.substr(at + 6));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return 0;
  }

  static std::string TextOf(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  const std::string output_;
  pid_t pid_ = -1;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TESTING_TEST_PROCESS_H_
