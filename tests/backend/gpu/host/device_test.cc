// The GPU device on stand-in drivers: bytes in and out, programs, queues, reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "frames.h"
#include "skald/error.h"
#include "standin/rig.h"

namespace skald::backend {
namespace {

using standin::Face;
using standin::Standin;
using testing::HasSubstr;

std::vector<int32_t> numbers(size_t n, int32_t first = 1) {
  std::vector<int32_t> v(n);
  std::iota(v.begin(), v.end(), first);
  return v;
}

class GpuDeviceTest : public testing::TestWithParam<Face> {
 protected:
  GpuDeviceTest()
      : driver_(GetParam(), GetParam() == Face::hip5 ? "gfx906:2048:d" : ""),
        device_(make_gpu_backend(driver_.options())) {}

  std::vector<int32_t> read(const Buffer& b) {
    std::vector<int32_t> v(static_cast<size_t>(b.rows) * static_cast<size_t>(b.width));
    device_->read(b, std::as_writable_bytes(std::span(v)));
    return v;
  }
  void write(const Buffer& b, const std::vector<int32_t>& v) {
    device_->write(b, std::as_bytes(std::span(v)));
  }
  Buffer ints(const char* label, int64_t rows, int32_t width) {
    return device_->allocate(label, Dtype::i32, rows, width);
  }

  Standin driver_;
  std::unique_ptr<Backend> device_;
};

// ROCm 6 with waves of 32, ROCm 5 with waves of 64, CUDA with overlapping launches.
INSTANTIATE_TEST_SUITE_P(
    Drivers, GpuDeviceTest, testing::Values(Face::hip, Face::hip5, Face::cuda), [](const auto& p) {
      return std::string(p.param == Face::hip ? "hip" : p.param == Face::hip5 ? "hip5" : "cuda");
    });

TEST_P(GpuDeviceTest, NewMemoryIsZero) {
  for (const auto& [rows, width] : {std::pair<int64_t, int32_t>{1, 1}, {3, 5}, {257, 33}})
    EXPECT_EQ(read(ints("b", rows, width)), std::vector<int32_t>(static_cast<size_t>(rows * width), 0));
  EXPECT_EQ(device_->buffer_bytes(), 4 * (1 + 15 + 257 * 33));
}

TEST_P(GpuDeviceTest, RowsWithGapsGoInAndOutAndLeaveTheRestAlone) {
  const Buffer b = ints("b", 5, 12);
  write(b, numbers(60));
  EXPECT_EQ(read(b), numbers(60));
  write(b.columns(3, 2).row_range(1, 3), {-1, -2, -3, -4, -5, -6});
  std::vector<int32_t> want = numbers(60);
  for (int r = 0; r < 3; ++r)
    for (int c = 0; c < 2; ++c) want[static_cast<size_t>((r + 1) * 12 + 3 + c)] = -(2 * r + c + 1);
  EXPECT_EQ(read(b), want);
  EXPECT_EQ(read(b.columns(3, 2).row_range(1, 3)), (std::vector<int32_t>{-1, -2, -3, -4, -5, -6}));
  device_->zero(b.columns(4, 4).row_range(4, 1));
  device_->zero(b.columns(0, 1));
  for (int r = 0; r < 5; ++r) want[static_cast<size_t>(r * 12)] = 0;
  for (int c = 4; c < 8; ++c) want[static_cast<size_t>(4 * 12 + c)] = 0;
  EXPECT_EQ(read(b), want);
}

TEST_P(GpuDeviceTest, SingleBytes) {
  const Buffer b = device_->allocate("b", Dtype::u8, 3, 7);
  std::vector<uint8_t> in(21), out(21);
  std::iota(in.begin(), in.end(), 1);
  device_->write(b, std::as_bytes(std::span(in)));
  device_->zero(b.columns(2, 3).row_range(1, 2));
  device_->read(b, std::as_writable_bytes(std::span(out)));
  for (size_t r = 1; r < 3; ++r)
    for (size_t c = 2; c < 5; ++c) in[r * 7 + c] = 0;
  EXPECT_EQ(in, out);
}

TEST_P(GpuDeviceTest, MoreThanStagingTakesAtOnceAndManyWritesWithoutARead) {
  const auto width = int32_t{5} << 18;  // 5 MiB rows: flat pieces
  const Buffer b = ints("b", 3, width);
  const std::vector<int32_t> v = numbers(3 * static_cast<size_t>(width));
  write(b, v);
  EXPECT_EQ(read(b), v);
  // Rows with gaps, many times what staging holds: it is used over and over.
  const Buffer gaps = b.columns(1, 1 << 18);
  std::vector<int32_t> part(3 << 18);
  for (int i = 0; i < 12; ++i) {
    std::fill(part.begin(), part.end(), 1000 + i);
    write(gaps, part);
  }
  EXPECT_EQ(read(gaps), part);
  EXPECT_EQ(read(b.columns(0, 1)),
            (std::vector<int32_t>{v[0], v[static_cast<size_t>(width)], v[2 * static_cast<size_t>(width)]}));
}

TEST_P(GpuDeviceTest, WeightsOfEverySizeArriveWhole) {
  // A table is read by gather_sum: what arrives is what was loaded.
  const int32_t entries = 700, width = 256;  // 700 KiB: by the copy engine
  std::vector<float> values(static_cast<size_t>(entries) * width);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 9973);
  const Weight table =
      device_->load(WeightRole::table,
                    {.name = "table", .shape = {entries, width}, .data = std::as_bytes(std::span(values))});
  EXPECT_EQ(device_->weight_bytes(), values.size() * 4);
  const Buffer ids = ints("ids", 2, 1), slot = ints("slot", 1, 1),
               out = device_->allocate("out", Dtype::f32, 2, width);
  write(ids, {0, entries - 1});
  const Program p = device_->record("gather", [&](Ops& ops) {
    ops.gather_sum(
        {.tables = {table}, .ids = ids, .out = out, .lanes = {.lanes = 1, .rows = 2, .slot = slot}});
  });
  device_->run(p);
  std::vector<float> got(2 * width);
  device_->read(out, std::as_writable_bytes(std::span(got)));
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + width, values.begin()));
  EXPECT_TRUE(std::equal(got.begin() + width, got.end(), values.end() - width));
}

TEST_P(GpuDeviceTest, ProgramsReplayInOrderAndOpByOp) {
  const Buffer slot = ints("slot", 1, 1), counter = ints("counter", 1, 1), copy = ints("copy", 4, 1);
  const Lanes lanes{.lanes = 1, .rows = 1, .slot = slot};
  const Program p = device_->record("count", [&](Ops& ops) {
    ops.label("twice");
    ops.advance({.counter = counter, .lanes = lanes});
    ops.advance({.counter = counter, .lanes = lanes});
  });
  ASSERT_EQ(device_->ops(p).size(), 2u);
  EXPECT_EQ(device_->ops(p)[1].kind, "advance");
  EXPECT_EQ(device_->ops(p)[1].label, "twice");
  EXPECT_EQ(read(counter), std::vector<int32_t>{0});  // recording is not running
  for (int i = 0; i < 5; ++i) device_->run(p);
  EXPECT_EQ(read(counter), std::vector<int32_t>{10});
  device_->run_op(p, 1);
  EXPECT_EQ(read(counter), std::vector<int32_t>{11});
  EXPECT_THROW(device_->run_op(p, 2), Error);
  EXPECT_THROW(device_->run({7}), Error);
  (void)copy;
}

TEST_P(GpuDeviceTest, TheCodecsQueueSeesWhatWasWrittenBeforeIt) {
  const Buffer slot = ints("slot", 1, 1), counter = ints("counter", 1, 1);
  device_->select(Queue::codec);
  const Program p = device_->record("codec", [&](Ops& ops) {
    ops.advance({.counter = counter, .lanes = {.lanes = 1, .rows = 1, .slot = slot}});
  });
  device_->select(Queue::frames);
  // The driver is busy with the first write, then prefers what came last: a write that is not waited for
  // would be first.
  driver_.set_faults("slow=50000;newest");
  write(slot, {0});
  const Buffer late = ints("late", 1, 1);  // zeroed on the frames' queue
  device_->select(Queue::codec);
  write(late, {5});
  device_->run(p);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // until all of it is done, in whatever order
  driver_.set_faults("");
  EXPECT_EQ(read(late), std::vector<int32_t>{5});
  EXPECT_EQ(read(counter), std::vector<int32_t>{1});
  device_->select(Queue::frames);
}

TEST_P(GpuDeviceTest, ViewsAndSizesAreChecked) {
  const Buffer b = ints("small", 2, 3);
  EXPECT_THROW(read(b.row_range(1, 2)), Error);
  EXPECT_THROW(write(b, {1, 2}), Error);
  EXPECT_THROW(read({}), Error);
  try {
    ints("vast", 1 << 20, 1 << 20);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::out_of_memory);
    EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("vast"), HasSubstr("4398046511104 bytes"),
                                         HasSubstr("GiB are free")));
  }
  EXPECT_EQ(read(b), std::vector<int32_t>(6, 0));  // and goes on
}

TEST_P(GpuDeviceTest, ALaneThatNamesNoSlotIsAnErrorWithOpAndLabel) {
  const Buffer slot = ints("slot", 1, 1), counter = ints("counter", 2, 1);
  const Program p = device_->record("count", [&](Ops& ops) {
    ops.label("here");
    ops.advance({.counter = counter, .lanes = {.lanes = 1, .rows = 1, .slot = slot}});
  });
  write(slot, {9});
  device_->run(p);
  try {
    read(counter);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::internal);
    EXPECT_THAT(e.what(),
                testing::AllOf(HasSubstr("count"), HasSubstr("advance (here)"), HasSubstr("slot 9")));
  }
  EXPECT_EQ(read(counter), (std::vector<int32_t>{0, 0}));  // told once
}

TEST(GpuDevice, SpeedIsMeasured) {
  const Standin driver(Face::hip, "gfx1100:160:d");
  EXPECT_GT(make_gpu_backend(driver.options())->measure_speed().read_bytes_per_second, 0);
}

TEST_P(GpuDeviceTest, NameAndStatus) {
  EXPECT_THAT(std::string(device_->name()), HasSubstr("Stand-in"));
  EXPECT_THAT(device_->status(), testing::AllOf(HasSubstr(std::string(device_->name())),
                                                HasSubstr("frames: "), HasSubstr("codec: ")));
}

// ---- frames

TEST_P(GpuDeviceTest, ReportsComeByRunAndBySlotWhateverTheStatus) {
  Frames frames(*device_, 3);
  for (int i = 0; i < 5; ++i) frames.submit();
  for (int32_t run = 1; run <= 5; ++run) {
    const FrameReport r = frames.await(run);
    EXPECT_EQ(r.frames, std::min(run, 3));
    EXPECT_EQ(r.status, run < 3 ? kRunning : kLength) << run;
    EXPECT_EQ(r.position, std::min(run, 3));
    EXPECT_EQ(frames.codes, (std::vector<int32_t>{7, 8, 9}));
  }
  frames.use(1);
  frames.submit();
  EXPECT_EQ(frames.await(1, 1).frames, 1);  // counts by slot
}

TEST_P(GpuDeviceTest, ReportsOfLongAgoAreRefusedNotInvented) {
  Frames frames(*device_);
  for (int i = 0; i < Backend::kReportedRuns + 2; ++i) frames.submit();
  EXPECT_EQ(frames.await(Backend::kReportedRuns + 2).frames, Backend::kReportedRuns + 2);
  EXPECT_EQ(frames.await(3).frames, 3);
  try {
    frames.await(2);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("was overwritten"));
  }
}

TEST(Queues, FramesGoBeforeTheCodecWhereTheDriverCan) {
  for (const Face face : {Face::cuda, Face::hip, Face::hip5}) {
    const Standin driver(face);
    const std::unique_ptr<Backend> device = make_gpu_backend(driver.options());
    EXPECT_EQ(driver.count("urgent"), face == Face::hip5 ? 0u : 1u);
  }
}

/// What the driver was asked while `frames` frames were spoken.
struct Asked {
  unsigned long queries, copies, modules, allocations;
  uint64_t reads, waits;
  bool operator==(const Asked&) const = default;
};

Asked ask_for(Standin& driver, int32_t count) {
  const std::unique_ptr<Backend> device = make_gpu_backend(driver.options());
  Frames frames(*device);
  frames.speak(1);
  const DeviceCounters before = device->counters();
  driver.set_faults("");
  frames.speak(count, 2);
  const DeviceCounters after = device->counters();  // asks each queue once
  EXPECT_EQ(after.programs - before.programs, static_cast<uint64_t>(count));
  EXPECT_EQ(driver.count("graph"), static_cast<unsigned long>(count));
  return {driver.count("query"),    driver.count("copy"),       driver.count("module"),
          driver.count("allocate"), after.reads - before.reads, after.waits - before.waits};
}

void expect_waits_do_not_grow(const std::vector<int32_t>& counts) {
  for (const Face face : {Face::hip, Face::cuda}) {
    Standin driver(face);
    const Asked first = ask_for(driver, counts.front());
    EXPECT_EQ(first.copies, 0u);
    EXPECT_EQ(first.reads, 0u);
    EXPECT_EQ(first.allocations, 0u);
    EXPECT_LE(first.waits, 6u);
    for (const int32_t count : counts) {
      const Asked asked = ask_for(driver, count);
      EXPECT_EQ(asked.copies, 0u) << count;
      EXPECT_EQ(asked.reads, 0u) << count;
      EXPECT_EQ(asked.modules, 0u) << count;
      EXPECT_EQ(asked.allocations, 0u) << count;
      // Questions are asked when a queue was found idle for a while, never for a frame.
      EXPECT_LE(asked.queries, 12u) << count;
      EXPECT_LE(asked.waits, 12u) << count;
    }
  }
}

TEST(Waits, DoNotGrowWithTheNumberOfFrames) { expect_waits_do_not_grow({10, 100, 1000, 4000}); }
}  // namespace
}  // namespace skald::backend
