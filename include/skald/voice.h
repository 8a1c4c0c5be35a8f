// Voices of Base models: what a clone is made of, who allowed it, and the files that keep it.
//
// A clone is a voice that is not known to be synthetic: one made from a recording, or imported from
// elsewhere. The library makes, keeps and speaks with a clone only when it carries a consent statement;
// `is_clone` is the one definition that every surface uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skald/error.h"

namespace skald {

/// Audio as it was recorded.
struct Recording {
  std::vector<float> samples;  ///< interleaved, nominally within [-1, 1]
  int32_t channels = 1;
  int32_t sample_rate = 24000;  ///< 8,000 to 192,000
};

enum class SpeakerIdentity { unknown, real, synthetic };
std::string_view speaker_identity_name(SpeakerIdentity identity) noexcept;

/// A voice for a Base model. Plain data; every use checks it.
struct Voice {
  std::string name;  ///< see valid_voice_name
  std::vector<float> x_vector;
  std::vector<int32_t> codes;  ///< [frames * groups] of the reference; empty = speaker vector alone
  std::string ref_text;        ///< what the reference says; with codes only
  std::string language;        ///< suggested language, may be empty: used where a request gives none
  std::string description;     ///< of a designed voice: how it was described

  SpeakerIdentity identity = SpeakerIdentity::unknown;
  std::string consent;  ///< the statement under which a clone may be used
  std::string created;  ///< UTC, "2026-01-31T12:00:00Z"
  std::string source;   ///< "recording", "design", or the format it was imported from

  std::string model;       ///< what made the x-vector: "base 0b6"; may be empty for imported voices
  std::string model_hash;  ///< SHA-256 of that model's speaker encoder; may be empty
  std::string audio_hash;  ///< SHA-256 of the recording's samples; may be empty
  double seconds = 0;      ///< length of the recording

  bool is_clone() const { return identity != SpeakerIdentity::synthetic; }
  bool in_context() const { return !codes.empty(); }
};

/// SHA-256 over everything that shapes the sound: x-vector, codes, reference text.
std::string voice_hash(const Voice& voice);

/// A letter or digit, then up to 63 letters, digits, '-' and '_', ASCII only: safe as part of a file name.
bool valid_voice_name(std::string_view name) noexcept;

/// Whether this is a statement at all: blanks are none.
bool states_consent(std::string_view statement) noexcept;

/// Throws Error(consent_required) for a clone without a consent statement.
void require_consent(const Voice& voice);

// ---- files

/// One voice as the bytes of its file: safetensors with tensors `xvector` F32 [width] and, in-context,
/// `codes` I32 [frames, groups]; everything else is in the metadata. The same voice gives the same bytes.
std::string write_voice(const Voice& voice);
/// Throws Error(voice_invalid) naming `file` and what is wrong.
Voice read_voice(std::string_view bytes, const std::string& file);

/// Voices of other programs: prompt JSON of qwen3-tts-hip, .pt prompts of the official package (nothing in
/// them is executed), CrispASR voice packs in GGUF, and our own files. The format is found by the bytes.
/// Names that the file does not give are empty. Other programs' files carry no consent: it must be stated.
std::vector<Voice> import_voices(std::string_view bytes, const std::string& file);

/// A folder of voices, one file NAME.safetensors each. Files are written whole under another name and moved
/// into place, so several processes may use one folder at the same time. Names differ in more than case.
class VoiceFolder {
 public:
  struct Entry {
    std::string name;
    std::string problem;  ///< why the file cannot be used; empty = `voice` is set
    Voice voice;
  };

  explicit VoiceFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
  const std::filesystem::path& path() const { return folder_; }

  /// Sorted by name. Files that are no voice at all are entries with a problem; an absent folder is empty.
  std::vector<Entry> list() const;
  /// Throws Error(unknown_voice) with the names there are.
  Voice load(std::string_view name) const;
  bool has(std::string_view name) const;
  /// Makes the folder if need be. Throws Error(voice_exists) where a voice of that name is, unless `replace`,
  /// and Error(consent_required).
  void save(const Voice& voice, bool replace);
  void remove(std::string_view name);
  void rename(std::string_view from, const std::string& to, bool replace);

 private:
  std::filesystem::path file_of(std::string_view name) const;

  std::filesystem::path folder_;
};

}  // namespace skald
