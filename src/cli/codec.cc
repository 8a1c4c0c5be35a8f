// skald codec: codes to samples and samples to codes, of any length in bounded memory.
#include <atomic>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "audio/clip_check.h"
#include "audio/decode.h"
#include "audio/npy.h"
#include "audio/resample.h"
#include "cli/audio_writer.h"
#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/option_types.h"
#include "cli/output_options.h"
#include "cli/request_options.h"

namespace skald::cli {
namespace {

/// While it lives, a signal makes `stopped()` true.
class StopScope {
 public:
  explicit StopScope(Signals& signals) : signals_(signals) {
    signals_.on_signal([this] { stopped_ = true; });
  }
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;
  ~StopScope() { signals_.on_signal(nullptr); }
  void check() const {
    if (stopped_) throw Error(ErrorCode::cancelled, "the work was interrupted");
  }

 private:
  Signals& signals_;
  std::atomic<bool> stopped_ = false;
};

class CodecDecode : public Command {
 public:
  explicit CodecDecode(CLI::App& codec) : app_(codec.add_subcommand("decode", "Turn codes into audio")) {
    app_->add_option("CODES", codes_, "Codes as .npy, [frames, 16] of any integer type")->type_name("");
    add_engine_options(*app_, o_);
    add_choice(*app_, "--decode", mode_, DecodeMode::stream, {"stream", "whole", "official"},
               "official = chunks of 300 frames with 25 of context (default stream)", kOutputGroup);
    add_audio_output_options(*app_, output_);
  }
  const CLI::App* app() const override { return app_; }

  int run(Session& session, const Arguments& arguments) override {
    complete(o_);
    if (arguments.operands.size() != 1) throw UsageError("codec decode takes one file of codes");
    complete(output_, session);
    auto output = open_output(output_, session);
    const auto engine = open_engine(o_, session.log);
    const StatusScope asked(session, *engine);
    const ModelInfo& info = engine->info();
    const std::vector<int32_t> codes = load_codes(arguments.operands[0], info.groups);
    AudioWriter writer(std::move(output),
                       output_.floats ? audio::SampleFormat::f32 : audio::SampleFormat::s16, output_.raw,
                       static_cast<uint32_t>(info.sample_rate));
    const StopScope stop(session.signals);
    size_t count = 0;
    engine->decode_to(codes, mode_, [&](std::span<const float> samples) {
      stop.check();
      count += samples.size();
      writer.write({samples.begin(), samples.end()});
    });
    writer.finish();
    session.signals.remove_at_exit({});
    if (output_.json)
      print_json(session, {{"frames", codes.size() / static_cast<size_t>(info.groups)},
                           {"samples", count},
                           {"sample_rate", info.sample_rate},
                           {"output", output_.out}});
    return kOk;
  }

 private:
  CLI::App* app_;
  RequestOptions o_;
  OutputOptions output_;
  DecodeMode mode_ = DecodeMode::stream;
  std::string codes_;
};

/// A file of any rate and number of channels as 24 kHz mono, piece by piece.
class MonoSource {
 public:
  MonoSource(audio::AudioReader& reader, int32_t rate)
      : reader_(reader),
        resampler_(reader.sample_rate(), rate),
        block_(kBlockFrames * static_cast<size_t>(reader.channels())) {}

  size_t read(std::span<float> to) {
    while (ready_.size() - given_ < to.size() && !over_) fill();
    const size_t count = std::min(to.size(), ready_.size() - given_);
    std::copy_n(ready_.begin() + static_cast<std::ptrdiff_t>(given_), count, to.begin());
    given_ += count;
    return count;
  }
  uint64_t frames() const { return frames_; }

 private:
  static constexpr size_t kBlockFrames = 1 << 16;

  void fill() {
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(given_));
    given_ = 0;
    const size_t count = reader_.read(block_);
    if (count == 0) {
      over_ = true;
      resampler_.finish(ready_);
      return;
    }
    frames_ += count / static_cast<size_t>(reader_.channels());
    resampler_.push(audio::mix_down(std::span(block_).first(count), reader_.channels()), ready_);
  }

  audio::AudioReader& reader_;
  audio::Resampler resampler_;
  std::vector<float> block_, ready_;
  size_t given_ = 0;  // of ready_
  uint64_t frames_ = 0;
  bool over_ = false;
};

/// What `work` says about audio, with the name of the file.
template <class Work>
auto about(const std::string& path, Work&& work) {
  try {
    return work();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::audio_invalid) throw;
    throw Error(e.code(), fmt::format("'{}': {}", path, e.what()));
  }
}

class CodecEncode : public Command {
 public:
  explicit CodecEncode(CLI::App& codec) : app_(codec.add_subcommand("encode", "Turn audio into codes")) {
    app_->add_option("CLIP", clip_,
                     "WAV, FLAC, MP3, Ogg Vorbis or Opus, any rate and channels; - is standard input")
        ->type_name("");
    add_engine_options(*app_, o_);
    add_output_options(*app_, output_, "FILE.npy", "Codes [frames, 16] as int16");
  }
  const CLI::App* app() const override { return app_; }

  int run(Session& session, const Arguments& arguments) override {
    complete(o_);
    if (arguments.operands.size() != 1) throw UsageError("codec encode takes one audio file");
    complete(output_, session);
    const auto output = open_output(output_, session);
    const auto reader = audio::AudioReader::open(arguments.operands[0], {.bytes = 0});
    if (reader->sample_rate() < audio::kLeastRate || reader->sample_rate() > audio::kMostRate)
      throw Error(
          ErrorCode::audio_invalid,
          fmt::format("'{}' has a sample rate of {} Hz, but it must be within {}..{}", arguments.operands[0],
                      reader->sample_rate(), audio::kLeastRate, audio::kMostRate));
    const auto engine = open_engine(o_, session.log);
    const StatusScope asked(session, *engine);
    const ModelInfo& info = engine->info();
    MonoSource source(*reader, info.sample_rate);
    const StopScope stop(session.signals);
    const auto encode = [&] {
      return engine->encode([&](std::span<float> to) { return stop.check(), source.read(to); });
    };
    const std::vector<int32_t> codes = about(arguments.operands[0], encode);
    if (codes.empty())
      throw Error(ErrorCode::audio_invalid, fmt::format("'{}' holds no samples", arguments.operands[0]));
    if (const std::string early = audio::ends_early(*reader, source.frames()); !early.empty())
      session.log.warning(fmt::format("'{}' {}", arguments.operands[0], early));
    output->write(audio::npy_of_codes(codes, static_cast<size_t>(info.groups)));
    output->commit();
    session.signals.remove_at_exit({});
    if (output_.json)
      print_json(session, {{"frames", codes.size() / static_cast<size_t>(info.groups)},
                           {"sample_rate", reader->sample_rate()},
                           {"channels", reader->channels()},
                           {"samples", source.frames()},
                           {"output", output_.out}});
    return kOk;
  }

 private:
  CLI::App* app_;
  RequestOptions o_;
  OutputOptions output_;
  std::string clip_;
};

}  // namespace

std::unique_ptr<Command> make_codec_decode(CLI::App& codec) { return std::make_unique<CodecDecode>(codec); }
std::unique_ptr<Command> make_codec_encode(CLI::App& codec) { return std::make_unique<CodecEncode>(codec); }

}  // namespace skald::cli
