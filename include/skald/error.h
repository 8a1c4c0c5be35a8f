// The one exception type of the library, and the codes every surface maps from.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace skald {

/// What went wrong, as a stable code. The command line maps it to an exit status, a server to an HTTP status;
/// the table is `docs/errors.md`. New codes are added at the end.
enum class ErrorCode {
  internal = 0,      ///< a defect of skald itself
  invalid_argument,  ///< an option or field is out of its range
  invalid_text,      ///< bytes that are not the declared encoding; the message has the byte offset
  nothing_to_speak,  ///< blank text, or text without anything that is said
  unknown_voice,     ///< the message lists the valid names
  unknown_language,  ///< the message lists the valid names and codes
  text_too_long,     ///< the request cannot fit the cache, known before any work
  model_not_found,   ///< a file or folder of the model is missing
  model_invalid,     ///< a file of the model is damaged or contradicts its configuration
  unsupported,       ///< valid, but this model or build cannot do it
  out_of_memory,     ///< refused before allocating; the message has the sizes
  device,            ///< a device that was asked for cannot be used
  runaway,           ///< generation reached its bound without the stop token
  non_finite,        ///< NaN or infinity in logits
  cancelled,         ///< the caller cancelled
  io,                ///< a file or pipe could not be read or written
  device_lost,       ///< the driver gave the device up: a fault on it, a reset, or it was taken away
  device_wedged,     ///< the device stands still: no progress within the deadline
  device_code,       ///< no machine code for the device: none packaged, and none could be compiled
  device_function,   ///< the device refuses a kernel: not in its code, or more than it has room for
  audio_invalid,  ///< audio that cannot be decoded, or not be used as a reference; the message has the number
  voice_invalid,  ///< a voice or its file is damaged, foreign, or made for a model of another width
  voice_exists,   ///< a voice of that name is there, and replacing it was not asked for
  consent_required,  ///< a clone needs a statement that its speaker allowed it
};

/// Stable lower-case name of a code, e.g. "unknown_voice".
std::string_view error_code_name(ErrorCode code) noexcept;

/// Thrown at load and request borders. `what()` is one sentence that names what, where and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace skald
