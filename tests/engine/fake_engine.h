// An Engine whose every frame is decided by the test; it records each request it was given.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "skald/skald.h"

namespace skald::test {

/// What a scripted request does.
struct Script {
  int32_t frames = 3;
  float level = 1.0f;       ///< every sample
  int32_t runaway_at = -1;  ///< Error(runaway) instead of this frame
  int32_t ends_at = -1;     ///< a text stream ends with this many frames, whatever text is left
  std::function<void()> on_frame;
};

class FakeEngine : public Engine {
 public:
  static constexpr int32_t kFrame = 1920;
  std::function<Script(const SpeechRequest&)> script = [](const SpeechRequest&) { return Script{}; };
  std::vector<SpeechRequest> requests;
  int open_streams = 0;

  FakeEngine() {
    info_.type = "custom_voice";
    info_.sample_rate = 24000;
    info_.samples_per_frame = kFrame;
    info_.groups = 16;
    info_.piece_limit = 400;
  }
  ModelInfo info_;

  const ModelInfo& info() const override { return info_; }
  std::unique_ptr<SpeechStream> start_stream(const SpeechRequest& request, const Diagnosis*) override {
    note(request);
    return std::make_unique<Speech>(*this, request);
  }
  std::unique_ptr<TextStream> start_text_stream(const SpeechRequest& request, const Diagnosis*) override {
    note(request);
    return std::make_unique<Text>(*this, request, requests.size() - 1);
  }
  PromptInfo prompt(const SpeechRequest&) const override { return {}; }
  std::vector<float> decode(std::span<const int32_t>, DecodeMode) override { return {}; }

 private:
  void note(const SpeechRequest& request) {
    if (open_streams > 0) throw Error(ErrorCode::unsupported, "all slots are taken");
    if (request.text.find_first_not_of(" \n") == std::string::npos) {
      throw Error(ErrorCode::nothing_to_speak, "the text is blank");
    }
    requests.push_back(request);
  }

  struct Base {
    Base(FakeEngine& owner, const SpeechRequest& request) : engine(owner), plan(owner.script(request)) {
      ++engine.open_streams;
      limit = request.max_frames.value_or(request.max_new_tokens ? *request.max_new_tokens - 1 : plan.frames);
      state.seed = *request.seed;
      state.request_id = request.request_id.empty() ? "fake" : request.request_id;
      state.text_tokens = 5;
      state.prompt_rows = 10;
      state.compute_ms = 1;
    }
    ~Base() { --engine.open_streams; }
    AudioChunk advance(int32_t max_frames) {
      AudioChunk chunk;
      while (chunk.frames < max_frames && state.frames < std::min<int64_t>(limit, plan.frames)) {
        if (cancelled) {
          state.stop = StopReason::cancelled;
          throw Error(ErrorCode::cancelled, "cancelled");
        }
        if (state.frames == plan.runaway_at) {
          state.stop = StopReason::runaway;
          throw Error(ErrorCode::runaway, "no stop token after 240 frames");
        }
        if (plan.on_frame) plan.on_frame();
        ++chunk.frames;
        ++state.frames;
      }
      chunk.samples.assign(static_cast<size_t>(chunk.frames) * kFrame, plan.level);
      state.samples = state.frames * kFrame;
      chunk.last = chunk.frames == 0;
      if (chunk.last) state.stop = plan.frames <= limit ? StopReason::eos : StopReason::length;
      return chunk;
    }
    FakeEngine& engine;
    Script plan;
    SpeechResult state;
    int64_t limit;
    std::atomic<bool> cancelled = false;
  };
  struct Speech : SpeechStream, Base {
    using Base::Base;
    AudioChunk next_audio(int32_t max_frames) override { return advance(max_frames); }
    void cancel() noexcept override { cancelled = true; }
    SpeechResult result() const override { return state; }
    std::vector<int32_t> codes() const override {
      return std::vector<int32_t>(static_cast<size_t>(state.frames) * 16);
    }
  };
  /// Speaks one frame per eight bytes of text; takes at most `kQueue` unread bytes.
  struct Text : TextStream, Base {
    static constexpr size_t kQueue = 64;
    Text(FakeEngine& owner, const SpeechRequest& request, size_t at)
        : Base(owner, request), index(at), unread(request.text.size()) {
      plan.frames = 1 << 30;
      limit = plan.frames;
    }
    bool push(std::string_view text) override { return try_push(text); }
    bool try_push(std::string_view text) override {
      if (cancelled || (unread > 0 && unread + text.size() > kQueue)) return false;
      unread += text.size();
      engine.requests[index].text += text;
      return true;
    }
    void finish() override { done = true; }
    void cancel() noexcept override { cancelled = true; }
    StreamReply poll(int32_t) override {
      StreamReply reply;
      if (cancelled) {
        reply.event = StreamEvent::error;
        reply.error = Error(ErrorCode::cancelled, "cancelled");
      } else if (state.frames == plan.ends_at) {
        reply.event = StreamEvent::finished;
        state.stop = StopReason::eos;
      } else if (unread >= 8 || (done && unread > 0)) {
        unread -= std::min<size_t>(unread, 8);
        reply.event = StreamEvent::chunk;
        reply.chunk = advance(1);
      } else if (done) {
        reply.event = StreamEvent::finished;
        state.stop = StopReason::eos;
      }
      return reply;
    }
    StreamReply next(int32_t max_frames) override { return poll(max_frames); }
    SpeechResult result() const override { return state; }
    std::vector<int32_t> codes() const override {
      return std::vector<int32_t>(static_cast<size_t>(state.frames) * 16);
    }
    size_t index, unread;
    bool done = false;
  };
};

}  // namespace skald::test
