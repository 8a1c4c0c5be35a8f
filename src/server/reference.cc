// Recordings in requests.
#include "server/reference.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/api_error.h"
#include "server/base64.h"
#include "server/door.h"
#include "server/json_text.h"
#include "server/multipart.h"
#include "skald/voice.h"
#include "text/utf8.h"

namespace skald::server {
namespace {

[[noreturn]] void no_consent() {
  throw ApiError(
      400, "consent_required",
      "a voice made from a recording needs the field consent: a statement that the speaker allowed it",
      "consent");
}

void check_size(size_t bytes, size_t most, const char* field) {
  if (bytes == 0) throw ApiError(400, "invalid_argument", fmt::format("{} is empty", field), field);
  if (bytes > most)
    throw ApiError(413, "body_too_large",
                   fmt::format("{} has {} bytes, but at most {} are taken", field, bytes, most), field);
}

// More than any sentence in front of a microphone; what is said about a voice is kept and audited with it.
constexpr size_t kMostSaid = 4096;

void check_words(const std::string& text, const char* field) {
  const size_t count = text::count_code_points(text);
  if (count > kMostSaid)
    throw ApiError(400, "text_too_long",
                   fmt::format("{} has {} characters, but at most {} are allowed", field, count, kMostSaid),
                   field);
}

/// The bytes of base64 or of a data URI. What looks like an address or a path is never followed.
std::string decode_audio(std::string_view text, size_t most, const char* field) {
  constexpr std::string_view kData = "data:", kBase64 = ";base64";
  if (text.substr(0, kData.size()) == kData) {
    const size_t comma = text.find(',');
    if (comma == std::string_view::npos || text.substr(0, comma).find(kBase64) == std::string_view::npos)
      throw ApiError(400, "invalid_argument", fmt::format("{} is a data URI without base64 data", field),
                     field);
    text.remove_prefix(comma + 1);
  } else if (text.find("://") != std::string_view::npos || text.substr(0, 1) == "/" ||
             text.substr(0, 1) == ".") {
    throw ApiError(
        400, "reference_not_inline",
        fmt::format("{} must hold the recording itself in base64: addresses and paths are not followed",
                    field),
        field);
  }
  if (text.size() / 4 * 3 > most + 3) check_size(text.size() / 4 * 3, most, field);
  auto bytes = from_base64(text);
  if (!bytes) throw ApiError(400, "invalid_argument", fmt::format("{} is not base64", field), field);
  check_size(bytes->size(), most, field);
  return *std::move(bytes);
}

std::shared_ptr<const std::string> shared(std::string bytes) {
  return std::make_shared<const std::string>(std::move(bytes));
}

/// A statement, or `true` for one.
std::string read_consent(Fields& fields) {
  const nlohmann::json* value = fields.find({"consent", "consent_attestation"});
  if (value && value->is_boolean()) return value->get<bool>() ? "stated by the sender of the request" : "";
  return fields.text({"consent", "consent_attestation"}).value_or("");
}

Upload upload_of_json(std::string_view body, size_t most) {
  const nlohmann::json object = parse_object(body);
  Fields fields(object);
  Upload u;
  u.name = fields.text({"name"}).value_or("");
  u.model = fields.text({"model"}).value_or("");
  u.language = fields.text({"language"}).value_or("");
  u.description = fields.text({"speaker_description", "description"}).value_or("");
  u.replace = fields.flag({"force", "replace"}).value_or(false);
  u.reference.ref_text = fields.text({"ref_text", "transcript"}).value_or("");
  u.reference.consent = read_consent(fields);
  const auto audio = fields.text({"audio_sample", "ref_audio", "voice"});
  if (!audio) throw ApiError(400, "invalid_argument", "audio_sample is missing", "audio_sample");
  u.reference.audio = shared(decode_audio(*audio, most, "audio_sample"));
  return u;
}

Upload upload_of_form(std::string_view content_type, std::string_view body, size_t most) {
  Upload u;
  for (const FormPart& part : parse_multipart(content_type, body)) {
    if (part.name == "audio_sample" || part.name == "voice" || part.name == "file") {
      check_size(part.content.size(), most, "audio_sample");
      u.reference.audio = shared(std::string(part.content));
      continue;
    }
    if (!text::scan_utf8(part.content).ok(part.content.size()))
      throw ApiError(400, "invalid_form", "a field of the form is not UTF-8");
    const std::string value(part.content);
    if (part.name == "name") u.name = value;
    if (part.name == "model") u.model = value;
    if (part.name == "language") u.language = value;
    if (part.name == "speaker_description" || part.name == "description") u.description = value;
    if (part.name == "consent" || part.name == "consent_attestation") u.reference.consent = value;
    if (part.name == "ref_text" || part.name == "transcript") u.reference.ref_text = value;
    if (part.name == "force" || part.name == "replace") u.replace = value == "true" || value == "1";
  }
  if (!u.reference.audio) throw ApiError(400, "invalid_argument", "audio_sample is missing", "audio_sample");
  return u;
}

}  // namespace

std::string decode_recording(std::string_view text, size_t most, const char* field) {
  return decode_audio(text, most, field);
}

std::optional<Reference> read_reference(Fields& fields, size_t most) {
  Reference r;
  const auto audio = fields.text({"ref_audio"});
  r.ref_text = fields.text({"ref_text"}).value_or("");
  r.x_vector_only = fields.flag({"x_vector_only_mode"}).value_or(false);
  r.consent = read_consent(fields);
  if (!audio) return std::nullopt;
  if (!states_consent(r.consent)) no_consent();
  check_words(r.ref_text, "ref_text");
  check_words(r.consent, "consent");
  r.audio = shared(decode_audio(*audio, most, "ref_audio"));
  return r;
}

Upload read_upload(std::string_view content_type, std::string_view body, size_t most) {
  Upload u =
      is_json_type(content_type) ? upload_of_json(body, most) : upload_of_form(content_type, body, most);
  if (!valid_voice_name(u.name))
    throw ApiError(400, "invalid_argument",
                   "name must be a letter or digit and up to 63 letters, digits, '-' and '_'", "name");
  if (!states_consent(u.reference.consent)) no_consent();
  check_words(u.reference.consent, "consent");
  check_words(u.reference.ref_text, "ref_text");
  check_words(u.description, "speaker_description");
  return u;
}

}  // namespace skald::server
