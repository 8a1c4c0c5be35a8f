// skald say: text to speech.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "audio/output_file.h"
#include "cli/audio_writer.h"
#include "cli/command.h"
#include "cli/dump.h"
#include "cli/exit_status.h"
#include "cli/first_start.h"
#include "cli/request_options.h"
#include "cli/say_options.h"
#include "cli/text_input.h"
#include "engine/long_text.h"
#include "engine/streams.h"
#include "model/config.h"
#include "text/inspect.h"
#include "text/languages.h"

namespace skald::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFooter = R"(Playing while it is computed:
  skald say ... -o - 'Some text' | ffplay -autoexit -nodisp -
  skald say ... --raw 'Some text' | aplay -f S16_LE -r 24000 -c 1
Text that begins with a dash goes after '--'.)";

/// Those that this model can speak with; others are warned about.
std::vector<std::string> stored_voices(const SayOptions& o, Session& session) {
  const int32_t width = engine::read_model_info(o.model).hidden_size;
  std::vector<std::string> names;
  for (const VoiceFolder::Entry& entry : open_store(o.store).list()) {
    if (!entry.problem.empty()) {
      session.log.warning(fmt::format("voice \"{}\" cannot be used: {}", entry.name, entry.problem));
    } else if (entry.voice.x_vector.size() != static_cast<size_t>(width)) {
      session.log.warning(fmt::format("voice \"{}\" is for another model ({} numbers, not {})", entry.name,
                                      entry.voice.x_vector.size(), width));
    } else {
      names.push_back(entry.name);
    }
  }
  return names;
}

std::string why_no_voice(const model::ModelConfig& config, const SayOptions& o) {
  switch (config.type) {
    case model::ModelType::voice_design:
      return "a VoiceDesign model has no list of voices: --instruct describes the voice to speak with";
    case model::ModelType::base:
      return fmt::format("no voice for this model is stored in '{}'; skald voice add makes one",
                         open_store(o.store).path().string());
    case model::ModelType::custom_voice: break;
  }
  return "this model's speaker table (spk_id in config.json) is empty, so it has no voices";
}

/// Prints names from the configuration alone, without loading the weights.
int list_names(const SayOptions& o, Session& session) {
  const model::ModelConfig config = model::load_config(o.model);
  std::string lines;
  Json object;
  if (o.list_voices) {
    std::vector<std::string> names;
    for (const auto& [name, unused] : config.talker.speaker_ids) names.push_back(name);
    if (config.type == model::ModelType::base) names = stored_voices(o, session);
    object["voices"] = names;
    for (const std::string& name : names) lines += name + "\n";
  }
  if (o.list_languages) {
    object["languages"] = Json::array();
    for (const std::string& name : model::language_names(config)) {
      const std::string_view code = text::language_code(name);
      lines += code.empty() ? name + "\n" : fmt::format("{} ({})\n", name, code);
      object["languages"].push_back({{"name", name}, {"code", code}});
    }
  }
  if (o.list_voices && object["voices"].empty()) session.log.note(why_no_voice(config, o));
  o.json ? print_json(session, object) : print(lines);
  return kOk;
}

bool is_stream(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && !S_ISREG(info.st_mode);
}

/// A run of `say` from checked options to its result.
class SayRun {
 public:
  SayRun(SayOptions& options, Session& session) : o_(options), session_(session) {}

  int run(std::optional<std::string> operand) {
    open_text(std::move(operand));
    if (!o_.out.empty()) output_ = open_output(o_, session_);
    load_reference(o_, session_.log);
    check_gpus_first(session_, o_.engine);
    engine_ = open_engine(o_, session_.log);
    const StatusScope asked(session_, *engine_);
    start();
    const CancelScope scope(session_.signals, [this] { cancel(); });
    try {
      speak();
      if (writer_) writer_->finish();
    } catch (const audio::ClosedPipe&) {
      throw;
    } catch (const Error& error) {
      fail(error);
      throw;
    }
    session_.signals.remove_at_exit({});
    report(nullptr);
    return kOk;
  }

 private:
  struct CancelScope {
    CancelScope(Signals& to, std::function<void()> cancel) : signals(to) {
      signals.on_signal(std::move(cancel));
    }
    ~CancelScope() { signals.on_signal(nullptr); }
    Signals& signals;
  };

  /// The text, or the pipe it will come from.
  void open_text(std::optional<std::string> operand) {
    const bool from_stdin = operand ? false : o_.file.empty() || o_.file == "-";
    const bool may_arrive = from_stdin && is_stream(STDIN_FILENO) && o_.replay.empty() && o_.noise.empty();
    std::error_code unknown;  // opening the output reports it
    streaming_ = o_.to_stdout() || (!o_.out.empty() && !std::filesystem::is_regular_file(o_.out, unknown) &&
                                    std::filesystem::exists(o_.out, unknown));
    if (may_arrive && streaming_) {
      arriving_ = std::make_unique<ArrivingText>(STDIN_FILENO, "standard input");
      return;
    }
    if (operand) {
      o_.request.text = text::decode_text(*operand);
    } else if (from_stdin) {
      o_.request.text = text::decode_text(read_all(STDIN_FILENO, "standard input"));
    } else {
      o_.request.text = read_text_file(o_.file);
    }
    if (!o_.request.raw_tokens && !text::anything_to_speak(o_.request.text)) {
      throw Error(ErrorCode::nothing_to_speak,
                  "the text holds no letter and no digit, so there is nothing to speak");
    }
  }

  void start() {
    const ModelInfo& info = engine_->info();
    const bool recorded = !o_.replay.empty() || !o_.noise.empty();
    recorder_.emplace(*engine_, o_.dump, load_diagnosis(o_.replay, o_.noise, info));
    engine::LongTextOptions options;
    options.max_piece = o_.max_piece;
    options.split = !o_.no_split && !recorded;  // recorded numbers belong to one request
    options.retry = !recorded;
    options.pause_ms = o_.pause_ms;
    options.hold_pieces = !streaming_;
    options.clean_text = o_.clean_text;
    options.disclaimer = o_.disclaimer || !o_.disclaimer_text.empty() || !o_.disclaimer_language.empty();
    options.disclaimer_text = o_.disclaimer_text, options.disclaimer_language = o_.disclaimer_language;
    options.on_progress = [this](int32_t piece, int64_t frames) { show_progress(piece, frames); };
    if (output_) {
      writer_ = std::make_unique<AudioWriter>(std::move(output_),
                                              o_.floats ? audio::SampleFormat::f32 : audio::SampleFormat::s16,
                                              o_.raw, static_cast<uint32_t>(info.sample_rate));
    }
    if (arriving_) {
      text_.emplace(
          *engine_, o_.request, options, [this] { return arriving_->next(); }, &*recorder_);
    } else {
      text_.emplace(*engine_, o_.request, options, &*recorder_);
    }
  }

  void cancel() {
    text_->cancel();
    if (arriving_) arriving_->cancel();
    if (writer_) writer_->interrupt();
  }

  void speak() {
    // Small chunks keep a listener's wait short; the samples are the same for any size.
    constexpr int32_t kStreamChunk = 4, kFileChunk = 16;
    int32_t chunk = streaming_ ? 1 : kFileChunk;
    for (bool last = false; !last; chunk = streaming_ ? kStreamChunk : kFileChunk) {
      AudioChunk audio = text_->next_audio(chunk);
      last = audio.last;
      if (writer_) writer_->write(std::move(audio.samples));
    }
  }

  void show_progress(int32_t piece, int64_t frames) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_progress_ < std::chrono::milliseconds(100)) return;
    last_progress_ = now;
    const ModelInfo& info = engine_->info();
    const int32_t pieces = text_->piece_count();
    const std::string where = piece < 0     ? "disclaimer: "
                              : pieces == 1 ? ""
                                            : fmt::format("piece {}{}: ", piece + 1,
                                                          pieces > 0 ? fmt::format(" of {}", pieces) : "");
    session_.log.status(fmt::format("{}{:.1f} s of speech", where,
                                    static_cast<double>(frames) * info.samples_per_frame / info.sample_rate));
  }

  /// After an error: closes what can be closed and reports what there is.
  void fail(const Error& error) {
    recorder_->abandon();
    const bool keep = error.code() == ErrorCode::runaway && o_.keep_runaway && writer_;
    if (keep) {
      writer_->write(text_->salvage());
      writer_->finish();
      session_.signals.remove_at_exit({});
      session_.log.note(fmt::format("kept the audio of the runaway in '{}'", o_.out));
    } else if (writer_) {
      writer_->close_stream();
    }
    report(&error);
  }

  void report(const Error* error) {
    const engine::LongTextResult result = text_->result();
    for (const std::string& warning : result.total.warnings) session_.log.warning(session_.words(warning));
    if (o_.json) print_json(session_, result_json(result, error));
    if (error != nullptr) return;
    const SpeechResult& t = result.total;
    const double seconds = static_cast<double>(t.samples) / engine_->info().sample_rate;
    session_.log.note(fmt::format(
        "{:.2f} s of speech in {} frames, stop {}, seed {}, real-time factor {:.2f}, first audio {:.0f} ms",
        seconds, t.frames, stop_reason_name(t.stop), t.seed, t.rtf, t.first_audio_ms));
  }

  Json result_json(const engine::LongTextResult& result, const Error* error) const {
    const SpeechResult& t = result.total;
    Json json{{"frames", t.frames},
              {"samples", t.samples},
              {"sample_rate", engine_->info().sample_rate},
              {"stop", stop_reason_name(t.stop)},
              {"seed", t.seed},
              {"request_id", t.request_id},
              {"rtf", t.rtf},
              {"first_audio_ms", t.first_audio_ms},
              {"compute_ms", t.compute_ms},
              {"prompt_rows", t.prompt_rows},
              {"text_tokens", t.text_tokens},
              {"frame_bound", t.frame_bound},
              {"instruct_ignored", t.instruct_ignored},
              {"warnings", in_words(t.warnings)},
              {"output", o_.out}};
    Json pieces = Json::array();
    for (const engine::PieceReport& piece : result.pieces) {
      pieces.push_back({{"text", piece.text},
                        {"disclaimer", piece.index < 0},
                        {"seed", piece.seed},
                        {"attempts", piece.attempts},
                        {"frames", piece.result.frames},
                        {"samples", piece.result.samples},
                        {"stop", stop_reason_name(piece.result.stop)},
                        {"prompt_rows", piece.result.prompt_rows},
                        {"text_tokens", piece.result.text_tokens}});
    }
    json["pieces"] = std::move(pieces);
    if (error != nullptr) json["error"] = error_json(session_, *error);
    return json;
  }

  std::vector<std::string> in_words(std::vector<std::string> sentences) const {
    for (std::string& sentence : sentences) sentence = session_.words(sentence);
    return sentences;
  }

  SayOptions& o_;
  Session& session_;
  bool streaming_ = false;
  std::unique_ptr<ArrivingText> arriving_;
  std::unique_ptr<audio::OutputFile> output_;
  std::unique_ptr<Engine> engine_;
  std::optional<Recorder> recorder_;
  std::unique_ptr<AudioWriter> writer_;
  std::optional<engine::LongText> text_;
  std::chrono::steady_clock::time_point last_progress_;
};

class Say : public Command {
 public:
  explicit Say(CLI::App& program) : app_(program.add_subcommand("say", "Speak a text")) {
    add_say_options(*app_, o_);
    app_->footer(kFooter);
  }
  const CLI::App* app() const override { return app_; }

  int run(Session& session, const Arguments& arguments) override {
    session.log.set_quiet(o_.quiet);
    complete(o_);
    if (o_.list_voices || o_.list_languages) {
      session.json = o_.json;
      return list_names(o_, session);
    }
    const std::optional<std::string> operand = text_operand(arguments, o_.file);
    complete(o_, session, !o_.dump.empty());
    if (!operand && o_.file.empty() && ::isatty(STDIN_FILENO)) {
      throw UsageError(
          "no text: give it as an argument, with -f FILE, or on standard input (-f - to type it)");
    }
    return SayRun(o_, session).run(operand);
  }

 private:
  CLI::App* app_;
  SayOptions o_;
};

}  // namespace

std::unique_ptr<Command> make_say(CLI::App& program) { return std::make_unique<Say>(program); }

}  // namespace skald::cli
