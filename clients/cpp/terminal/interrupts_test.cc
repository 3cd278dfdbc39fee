#include "clients/cpp/terminal/interrupts.h"

#include <unistd.h>

#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

// A pipe whose writing end the test holds.
struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  ~Pipe() {
    Close();
    close(ends[0]);
  }
  void Write(const std::string& text) {
    EXPECT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void Close() {
    if (ends[1] >= 0) close(ends[1]);
    ends[1] = -1;
  }
  int ends[2];
};

TEST(LineReader, ReturnsLinesAndTheLastWithoutALineFeed) {
  Interrupts interrupts;
  Pipe pipe;
  LineReader lines(pipe.ends[0], &interrupts);
  pipe.Write("one\n\ntwo\nthr");
  for (const char* expected : {"one", "", "two"}) {
    const LineReader::Result result = lines.Next();
    EXPECT_EQ(result.kind, LineReader::kLine);
    EXPECT_EQ(result.line, expected);
  }
  pipe.Write("ee");
  pipe.Close();
  const LineReader::Result last = lines.Next();
  EXPECT_EQ(last.kind, LineReader::kLine);
  EXPECT_EQ(last.line, "three");
  EXPECT_EQ(lines.Next().kind, LineReader::kEnd);
  EXPECT_EQ(lines.Next().kind, LineReader::kEnd);
}

TEST(LineReader, LinesLongerThanItsReadsStayWhole) {
  Interrupts interrupts;
  Pipe pipe;
  LineReader lines(pipe.ends[0], &interrupts);
  const std::string line(50'000, 'x');
  pipe.Write(line + "\ny\n");
  EXPECT_EQ(lines.Next().line, line);
  EXPECT_EQ(lines.Next().line, "y");
}

TEST(LineReader, AnInterruptDropsWhatWasReadOfALine) {
  Interrupts interrupts;
  Pipe pipe;
  LineReader lines(pipe.ends[0], &interrupts);
  pipe.Write("one\nha");
  EXPECT_EQ(lines.Next().line, "one");
  std::thread other([] {
    absl::SleepFor(absl::Milliseconds(20));
    kill(getpid(), SIGINT);
  });
  EXPECT_EQ(lines.Next().kind, LineReader::kInterrupt);
  other.join();
  pipe.Write("two\n");
  EXPECT_EQ(lines.Next().line, "two");
}

// As Ctrl-C, which is meant for what follows too, not only for an answer that has just ended.
TEST(LineReader, AnInterruptGoesBeforeLinesThatWereRead) {
  Interrupts interrupts;
  Pipe pipe;
  LineReader lines(pipe.ends[0], &interrupts);
  pipe.Write("one\ntwo\n");
  EXPECT_EQ(lines.Next().line, "one");
  raise(SIGINT);
  EXPECT_EQ(lines.Next().kind, LineReader::kInterrupt);
  pipe.Write("three\n");
  EXPECT_EQ(lines.Next().line, "three");
}

TEST(LineReader, NeedsNoInterrupts) {
  Pipe pipe;
  LineReader lines(pipe.ends[0], nullptr);
  pipe.Write("one\ntwo");
  pipe.Close();
  EXPECT_EQ(lines.Next().line, "one");
  EXPECT_EQ(lines.Next().line, "two");
  EXPECT_EQ(lines.Next().kind, LineReader::kEnd);
}

TEST(Interrupts, AreTakenOnceHoweverManyCame) {
  Interrupts interrupts;
  EXPECT_FALSE(interrupts.Take());
  for (int i = 0; i < 3; ++i) raise(SIGINT);
  EXPECT_TRUE(interrupts.Take());
  EXPECT_FALSE(interrupts.Take());
}

TEST(Interrupts, CancelWhatRuns) {
  Interrupts interrupts;
  Cancellation quiet;
  bool ran = false;
  EXPECT_FALSE(interrupts.CancelDuring(&quiet, [&] { ran = true; }));
  EXPECT_TRUE(ran);
  Cancellation cancellation;
  EXPECT_TRUE(interrupts.CancelDuring(&cancellation, [&] {
    raise(SIGINT);
    // No server is there: the call ends as cancelled, not as unreachable, once it is cancelled.
    absl::Status status = absl::UnavailableError("");
    Client client("127.0.0.1:1");
    while (absl::IsUnavailable(status)) {
      status = client.Ready({absl::Seconds(10), &cancellation}).status();
    }
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
  }));
  EXPECT_FALSE(interrupts.Take()) << "the interrupt was taken";
}

TEST(Interrupts, SignalsAreAsBeforeAfterwards) {
  const auto before = signal(SIGINT, SIG_IGN);
  {
    Interrupts interrupts;
  }
  EXPECT_EQ(signal(SIGINT, before), SIG_IGN);
}

}  // namespace
}  // namespace athanor::client
