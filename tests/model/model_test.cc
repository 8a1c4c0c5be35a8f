// The model over the CPU backend: widths, slots and history do not change a request's codes.
#include "model/model.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>

#include "backend/cpu/cpu.h"

namespace skald::model {
namespace {

constexpr int kGroups = 16;
using Frames = std::vector<std::array<int32_t, kGroups>>;

struct Request {
  Prompt prompt;
  std::vector<int32_t> trailing;
  backend::SlotSettings settings;
  std::vector<float> x_vector;
};

class ModelTest : public ::testing::Test {
 protected:
  void open(int slots, int threads = 2, int prefixes = 4) {
    device_ = backend::make_cpu_backend({.threads = threads});
    model_ = Model::load(SKALD_FIXTURES "/models/tiny-cv", *device_,
                         {.slots = slots, .cache_capacity = 256, .prefix_entries = prefixes});
  }

  Request request(int seed, int text_tokens, Layout layout = Layout::stream) const {
    std::mt19937 rng(seed);
    const ModelConfig& c = model_->config();
    PromptInput in;
    in.role_ids = {c.im_start_id, c.assistant_id, 10};
    for (int i = 0; i < text_tokens; ++i) in.text_ids.push_back(static_cast<int32_t>(rng() % 256));
    in.layout = layout;
    in.speaker_id = c.talker.speaker_ids.begin()->second;
    Request r;
    r.prompt = build_prompt(c, in);
    r.trailing = trailing_ids(c, in, r.prompt);
    r.settings.seed_low = seed;
    r.settings.max_frames = 12;
    r.settings.talker.min_new_tokens = 100;
    return r;
  }

  void start(int slot, const Request& r) {
    model_->begin(slot, r.settings);
    reused_ = model_->prefill(slot, r.prompt, r.x_vector);
    model_->append_text(slot, r.trailing);
  }

  Frames codes_of(int slot) const {
    Frames out(model_->frames(slot));
    for (size_t f = 0; f < out.size(); ++f) model_->read_codes(slot, static_cast<int32_t>(f), out[f]);
    return out;
  }

  Frames alone(int slot, const Request& r) {
    start(slot, r);
    while (model_->status(slot) == backend::kRunning) {
      model_->frame_codes(std::span(&slot, 1));
      model_->frame_step(std::span(&slot, 1));
    }
    EXPECT_EQ(model_->status(slot), backend::kLength);
    return codes_of(slot);
  }

  std::unique_ptr<backend::Backend> device_;
  std::unique_ptr<Model> model_;
  int32_t reused_ = 0;  ///< prompt rows of the last start that were not computed
};

TEST_F(ModelTest, AnySlotGivesTheSameCodesAndOtherSeedsGiveOthers) {
  open(3);
  const Request r = request(1, 20);
  const Frames first = alone(0, r);
  ASSERT_EQ(first.size(), 12u);
  EXPECT_EQ(alone(2, r), first);
  EXPECT_NE(alone(1, request(2, 20)), first);
}

TEST_F(ModelTest, B112_WhatRanBeforeDoesNotMatter) {
  open(1);
  const Request a = request(1, 9);
  const Frames first = alone(0, a);
  for (int other = 2; other < 6; ++other) {
    alone(0, request(other, 7 * other, other % 2 ? Layout::whole : Layout::stream));
    EXPECT_EQ(alone(0, a), first) << "after request " << other;
  }
}

TEST_F(ModelTest, TogetherEqualsAlone) {
  open(5);
  std::vector<Request> requests;
  std::vector<Frames> expected;
  for (int i = 0; i < 5; ++i) {
    requests.push_back(request(i + 1, 5 + 11 * i, i % 2 ? Layout::whole : Layout::stream));
    requests.back().settings.max_frames = 4 + 3 * i;  // they stop at different frames
    expected.push_back(alone(i, requests.back()));
  }
  for (int i = 0; i < 5; ++i) start(i, requests[i]);
  const std::vector<int32_t> order{3, 0, 4, 1, 2};
  for (int frame = 0; frame < 20; ++frame) {
    model_->frame_codes(order);
    model_->frame_step(order);
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(codes_of(i), expected[i]) << "slot " << i;
}

TEST_F(ModelTest, ThreadsDoNotMatter) {
  open(1, 1);
  const Frames one = alone(0, request(3, 40, Layout::whole));
  open(1, 3);
  EXPECT_EQ(alone(0, request(3, 40, Layout::whole)), one);
}

TEST_F(ModelTest, PrefixOfAVoiceIsReusedWithoutChangingACode) {
  open(2, 2, 0);
  std::vector<Request> requests;
  std::vector<Frames> expected;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(request(i + 1, 10 + 9 * i, i % 2 ? Layout::whole : Layout::stream));
    expected.push_back(alone(0, requests[i]));
    EXPECT_EQ(reused_, 0);
  }
  open(2, 2, 1);
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(alone(i % 2, requests[i]), expected[i]) << "request " << i;
      EXPECT_EQ(reused_, round + i == 0 ? 0 : requests[i].prompt.prefix_rows);
    }
  EXPECT_EQ(requests[0].prompt.prefix_rows, 8);  // role 3, tags 3, speaker, closing pad
}

TEST_F(ModelTest, PrefixesOfOtherVoicesAreNotMistaken) {
  open(1, 2, 2);
  Request a = request(1, 10), b = request(1, 10);
  for (PromptRow& row : b.prompt.rows)
    if (row.codec_ids == std::vector{model_->config().talker.speaker_ids.begin()->second})
      row.codec_ids = {model_->config().talker.speaker_ids.rbegin()->second};
  Request c = a, d = a;  // an x-vector in place of the speaker: equal rows, other numbers
  for (Request* r : {&c, &d}) {
    r->prompt.rows[6] = {.text_id = model_->config().tts_pad_id, .speaker_vector = true};
    r->x_vector.assign(model_->config().talker.hidden_size, r == &c ? 0.5f : -0.5f);
  }
  std::vector<Frames> first;
  for (const Request* r : {&a, &b, &c, &d}) {
    first.push_back(alone(0, *r));
    EXPECT_EQ(reused_, 0);
  }
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 4u);
  EXPECT_EQ(alone(0, d), first[3]);
  EXPECT_EQ(reused_, 8);
  EXPECT_EQ(alone(0, c), first[2]);
  EXPECT_EQ(reused_, 8);
  EXPECT_EQ(alone(0, a), first[0]);  // two entries: the oldest made room
  EXPECT_EQ(reused_, 0);
}

TEST_F(ModelTest, FullCacheEndsTheRunWithItsOwnStatus) {
  open(1);
  Request r = request(1, 20);
  r.settings.max_frames = 100000;
  r.settings.talker.min_new_tokens = 100000;
  start(0, r);
  const int32_t slot = 0;
  for (int i = 0; i < 300; ++i) {
    model_->frame_codes(std::span(&slot, 1));
    model_->frame_step(std::span(&slot, 1));
  }
  EXPECT_EQ(model_->status(0), backend::kCacheFull);
  // Every position holds a prompt row or a frame; the last frame needs none.
  EXPECT_EQ(model_->frames(0), 256 - static_cast<int32_t>(r.prompt.rows.size()) + 1);
}

TEST_F(ModelTest, CodecStreamEqualsWholeForRandomChunks) {
  open(2);
  std::mt19937 rng(5);
  const int frames = 60, width = model_->config().codec.decode_upsample_rate;
  std::vector<int32_t> codes(frames * kGroups);
  for (int32_t& c : codes) c = static_cast<int32_t>(rng() % model_->config().talker.codes());
  std::vector<float> whole(frames * width);
  model_->codec_reset(0);
  model_->codec_decode(0, codes, whole);
  for (int round = 0; round < 6; ++round) {
    model_->codec_reset(1);
    std::vector<float> parts(frames * width);
    for (int at = 0; at < frames;) {
      const int n = std::min<int>(frames - at, 1 + rng() % 20);
      model_->codec_decode(1, std::span(codes).subspan(at * kGroups, n * kGroups),
                           std::span(parts).subspan(at * width, n * width));
      at += n;
    }
    ASSERT_EQ(parts, whole) << "round " << round;
  }
}

TEST_F(ModelTest, MemoryEstimateCoversWhatTheBackendReserves) {
  open(2);
  const MemoryEstimate m = estimate_memory(
      model_->config(), {.slots = 2, .cache_capacity = 256, .prefix_entries = 4, .matrix_bytes = 2});
  EXPECT_GE(m.weights * 1.25, double(device_->weight_bytes()));  // panels round up; tiny rows round up most
  EXPECT_LE(m.weights, device_->weight_bytes() * 1.05);
  EXPECT_GE((m.cache + m.buffers) * 1.25, double(device_->buffer_bytes()));
}

}  // namespace
}  // namespace skald::model
