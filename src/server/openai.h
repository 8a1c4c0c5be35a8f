// The OpenAI speech interface as pure functions: bodies to checked requests, results to bodies.
//
// One reader for every route (plain, batch, WebSocket, forms), so that a field means the same everywhere.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audio/encode/encoder.h"
#include "server/api_error.h"
#include "server/catalog.h"
#include "server/reference.h"
#include "skald/skald.h"

namespace skald::server {

/// Limits and habits of the server that a body is read under.
struct ApiRules {
  size_t max_input = 4096;            ///< code points of the text; 0 = no limit
  size_t max_instructions = 4096;     ///< code points
  bool strict = false;                ///< unknown fields and warnings that change the result are errors
  int32_t max_frames = 0;             ///< most frames of one request; 0 = no limit
  size_t max_reference = 10'000'000;  ///< bytes of a recording in a request
  bool cloning = true;                ///< requests may hold recordings
};

/// How the audio reaches the client.
enum class Delivery : uint8_t {
  whole,    ///< one body of known length, after the last sample is there
  chunked,  ///< audio as it is made
  events,   ///< server-sent events with base64 audio
};

/// A checked request.
struct SpeechCall {
  size_t model = 0;       ///< index into the catalog
  SpeechRequest request;  ///< text, voice, language, sampling, limits
  audio::Format format = audio::Format::mp3;
  double speed = 1;
  Delivery delivery = Delivery::chunked;
  bool split = true;  ///< long text may be spoken in pieces
  bool clean_text = false;
  int32_t pause_ms = 120;              ///< between the pieces
  std::optional<Reference> reference;  ///< the voice as a recording
  float gain = 1;                      ///< of the samples
  std::vector<std::string> ignored;    ///< names of fields nobody knows
};

/// What a reader is to do with the text.
enum class TextField : uint8_t { required, absent };

/// Reads a body or one item of a batch. Throws ApiError with status 400 or 404.
SpeechCall read_speech(const nlohmann::json& object, const Catalog& catalog, const ApiRules& rules,
                       TextField text = TextField::required);
/// The same from the bytes of a body.
SpeechCall parse_speech(std::string_view body, const Catalog& catalog, const ApiRules& rules);

/// A form of the routes /api/generate and /api/stream as the object that read_speech takes: text, speaker,
/// language, max_frames, sampling, seed, text_lookahead_tokens. What a form leaves out has the defaults of
/// those routes. Throws ApiError(400) for values that are no numbers.
nlohmann::json object_of_form(const std::map<std::string, std::string, std::less<>>& form);

/// Names of the formats that this build writes, "mp3, opus, ...".
std::string format_list();

// ---- answers

struct Usage {
  int64_t input_tokens = 0, output_tokens = 0;
};
/// Text tokens in, frames out.
Usage usage_of(const SpeechResult& result);
/// As answers have it.
nlohmann::ordered_json usage_json(const Usage& usage);

std::string models_body(const Catalog& catalog);
/// One entry; throws ApiError(404, model_not_found).
std::string model_body(const Catalog& catalog, std::string_view id);
/// The models as Open WebUI reads them, beside the usual list.
std::string audio_models_body(const Catalog& catalog);
/// The voices of one model, or of all without a name. `data` and `voices` are the same list of objects.
std::string voices_body(const Catalog& catalog, std::string_view model);

// Server-sent events of the stream_format "sse".
std::string event_of_audio(std::string_view bytes);
std::string event_of_end(const Usage& usage, const SpeechResult& result);
std::string event_of_error(const ApiError& error, std::string_view request_id);

}  // namespace skald::server
