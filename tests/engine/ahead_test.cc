// What a device that works behind the host has in work while the host waits for the codec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "diagnose/forwarding_device.h"
#include "engine/scheduler.h"
#include "engine/streams.h"
#include "engine/utterance.h"
#include "support.h"

namespace skald::test {
namespace {

using backend::Program;
using testing::AllOf;
using testing::Each;
using testing::Ge;
using testing::Le;

/// Frames run no sooner than somebody waits for them, the codec at once. For one slot.
class LaggingDevice final : public diagnose::ForwardingDevice {
 public:
  LaggingDevice(std::unique_ptr<backend::Backend> inner, std::vector<int32_t>& beside)
      : ForwardingDevice(std::move(inner)), beside_(beside) {}

  int32_t frames_ahead() const override { return 4; }
  void select(backend::Queue queue) override { queue_ = queue; }
  Program record(std::string_view name, const std::function<void(backend::Ops&)>& body) override {
    const Program program = inner().record(name, body);
    names_.resize(static_cast<size_t>(program.id) + 1);
    names_.back() = name;
    return program;
  }
  void run(Program program) override {
    if (!name(program).starts_with("codec")) return waiting_.push_back(program);
    beside_.push_back(static_cast<int32_t>(
        std::count_if(waiting_.begin(), waiting_.end(), [&](Program p) { return draws(p); })));
    inner().run(program);
  }
  void write(const backend::Buffer& to, std::span<const std::byte> bytes) override {
    settle(), inner().write(to, bytes);
  }
  void read(const backend::Buffer& from, std::span<std::byte> bytes) override {
    settle(), inner().read(from, bytes);
  }
  void zero(const backend::Buffer& view) override { settle(), inner().zero(view); }
  backend::FrameReport await_report(const backend::SlotArrays& slots, int32_t slot, int32_t run,
                                    std::span<int32_t> codes) override {
    while (drawn_ < run && !waiting_.empty()) step();
    EXPECT_EQ(drawn_, run);
    return inner().await_report(slots, slot, run, codes);
  }

 private:
  const std::string& name(Program p) const { return names_.at(static_cast<size_t>(p.id)); }
  bool draws(Program p) const { return name(p).starts_with("frame.codes"); }
  void step() {
    inner().run(waiting_.front());
    drawn_ += draws(waiting_.front());
    waiting_.pop_front();
  }
  /// Work on the frames' queue comes behind what is there.
  void settle() {
    while (queue_ == backend::Queue::frames && !waiting_.empty()) step();
  }

  std::vector<int32_t>& beside_;  ///< for every codec program: frames in work that nobody waited for yet
  backend::Queue queue_ = backend::Queue::frames;
  std::vector<std::string> names_;
  std::deque<Program> waiting_;
  int32_t drawn_ = 0;
};

std::shared_ptr<engine::Core> lagging_core(std::vector<int32_t>& beside) {
  EngineOptions options;
  options.threads = 1, options.slots = 1, options.cache_capacity = 1024;
  return engine::load_core(model_dir("tiny-cv"), options, [&](std::unique_ptr<backend::Backend> inner) {
    return std::make_unique<LaggingDevice>(std::move(inner), beside);
  });
}

SpeechRequest request() {
  SpeechRequest r = simple("A sentence that is long enough for sixty frames.", 60);
  r.sampling.min_new_tokens = 61;
  r.seed = 3;
  return r;
}

std::vector<int32_t> codes_of(SpeechStream& stream, int32_t chunk) {
  while (!stream.next_audio(chunk).last) {
  }
  return stream.codes();
}

/// Every chunk of 16 frames but the last, behind which there is nothing to do, has half of its frames beside
/// it.
TEST(Ahead, FramesGoOnWhileTheHostWaitsForTheCodec) {
  const std::vector<int32_t> want = codes_of(*tiny("tiny-cv").start_stream(request()), 16);
  std::vector<int32_t> beside;
  {
    const auto core = lagging_core(beside);
    const SpeechRequest r = engine::completed_request(*core, request());
    EXPECT_EQ(codes_of(*engine::make_speech_stream(core, r, nullptr), 16), want);
  }
  ASSERT_EQ(beside.size(), 5u);  // 1, 16, 16, 16 and 11 frames
  EXPECT_EQ(beside.back(), 0);
  EXPECT_GE(beside.front(), 3);
  beside.pop_back(), beside.erase(beside.begin());
  EXPECT_THAT(beside, Each(AllOf(Ge(8), Le(backend::Backend::kReportedRuns))));
}

TEST(Ahead, TheSchedulersToo) {
  const std::vector<int32_t> want = codes_of(*tiny("tiny-cv").start_stream(request()), 16);
  std::vector<int32_t> beside;
  {
    engine::Scheduler scheduler(lagging_core(beside));
    EXPECT_EQ(codes_of(*scheduler.client(false)->start_stream(request(), nullptr), 16), want);
  }
  ASSERT_EQ(beside.size(), 4u);
  EXPECT_EQ(beside.back(), 0);
  beside.pop_back();
  EXPECT_THAT(beside, Each(AllOf(Ge(8), Le(backend::Backend::kReportedRuns))));
}

TEST(Ahead, FewFramesToDecodeNeedFewBeside) {
  EXPECT_EQ(engine::frames_beside_codec(4, 1), 2);
  EXPECT_EQ(engine::frames_beside_codec(4, 16), 8);
  EXPECT_EQ(engine::frames_beside_codec(4, 300), 8) << "a reference; more would not be reported";
}

}  // namespace
}  // namespace skald::test
