// skald voice add and design: a clip, or a description, made a stored voice.
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "audio/decode.h"
#include "audio/output_file.h"
#include "cli/audio_writer.h"
#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/option_types.h"
#include "cli/request_options.h"
#include "cli/text_input.h"
#include "cli/voice_options.h"
#include "engine/long_text.h"
#include "engine/streams.h"
#include "text/inspect.h"
#include "text/utf8.h"

namespace skald::cli {
namespace {

constexpr const char *kVoice = "Voice", *kStore = "Store";

/// What both commands share: where the voice goes and how it is reported.
class MakeCommand : public Command {
 public:
  MakeCommand(CLI::App& voice, const char* name, const char* help) : app_(voice.add_subcommand(name, help)) {
    app_->add_option("NAME", unused_, "Letters, digits, '-' and '_'")->type_name("");
  }
  const CLI::App* app() const override { return app_; }

 protected:
  void add_common_options() {
    add_store_options(*app_, store_, kStore);
    app_->add_flag("--replace", replace_, "Take the place of a voice of that name")->group(kStore);
    app_->add_flag("--json", json_, "Result object on standard output")->group("Output");
    app_->add_flag("--quiet,-q", quiet_, "No notes and warnings; errors only")->group("Output");
  }

  /// Everything that can be known before a model is read.
  VoiceFolder begin(Session& session, const Arguments& arguments) {
    session.log.set_quiet(quiet_);
    session.json = json_;
    complete(o_);
    if (arguments.operands.size() != 1)
      throw UsageError(fmt::format("voice {} takes one NAME", app_->get_name()));
    request_.name = arguments.operands[0];
    if (!valid_voice_name(request_.name))
      throw Error(
          ErrorCode::invalid_argument,
          "the name of a voice is 1 to 64 letters, digits, '-' and '_', and begins with a letter or digit");
    VoiceFolder store = open_store(store_);
    if (!replace_ && store.has(request_.name))
      throw Error(ErrorCode::voice_exists,
                  fmt::format("a voice \"{}\" is there; it stays as it is without --replace", request_.name));
    o_.engine.on_audit = audit_to(store_, session.log);
    return store;
  }

  void make(Session& session, Engine& engine, VoiceFolder& store) {
    const MadeVoice made = engine.make_voice(request_);
    for (const std::string& warning : made.warnings) session.log.warning(session.words(warning));
    store.save(made.voice, replace_);
    session.log.note(fmt::format("voice \"{}\" stored in '{}': {:.1f} s of speech, {}, encoded in {:.2f} s",
                                 made.voice.name, store.path().string(), made.voice.seconds,
                                 made.voice.in_context() ? "with the reference" : "speaker vector alone",
                                 made.encode_ms / 1000));
    if (!json_) return;
    nlohmann::ordered_json json = voice_json(made.voice);
    json["encode_ms"] = made.encode_ms;
    json["warnings"] = made.warnings;
    report(json);
    print_json(session, json);
  }

  /// Adds what the command alone knows.
  virtual void report(nlohmann::ordered_json&) const {}

  CLI::App* app_;
  RequestOptions o_;
  VoiceRequest request_;

 private:
  StoreOptions store_;
  std::string unused_;  // CLI11 shows the operand in the help; Arguments has it
  bool replace_ = false, json_ = false, quiet_ = false;
};

class VoiceAdd final : public MakeCommand {
 public:
  explicit VoiceAdd(CLI::App& voice) : MakeCommand(voice, "add", "Make a voice from a clip") {
    add_name(*app_, "--from", "CLIP", from_,
             "The recording: WAV, FLAC, MP3, Ogg Vorbis or Opus; - is standard input", kVoice);
    add_text(
        *app_, "--text", "T", request_.ref_text,
        "What the clip says, word for word; else CLIP with the ending .txt; else the speaker vector alone",
        kVoice);
    add_text(*app_, "--language", "L", request_.language, "Language of requests that give none", kVoice);
    add_whole_number(
        *app_, "--trailing-silence", 0, 2000, [this](int32_t v) { request_.trailing_silence_ms = v; },
        "Milliseconds of silence added behind the clip, against an echo of its end (default 0)", kVoice);
    add_consent_options(*app_, consent_);
    add_engine_options(*app_, o_);
    add_common_options();
    app_->footer("5 to 15 seconds of clear speech are best, ending with a finished sentence.");
  }

  int run(Session& session, const Arguments& arguments) override {
    VoiceFolder store = begin(session, arguments);
    if (from_.empty()) throw UsageError("no clip: give --from FILE");
    request_.consent = consent_.text(), request_.identity = consent_.identity;
    Voice nobody;
    nobody.name = request_.name, nobody.consent = request_.consent, nobody.identity = request_.identity;
    require_consent(nobody);
    find_transcript(session);
    read_clip(session);
    const auto engine = open_engine(o_, session.log);
    const StatusScope asked(session, *engine);
    make(session, *engine, store);
    return kOk;
  }

 private:
  void find_transcript(Session& session) {
    if (app_->get_option("--text")->count() > 0 || from_ == "-") return;
    const auto beside = std::filesystem::path(from_).replace_extension(".txt");
    std::error_code unknown;
    if (beside == from_ || !std::filesystem::is_regular_file(beside, unknown)) return;
    request_.ref_text = read_text_file(beside.string());
    while (!request_.ref_text.empty() && static_cast<unsigned char>(request_.ref_text.back()) <= ' ')
      request_.ref_text.pop_back();
    session.log.note(fmt::format("the words of the clip are taken from '{}'", beside.string()));
  }

  void read_clip(Session& session) {
    // Longer ones are refused later, with the length; what is far longer is not read at all.
    const auto reader = audio::AudioReader::open(from_, {.seconds = 600});
    request_.recording = audio::read_all(*reader);
    if (const std::string early = audio::ends_early(
            *reader, request_.recording.samples.size() / static_cast<size_t>(reader->channels()));
        !early.empty())
      session.log.warning(fmt::format("'{}' {}", from_, early));
  }

  std::string from_;
  ConsentOptions consent_;
};

class VoiceDesign final : public MakeCommand {
 public:
  explicit VoiceDesign(CLI::App& voice)
      : MakeCommand(voice, "design", "Speak a sample with a described voice and keep that voice") {
    add_name(*app_, "--describe", "TEXT", o_.request.instruct, "How the voice sounds", kVoice);
    add_name(*app_, "--sample-text", "TEXT", o_.request.text, "What it says in the sample", kVoice);
    add_text(*app_, "--language", "L", o_.request.language,
             "Language of the sample, and of requests that give none", kVoice);
    add_name(*app_, "--base", "DIR", base_,
             "Snapshot folder of the Base model that will speak with the voice", kVoice);
    add_engine_options(*app_, o_);
    add_sampling_options(*app_, o_);
    add_common_options();
    add_name(*app_, "--output,-o", "FILE", out_, "Also write the sample as a WAV file", "Output");
    app_->footer("--model is the VoiceDesign model. The voice is synthetic: no consent is needed.");
  }

  int run(Session& session, const Arguments& arguments) override {
    VoiceFolder store = begin(session, arguments);
    if (o_.request.instruct.empty()) throw UsageError("no description: give --describe TEXT");
    if (o_.request.text.empty()) throw UsageError("no text for the sample: give --sample-text TEXT");
    if (base_.empty()) throw UsageError("no Base model: give --base DIR");
    require_type(o_.model, "voice_design", "--model");
    require_type(base_, "base", "--base");
    std::unique_ptr<audio::OutputFile> output;
    if (!out_.empty()) {
      output = audio::OutputFile::open(out_);
      session.signals.remove_at_exit(output->temporary());
    }
    request_.recording.samples = speak_sample(session);
    if (output) write_sample(std::move(output));
    session.signals.remove_at_exit({});
    request_.ref_text = o_.request.text, request_.language = o_.request.language;
    request_.description = o_.request.instruct, request_.identity = SpeakerIdentity::synthetic;
    request_.source = "design";
    const auto engine = open_engine(base_, o_.engine, session.log);  // the other model is closed by now
    const StatusScope asked(session, *engine);
    make(session, *engine, store);
    return kOk;
  }

 private:
  static void require_type(const std::string& folder, const char* type, const char* option) {
    const ModelInfo info = engine::read_model_info(folder);
    if (info.type != type)
      throw Error(ErrorCode::unsupported, fmt::format("'{}' ({}) is a {} model, but a {} model is needed",
                                                      folder, option, info.type, type));
  }

  std::vector<float> speak_sample(Session& session) {
    const auto designer = open_engine(o_, session.log);
    const StatusScope asked(session, *designer);
    request_.recording.sample_rate = designer->info().sample_rate;
    engine::LongTextOptions options;
    options.split = false, options.hold_pieces = true;
    engine::LongText text(*designer, o_.request, options);
    session.signals.on_signal([&text] { text.cancel(); });
    std::vector<float> samples;
    try {
      for (bool last = false; !last;) {
        const AudioChunk chunk = text.next_audio(16);
        samples.insert(samples.end(), chunk.samples.begin(), chunk.samples.end());
        last = chunk.last;
      }
    } catch (...) {
      session.signals.on_signal(nullptr);
      throw;
    }
    session.signals.on_signal(nullptr);
    const SpeechResult result = text.result().total;
    for (const std::string& warning : result.warnings) session.log.warning(session.words(warning));
    seed_ = text.result().pieces.at(0).seed;
    session.log.note(fmt::format("{:.1f} s of sample, seed {}",
                                 static_cast<double>(samples.size()) / request_.recording.sample_rate,
                                 seed_));
    return samples;
  }

  void write_sample(std::unique_ptr<audio::OutputFile> output) const {
    AudioWriter writer(std::move(output), audio::SampleFormat::s16, false,
                       static_cast<uint32_t>(request_.recording.sample_rate));
    writer.write(request_.recording.samples);
    writer.finish();
  }

  void report(nlohmann::ordered_json& json) const override {
    json["seed"] = seed_;
    if (!out_.empty()) json["output"] = out_;
  }

  std::string base_, out_;
  uint64_t seed_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_voice_add(CLI::App& voice) { return std::make_unique<VoiceAdd>(voice); }
std::unique_ptr<Command> make_voice_design(CLI::App& voice) { return std::make_unique<VoiceDesign>(voice); }

}  // namespace skald::cli
