/* skald's C interface (C99): the functions of skald.h without C++ in them. Not in here are Engine::prompt,
 * Engine::decode_to, EngineOptions::on_gpu, the diagnosis, and of voice.h folders of voices and the import of
 * other programs' files.
 *
 * Errors: every function that can fail returns a skald_status; 0 is success. With a non-null `error` it also
 * writes the status and one sentence that says what went wrong and what to do. No exception crosses this
 * interface.
 *
 * Structures: those with a `size` member may grow in later versions. Fill them with their _default function,
 * which takes sizeof of the structure the caller was compiled with; the library never reads or writes beyond
 * it.
 *
 * Strings are UTF-8 and end with a zero byte; pointers that the library hands out say how long they are
 * valid.
 *
 * Threads: as in skald.h. An engine is used from any thread. A stream is used from one thread at a time,
 * except cancel, and push, try_push and finish of a text stream. Streams may be closed after their engine.
 */
#ifndef SKALD_SKALD_C_H
#define SKALD_SKALD_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SKALD_C_API_VERSION 2

/* Version of the loaded library's interface; equal or larger numbers contain this one. */
int32_t skald_c_api_version(void);

/* ---- errors ---- */

typedef enum skald_status {
  SKALD_OK = 0,
  SKALD_ERROR_INTERNAL = 1,
  SKALD_ERROR_INVALID_ARGUMENT = 2,
  SKALD_ERROR_INVALID_TEXT = 3,
  SKALD_ERROR_NOTHING_TO_SPEAK = 4,
  SKALD_ERROR_UNKNOWN_VOICE = 5,
  SKALD_ERROR_UNKNOWN_LANGUAGE = 6,
  SKALD_ERROR_TEXT_TOO_LONG = 7,
  SKALD_ERROR_MODEL_NOT_FOUND = 8,
  SKALD_ERROR_MODEL_INVALID = 9,
  SKALD_ERROR_UNSUPPORTED = 10,
  SKALD_ERROR_OUT_OF_MEMORY = 11,
  SKALD_ERROR_DEVICE = 12,
  SKALD_ERROR_RUNAWAY = 13,
  SKALD_ERROR_NON_FINITE = 14,
  SKALD_ERROR_CANCELLED = 15,
  SKALD_ERROR_IO = 16,
  SKALD_ERROR_DEVICE_LOST = 17,
  SKALD_ERROR_DEVICE_WEDGED = 18,
  SKALD_ERROR_DEVICE_CODE = 19,
  SKALD_ERROR_DEVICE_FUNCTION = 20,
  SKALD_ERROR_AUDIO_INVALID = 21,
  SKALD_ERROR_VOICE_INVALID = 22,
  SKALD_ERROR_VOICE_EXISTS = 23,
  SKALD_ERROR_CONSENT_REQUIRED = 24
} skald_status;

/* Stable lower-case name, e.g. "unknown_voice"; "ok" for 0, "internal" for numbers that are no status.
 * Valid for ever. */
const char* skald_status_name(int32_t status);

#define SKALD_MESSAGE_SIZE 2044

/* A longer message is cut between two characters. This structure never changes. */
typedef struct skald_error {
  int32_t status;
  char message[SKALD_MESSAGE_SIZE];
} skald_error;

/* ---- engine ---- */

typedef struct skald_engine skald_engine;

typedef struct skald_engine_options {
  size_t size;
  /* "cpu"; "auto": the best discrete GPU that can be used, else the CPU, said in skald_model_info; or a GPU
   * that must be usable: "gpu", "hip", "cuda", "hip:0", "cuda:1", a UUID, an architecture or a full name.
   * NULL = "cpu". */
  const char* device;
  const char* cpu_target; /* SIMD target to force; NULL = best */
  int32_t threads;        /* 0 = what the process may use */
  int32_t slots;          /* requests in work at once */
  int32_t cache_capacity; /* positions per slot: prompt rows + frames */
  int32_t codec_chunk;    /* most frames per codec call; a GPU encodes in chunks of its own */
  int32_t kept_voices;    /* prompt prefixes kept for the next request of a voice; 0 = none */
  const char* weights;    /* matrices of the language model: "auto", "f32", "bf16" or "int8"; NULL = "auto" */
  /* Receives one line of JSON whenever a clone is made or speaks; NULL = nobody does. Called from any thread
   * that makes or starts one. */
  void (*on_audit)(void* audit_context, const char* line);
  void* audit_context;
  const char* compute; /* products on the CPU: "exact" or "fast"; NULL = "exact" */
  /* Since version 2, and for GPUs alone. */
  const char* const*
      gpu_libraries; /* [gpu_library_count] folders searched first for the vendors' libraries */
  size_t gpu_library_count;
  const char* gpu_code;    /* folder of machine code made ahead of time; NULL = none */
  const char* gpu_cache;   /* folder where machine code made here is kept; NULL = it is not */
  const char* gpu_helper;  /* the program skald-rtc; NULL = where it is installed */
  int32_t gpu_deadline_ms; /* without any progress of the device: SKALD_ERROR_DEVICE_WEDGED */
} skald_engine_options;

void skald_engine_options_default(skald_engine_options* options, size_t size);

/* `options` may be NULL. On success *engine must be closed with skald_engine_close. */
skald_status skald_engine_open(const char* model_dir, const skald_engine_options* options,
                               skald_engine** engine, skald_error* error);
void skald_engine_close(skald_engine* engine); /* NULL does nothing */

typedef struct skald_model_info {
  size_t size;
  const char* type;       /* "custom_voice", "voice_design" or "base" */
  const char* model_size; /* as in config.json: "0b6", "1b7" */
  const char* const* voices;
  size_t voice_count;
  const char* const* languages; /* "auto" first */
  size_t language_count;
  int32_t sample_rate, samples_per_frame, groups, hidden_size, vocab_size, codes;
  int32_t takes_instruct;
  const char* device;              /* since version 2: what it runs on */
  const char* const* device_notes; /* since version 2: why not on another one, with device "auto" */
  size_t device_note_count;
} skald_model_info;

/* Fills `info`, whose `size` the caller has set. Its pointers are valid until the engine is closed. */
skald_status skald_engine_info(const skald_engine* engine, skald_model_info* info, skald_error* error);

/* A few lines about where the device stands, for a person who asks why nothing happens. *size receives their
 * bytes with the zero behind them; up to `capacity` of them are written, the last one a zero. Any thread,
 * also while others wait. Since version 2. */
skald_status skald_engine_status(const skald_engine* engine, char* text, size_t capacity, size_t* size,
                                 skald_error* error);

/* ---- requests ---- */

enum { SKALD_LAYOUT_AUTOMATIC = 0, SKALD_LAYOUT_WHOLE = 1, SKALD_LAYOUT_STREAM = 2, SKALD_LAYOUT_AHEAD = 3 };
enum { SKALD_SPLIT_QWEN = 0, SKALD_SPLIT_MISTRAL = 1 };
enum { SKALD_DECODE_STREAM = 0, SKALD_DECODE_WHOLE = 1, SKALD_DECODE_OFFICIAL = 2 };
enum { SKALD_CUT_EXACT = 0, SKALD_CUT_OFFICIAL = 1 };

/* An integer setting that was not given: the model's own value or no limit. Not a number (NaN) says the same
 * for the floating-point ones; every other value is checked. */
#define SKALD_UNSET INT32_MIN

/* What a clone is made of, and who allowed it; see below. */
typedef struct skald_voice skald_voice;

/* SpeechRequest and Sampling of skald.h, member by member. NULL strings count as empty. The library copies
 * all of it before the start function returns. */
typedef struct skald_request {
  size_t size;
  const char* text;
  const char* voice;
  const char* language;
  const char* instruct;
  const char* request_id;
  const char* ref_text;
  const float* x_vector; /* [x_vector_count] */
  size_t x_vector_count;
  const int32_t* ref_codes; /* [ref_codes_count], frames * groups */
  size_t ref_codes_count;
  uint64_t seed;
  int32_t has_seed; /* 0 = the engine draws one */
  int32_t layout, split, decode, cut;
  int32_t ahead_tokens, raw_tokens, strict, stall_frames;
  int32_t max_frames, max_new_tokens;                                       /* or SKALD_UNSET */
  float temperature, top_p, repetition_penalty, sub_temperature, sub_top_p; /* or NaN */
  int32_t top_k, min_new_tokens, sub_top_k;                                 /* or SKALD_UNSET */
  int32_t greedy, sub_greedy;
  int32_t x_vector_only;    /* speak with the speaker vector of `voice` alone */
  const char* consent;      /* with x_vector: the statement that its speaker allowed it */
  const skald_voice* clone; /* since version 2: speak with this voice, added or not; without `voice` */
} skald_request;

void skald_request_default(skald_request* request, size_t size);

/* ---- audio and results ---- */

typedef struct skald_audio {
  const float* samples; /* mono, in [-1, 1]; valid until the next call on the same stream */
  size_t count;
  int32_t frames;
  int32_t last; /* 1 = nothing follows */
} skald_audio;

enum {
  SKALD_STOP_NONE = 0,
  SKALD_STOP_EOS = 1,
  SKALD_STOP_LENGTH = 2,
  SKALD_STOP_RUNAWAY = 3,
  SKALD_STOP_CANCELLED = 4,
  SKALD_STOP_ERROR = 5
};

/* Stable name, e.g. "eos". Valid for ever. */
const char* skald_stop_name(int32_t stop);

typedef struct skald_result {
  size_t size;
  int64_t frames, samples;
  uint64_t seed;
  const char* request_id; /* this and `warnings`: valid until the next call on the same stream */
  const char* const* warnings;
  size_t warning_count;
  double first_audio_ms, compute_ms, rtf;
  int32_t stop, instruct_ignored, prompt_rows, text_tokens, frame_bound, reused_rows;
  int32_t reused_reference; /* the reference of a clone was not decoded again */
} skald_result;

/* ---- one utterance ---- */

typedef struct skald_stream skald_stream;

/* Checks the request and takes a slot; *stream must be closed. */
skald_status skald_stream_start(skald_engine* engine, const skald_request* request, skald_stream** stream,
                                skald_error* error);
/* The next 1 to max_frames frames. Ends with `last`; after an error the stream is over. */
skald_status skald_stream_next(skald_stream* stream, int32_t max_frames, skald_audio* audio,
                               skald_error* error);
void skald_stream_cancel(skald_stream* stream); /* from any thread */
/* Fills `result`, whose `size` the caller has set. */
skald_status skald_stream_result(skald_stream* stream, skald_result* result, skald_error* error);
/* Codes [frames * groups] so far. *count receives their number; up to `capacity` of them are written. */
skald_status skald_stream_codes(skald_stream* stream, int32_t* codes, size_t capacity, size_t* count,
                                skald_error* error);
void skald_stream_close(skald_stream* stream); /* NULL does nothing; cancels what is not finished */

/* ---- an utterance whose text arrives in pieces ---- */

typedef struct skald_text_stream skald_text_stream;

enum { SKALD_EVENT_NEED_TEXT = 0, SKALD_EVENT_CHUNK = 1, SKALD_EVENT_FINISHED = 2, SKALD_EVENT_ERROR = 3 };

/* As skald_stream_start; the request's text is pushed first. */
skald_status skald_text_stream_start(skald_engine* engine, const skald_request* request,
                                     skald_text_stream** stream, skald_error* error);
/* Adds `size` bytes of UTF-8, which may end inside a character. Waits while the queue is full. *accepted (may
 * be NULL) is 0 when the stream is over or its text was finished. Any thread. */
skald_status skald_text_stream_push(skald_text_stream* stream, const char* bytes, size_t size,
                                    int32_t* accepted, skald_error* error);
/* As push, but *accepted is 0 where push would wait. */
skald_status skald_text_stream_try_push(skald_text_stream* stream, const char* bytes, size_t size,
                                        int32_t* accepted, skald_error* error);
skald_status skald_text_stream_finish(skald_text_stream* stream,
                                      skald_error* error); /* no more text; any thread */
void skald_text_stream_cancel(skald_text_stream* stream);  /* any thread */
/* At most one chunk of work, never waits for text. *event says what there is; with SKALD_EVENT_ERROR the
 * status is the error's. `audio` is filled with SKALD_EVENT_CHUNK and empty otherwise. */
skald_status skald_text_stream_poll(skald_text_stream* stream, int32_t max_frames, int32_t* event,
                                    skald_audio* audio, skald_error* error);
/* As poll, but waits for text. */
skald_status skald_text_stream_next(skald_text_stream* stream, int32_t max_frames, int32_t* event,
                                    skald_audio* audio, skald_error* error);
skald_status skald_text_stream_result(skald_text_stream* stream, skald_result* result, skald_error* error);
skald_status skald_text_stream_codes(skald_text_stream* stream, int32_t* codes, size_t capacity,
                                     size_t* count, skald_error* error);
void skald_text_stream_close(skald_text_stream* stream); /* NULL does nothing */

/* ---- codec ---- */

/* Samples of codes [frames * groups]: writes frames * samples_per_frame samples; a smaller `capacity` is an
 * error. */
skald_status skald_engine_decode(skald_engine* engine, const int32_t* codes, size_t code_count,
                                 int32_t decode_mode, float* samples, size_t capacity, size_t* count,
                                 skald_error* error);

/* Codes [frames * groups] of 24 kHz mono samples. *count receives their number; a smaller `capacity` is an
 * error. */
skald_status skald_engine_encode(skald_engine* engine, const float* samples, size_t sample_count,
                                 int32_t* codes, size_t capacity, size_t* count, skald_error* error);

/* ---- voices of Base models ---- */

/* A skald_voice never changes, but for its consent; it is used from one thread at a time. */

enum { SKALD_IDENTITY_UNKNOWN = 0, SKALD_IDENTITY_REAL = 1, SKALD_IDENTITY_SYNTHETIC = 2 };

/* VoiceRequest of skald.h. NULL strings count as empty. */
typedef struct skald_voice_request {
  size_t size;
  const char* name;     /* a letter or digit, then up to 63 letters, digits, '-' and '_' */
  const float* samples; /* [sample_count], interleaved */
  size_t sample_count;
  int32_t channels, sample_rate;
  const char* ref_text; /* what is said, word for word; empty = the speaker vector alone */
  const char* language;
  const char* consent; /* the statement that the speaker allowed it; needed unless synthetic */
  const char* description;
  const char* source;
  const char* request_id;
  int32_t identity;
  int32_t trailing_silence_ms;
} skald_voice_request;

void skald_voice_request_default(skald_voice_request* request, size_t size);

/* Checks and encodes a recording; *voice must be closed. SKALD_ERROR_CONSENT_REQUIRED before any work. */
skald_status skald_voice_make(skald_engine* engine, const skald_voice_request* request, skald_voice** voice,
                              skald_error* error);
/* The voice in the bytes of a voice file; `file` (may be NULL) names it in messages. */
skald_status skald_voice_read(const void* bytes, size_t size, const char* file, skald_voice** voice,
                              skald_error* error);
/* The bytes of its file. *size receives their number; up to `capacity` of them are written. */
skald_status skald_voice_write(const skald_voice* voice, void* bytes, size_t capacity, size_t* size,
                               skald_error* error);
skald_status skald_voice_set_consent(skald_voice* voice, const char* statement, skald_error* error);
void skald_voice_close(skald_voice* voice); /* NULL does nothing */

typedef struct skald_voice_info {
  size_t size;
  const char *name, *language, *ref_text, *description, *consent, *created, *source, *model;
  const char* hash;       /* of everything that shapes the sound */
  const char* audio_hash; /* of the recording */
  const float* x_vector;
  size_t x_vector_count;
  const int32_t* codes; /* [codes_count], frames * groups */
  size_t codes_count;
  double seconds; /* length of the recording */
  int32_t identity, is_clone;
  const char* const* warnings; /* about the recording, of skald_voice_make */
  size_t warning_count;
} skald_voice_info;

/* Fills `info`, whose `size` the caller has set. Its pointers are valid until the voice is changed or closed.
 */
skald_status skald_voice_get_info(const skald_voice* voice, skald_voice_info* info, skald_error* error);

/* From now on requests may name the voice; the engine keeps a copy. SKALD_ERROR_VOICE_EXISTS where there is
 * one of that name, unless `replace`. Any thread. */
skald_status skald_engine_add_voice(skald_engine* engine, const skald_voice* voice, int32_t replace,
                                    skald_error* error);
skald_status skald_engine_remove_voice(skald_engine* engine, const char* name, skald_error* error);
/* A copy of the voice of that name, which must be closed; *voice is NULL where there is none. Since
 * version 2.
 */
skald_status skald_engine_find_voice(const skald_engine* engine, const char* name, skald_voice** voice,
                                     skald_error* error);
/* Calls `take` with the name of each voice that was added, sorted; the name is valid during the call. Since
 * version 2. */
skald_status skald_engine_voice_names(const skald_engine* engine,
                                      void (*take)(void* context, const char* name), void* context,
                                      skald_error* error);

#ifdef __cplusplus
}
#endif

#endif
