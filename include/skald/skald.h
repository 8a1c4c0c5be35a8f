// skald's C++ interface: text in, 24 kHz mono float samples out. Streaming is the basic form, one-shot its
// sum.
//
// Threads: an Engine may be used from any thread; its streams run one frame at a time under the engine's
// lock. One stream is used from one thread at a time, except for `cancel`, and `push`/`finish` of a
// TextStream, which may be called from any thread. Nothing here reads the environment, prints, or ends the
// process.
//
// Floating point: results do not depend on the rounding mode or the denormal numbers of the calling thread,
// which keeps its environment, flags included. Functions that are called back have the default one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skald/error.h"
#include "skald/voice.h"

#define SKALD_API_VERSION 1

namespace skald {

/// Where the text goes in the prompt; docs/prompt.md shows the rows. `whole` and `stream` are the official
/// `non_streaming_mode` true and false; `ahead` is ours: the first `ahead_tokens` text tokens stand in the
/// prompt, the rest follows one per frame. `automatic` is what the official call of the model's type uses.
enum class TextLayout { automatic, whole, stream, ahead };

/// Split expression of the tokenizer; the README says which one equals which official call.
enum class TextSplit { qwen, mistral };

/// How codes become samples. `stream` and `whole` give the same samples; `official` imitates the official
/// chunks of 300 frames with 25 of context.
enum class DecodeMode { stream, whole, official };

/// How the reference part of an in-context clone is cut off: by frames, or by the official arithmetic. The
/// latter depends on the number of frames, so nothing is given out before the end; it may leave one sample of
/// the reference in the first chunk.
enum class CutMode { exact, official };

/// Sampler settings; an absent one takes the model's generation_config.json.
struct Sampling {
  std::optional<float> temperature, top_p, repetition_penalty;
  std::optional<int32_t> top_k, min_new_tokens;  ///< top_k 0 = off; min_new_tokens default 2
  std::optional<float> sub_temperature, sub_top_p;
  std::optional<int32_t> sub_top_k;
  bool greedy = false;      ///< no sampling at all: talker and code predictor
  bool sub_greedy = false;  ///< code predictor greedy while the talker samples
};

/// One utterance.
struct SpeechRequest {
  std::string text;  ///< UTF-8
  /// CustomVoice: a speaker of the model, any case, with or without '_'. Base: a voice given to add_voice.
  /// Else empty.
  std::string voice;
  std::string language;  ///< name, code or tag, any case; empty or "auto" = automatic
  std::string instruct;  ///< style instruction; warned about where the model ignores it
  TextLayout layout = TextLayout::automatic;
  int32_t ahead_tokens = 8;  ///< text tokens of look-ahead of TextLayout::ahead
  TextSplit split = TextSplit::qwen;
  bool raw_tokens =
      false;  ///< special tokens typed in the text keep their meaning, as in the official package
  Sampling sampling;
  std::optional<uint64_t> seed;           ///< absent = drawn by the engine and reported
  std::optional<int32_t> max_frames;      ///< exactly this many frames at most; ends with StopReason::length
  std::optional<int32_t> max_new_tokens;  ///< the official count: N - 1 frames at most; below 2 is an error
  /// Base: the voice itself. The engine sets it where `voice` names one, so a request keeps the voice it
  /// began with whatever happens to the name.
  std::shared_ptr<const Voice> clone;
  bool x_vector_only = false;      ///< speak with the voice's speaker vector alone
  std::vector<float> x_vector;     ///< Base, in place of a voice: speaker vector [hidden]
  std::vector<int32_t> ref_codes;  ///< Base, in-context: [frames * groups]
  std::string ref_text;            ///< what the reference says
  std::string consent;  ///< with x_vector: the statement that its speaker allowed it, as for every clone
  DecodeMode decode = DecodeMode::stream;
  CutMode cut = CutMode::exact;
  bool strict = false;  ///< warnings that change the result become errors
  /// Runaway when, after the whole text was fed, this many frames in a row use at most 3 distinct code0. 0 =
  /// off; off too where the caller sets a limit, as a limit of N means N frames.
  int32_t stall_frames = 75;
  std::string request_id;  ///< at most 128 visible ASCII characters; empty = made by the engine
};

enum class StopReason { none, eos, length, runaway, cancelled, error };
std::string_view stop_reason_name(StopReason reason) noexcept;

/// What a finished (or interrupted) utterance reports.
struct SpeechResult {
  int64_t frames = 0, samples = 0;
  StopReason stop = StopReason::none;
  uint64_t seed = 0;
  std::string request_id;
  std::vector<std::string> warnings;
  bool instruct_ignored = false;
  int32_t prompt_rows = 0, text_tokens = 0;
  int32_t reused_rows = 0;        ///< prompt rows taken over from an earlier request of the same voice
  bool reused_reference = false;  ///< the reference was not decoded again: its codec state was kept
  /// The caller's frame limit, else frames after which the run counts as a runaway: max(240, 12 per code
  /// point), at most what the cache leaves. The factor was measured on English only; for other languages it
  /// is a guess.
  int32_t frame_bound = 0;
  double first_audio_ms = 0;  ///< from the start of the request to its first samples
  double compute_ms = 0;      ///< time spent working for this request
  double rtf = 0;             ///< compute seconds per second of audio
};

/// Consecutive samples of one utterance.
struct AudioChunk {
  std::vector<float> samples;  ///< frames * samples_per_frame, in [-1, 1]
  int32_t frames = 0;
  bool last = false;  ///< nothing follows; the result is final
};

/// One utterance being spoken.
class SpeechStream {
 public:
  virtual ~SpeechStream() = default;
  /// The next 1 to `max_frames` frames of audio; an empty last chunk ends the utterance. Blocks while it
  /// computes. Throws Error(runaway), Error(non_finite), Error(cancelled), ...; after an error the stream is
  /// over.
  virtual AudioChunk next_audio(int32_t max_frames) = 0;
  /// From any thread: the stream ends with Error(cancelled) within one frame.
  virtual void cancel() noexcept = 0;
  virtual SpeechResult result() const = 0;
  virtual std::vector<int32_t> codes() const = 0;  ///< [frames * groups] so far
};

/// What a text stream has for its reader.
enum class StreamEvent { need_text, chunk, finished, error };

struct StreamReply {
  StreamEvent event = StreamEvent::need_text;
  AudioChunk chunk;            ///< with `chunk`
  std::optional<Error> error;  ///< with `error`
};

/// An utterance whose text arrives in pieces. Any split of the text gives the codes of one push.
class TextStream {
 public:
  virtual ~TextStream() = default;
  /// Adds bytes of UTF-8; a code point may be cut. Blocks while more than the queue's bound is unread;
  /// returns false when the text was finished or the stream is over (ended, cancelled, failed).
  virtual bool push(std::string_view text) = 0;
  /// As push, but returns false at once where push would block.
  virtual bool try_push(std::string_view text) = 0;
  virtual void finish() = 0;           ///< no more text
  virtual void cancel() noexcept = 0;  ///< from any thread
  /// Does at most one chunk of work and never waits for text.
  virtual StreamReply poll(int32_t max_frames) = 0;
  /// As poll, but waits for text instead of answering need_text.
  virtual StreamReply next(int32_t max_frames) = 0;
  virtual SpeechResult result() const = 0;
  virtual std::vector<int32_t> codes() const = 0;
};

/// A GPU in its driver's words.
struct GpuFacts {
  std::string id;            ///< "hip:0"
  std::string name;          ///< "AMD Radeon RX 7900 XTX"
  std::string architecture;  ///< "gfx1100"
  std::string uuid;          ///< empty where the driver has none of its own
  std::string bus_id;        ///< "0000:03:00.0"; empty where the driver does not tell
  std::string driver;        ///< version of driver and runtime
};

struct EngineOptions {
  /// "cpu"; "auto": the best discrete GPU that can be used, else the CPU, said in ModelInfo; or a GPU that
  /// must be usable: "gpu", "hip", "cuda", "hip:0", "cuda:1", a UUID, a PCI bus id ("0000:03:00.0"), an
  /// architecture ("gfx1100") or a full name.
  std::string device = "cpu";
  int32_t threads = 0;     ///< 0 = what the process may use
  std::string cpu_target;  ///< SIMD target to force; empty = best
  /// How the language model's matrices are held: "f32", "bf16", "int8", or "auto": bf16 where the files are
  /// BF16, which changes no result, else f32.
  std::string weights = "auto";
  /// What products are made of on the CPU: "exact", float32, or "fast": 16-bit integers, which rounds weights
  /// and their inputs. Fast changes samples by less than 1e-3 and may change codes; streams, batches and
  /// threads give the same codes as always. It pays on processors with AVX512_VNNI.
  std::string compute = "exact";
  int32_t slots = 1;              ///< requests in work at once
  int32_t cache_capacity = 4096;  ///< talker positions per slot: prompt rows + frames
  int32_t codec_chunk = 16;       ///< most frames per codec call; a GPU encodes in chunks of its own
  int32_t kept_voices = 1;        ///< prompt prefixes kept for the next request of a voice; 0 = none
  /// Receives one line of JSON whenever a clone is made or speaks: event, time, request id, voice, hashes of
  /// the voice and of the recording, consent; never a text. Called from any thread that makes or starts one.
  std::function<void(const std::string& line)> on_audit;

  // For GPUs alone.
  std::vector<std::filesystem::path> gpu_libraries;  ///< folders searched first for the vendors' libraries
  std::filesystem::path gpu_code;    ///< folder of machine code made ahead of time; empty = none
  std::filesystem::path gpu_cache;   ///< folder where machine code made here is kept; empty = it is not
  std::filesystem::path gpu_helper;  ///< the program skald-rtc; empty = where it is installed
  int32_t gpu_deadline_ms = 20000;   ///< without any progress of the device: Error(device_wedged)
  /// Called when a GPU was opened, before the model is loaded on it. By an error it refuses the device, as if
  /// it could not be opened. May be empty.
  std::function<void(const GpuFacts&)> on_gpu;
};

/// What a loaded model offers.
struct ModelInfo {
  std::string type, size;
  std::vector<std::string> voices, languages;  ///< languages: "auto" first
  int32_t sample_rate = 0, samples_per_frame = 0, groups = 0, hidden_size = 0, vocab_size = 0, codes = 0;
  bool takes_instruct = false;
  int32_t piece_limit = 0;  ///< code points of one piece of long text that the model speaks well
  std::string device;       ///< what it runs on, e.g. "hip:0 AMD Radeon RX 7900 XTX (gfx1100)"
  std::vector<std::string> device_notes;  ///< why not on another one ("auto"); threads beyond the processors
};

/// One row of the prompt table; -1 = nothing.
struct PromptRowInfo {
  int32_t text_id = -1;
  std::vector<int32_t> codec_ids;  ///< empty, one, or one per group (a reference frame)
  bool speaker = false;            ///< the x-vector is added
};

struct PromptInfo {
  std::vector<int32_t> ids;  ///< of the wrapped text
  std::vector<PromptRowInfo> rows;
  std::vector<int32_t> trailing;  ///< text ids fed one per frame; then the pad
  std::string language;           ///< effective name, "auto" = none
  std::vector<std::string> warnings;
};

/// A recording to be made a voice.
struct VoiceRequest {
  std::string name;  ///< see valid_voice_name
  Recording recording;
  std::string ref_text;  ///< what is said, word for word; empty = a voice of the speaker vector alone
  std::string language;  ///< used where a request with this voice gives none
  std::string consent;   ///< the statement that the speaker allowed it; needed unless synthetic
  SpeakerIdentity identity = SpeakerIdentity::unknown;
  std::string description;  ///< of a designed voice
  std::string source = "recording";
  int32_t trailing_silence_ms = 0;  ///< silence added behind the recording, at most 2000
  std::string request_id;           ///< for the audit; empty = made by the engine
};

struct MadeVoice {
  Voice voice;
  std::vector<std::string> warnings;  ///< about the recording, with their numbers
  double encode_ms = 0;               ///< spent in both encoders
};

/// Fills a span with 24 kHz mono samples and returns how many; 0 = the end.
using SampleSource = std::function<size_t(std::span<float>)>;
using SampleSink = std::function<void(std::span<const float>)>;

struct Diagnosis;  // skald/diagnosis.h

/// A loaded model on a device.
class Engine {
 public:
  /// Throws Error(model_not_found), Error(model_invalid), Error(device), Error(out_of_memory) before any
  /// request.
  static std::unique_ptr<Engine> open(const std::filesystem::path& model_dir,
                                      const EngineOptions& options = {});
  virtual ~Engine() = default;
  virtual const ModelInfo& info() const = 0;
  /// A few lines about where the device stands, for a person who asks why nothing happens. Any thread, also
  /// while others wait.
  virtual std::string status() const { return {}; }
  /// Checks the request (Error before any work) and takes a slot; Error(unsupported) when all slots are
  /// taken.
  virtual std::unique_ptr<SpeechStream> start_stream(const SpeechRequest& request,
                                                     const Diagnosis* diagnosis = nullptr) = 0;
  /// As start_stream, for text that arrives later; `request.text` is pushed first. Layout automatic = ahead.
  virtual std::unique_ptr<TextStream> start_text_stream(const SpeechRequest& request,
                                                        const Diagnosis* diagnosis = nullptr) = 0;
  virtual PromptInfo prompt(const SpeechRequest& request) const = 0;
  /// Samples of given codes [frames * groups], each within 0..codes-1.
  virtual std::vector<float> decode(std::span<const int32_t> codes, DecodeMode mode) = 0;

  // The others have bodies, for engines that do without: there are no voices, and the rest throws
  // Error(unsupported).

  /// The samples of decode() in bounded memory, piece by piece.
  virtual void decode_to(std::span<const int32_t> codes, DecodeMode mode, const SampleSink& sink);
  /// Codes [frames * groups] of audio of any length, in bounded memory; ceil(samples / samples_per_frame)
  /// frames.
  virtual std::vector<int32_t> encode(const SampleSource& source);

  /// Checks the recording and encodes it. Base models. Throws Error(audio_invalid), Error(consent_required),
  /// Error(invalid_argument), Error(unsupported).
  virtual MadeVoice make_voice(const VoiceRequest& request);
  /// From now on requests may name the voice. Throws Error(voice_invalid) where it does not fit the model,
  /// Error(voice_exists) where there is one of that name, unless `replace`, and Error(consent_required).
  /// Requests that have begun keep the voice they began with. Any thread.
  virtual void add_voice(Voice voice, bool replace = false);
  /// Throws Error(unknown_voice).
  virtual void remove_voice(std::string_view name);
  /// Null where there is none.
  virtual std::shared_ptr<const Voice> find_voice(std::string_view name) const;
  virtual std::vector<std::string> voice_names() const;  ///< of voices that were added, sorted
};

}  // namespace skald
