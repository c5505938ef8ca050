#include "kube/loop.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <thread>

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Runs `task` on the loop and waits for it.
void On(EventLoop& loop, const std::function<void()>& task) {
  std::promise<void> ran;
  loop.Post([&] {
    task();
    ran.set_value();
  });
  ran.get_future().wait();
}

TEST(EventLoop, RunsWhatIsPostedInOrderAndAllOfItBeforeItEnds) {
  std::vector<int> seen;
  {
    EventLoop loop;
    for (int i = 0; i < 1000; ++i) loop.Post([&seen, i] { seen.push_back(i); });
  }
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST(EventLoop, TakesTasksFromManyThreads) {
  int sum = 0;  // only the loop's thread touches it
  {
    EventLoop loop;
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 500; ++i) loop.Post([&sum] { ++sum; });
      });
    }
    threads.clear();
  }
  EXPECT_EQ(sum, 4000);
}

TEST(EventLoop, FiresATimerOnceAndNotAfterStop) {
  EventLoop loop;
  std::promise<MonoTime> fired;
  std::unique_ptr<EventLoop::Timer> timer, stopped;
  const MonoTime start = Clock::Real().Mono();
  On(loop, [&] {
    timer = std::make_unique<EventLoop::Timer>(loop, [&] {
      fired.set_value(Clock::Real().Mono());
      timer.reset();  // its own callback may destroy it
    });
    timer->Start(seconds(100));
    timer->Start(milliseconds(30));
    stopped = std::make_unique<EventLoop::Timer>(loop, [] { ADD_FAILURE() << "was stopped"; });
    stopped->Start(milliseconds(1));
    stopped->Stop();
  });
  EXPECT_GE(fired.get_future().get() - start, milliseconds(29));
  On(loop, [&] { stopped.reset(); });
}

TEST(EventLoop, SaysWhenASocketIsReady) {
  EventLoop loop;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  std::promise<int> writable, readable;
  std::unique_ptr<EventLoop::Socket> socket;
  On(loop, [&] {
    socket = std::make_unique<EventLoop::Socket>(loop, ends[0], [&](int events) {
      if ((events & EventLoop::Socket::kWrite) != 0) {
        writable.set_value(events);
        socket->Watch(EventLoop::Socket::kRead);
      } else {
        readable.set_value(events);
        socket.reset();
      }
    });
    socket->Watch(EventLoop::Socket::kWrite);
  });
  EXPECT_EQ(writable.get_future().get(), EventLoop::Socket::kWrite);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_EQ(readable.get_future().get(), EventLoop::Socket::kRead);
  On(loop, [&] { EXPECT_EQ(socket, nullptr); });
  close(ends[0]);
  close(ends[1]);
}

TEST(EventLoopDeathTest, EndsTheProcessWhenAnotherThreadTouchesItsThings) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        EventLoop loop;
        On(loop, [] {});
        EventLoop::Timer timer(loop, [] {});
      },
      "another thread");
}

}  // namespace
}  // namespace holdfast::kube
