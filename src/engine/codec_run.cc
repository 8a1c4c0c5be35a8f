// The decode modes as restarts of one stateful codec.
#include "engine/codec_run.h"

#include <algorithm>
#include <cmath>

#include "skald/error.h"

namespace skald::engine {

void CodecRun::decode(std::span<const int32_t> codes, std::vector<float>& out) {
  const auto groups = static_cast<size_t>(core_.groups());
  while (!codes.empty()) {
    if (frame_ == 0 || (official_ && frame_ % kOfficialChunk == 0)) restart();
    size_t frames = codes.size() / groups;
    if (official_) frames = std::min(frames, static_cast<size_t>(kOfficialChunk - frame_ % kOfficialChunk));
    const auto part = codes.first(frames * groups);
    run(part, out);
    frame_ += static_cast<int64_t>(frames);
    if (official_) keep_context(part);
    codes = codes.subspan(frames * groups);
  }
}

void CodecRun::keep_context(std::span<const int32_t> part) {
  context_.insert(context_.end(), part.begin(), part.end());
  const size_t kept = std::min(context_.size(), kOfficialContext * static_cast<size_t>(core_.groups()));
  context_.erase(context_.begin(), context_.end() - static_cast<std::ptrdiff_t>(kept));
}

std::vector<float> CodecRun::decode_reference(std::span<const int32_t> codes) {
  {
    const std::lock_guard lock(core_.compute);
    if (const ReferenceCache::Entry* kept = core_.references.find(official_, codes)) {
      core_.model->codec_restore(slot_, kept->state);
      frame_ = static_cast<int64_t>(codes.size()) / core_.groups();
      if (official_) keep_context(codes);
      reused_reference_ = true;
      return kept->tail;
    }
  }
  std::vector<float> samples;
  decode(codes, samples);
  ReferenceCache::Entry entry{
      .official = official_, .codes = {codes.begin(), codes.end()}, .state = {}, .tail = {}};
  entry.tail.assign(samples.end() - core_.samples_per_frame(), samples.end());
  const std::lock_guard lock(core_.compute);
  if (core_.options.kept_voices > 0) {
    entry.state = core_.model->codec_save(slot_);
    core_.references.keep(entry);
  }
  return entry.tail;
}

void CodecRun::restart() {
  {
    const std::lock_guard lock(core_.compute);
    core_.model->codec_reset(slot_);
  }
  std::vector<float> dropped;
  run(context_, dropped);
}

void CodecRun::run(std::span<const int32_t> codes, std::vector<float>& out) {
  const auto groups = static_cast<size_t>(core_.groups()),
             rate = static_cast<size_t>(core_.samples_per_frame());
  const size_t most = static_cast<size_t>(core_.options.codec_chunk) * groups;
  while (!codes.empty()) {
    const auto part = codes.first(std::min(most, codes.size()));
    const size_t done = out.size(), samples = part.size() / groups * rate;
    out.resize(done + samples);
    const std::lock_guard lock(core_.compute);
    const auto start = Clock::now();
    core_.model->codec_decode(slot_, part, std::span(out).subspan(done, samples));
    compute_ms_ += milliseconds(start, Clock::now());
    if (!std::all_of(out.begin() + static_cast<int64_t>(done), out.end(),
                     [](float x) { return std::isfinite(x); }))
      throw Error(ErrorCode::non_finite,
                  "the codec's samples hold NaN or infinity; the model's weights or the device are faulty; "
                  "`skald verify` looks through the weights");
    codes = codes.subspan(part.size());
  }
}

}  // namespace skald::engine
