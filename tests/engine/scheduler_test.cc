// Many requests on one model: same codes as alone, fair turns, slots that come back.
#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <tuple>

#include "clip.h"
#include "engine/long_text.h"
#include "engine/scheduler_job.h"
#include "heap_limit.h"
#include "support.h"
#include "watched_device.h"

namespace skald::test {
namespace {

using namespace std::chrono_literals;
using engine::Candidate;
using engine::choose_frames;
using engine::Scheduler;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<engine::Core> core_with(const std::string& name, int32_t slots, int32_t cache = 1024) {
  EngineOptions options;
  options.threads = 1, options.slots = slots, options.cache_capacity = cache;
  return engine::load_core(model_dir(name), options);
}

SpeechRequest sampled(const std::string& text, uint64_t seed, int32_t max_frames = 40) {
  SpeechRequest r = simple(text, max_frames);
  r.sampling = {}, r.seed = seed;
  return r;
}

const char* const kTexts[] = {
    "Hello there.", "Quite another one!",         "A third, longer sentence with a comma.",
    "Four",         "Five is here too.",          "Six and six",
    "Seven.",       "Eight, at last: the eighth."};

// ---- the choice

TEST(ChooseFrames, UnheardFirstInOrderOfArrivalThenByLead) {
  const std::vector<Candidate> c{{0.2, 0}, {std::nullopt, 3}, {-1.0, 1}, {std::nullopt, 2}};
  EXPECT_THAT(choose_frames(c, 8), ElementsAre(3, 1, 2, 0));
  EXPECT_THAT(choose_frames(c, 2), ElementsAre(3, 1));
}

TEST(ChooseFrames, AmpleLeadYieldsWhileAnyoneIsTight) {
  const std::vector<Candidate> tight{{5.0, 0}, {0.1, 1}, {0.9, 2}};
  EXPECT_THAT(choose_frames(tight, 8), ElementsAre(1, 2));
  const std::vector<Candidate> unheard{{5.0, 0}, {std::nullopt, 1}};
  EXPECT_THAT(choose_frames(unheard, 8), ElementsAre(1));
  const std::vector<Candidate> easy{{5.0, 0}, {0.5, 1}};
  EXPECT_THAT(choose_frames(easy, 8), ElementsAre(1, 0)) << "nothing is gained by waiting";
}

TEST(ChooseFrames, EveryoneIsServedWhenAllAreLate) {
  // 20 streams that lose 0.05 s a round and gain 0.08 s when served: nobody is left behind.
  std::vector<Candidate> c(20);
  std::vector<int> served(20);
  for (size_t i = 0; i < 20; ++i) c[i] = {0.0, i};
  for (int round = 0; round < 200; ++round) {
    for (auto& x : c) *x.lead -= 0.05;
    for (const size_t i : choose_frames(c, 8)) *c[i].lead += 0.08, ++served[i];
  }
  EXPECT_GE(*std::min_element(served.begin(), served.end()), 79);
  EXPECT_LE(*std::max_element(served.begin(), served.end()), 81);
}

TEST(ChunkFrames, OneFirstThenGrowing) {
  EXPECT_EQ(engine::chunk_frames(std::nullopt, 16), 1);
  EXPECT_EQ(engine::chunk_frames(0.08, 16), 1);
  EXPECT_EQ(engine::chunk_frames(0.5, 16), 3);
  EXPECT_EQ(engine::chunk_frames(100, 16), 16);
  EXPECT_EQ(engine::chunk_frames(-3, 16), 4);
  EXPECT_EQ(engine::chunk_frames(-3, 2), 2);
}

// ---- the pace of a listener

TEST(Pace, AListenerWhoRanDryBeginsAnew) {
  const engine::Clock::time_point start{};
  engine::Pace pace(0.08, true);
  EXPECT_FALSE(pace.lead(start));
  pace.heard(10, start);
  EXPECT_NEAR(*pace.lead(start + 300ms), 0.5, 1e-9);
  EXPECT_NEAR(*pace.lead(start + 30s), -29.2, 1e-9);
  pace.heard(5, start + 30s);
  EXPECT_NEAR(*pace.lead(start + 30s), 0.4, 1e-9) << "29 s of silence are not made up for";
}

TEST(Pace, AfterAPauseOfTheTextTheFirstFrameIsWaitedFor) {
  const engine::Clock::time_point start{};
  engine::Pace pace(0.08, true);
  pace.heard(10, start);
  pace.resume(start + 300ms);
  EXPECT_NEAR(*pace.lead(start + 300ms), 0.5, 1e-9) << "the listener did not notice the pause";
  pace.resume(start + 30s);
  EXPECT_FALSE(pace.lead(start + 30s));
}

TEST(Pace, ListenersGoBeforeStreamsThatNobodyHears) {
  const engine::Clock::time_point start{};
  const auto now = start + 10s;
  engine::Pace heard(0.08, true), fresh(0.08, true), ahead(0.08, true), unheard(0.08, false);
  heard.heard(10, now), ahead.heard(100, now);
  const auto order_with = [&](engine::Clock::time_point served) {
    const std::vector<Candidate> c{{unheard.turn(now, served), 0},
                                   {heard.turn(now, start), 1},
                                   {fresh.turn(now, start), 2},
                                   {ahead.turn(now, start), 3}};
    return choose_frames(c, 8);
  };
  EXPECT_THAT(order_with(now), ElementsAre(2, 1, 0)) << "someone waits for a first frame, so that one yields";
  EXPECT_THAT(order_with(now - 1s), ElementsAre(2, 0, 1)) << "but not for ever";
  const std::vector<Candidate> both{{unheard.turn(now, now), 0}, {ahead.turn(now, start), 1}};
  EXPECT_THAT(choose_frames(both, 8), ElementsAre(0, 1)) << "a request for a file takes nobody's turn";
}

// ---- the same codes

TEST(Scheduler, CompanyChangesNoCodeAndNoSample) {
  for (const char* model : {"tiny-cv", "tiny-cv-1b7"}) {
    std::vector<Outcome> alone;
    for (size_t i = 0; i < 8; ++i) alone.push_back(speak(tiny(model), sampled(kTexts[i], 100 + i)));
    Scheduler scheduler(core_with(model, 8));
    for (const size_t company : {1u, 2u, 3u, 5u, 8u}) {
      std::vector<Outcome> got(company);
      std::vector<std::thread> threads;
      for (size_t i = 0; i < company; ++i)
        threads.emplace_back([&, i] {
          const auto client = scheduler.client(i % 2 == 0);
          got[i] = speak(*client, sampled(kTexts[i], 100 + i), nullptr, 1 + static_cast<int32_t>(i));
        });
      for (auto& t : threads) t.join();
      for (size_t i = 0; i < company; ++i) {
        ASSERT_FALSE(got[i].error) << got[i].error->what();
        EXPECT_EQ(got[i].codes, alone[i].codes) << model << " " << i << " of " << company;
        EXPECT_EQ(got[i].samples, alone[i].samples) << model << " " << i << " of " << company;
        EXPECT_EQ(got[i].result.stop, alone[i].result.stop);
        EXPECT_EQ(got[i].result.frames, alone[i].result.frames);
      }
    }
    EXPECT_GT(scheduler.state().width_sum, scheduler.state().rounds) << "nothing ever ran together";
  }
}

TEST(Scheduler, ComingAndGoingChangesNoCode) {
  constexpr size_t kThreads = 6, kRounds = 8;
  std::vector<Outcome> alone;
  for (size_t i = 0; i < 8; ++i)
    alone.push_back(speak(tiny("tiny-cv"), sampled(kTexts[i], i, 10 + static_cast<int32_t>(5 * i))));
  Scheduler scheduler(core_with("tiny-cv", kThreads));
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      const auto client = scheduler.client(true);
      for (size_t round = 0; round < kRounds; ++round) {
        const size_t i = random() % 8;
        const Outcome got = speak(*client, sampled(kTexts[i], i, 10 + static_cast<int32_t>(5 * i)));
        wrong += got.error || got.codes != alone[i].codes || got.samples != alone[i].samples;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(scheduler.state().active, 0);
}

TEST(Scheduler, TextInPiecesEqualsOnePush) {
  const SpeechRequest request = sampled("", 5, 60);
  const std::string text = "One sentence arrives. Then another one, in pieces.";
  SpeechRequest whole = request;
  whole.text = text;
  const Outcome alone = speak_pieces(tiny("tiny-cv"), whole, {});
  Scheduler scheduler(core_with("tiny-cv", 4));
  std::vector<Outcome> got(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      std::vector<std::string> pieces;
      for (size_t at = 0; at < text.size(); at += 3 + i) pieces.push_back(text.substr(at, 3 + i));
      const auto client = scheduler.client(true);
      got[i] = speak_pieces(*client, request, pieces);
    });
  for (auto& t : threads) t.join();
  for (const Outcome& o : got) {
    ASSERT_FALSE(o.error) << o.error->what();
    EXPECT_EQ(o.codes, alone.codes);
    EXPECT_EQ(o.samples, alone.samples);
  }
}

TEST(Scheduler, TextStreamWaitsForTextOfAnotherThread) {
  Scheduler scheduler(core_with("tiny-cv", 2));
  const auto client = scheduler.client(true);
  const auto stream = client->start_text_stream(sampled("", 5, 30));
  EXPECT_EQ(stream->poll(4).event, StreamEvent::need_text);
  std::thread writer([&] {
    for (const char c : std::string("A text that is typed.")) {
      stream->push(std::string(1, c));
      std::this_thread::sleep_for(1ms);
    }
    stream->finish();
  });
  int64_t frames = 0;
  for (;;) {
    const StreamReply reply = stream->next(4);
    frames += reply.chunk.frames;
    if (reply.event != StreamEvent::chunk || reply.chunk.last) break;
  }
  writer.join();
  EXPECT_EQ(stream->result().frames, frames);
  EXPECT_GT(frames, 0);
}

// A reader that is asked for text may wait for it a long time: it has every frame that the text so far gave.
TEST(Scheduler, NothingIsWithheldWhileTextIsAwaited) {
  const auto frames_before_text_is_needed = [](Engine& engine) {
    const auto stream = engine.start_text_stream(simple("", 900));
    stream->push("A sentence of some length that is not over, whatever else may still be said about");
    int32_t frames = 0;
    for (StreamReply reply = stream->poll(4); reply.event == StreamEvent::chunk; reply = stream->poll(4))
      frames += reply.chunk.frames;
    return frames;
  };
  const int32_t alone = frames_before_text_is_needed(tiny("tiny-endless"));
  ASSERT_GT(alone, 8);
  Scheduler scheduler(core_with("tiny-endless", 2));
  for (const bool live : {true, false})
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(frames_before_text_is_needed(*scheduler.client(live)), alone) << live;
}

TEST(Scheduler, LongTextSpeaksThroughIt) {
  engine::LongTextOptions options;
  options.max_piece = 20;
  const SpeechRequest request = sampled("One sentence here. And one more there. A third one follows.", 3, 90);
  const auto all = [&](Engine& e) {
    engine::LongText text(e, request, options);
    std::vector<float> samples;
    for (bool last = false; !last;) {
      const AudioChunk c = text.next_audio(4);
      samples.insert(samples.end(), c.samples.begin(), c.samples.end());
      last = c.last;
    }
    return samples;
  };
  const std::vector<float> alone = all(tiny("tiny-cv"));
  Scheduler scheduler(core_with("tiny-cv", 3));
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> got(3);
  for (size_t i = 0; i < 3; ++i) threads.emplace_back([&, i] { got[i] = all(*scheduler.client(true)); });
  for (auto& t : threads) t.join();
  for (const auto& samples : got) EXPECT_EQ(samples, alone);
}

TEST(Scheduler, DecodeModesHoldBackAsEverywhere) {
  Scheduler scheduler(core_with("tiny-endless", 2));
  for (const DecodeMode mode : {DecodeMode::whole, DecodeMode::official}) {
    SpeechRequest r = simple("Hello there", 30);
    r.decode = mode;
    EXPECT_EQ(speak(*scheduler.client(true), r).samples, speak(tiny("tiny-endless"), r).samples);
  }
}

// ---- turns

// B084
TEST(Scheduler, ANewcomerIsHeardBeforeAStreamThatIsFarAhead) {
  engine::SchedulerOptions options;
  options.ready_frames = 2000;
  Scheduler scheduler(core_with("tiny-endless", 2, 4096), options);
  const auto long_client = scheduler.client(true), short_client = scheduler.client(true);
  const auto ahead = long_client->start_stream(simple("Hello", 2000));
  while (ahead->result().frames < 100) std::this_thread::sleep_for(1ms);
  const int64_t before = ahead->result().frames;
  const auto fresh = short_client->start_stream(simple("Hello", 3));
  ASSERT_EQ(fresh->next_audio(1).frames, 1);
  EXPECT_LE(ahead->result().frames - before, 40) << "the newcomer waited for a stream that is seconds ahead";
}

TEST(Scheduler, ASlowReaderStopsItsOwnStreamOnly) {
  engine::SchedulerOptions options;
  options.ready_frames = 10;
  Scheduler scheduler(core_with("tiny-endless", 2), options);
  const auto a = scheduler.client(false), b = scheduler.client(true);
  const auto slow = a->start_stream(simple("Hello", 400));
  EXPECT_EQ(speak(*b, simple("Hello", 200)).result.frames, 200);
  std::this_thread::sleep_for(20ms);
  EXPECT_LE(slow->result().frames, 10 + 32);
  const Outcome rest = drain(*slow);
  EXPECT_EQ(rest.samples.size(), 400u * 1920);
}

TEST(Scheduler, FirstChunkIsOneFrame) {
  Scheduler scheduler(core_with("tiny-cv", 1));
  const auto client = scheduler.client(true);
  const auto stream = client->start_stream(sampled("Hello there", 3));
  EXPECT_EQ(stream->next_audio(16).frames, 1);
  drain(*stream);
  EXPECT_GT(stream->result().first_audio_ms, 0);
  EXPECT_GT(stream->result().rtf, 0);
}

// ---- ends

TEST(Scheduler, CancelFreesTheSlotWithinAFrame) {
  Scheduler scheduler(core_with("tiny-endless", 1));
  const auto client = scheduler.client(true), other = scheduler.client(true);
  for (int i = 0; i < 20; ++i) {
    auto stream = client->start_stream(simple("Hello", 900));
    stream->next_audio(1);
    EXPECT_EQ(error_of([&] { other->start_stream(simple("Hello", 2)); }).code(), ErrorCode::unsupported);
    stream->cancel();
    EXPECT_EQ(error_of([&] {
                for (;;) stream->next_audio(1);
              }).code(),
              ErrorCode::cancelled);
    EXPECT_EQ(stream->result().stop, StopReason::cancelled);
    EXPECT_EQ(speak(*other, simple("Hello", 2)).result.frames, 2);
  }
  EXPECT_EQ(scheduler.state().active, 0);
}

/// A model on a device that is lost as soon as a test says so.
std::shared_ptr<engine::Core> losable(const std::string& name, const std::atomic<bool>& lost) {
  EngineOptions options;
  options.threads = 1, options.slots = 1, options.cache_capacity = 1024;
  return engine::load_core(model_dir(name), options, [&](auto device) {
    return std::make_unique<WatchedDevice>(std::move(device), [&](std::string_view, std::string_view) {
      if (lost) throw Error(ErrorCode::device_lost, "the device was taken away");
    });
  });
}

// Whoever watches the scheduler must see it, whatever the request was doing.
TEST(Scheduler, ADeviceLostBeforeTheFirstFrameIsAFault) {
  std::atomic<bool> lost = false;
  Scheduler scheduler(losable("tiny-cv", lost));
  EXPECT_FALSE(speak(*scheduler.client(true), simple("Hello", 2)).error);
  EXPECT_FALSE(scheduler.state().fault);
  lost = true;  // while nobody speaks
  const Outcome out = speak(*scheduler.client(true), simple("Hello", 2));
  const auto fault = scheduler.state().fault;
  ASSERT_TRUE(out.error);
  EXPECT_EQ(out.error->code(), ErrorCode::device_lost);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code(), ErrorCode::device_lost);
}

TEST(Scheduler, ADeviceLostBesideTheRoundsIsAFault) {
  const auto fault_of = [](const auto& work) {
    std::atomic<bool> lost = false;
    Scheduler scheduler(losable("tiny-base", lost));
    const auto client = scheduler.client(true);
    lost = true;
    EXPECT_EQ(error_of([&] { work(*client); }).code(), ErrorCode::device_lost);
    return scheduler.state().fault.has_value();
  };
  VoiceRequest voice;
  voice.name = "anna", voice.consent = "yes", voice.recording.samples = clip_samples(48000, 3);
  EXPECT_TRUE(fault_of([&](Engine& e) { e.make_voice(voice); }));
  EXPECT_TRUE(fault_of([](Engine& e) { e.decode(std::vector<int32_t>(16), DecodeMode::stream); }));
  EXPECT_TRUE(fault_of([](Engine& e) { e.encode([](std::span<float> to) { return to.size(); }); }));
}

// Only missing progress is a standstill: a prompt may take minutes on a slow machine.
TEST(Scheduler, ALongRoundIsNoStandstill) {
  std::atomic<int> pause_ms = 0;
  EngineOptions options;
  options.threads = 1, options.slots = 1;
  auto core = engine::load_core(model_dir("tiny-cv"), options, [&](auto device) {
    return std::make_unique<WatchedDevice>(std::move(device), [&](std::string_view call, std::string_view) {
      if (call != "run") return;
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    });
  });
  Scheduler scheduler(std::move(core), {.start_budget_ms = 10000, .wedged_after = 400ms});
  const auto most_still = [&](int pause) {
    pause_ms = pause;
    double still = 0, age = 0;
    bool wedged = false;
    std::atomic<bool> over = false;
    std::thread client([&] { speak(*scheduler.client(true), simple("Hello there", 1)), over = true; });
    while (!over) {
      const auto s = scheduler.state();
      still = std::max(still, s.still_ms), age = std::max(age, s.round_age_ms), wedged |= s.wedged;
      std::this_thread::sleep_for(1ms);
    }
    client.join();
    EXPECT_GE(age, still);
    return std::tuple(age, wedged);
  };
  const auto [slow_age, slow_wedged] = most_still(100);
  EXPECT_GT(slow_age, 450) << "no long round: the test shows nothing";
  EXPECT_FALSE(slow_wedged);
  const auto [still_age, still_wedged] = most_still(1000);
  EXPECT_TRUE(still_wedged) << still_age;
}

// The thread of the scheduler serves everyone: what one stream cannot have is that stream's end.
TEST(Scheduler, NoMemoryForSamplesEndsTheirStreamOnly) {
  Scheduler scheduler(core_with("tiny-endless", 2));
  const auto client = scheduler.client(true);
  const auto unread = client->start_stream(simple("Hello", 200));
  {
    // Samples of 50 frames wait for their reader; nothing else is as large.
    const HeapLimit limit(SIZE_MAX, 200'000);
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (scheduler.state().active > 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(scheduler.state().active, 0);
  int32_t frames = 0;
  const auto read = [&] {
    for (;;) frames += unread->next_audio(8).frames;
  };
  EXPECT_THROW(read(), std::bad_alloc);
  EXPECT_GE(frames, 8) << "what there was is kept";
  EXPECT_FALSE(scheduler.state().fault) << "the device has nothing to do with it";
  EXPECT_FALSE(speak(*client, simple("Hello", 2)).error);
}

TEST(Scheduler, AnUnreadStreamThatIsDroppedGivesItsSlotBack) {
  engine::SchedulerOptions options;
  options.ready_frames = 4;
  Scheduler scheduler(core_with("tiny-endless", 1), options);
  const auto client = scheduler.client(false);
  for (int i = 0; i < 10; ++i) {
    auto stream = client->start_stream(simple("Hello", 900));
    std::this_thread::sleep_for(5ms);
    stream.reset();
    auto text = client->start_text_stream(simple("", 900));
    text.reset();
  }
  EXPECT_FALSE(speak(*client, simple("Hello", 2)).error);
}

TEST(Scheduler, RandomEndsLeaveNoSlotTaken) {
  constexpr int kThreads = 6;
  Scheduler scheduler(core_with("tiny-endless", kThreads));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 30; ++i) {
        const auto client = scheduler.client(random() % 2 == 0);
        const auto stream = client->start_stream(simple("Hello", 500));
        std::thread cancel;
        if (random() % 2) cancel = std::thread([&] { stream->cancel(); });
        try {
          for (unsigned n = random() % 5; n > 0; --n)
            stream->next_audio(1 + static_cast<int32_t>(random() % 3));
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::cancelled);
        }
        if (cancel.joinable()) cancel.join();
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(scheduler.state().active, 0);
  std::vector<std::unique_ptr<Engine>> clients;
  std::vector<std::unique_ptr<SpeechStream>> streams;
  for (int i = 0; i < kThreads; ++i) {
    clients.push_back(scheduler.client(true));
    streams.push_back(clients.back()->start_stream(simple("Hello", 5)));
  }
  for (auto& s : streams) EXPECT_EQ(drain(*s).result.frames, 5);
}

TEST(Scheduler, ErrorsComeAfterWhatWasCompleteBefore) {
  Scheduler scheduler(core_with("tiny-endless", 2));
  const auto client = scheduler.client(true);
  SpeechRequest r = simple("Hello");
  r.max_frames.reset();
  const Outcome out = speak(*client, r), alone = speak(tiny("tiny-endless"), r);
  ASSERT_TRUE(out.error);
  EXPECT_EQ(out.error->code(), ErrorCode::runaway);
  EXPECT_STREQ(out.error->what(), alone.error->what());
  EXPECT_EQ(out.samples, alone.samples);
  EXPECT_EQ(out.result.stop, StopReason::runaway);
}

TEST(Scheduler, ARefusedRequestTakesNoSlot) {
  Scheduler scheduler(core_with("tiny-cv", 1));
  const auto client = scheduler.client(true);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(error_of([&] { client->start_stream({.text = "x", .voice = "nobody"}); }).code(),
              ErrorCode::unknown_voice);
  EXPECT_FALSE(speak(*client, simple("Hello", 2)).error);
}

TEST(Scheduler, ItsEndEndsItsStreams) {
  auto scheduler = std::make_unique<Scheduler>(core_with("tiny-endless", 2));
  const auto client = scheduler->client(true);
  const auto stream = client->start_stream(simple("Hello", 900));
  stream->next_audio(1);
  scheduler.reset();
  EXPECT_EQ(error_of([&] {
              for (;;) stream->next_audio(1);
            }).code(),
            ErrorCode::cancelled);
  EXPECT_EQ(error_of([&] { client->start_stream(simple("Hello", 2)); }).code(), ErrorCode::cancelled);
}

TEST(Scheduler, IdleDoesNothing) {
  Scheduler scheduler(core_with("tiny-cv", 2));
  speak(*scheduler.client(true), simple("Hello", 3));
  const auto open = scheduler.client(true);
  const auto waiting = open->start_text_stream(simple("", 10));  // no text comes
  waiting->poll(1);
  const uint64_t rounds = scheduler.state().rounds;
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(scheduler.state().rounds, rounds);
  EXPECT_EQ(scheduler.state().round_age_ms, 0);
  EXPECT_FALSE(scheduler.state().wedged);
}

}  // namespace
}  // namespace skald::test
