// What the commands about voices share.
#include "cli/voice_options.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/arguments.h"
#include "cli/option_types.h"
#include "text/utf8.h"

namespace skald::cli {
namespace {

/// Appends in one write, so that lines of several processes do not mix. The number of the error, 0 = none.
int append(const std::filesystem::path& file, const std::string& line) {
  std::error_code failure;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), failure);
  if (failure) return failure.value();
  const int fd = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  const ssize_t written = ::write(fd, line.data(), line.size());
  int error = written < 0 ? errno : static_cast<size_t>(written) < line.size() ? EIO : 0;
  if (::close(fd) != 0 && error == 0) error = errno;
  return error;
}

const char* kind_name(const Voice& voice) { return voice.in_context() ? "in_context" : "x_vector"; }

size_t frames_of(const Voice& voice) { return voice.codes.size() / 16; }

}  // namespace

void add_store_options(CLI::App& app, StoreOptions& o, const std::string& group) {
  add_name(app, "--voices", "DIR", o.folder,
           "Folder of stored voices; else $SKALD_VOICES, else the user's data folder", group);
  add_name(app, "--audit", "FILE", o.audit,
           "Append a line of JSON for every clone; default: audit.jsonl beside the voices", group);
}

std::filesystem::path store_folder(const StoreOptions& o) {
  if (!o.folder.empty()) return o.folder;
  if (const char* given = std::getenv("SKALD_VOICES"); given != nullptr && *given != '\0') return given;
  const char *data = std::getenv("XDG_DATA_HOME"), *home = std::getenv("HOME");
  if (data != nullptr && *data == '/') return std::filesystem::path(data) / "skald/voices";
  if (home != nullptr && *home == '/') return std::filesystem::path(home) / ".local/share/skald/voices";
  return {};
}

VoiceFolder open_store(const StoreOptions& o) {
  const std::filesystem::path folder = store_folder(o);
  if (folder.empty()) throw UsageError("no folder for voices: give --voices DIR or set SKALD_VOICES");
  return VoiceFolder(folder);
}

std::function<void(const std::string&)> audit_to(const StoreOptions& o, Log& log) {
  const bool named = !o.audit.empty();
  const std::filesystem::path folder = store_folder(o);
  const std::filesystem::path file = named            ? std::filesystem::path(o.audit)
                                     : folder.empty() ? std::filesystem::path()
                                                      : folder / "audit.jsonl";
  return [file, named, &log](const std::string& line) {
    const int error = file.empty() ? ENOENT : append(file, line + "\n");
    if (error == 0) return;
    const std::string what = fmt::format("cannot write the audit to '{}': {}", file.string(),
                                         std::generic_category().message(error));
    if (named) throw Error(ErrorCode::io, what);
    log.warning(what);
  };
}

std::string ConsentOptions::text() const {
  if (states_consent(statement)) return statement;
  return rights ? "The user stated to have the rights to this voice (--i-have-rights)." : "";
}

void add_consent_options(CLI::App& app, ConsentOptions& o) {
  constexpr const char* kConsent = "Consent";
  app.add_flag("--i-have-rights", o.rights, "State that you have the rights to this voice; stored with it")
      ->group(kConsent);
  add_text(app, "--consent", "TEXT", o.statement,
           "The same in words of your own: who allowed it, when, for what", kConsent);
  add_choice(app, "--identity", o.identity, SpeakerIdentity::unknown, {"unknown", "real", "synthetic"},
             "Whose voice it is; one that is nobody's needs no consent (default unknown)", kConsent);
}

nlohmann::ordered_json voice_json(const Voice& v) {
  return {{"name", v.name},
          {"kind", kind_name(v)},
          {"width", v.x_vector.size()},
          {"frames", frames_of(v)},
          {"seconds", v.seconds},
          {"language", v.language},
          {"identity", speaker_identity_name(v.identity)},
          {"clone", v.is_clone()},
          {"consent", v.consent},
          {"created", v.created},
          {"source", v.source},
          {"model", v.model},
          {"hash", voice_hash(v)}};
}

std::string voice_line(const Voice& v) {
  return fmt::format("{:20} {:14} {:>5} wide {:>6.1f} s  {:10} {:9} {}\n", v.name, kind_name(v),
                     v.x_vector.size(), v.seconds, v.language.empty() ? "-" : text::printable(v.language),
                     speaker_identity_name(v.identity), text::printable(v.source));
}

}  // namespace skald::cli
