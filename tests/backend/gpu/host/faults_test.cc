// What goes wrong on a device ends in the right error within its deadline, and what only looks wrong does
// not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "backend/gpu/watchdog.h"
#include "frames.h"
#include "skald/error.h"
#include "standin/rig.h"

namespace skald::backend {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using standin::Face;
using standin::Standin;
using testing::AllOf;
using testing::HasSubstr;

struct Outcome {
  std::optional<ErrorCode> code;
  std::string what;
  Clock::duration took{};
};

Outcome outcome(const std::function<void()>& f) {
  Outcome o;
  const auto from = Clock::now();
  try {
    f();
  } catch (const Error& e) {
    o.code = e.code(), o.what = e.what();
  }
  o.took = Clock::now() - from;
  return o;
}

/// Within a generous time: the machine may be busy with other things.
bool comes_true(const std::function<bool()>& condition) {
  for (const auto from = Clock::now(); Clock::now() - from < 20s; std::this_thread::sleep_for(10ms))
    if (condition()) return true;
  return false;
}

backend::GpuOptions quick(const Standin& driver, int deadline_ms = 600) {
  backend::GpuOptions options = driver.options();
  options.deadline_ms = deadline_ms;
  return options;
}

class FaultTest : public testing::TestWithParam<Face> {
 protected:
  FaultTest() : driver_(GetParam()), device_(make_gpu_backend(quick(driver_))), frames_(*device_) {
    frames_.speak(3);
  }

  Standin driver_;
  std::unique_ptr<Backend> device_;
  Frames frames_;
};
INSTANTIATE_TEST_SUITE_P(Drivers, FaultTest, testing::Values(Face::hip, Face::cuda),
                         [](const auto& p) { return std::string(p.param == Face::hip ? "hip" : "cuda"); });

// ---- completions

TEST_P(FaultTest, ALostCompletionNeitherFailsNorDelaysAndIsCounted) {
  const Outcome plain = outcome([&] { frames_.speak(40, 4); });
  driver_.set_faults("blind@launch=4");  // inside the request: the work goes on, the driver never tells
  const Outcome o = outcome([&] { frames_.speak(40, 44); });
  EXPECT_FALSE(o.code) << o.what;
  EXPECT_LT(o.took, 5 * plain.took + 1s);  // whatever else this machine does
  EXPECT_TRUE(comes_true([&] { return device_->counters().lost_completions == 1; }));
  EXPECT_EQ(device_->counters().lost_completions, 1u);  // counted once: the stream was replaced
  frames_.speak(20, 84);
  EXPECT_EQ(device_->counters().lost_completions, 1u);
}

TEST_P(FaultTest, AStreamThatIsStuckBehindTheLastCompletionIsReplaced) {
  // Three launches a frame: the last one of the last frame.
  driver_.set_faults("lost@launch=15");
  EXPECT_FALSE(outcome([&] { frames_.speak(5, 4); }).code);
  std::this_thread::sleep_for(250ms);  // the next request finds the queue idle
  const Outcome o = outcome([&] { frames_.speak(5, 9); });
  EXPECT_FALSE(o.code) << o.what;
  EXPECT_TRUE(comes_true([&] { return device_->counters().lost_completions == 1; }));
}

TEST_P(FaultTest, AskingForCountersSpoilsNoRecording) {
  std::atomic<bool> over = false;
  std::string trouble;
  std::thread asking([&] {
    try {
      while (!over) device_->counters();
    } catch (const std::exception& e) {
      trouble = e.what();
    }
  });
  const Outcome o = outcome([&] {
    for (int i = 0; i < 300; ++i) {
      frames_.speak(1, 4 + i);
      frames_.record();  // nothing else is in work: the queue may be asked about
    }
  });
  over = true;
  asking.join();
  EXPECT_FALSE(o.code) << o.what;
  EXPECT_EQ(trouble, "");
  EXPECT_EQ(device_->counters().lost_completions, 0u);
  frames_.speak(3, 304);
}

// ---- standstill

TEST_P(FaultTest, AHangIsAWedgeWithDeviceProgramAndProgress) {
  driver_.set_faults("hang@launch=5");
  const Outcome o = outcome([&] { frames_.speak(10, 4); });
  ASSERT_EQ(o.code, ErrorCode::device_wedged);
  EXPECT_THAT(o.what, AllOf(HasSubstr(std::string(device_->name())), HasSubstr("program 'frame'"),
                            HasSubstr("run 5 of slot 0, whose last report is run 4"),
                            HasSubstr("pieces of work done")));
  EXPECT_GE(o.took, 600ms);
  EXPECT_LT(o.took, 5s);
}

TEST_P(FaultTest, AfterAWedgeEveryCallFailsAtOnceAndTheProcessLives) {
  driver_.set_faults("hang@launch=1");
  EXPECT_EQ(outcome([&] { frames_.speak(1, 4); }).code, ErrorCode::device_wedged);
  for (int i = 0; i < 3; ++i) {
    const Outcome o = outcome([&] { frames_.submit(); });
    EXPECT_EQ(o.code, ErrorCode::device_wedged);
    EXPECT_LT(o.took, 100ms);
  }
  EXPECT_THAT(device_->status(), HasSubstr("given up"));
  EXPECT_EQ(device_->counters().lost_completions, 0u);
  const auto from = Clock::now();
  device_.reset();  // frees nothing, waits for nothing
  EXPECT_LT(Clock::now() - from, 1s);
  driver_.set_faults("");
  device_ = make_gpu_backend(quick(driver_));  // the driver itself is well
  Frames(*device_).speak(2);
}

TEST_P(FaultTest, AReadThatNeverComesIsAWedge) {
  driver_.set_faults("hang@launch=1");
  const Buffer b = device_->allocate("b", Dtype::i32, 1, 1);
  int32_t value = 0;
  const Outcome o = outcome([&] { device_->read(b, std::as_writable_bytes(std::span(&value, 1))); });
  EXPECT_EQ(o.code, ErrorCode::device_wedged);
  EXPECT_LT(o.took, 5s);
}

TEST_P(FaultTest, SlowIsNotWedged) {
  driver_.set_faults("slow=50000");  // three launches a frame: 150 ms each, ten frames beyond the deadline
  const Outcome o = outcome([&] { frames_.speak(8, 4); });
  EXPECT_FALSE(o.code) << o.what;
  EXPECT_GT(o.took, 600ms);
}

TEST_P(FaultTest, AProcessThatWasStoppedBlamesNobody) {
  driver_.set_faults("slow=20000");
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {  // stops this process for longer than the deadline, then lets it go on
    usleep(200000);
    kill(parent, SIGSTOP);
    usleep(1500000);
    kill(parent, SIGCONT);
    _exit(0);
  }
  const Outcome o = outcome([&] { frames_.speak(10, 4); });
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(o.code) << o.what;
  EXPECT_GT(o.took, 1500ms);
  // A real standstill is still found.
  driver_.set_faults("hang@launch=1");
  EXPECT_EQ(outcome([&] { frames_.speak(1, 14); }).code, ErrorCode::device_wedged);
}

TEST(Watch, CountsOnlyTimeInWhichItLooked) {
  using gpu::Watch;
  Watch::Clock::time_point now{};
  Watch watch(1050ms, now);
  EXPECT_TRUE(watch.look(1, now));
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(watch.look(1, now += 100ms));
  EXPECT_TRUE(watch.look(1, now += std::chrono::hours(9)));  // stopped: counts as 100 ms
  EXPECT_EQ(watch.still(), 1000ms);
  EXPECT_FALSE(watch.look(1, now += 50ms));
}

TEST(Watch, ProgressBeginsAnew) {
  using gpu::Watch;
  Watch::Clock::time_point now{};
  Watch watch(300ms, now);
  for (uint64_t progress = 1; progress < 50; ++progress)
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(watch.look(progress, now += 90ms));
  EXPECT_TRUE(watch.look(49, now += 29ms));
  EXPECT_FALSE(watch.look(49, now += 91ms));
}

// ---- the device goes

TEST_P(FaultTest, ALostDeviceIsSaidLongBeforeTheDeadline) {
  device_ = make_gpu_backend(quick(driver_, 60000));
  Frames frames(*device_);
  frames.speak(3);
  driver_.set_faults("dead@launch=2");
  const Outcome o = outcome([&] { frames.speak(10, 4); });
  ASSERT_EQ(o.code, ErrorCode::device_lost) << o.what;
  EXPECT_THAT(o.what,
              AllOf(HasSubstr(std::string(device_->name()) + " was lost"), HasSubstr("ErrorUnknown")));
  EXPECT_THAT(device_->status(), HasSubstr("given up"));
  EXPECT_LT(o.took, 3s);
  EXPECT_EQ(outcome([&] { frames.submit(); }).code, ErrorCode::device_lost);
}

// ---- memory

TEST_P(FaultTest, EveryAllocationThatFailsUnwindsAndNamesItself) {
  device_.reset();
  driver_.set_faults("");
  size_t needed = 0;
  {
    const auto device = make_gpu_backend(quick(driver_));
    Frames frames(*device);
    needed = driver_.count("allocate");
  }
  ASSERT_GT(needed, 10u);
  for (size_t n = 1; n <= needed; ++n) {
    driver_.set_faults("oom@malloc=" + std::to_string(n));
    const Outcome o = outcome([&] {
      const auto device = make_gpu_backend(quick(driver_));
      Frames frames(*device);
    });
    ASSERT_EQ(o.code, ErrorCode::out_of_memory) << "allocation " << n << ": " << o.what;
    EXPECT_THAT(o.what, AllOf(HasSubstr("GiB are free"), HasSubstr("lower"))) << n;
  }
  driver_.set_faults("");
  device_ = make_gpu_backend(quick(driver_));
  Frames(*device_).speak(2);  // nothing of the failures is left
}

// ---- code

TEST_P(FaultTest, CodeThatIsNotForThisCardIsSaid) {
  const std::string architecture = GetParam() == Face::hip ? "gfx1100" : "sm_90";
  driver_.set_faults("nobin=" + architecture);
  const Outcome o = outcome([&] { make_gpu_backend(quick(driver_)); });
  ASSERT_EQ(o.code, ErrorCode::device_code);
  EXPECT_THAT(o.what,
              AllOf(HasSubstr(architecture), HasSubstr("does not load"), HasSubstr("ErrorNoBinaryForGpu")));
}

TEST_P(FaultTest, AFunctionThatTheDeviceRefusesIsSaidByName) {
  driver_.set_faults("nofunc=advance");
  const Outcome o = outcome([&] {
    const auto device = make_gpu_backend(quick(driver_));
    Frames frames(*device);
  });
  ASSERT_EQ(o.code, ErrorCode::device_function);
  EXPECT_THAT(o.what, AllOf(HasSubstr("'advance'"), HasSubstr("ErrorInvalidDeviceFunction")));
}

TEST(Faults, CodeOfOneDeviceIsRefusedOnTheOther) {
  const Standin driver(Face::hip, "gfx1100:4096:d,gfx1036:2048:i");
  for (const char* id : {"hip:0", "hip:1"}) {
    GpuOptions options = quick(driver);
    options.device = id;
    const auto device = make_gpu_backend(options);
    EXPECT_THAT(std::string(device->name()), HasSubstr(id));
    Frames(*device).speak(2);
  }
}

// ---- a driver without graphs

TEST(Faults, WithoutCaptureProgramsAreLaunchedOneByOne) {
  const Standin driver(Face::hip, "", "fail=begin_capture:801");
  const auto device = make_gpu_backend(quick(driver));
  Frames(*device).speak(5);
  EXPECT_EQ(driver.count("graph"), 0u);
}

TEST(Faults, B103_EveryCallThatAnswersAnErrorIsAnErrorOfOurs) {
  for (const char* call : {"set_device", "allocate", "allocate_host", "host_address", "create_stream",
                           "load_module", "get_function", "launch", "instantiate", "end_capture"}) {
    const Standin driver(Face::hip, "", std::string("fail=") + call + ":1");
    const Outcome o = outcome([&] {
      const auto device = make_gpu_backend(quick(driver));
      Frames frames(*device);
    });
    EXPECT_TRUE(o.code) << call;
    EXPECT_THAT(o.what, testing::AnyOf(HasSubstr("ErrorInvalidValue"), HasSubstr("has no kernel"))) << call;
  }
}

// ---- asking from outside

TEST_P(FaultTest, StatusTellsWhereAStandstillIsWhileItLasts) {
  driver_.set_faults("hang@launch=2");
  std::thread waiting(
      [&] { EXPECT_EQ(outcome([&] { frames_.speak(5, 4); }).code, ErrorCode::device_wedged); });
  std::this_thread::sleep_for(300ms);
  EXPECT_THAT(device_->status(),
              AllOf(HasSubstr("now in program 'frame' on queue 'frames'"), HasSubstr("codec: ")));
  waiting.join();
}

}  // namespace
}  // namespace skald::backend
