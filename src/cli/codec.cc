// skald codec decode: recorded codes to samples.
#include <unistd.h>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "audio/output_file.h"
#include "cli/audio_writer.h"
#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/first_start.h"
#include "cli/option_types.h"
#include "cli/request_options.h"

namespace skald::cli {
namespace {

class CodecDecode : public Command {
 public:
  explicit CodecDecode(CLI::App& codec) : app_(codec.add_subcommand("decode", "Turn codes into audio")) {
    app_->add_option("CODES", codes_, "Codes as .npy, [frames, 16] of any integer type")->type_name("");
    add_engine_options(*app_, o_);
    add_choice(*app_, "--decode", mode_, DecodeMode::stream, {"stream", "whole", "official"},
               "official = chunks of 300 frames with 25 of context (default stream)", "Output");
    add_name(*app_, "--output,-o", "FILE", out_, "WAV file to write; - is standard output", "Output");
    app_->add_flag("--raw", raw_, "No WAV header: s16le (f32le with --float)")->group("Output");
    app_->add_flag("--float", floats_, "32-bit float samples instead of 16-bit PCM")->group("Output");
    app_->add_flag("--json", json_, "Result object on standard output (standard error with -o -)")
        ->group("Output");
  }
  const CLI::App* app() const override { return app_; }

  int run(Session& session, const Arguments& arguments) override {
    complete(o_);
    if (arguments.operands.size() != 1) throw UsageError("codec decode takes one file of codes");
    if (raw_ && out_.empty()) out_ = "-";
    if (out_.empty()) throw UsageError("no output: give -o FILE, or -o - for standard output");
    if (out_ == "-" && ::isatty(STDOUT_FILENO))
      throw UsageError("standard output is a terminal: give -o FILE");
    session.json = json_;
    session.json_to_stderr = out_ == "-";
    auto output = out_ == "-" ? audio::OutputFile::attach(STDOUT_FILENO, "standard output")
                              : audio::OutputFile::open(out_);
    session.signals.remove_at_exit(output->temporary());
    check_gpus_first(session, o_.engine);
    const auto engine = Engine::open(o_.model, o_.engine);
    const ModelInfo& info = engine->info();
    const std::vector<int32_t> codes = load_codes(arguments.operands[0], info.groups);
    std::vector<float> samples = engine->decode(codes, mode_);
    const size_t count = samples.size();
    AudioWriter writer(std::move(output), floats_ ? audio::SampleFormat::f32 : audio::SampleFormat::s16, raw_,
                       static_cast<uint32_t>(info.sample_rate));
    writer.write(std::move(samples));
    writer.finish();
    session.signals.remove_at_exit({});
    if (json_) {
      print_json(session, {{"frames", codes.size() / static_cast<size_t>(info.groups)},
                           {"samples", count},
                           {"sample_rate", info.sample_rate},
                           {"output", out_}});
    }
    return kOk;
  }

 private:
  CLI::App* app_;
  RequestOptions o_;
  DecodeMode mode_ = DecodeMode::stream;
  std::string codes_, out_;
  bool raw_ = false, floats_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_codec_decode(CLI::App& codec) { return std::make_unique<CodecDecode>(codec); }

}  // namespace skald::cli
