// Streams whose text arrives in pieces: split invariance, early audio, queue, errors, threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "support.h"

namespace skald::test {
namespace {

using ::testing::HasSubstr;

SpeechRequest open_request(TextLayout layout, int32_t max_frames) {
  SpeechRequest r = simple("", max_frames);
  r.layout = layout;
  return r;
}

std::vector<std::string> cut(const std::string& text, std::mt19937& random, size_t most) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t size = 1 + random() % most;
    pieces.push_back(text.substr(at, size));
    at += size;
  }
  return pieces;
}

/// Texts of several scripts, with everything that could depend on a border: accents to compose, digits,
/// contractions, white space at the start, added tokens.
std::string random_text(std::mt19937& random) {
  static const char* const kParts[] = {"Hello",
                                       " world",
                                       ", ",
                                       "don't",
                                       " 2025",
                                       "\n\n",
                                       "  ",
                                       "e\u0301",
                                       "a\u030a",
                                       "\u4f60\u597d",
                                       "\u3002",
                                       "\u0645\u0631\u062d\u0628\u0627",
                                       "\u061f",
                                       "\u0928\u092e\u0938\u094d\u0924\u0947",
                                       "\u0964",
                                       "\U0001F44B\U0001F3FD",
                                       "<|im_end|>",
                                       "<tts",
                                       "#",
                                       "...",
                                       "x",
                                       "\uac00",
                                       "\u1100\u1161",
                                       " the",
                                       "ing"};
  std::string text;
  const size_t parts = 1 + random() % 24;
  for (size_t i = 0; i < parts; ++i) text += kParts[random() % std::size(kParts)];
  return text + "z";
}

/// One text: the stream's own one-push run, every byte alone, and random pieces.
void check_splits(uint32_t seed) {
  std::mt19937 random(seed);
  const std::string text = random_text(random);
  SCOPED_TRACE(testing::Message() << "seed " << seed << " text " << text);
  SpeechRequest r = open_request(seed % 3 == 0 ? TextLayout::stream : TextLayout::ahead, 1 + random() % 12);
  r.ahead_tokens = 1 + random() % 6;
  r.raw_tokens = seed % 2 == 0;
  Engine& engine = tiny("tiny-cv");
  const Outcome one_push = speak_pieces(engine, r, {text});
  ASSERT_FALSE(one_push.error) << one_push.error->what();
  for (const size_t most : {size_t{1}, size_t{5}}) {
    const Outcome pieces = speak_pieces(engine, r, cut(text, random, most), 1 + random() % 5);
    ASSERT_EQ(pieces.codes, one_push.codes);
    ASSERT_EQ(pieces.samples, one_push.samples);
  }
  // A complete text in the same layout is the same utterance.
  SpeechRequest complete = r;
  complete.text = text;
  ASSERT_EQ(speak(engine, complete).codes, one_push.codes);
}

TEST(TextSplits, DoNotChangeTheCodes) {
  for (uint32_t seed = 0; seed < 60; ++seed) check_splits(seed);
}

TEST(TextSplits, DISABLED_AThousandTexts) {
  for (uint32_t seed = 0; seed < 1000; ++seed) check_splits(seed);
}

TEST(TextSplits, DoNotChangeAnInContextClone) {
  SpeechRequest r = open_request(TextLayout::stream, 10);
  r.voice.clear();
  r.x_vector.assign(32, 0.3f), r.consent = "synthetic numbers", r.ref_codes.assign(16 * 9, 5),
                               r.ref_text = "ab";
  const std::string text = "One two three four, five six seven eight nine ten.";
  const Outcome one_push = speak_pieces(tiny("tiny-base"), r, {text});
  ASSERT_FALSE(one_push.error) << one_push.error->what();
  std::mt19937 random(3);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(speak_pieces(tiny("tiny-base"), r, cut(text, random, 7)).codes, one_push.codes);
  r.text = text;
  EXPECT_EQ(speak(tiny("tiny-base"), r).codes, one_push.codes);
}

TEST(TextStream, FirstSamplesBeforeTheLastText) {
  const auto stream = tiny("tiny-endless").start_text_stream(open_request(TextLayout::ahead, 200));
  ASSERT_EQ(stream->poll(4).event, StreamEvent::need_text);
  stream->push("This is quite a long sentence with more than enough words to begin with, ");
  const StreamReply first = stream->poll(4);
  ASSERT_EQ(first.event, StreamEvent::chunk);
  EXPECT_EQ(first.chunk.samples.size(), 1920u);
  StreamReply reply;
  while ((reply = stream->poll(4)).event == StreamEvent::chunk) {
  }
  EXPECT_EQ(reply.event, StreamEvent::need_text) << "frames wait for the text that is fed with them";
  const auto frames = stream->result().frames;
  EXPECT_LT(frames, 200);
  stream->push("and then it goes on.");
  EXPECT_EQ(stream->poll(4).event, StreamEvent::chunk);
  stream->finish();
  while ((reply = stream->poll(16)).event == StreamEvent::chunk) {
  }
  EXPECT_EQ(reply.event, StreamEvent::finished);
  EXPECT_EQ(stream->poll(4).event, StreamEvent::finished);
  EXPECT_EQ(stream->result().frames, 200);
  EXPECT_FALSE(stream->push("late"));
}

TEST(TextStream, FramesNeverUseTextThatIsNotThere) {
  const auto stream = tiny("tiny-endless").start_text_stream(open_request(TextLayout::stream, 400));
  int64_t known = 0;
  for (int word = 0; word < 30; ++word) {
    stream->push(" w" + std::to_string(word));
    while (stream->poll(8).event == StreamEvent::chunk) {
    }
    const SpeechResult r = stream->result();
    EXPECT_GE(r.text_tokens, known);
    known = r.text_tokens;
    EXPECT_LE(r.frames, std::max<int64_t>(known, 0) + 1);
  }
  EXPECT_GT(known, 20);
}

TEST(TextStream, RequestTextIsPushedFirst) {
  SpeechRequest r = open_request(TextLayout::ahead, 12);
  const Outcome expected = speak_pieces(tiny("tiny-endless"), r, {"Hello there, ", "world."});
  r.text = "Hello there, ";
  EXPECT_EQ(speak_pieces(tiny("tiny-endless"), r, {"world."}).codes, expected.codes);
}

TEST(TextStream, WholeLayoutWaitsForTheEnd) {
  SpeechRequest r = open_request(TextLayout::whole, 6);
  const auto stream = tiny("tiny-endless").start_text_stream(r);
  stream->push("Hello ");
  EXPECT_EQ(stream->poll(4).event, StreamEvent::need_text);
  stream->push("world");
  EXPECT_EQ(stream->poll(4).event, StreamEvent::need_text);
  stream->finish();
  EXPECT_EQ(stream->poll(4).event, StreamEvent::chunk);
  while (stream->poll(4).event == StreamEvent::chunk) {
  }
  r.text = "Hello world";
  EXPECT_EQ(stream->codes(), speak(tiny("tiny-endless"), r).codes);
}

TEST(TextStream, BoundGrowsWithTheText) {
  const auto stream = tiny("tiny-endless").start_text_stream([] {
    SpeechRequest r = simple("");
    r.max_frames.reset(), r.layout = TextLayout::stream;
    return r;
  }());
  stream->push("Hello there ");
  EXPECT_EQ(stream->poll(1).event, StreamEvent::chunk);
  EXPECT_EQ(stream->result().frame_bound, 240);
  stream->push("this is a second and longer piece.");
  stream->poll(1);
  EXPECT_EQ(stream->result().frame_bound, 12 * 46);
}

TEST(TextStream, BoundHoldsForATextThatWasOpenAtTheStart) {
  SpeechRequest r = simple("");
  r.max_frames.reset(), r.layout = TextLayout::stream, r.stall_frames = 0;
  const auto stream = tiny("tiny-endless").start_text_stream(r);
  stream->push("Hello there ");
  EXPECT_EQ(stream->poll(1).event, StreamEvent::chunk);
  stream->push("you");
  stream->finish();
  StreamReply reply;
  while ((reply = stream->poll(64)).event == StreamEvent::chunk) {
  }
  ASSERT_EQ(reply.event, StreamEvent::error);
  EXPECT_EQ(reply.error->code(), ErrorCode::runaway);
  EXPECT_THAT(reply.error->what(), HasSubstr("240 frames"));
  EXPECT_EQ(stream->result().frames, 240);
}

TEST(TextStream, NothingStartsBeforeThereIsSomethingToSpeak) {
  const auto stream = tiny("tiny-endless").start_text_stream(open_request(TextLayout::stream, 12));
  stream->push(" ... !!! ... ??? ");
  EXPECT_EQ(stream->poll(4).event, StreamEvent::need_text);
  EXPECT_EQ(stream->result().prompt_rows, 0);
  stream->push("now ");
  EXPECT_EQ(stream->poll(4).event, StreamEvent::chunk);
}

TEST(TextStream, ReadsNoFurtherAheadThanItNeeds) {
  const auto stream = tiny("tiny-endless").start_text_stream(open_request(TextLayout::stream, 20));
  const std::string piece(1024, '7');
  size_t accepted = 0;
  while (stream->try_push(piece)) ++accepted;
  EXPECT_EQ(accepted, 64u);
  EXPECT_EQ(stream->poll(1).event, StreamEvent::chunk);
  for (accepted = 0; accepted < 64 && stream->try_push(piece); ++accepted) {
  }
  EXPECT_LE(accepted, 4u);
}

TEST(TextStream, ErrorsAreEventsAndStay) {
  const auto check = [](const std::string& text, ErrorCode code) {
    const auto stream = tiny("tiny-endless").start_text_stream(open_request(TextLayout::ahead, 12));
    stream->push(text);
    stream->finish();
    StreamReply reply;
    while ((reply = stream->next(4)).event == StreamEvent::chunk) {
    }
    ASSERT_EQ(reply.event, StreamEvent::error) << text;
    EXPECT_EQ(reply.error->code(), code) << reply.error->what();
    reply = stream->poll(4);
    ASSERT_EQ(reply.event, StreamEvent::error);
    EXPECT_EQ(reply.error->code(), code);
    EXPECT_EQ(stream->result().stop, StopReason::error);
    EXPECT_FALSE(stream->push("more"));
  };
  check("", ErrorCode::nothing_to_speak);
  check(" ... ", ErrorCode::nothing_to_speak);
  check("ab\xff", ErrorCode::invalid_text);
  check("ab\xe4\xbd", ErrorCode::invalid_text);
}

TEST(TextStream, TextBeyondTheCacheIsTooLong) {
  EngineOptions options;
  options.threads = 1, options.cache_capacity = 400;
  const auto engine = Engine::open(model_dir("tiny-endless"), options);
  for (const TextLayout layout : {TextLayout::whole, TextLayout::stream, TextLayout::ahead}) {
    SpeechRequest r = simple("");
    r.max_frames.reset(), r.layout = layout, r.stall_frames = 0;
    const auto stream = engine->start_text_stream(r);
    for (int i = 0; i < 200; ++i) stream->push(" 123 456");
    stream->finish();
    StreamReply reply;
    while ((reply = stream->poll(64)).event == StreamEvent::chunk) {
    }
    ASSERT_EQ(reply.event, StreamEvent::error);
    EXPECT_EQ(reply.error->code(), ErrorCode::text_too_long) << reply.error->what();
  }
}

TEST(TextStream, CancelWakesWriterAndReader) {
  const auto stream = tiny("tiny-endless").start_text_stream(open_request(TextLayout::whole, 12));
  std::atomic<bool> refused = false;
  std::thread writer([&] {
    const std::string much(40'000, 'a');
    while (stream->push(much)) {
    }
    refused = true;
  });
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    stream->cancel();
  });
  StreamReply reply;
  while ((reply = stream->next(4)).event == StreamEvent::chunk) {
  }
  writer.join(), canceller.join();
  EXPECT_TRUE(refused);
  ASSERT_EQ(reply.event, StreamEvent::error);
  EXPECT_THAT(reply.error->code(), ::testing::AnyOf(ErrorCode::cancelled, ErrorCode::text_too_long));
}

TEST(TextStream, WriterThreadAndBlockingReader) {
  const std::string text =
      "Hello there, this comes from another thread, word by word, while the reader waits.";
  const auto stream = tiny("tiny-endless").start_text_stream(open_request(TextLayout::ahead, 40));
  std::thread writer([&] {
    for (const char c : text) stream->push({&c, 1});
    stream->finish();
  });
  StreamReply reply;
  while ((reply = stream->next(4)).event == StreamEvent::chunk) {
  }
  writer.join();
  EXPECT_EQ(reply.event, StreamEvent::finished);
  EXPECT_EQ(stream->codes(),
            speak_pieces(tiny("tiny-endless"), open_request(TextLayout::ahead, 40), {text}).codes);
}

TEST(TextStream, InvisibleCharactersAreReportedAtTheEnd) {
  const Outcome out =
      speak_pieces(tiny("tiny-endless"), open_request(TextLayout::whole, 3), {"a\u00ad", "b\xc2", "\xad"});
  ASSERT_FALSE(out.error);
  ASSERT_EQ(out.result.warnings.size(), 1u);
  EXPECT_THAT(out.result.warnings[0], HasSubstr("U+00AD soft hyphen (2)"));
}

}  // namespace
}  // namespace skald::test
