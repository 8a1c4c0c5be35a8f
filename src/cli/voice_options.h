// What the commands about voices share: the folder, consent, the audit.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "cli/log.h"
#include "skald/voice.h"

namespace CLI {
class App;
}

namespace skald::cli {

struct StoreOptions {
  std::string folder;  ///< --voices, else SKALD_VOICES, else the user's data folder
  std::string audit;   ///< --audit, else audit.jsonl in that folder
};

void add_store_options(CLI::App& app, StoreOptions& options, const std::string& group);
/// Empty where there is no home to look in.
std::filesystem::path store_folder(const StoreOptions& options);
/// Throws UsageError where there is no home to look in.
VoiceFolder open_store(const StoreOptions& options);

/// For EngineOptions::on_audit: appends every line to the file. One that was named and cannot be written is
/// an Error(io); the usual one is warned about. The log must outlive it.
std::function<void(const std::string&)> audit_to(const StoreOptions& options, Log& log);

struct ConsentOptions {
  bool rights = false;    ///< --i-have-rights
  std::string statement;  ///< --consent
  SpeakerIdentity identity = SpeakerIdentity::unknown;

  /// What is stored with the voice; empty = nothing was stated.
  std::string text() const;
};

void add_consent_options(CLI::App& app, ConsentOptions& options);

/// A voice as an object: what it is, without numbers and texts.
nlohmann::ordered_json voice_json(const Voice& voice);
/// One line of `voice list`.
std::string voice_line(const Voice& voice);

}  // namespace skald::cli
