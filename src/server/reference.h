// Recordings in requests: uploads and inline references, before any model sees them. Pure functions.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/fields.h"

namespace skald::server {

/// A recording and what its sender says about it.
struct Reference {
  std::shared_ptr<const std::string> audio;  ///< the bytes of an audio file; requests of a batch share them
  std::string ref_text;                      ///< what it says; empty = the speaker vector alone
  std::string consent;                       ///< that the speaker allowed it
  bool x_vector_only = false;
  bool operator==(const Reference&) const = default;  ///< the same bytes, not equal ones
};

/// The bytes of a recording in base64 or as a data URI. Throws as read_reference.
std::string decode_recording(std::string_view text, size_t most, const char* field);

/// The fields ref_audio (base64, or a data URI), ref_text, x_vector_only_mode and consent of a request;
/// nothing where there is no ref_audio. Throws ApiError(400): reference_not_inline for addresses and paths,
/// consent_required, invalid_argument, text_too_long; 413 for more than `most` bytes.
std::optional<Reference> read_reference(Fields& fields, size_t most);

/// A voice to be kept.
struct Upload {
  std::string name, model, language, description;
  Reference reference;
  bool replace = false;
};

/// An upload as multipart/form-data (name, audio_sample | voice | file, consent | consent_attestation,
/// ref_text | transcript, language, model, speaker_description, force) or as JSON with the same names, the
/// audio in base64. Throws ApiError(400), ApiError(413).
Upload read_upload(std::string_view content_type, std::string_view body, size_t most);

}  // namespace skald::server
