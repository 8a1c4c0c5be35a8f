// skald voice list, show, remove, rename, export, import: the folder of stored voices.
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/option_types.h"
#include "cli/output_options.h"
#include "cli/text_input.h"
#include "cli/voice_options.h"
#include "server/ascii.h"
#include "text/utf8.h"

namespace skald::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStore = "Store";

/// A command over the folder; `operands` are the words that it takes.
class StoreCommand : public Command {
 public:
  StoreCommand(CLI::App& voice, const char* name, const char* help, std::vector<std::string> operands)
      : app_(voice.add_subcommand(name, help)), operands_(std::move(operands)) {
    for (const std::string& operand : operands_) app_->add_option(operand, unused_)->type_name("");
    add_store_options(*app_, store_, kStore);
    app_->add_flag("--json", json_, "Result object on standard output")->group("Output");
  }
  const CLI::App* app() const override { return app_; }

  int run(Session& session, const Arguments& arguments) override {
    if (arguments.operands.size() != operands_.size())
      throw UsageError(fmt::format("voice {} takes {}", app_->get_name(),
                                   operands_.empty() ? "no words"
                                   : operands_.size() == 1
                                       ? fmt::format("one {}", operands_[0])
                                       : fmt::format("{} and {}", operands_[0], operands_[1])));
    session.json = json_;
    run(session, open_store(store_), arguments.operands);
    return kOk;
  }

 protected:
  virtual void run(Session& session, VoiceFolder store, const std::vector<std::string>& words) = 0;
  CLI::App& options() { return *app_; }
  bool json() const { return json_; }

 private:
  CLI::App* app_;
  std::vector<std::string> operands_;
  std::string unused_;  // CLI11 shows the operands in the help; `words` has them
  StoreOptions store_;
  bool json_ = false;
};

class VoiceList final : public StoreCommand {
 public:
  explicit VoiceList(CLI::App& voice) : StoreCommand(voice, "list", "List the stored voices", {}) {}

 private:
  void run(Session& session, VoiceFolder store, const std::vector<std::string>&) override {
    Json voices = Json::array();
    std::string lines;
    for (const VoiceFolder::Entry& entry : store.list()) {
      if (entry.problem.empty()) {
        voices.push_back(voice_json(entry.voice));
        lines += voice_line(entry.voice);
      } else {
        voices.push_back({{"name", entry.name}, {"problem", entry.problem}});
        session.log.warning(fmt::format("voice \"{}\" cannot be used: {}", text::printable(entry.name),
                                        text::printable(entry.problem)));
      }
    }
    if (json())
      return print_json(session, {{"folder", store.path().string()}, {"voices", std::move(voices)}});
    if (voices.empty()) session.log.note(fmt::format("there are no voices in '{}'", store.path().string()));
    print(lines);
  }
};

class VoiceShow final : public StoreCommand {
 public:
  explicit VoiceShow(CLI::App& voice)
      : StoreCommand(voice, "show", "Show what a stored voice is", {"NAME"}) {}

 private:
  void run(Session& session, VoiceFolder store, const std::vector<std::string>& words) override {
    const Voice voice = store.load(words[0]);
    Json all = voice_json(voice);
    all["ref_text"] = voice.ref_text;
    all["description"] = voice.description;
    all["model_hash"] = voice.model_hash;
    all["audio_hash"] = voice.audio_hash;
    if (json()) return print_json(session, all);
    std::string lines;
    for (const auto& [key, value] : all.items())
      if (!value.is_string() || !value.get_ref<const std::string&>().empty())
        lines += fmt::format("{:12} {}\n", key,
                             text::printable(value.is_string() ? value.get<std::string>() : value.dump()));
    print(lines);
  }
};

class VoiceRemove final : public StoreCommand {
 public:
  explicit VoiceRemove(CLI::App& voice) : StoreCommand(voice, "remove", "Delete a stored voice", {"NAME"}) {}

 private:
  void run(Session& session, VoiceFolder store, const std::vector<std::string>& words) override {
    store.remove(words[0]);
    if (json()) print_json(session, {{"removed", words[0]}});
  }
};

class VoiceRename final : public StoreCommand {
 public:
  explicit VoiceRename(CLI::App& voice)
      : StoreCommand(voice, "rename", "Give a stored voice another name", {"OLD", "NEW"}) {
    options().add_flag("--replace", replace_, "Take the place of a voice of that name")->group(kStore);
  }

 private:
  void run(Session& session, VoiceFolder store, const std::vector<std::string>& words) override {
    store.rename(words[0], words[1], replace_);
    if (json()) print_json(session, {{"renamed", words[0]}, {"name", words[1]}});
  }

  bool replace_ = false;
};

class VoiceExport final : public StoreCommand {
 public:
  explicit VoiceExport(CLI::App& voice)
      : StoreCommand(voice, "export", "Write a stored voice into a file", {"NAME"}) {
    add_name(options(), "--output,-o", "FILE", output_.out,
             "Voice file to write (safetensors); - is standard output", kOutputGroup);
  }

 private:
  void run(Session& session, VoiceFolder store, const std::vector<std::string>& words) override {
    output_.json = json();
    complete(output_, session);
    const Voice voice = store.load(words[0]);
    const auto output = open_output(output_, session);
    output->write(write_voice(voice));
    output->commit();
    session.signals.remove_at_exit({});
    if (json()) print_json(session, {{"name", voice.name}, {"output", output_.out}});
  }

  OutputOptions output_;
};

std::string read_bytes(const std::string& path) {
  constexpr size_t kMost = 64 << 20;
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string bytes(kMost + 1, '\0');
  if (in) in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!in && !in.eof())
    throw Error(ErrorCode::io,
                fmt::format("cannot read '{}': {}", path, std::generic_category().message(errno)));
  bytes.resize(static_cast<size_t>(in.gcount()));
  if (bytes.size() > kMost)
    throw Error(ErrorCode::voice_invalid, fmt::format("'{}' is larger than any file of voices", path));
  return bytes;
}

class VoiceImport final : public StoreCommand {
 public:
  explicit VoiceImport(CLI::App& voice)
      : StoreCommand(voice, "import", "Take over voices of this and other programs", {"FILE"}) {
    options().footer(
        "FILE is a voice file of skald, a prompt JSON of qwen3-tts-hip, a .pt prompt of the official "
        "package\n"
        "(nothing in it is executed) or a voice pack of CrispASR in GGUF.");
    add_name(options(), "--name", "NAME", name_, "Name to store it under; else the file's own", kStore);
    options().add_flag("--replace", replace_, "Take the place of voices of the same name")->group(kStore);
    add_consent_options(options(), consent_);
  }

 private:
  void run(Session& session, VoiceFolder store, const std::vector<std::string>& words) override {
    std::vector<Voice> voices = import_voices(read_bytes(words[0]), words[0]);
    if (!name_.empty() && voices.size() != 1)
      throw UsageError(
          fmt::format("'{}' holds {} voices, so --name cannot name them", words[0], voices.size()));
    for (Voice& voice : voices) complete(voice, words[0]);
    number_namesakes(voices);
    for (const Voice& voice : voices)
      if (!replace_ && store.has(voice.name))
        throw Error(ErrorCode::voice_exists,
                    fmt::format("a voice \"{}\" is there, and nothing was stored; without --replace it stays",
                                voice.name));
    Json stored = Json::array();
    for (const Voice& voice : voices) {
      store.save(voice, replace_);
      stored.push_back(voice_json(voice));
      session.log.note(fmt::format("voice \"{}\" stored in '{}'", voice.name, store.path().string()));
    }
    if (json()) print_json(session, {{"voices", std::move(stored)}});
  }

  /// All of them are checked before the first is stored.
  void complete(Voice& voice, const std::string& path) const {
    if (!name_.empty()) voice.name = name_;
    if (voice.name.empty()) voice.name = std::filesystem::path(path).stem().string();
    if (!valid_voice_name(voice.name))
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("\"{}\" cannot be the name of a voice; give another one with --name", voice.name));
    if (consent_.identity != SpeakerIdentity::unknown) voice.identity = consent_.identity;
    voice.consent = consent_.text();
    text::require_utf8(voice.consent);
    require_consent(voice);
  }

  /// Voices of one file under one name, whatever its case: the second becomes "NAME-2".
  static void number_namesakes(std::vector<Voice>& voices) {
    std::set<std::string> taken;
    for (Voice& voice : voices) {
      const std::string name = voice.name;
      for (int number = 2; !taken.insert(server::lower(voice.name)).second; ++number)
        voice.name = fmt::format("{}-{}", name, number);
    }
  }

  std::string name_;
  bool replace_ = false;
  ConsentOptions consent_;
};

}  // namespace

std::unique_ptr<Command> make_voice_list(CLI::App& voice) { return std::make_unique<VoiceList>(voice); }
std::unique_ptr<Command> make_voice_show(CLI::App& voice) { return std::make_unique<VoiceShow>(voice); }
std::unique_ptr<Command> make_voice_remove(CLI::App& voice) { return std::make_unique<VoiceRemove>(voice); }
std::unique_ptr<Command> make_voice_rename(CLI::App& voice) { return std::make_unique<VoiceRename>(voice); }
std::unique_ptr<Command> make_voice_export(CLI::App& voice) { return std::make_unique<VoiceExport>(voice); }
std::unique_ptr<Command> make_voice_import(CLI::App& voice) { return std::make_unique<VoiceImport>(voice); }

}  // namespace skald::cli
