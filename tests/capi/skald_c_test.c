/* Speaks with a tiny model through the C interface. usage: skald_c_test MODELS */
#include <skald/skald_c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                     \
    }                                                                 \
  } while (0)

static char models[4096];

static skald_engine* open_model(const char* name) {
  char path[8192];
  skald_engine_options options;
  skald_engine* engine = NULL;
  skald_error error;
  snprintf(path, sizeof path, "%s/%s", models, name);
  skald_engine_options_default(&options, sizeof options);
  options.threads = 1;
  options.slots = 2;
  if (skald_engine_open(path, &options, &engine, &error) != SKALD_OK) {
    fprintf(stderr, "%s\n", error.message);
    exit(1);
  }
  return engine;
}

static skald_request simple(const char* text) {
  skald_request request;
  skald_request_default(&request, sizeof request);
  request.text = text;
  request.voice = "anna";
  request.language = "en";
  request.greedy = 1;
  request.max_frames = 12;
  request.seed = 7;
  request.has_seed = 1;
  return request;
}

static void test_names(void) {
  CHECK(skald_c_api_version() == SKALD_C_API_VERSION);
  CHECK(strcmp(skald_status_name(SKALD_OK), "ok") == 0);
  CHECK(strcmp(skald_status_name(SKALD_ERROR_UNKNOWN_VOICE), "unknown_voice") == 0);
  CHECK(strcmp(skald_status_name(SKALD_ERROR_IO), "io") == 0);
  CHECK(strcmp(skald_status_name(-5), "internal") == 0);
  CHECK(strcmp(skald_status_name(INT32_MIN), "internal") == 0);
  CHECK(strcmp(skald_status_name(INT32_MAX), "internal") == 0);
  CHECK(strcmp(skald_stop_name(SKALD_STOP_EOS), "eos") == 0);
  CHECK(strcmp(skald_stop_name(SKALD_STOP_RUNAWAY), "runaway") == 0);
}

static void test_info(skald_engine* engine) {
  skald_model_info info;
  info.size = sizeof info;
  CHECK(skald_engine_info(engine, &info, NULL) == SKALD_OK);
  CHECK(strcmp(info.type, "custom_voice") == 0);
  CHECK(info.voice_count == 4 && strcmp(info.voices[0], "anna") == 0);
  CHECK(info.language_count == 6 && strcmp(info.languages[0], "auto") == 0);
  CHECK(info.sample_rate == 24000 && info.samples_per_frame == 1920 && info.groups == 16);
  CHECK(strncmp(info.device, "cpu", 3) == 0 && info.device_note_count == 0);
}

static void test_status(const skald_engine* engine) {
  char text[512], part[4] = "???";
  size_t size = 0;
  CHECK(skald_engine_status(engine, NULL, 0, &size, NULL) == SKALD_OK && size > 3 && size <= sizeof text);
  CHECK(skald_engine_status(engine, text, sizeof text, &size, NULL) == SKALD_OK && strlen(text) + 1 == size);
  CHECK(skald_engine_status(engine, part, 3, &size, NULL) == SKALD_OK && size == strlen(text) + 1);
  CHECK(memcmp(part, text, 2) == 0 && part[2] == '\0');
  CHECK(skald_engine_status(engine, NULL, 3, &size, NULL) == SKALD_ERROR_INVALID_ARGUMENT);
  CHECK(skald_engine_status(NULL, text, 3, &size, NULL) == SKALD_ERROR_INVALID_ARGUMENT);
}

/* Options of the device reach the engine. */
static void test_device_options(void) {
  static const char* const folders[] = {"/no/such/folder", NULL};
  char path[8192];
  skald_engine_options options;
  skald_engine* engine = NULL;
  skald_error error;
  snprintf(path, sizeof path, "%s/tiny-cv", models);
  skald_engine_options_default(&options, sizeof options);
  CHECK(options.gpu_deadline_ms > 1000);
  options.gpu_deadline_ms = 5;
  CHECK(skald_engine_open(path, &options, &engine, &error) == SKALD_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "gpu_deadline_ms is 5") != NULL);
  skald_engine_options_default(&options, sizeof options);
  options.gpu_libraries = folders, options.gpu_library_count = 2;
  CHECK(skald_engine_open(path, &options, &engine, &error) == SKALD_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "gpu_libraries") != NULL);
  options.gpu_library_count = 1;
  CHECK(skald_engine_open(path, &options, &engine, &error) == SKALD_OK);
  skald_engine_close(engine);
}

/* A caller compiled against an older, shorter structure: nothing is written behind it. */
static void test_short_structures(skald_engine* engine) {
  struct {
    skald_model_info info;
    char guard[64];
  } space;
  memset(&space, 0x55, sizeof space);
  space.info.size = offsetof(skald_model_info, voices);
  CHECK(skald_engine_info(engine, &space.info, NULL) == SKALD_OK);
  CHECK(strcmp(space.info.model_size, "0b6") == 0);
  CHECK(((unsigned char*)&space)[offsetof(skald_model_info, voices)] == 0x55);
  space.info.size = 3;
  CHECK(skald_engine_info(engine, &space.info, NULL) == SKALD_ERROR_INVALID_ARGUMENT);
  {
    skald_request request;
    skald_stream* stream = NULL;
    memset(&request, 0x55, sizeof request);
    skald_request_default(&request, offsetof(skald_request, x_vector));
    CHECK(((unsigned char*)&request)[offsetof(skald_request, x_vector)] == 0x55);
    request.text = "Hello", request.voice = "anna";
    CHECK(skald_stream_start(engine, &request, &stream, NULL) == SKALD_OK);
    skald_stream_close(stream);
  }
}

static void test_speech(skald_engine* engine) {
  skald_request request = simple("Hello there");
  skald_stream* stream = NULL;
  skald_audio audio;
  skald_result result;
  skald_error error;
  int32_t codes[12 * 16];
  float *first = malloc(12 * 1920 * sizeof *first), *decoded = malloc(12 * 1920 * sizeof *decoded);
  size_t got = 0, count = 0;
  CHECK(skald_stream_start(engine, &request, &stream, &error) == SKALD_OK && error.status == SKALD_OK);
  do {
    CHECK(skald_stream_next(stream, 5, &audio, &error) == SKALD_OK);
    CHECK(audio.count == (size_t)audio.frames * 1920 && got + audio.count <= 12 * 1920);
    memcpy(first + got, audio.samples, audio.count * sizeof *first);
    got += audio.count;
  } while (!audio.last);
  CHECK(got == 12 * 1920);
  result.size = sizeof result;
  CHECK(skald_stream_result(stream, &result, &error) == SKALD_OK);
  CHECK(result.frames == 12 && result.samples == 12 * 1920 && result.stop == SKALD_STOP_LENGTH);
  CHECK(result.seed == 7 && strlen(result.request_id) == 32 && result.warning_count == 0);
  CHECK(skald_stream_codes(stream, NULL, 0, &count, &error) == SKALD_OK && count == 12 * 16);
  CHECK(skald_stream_codes(stream, codes, 12 * 16, &count, &error) == SKALD_OK);
  CHECK(skald_engine_decode(engine, codes, count, SKALD_DECODE_WHOLE, decoded, 12 * 1920, &got, &error) ==
        SKALD_OK);
  CHECK(got == 12 * 1920 && memcmp(first, decoded, got * sizeof *first) == 0);
  CHECK(skald_engine_decode(engine, codes, count, SKALD_DECODE_WHOLE, decoded, 5, &got, &error) ==
        SKALD_ERROR_INVALID_ARGUMENT);
  CHECK(got == 12 * 1920);
  skald_stream_close(stream);
  free(first);
  free(decoded);
}

static void test_errors(skald_engine* engine) {
  skald_request request = simple("Hello");
  skald_stream* stream = (skald_stream*)&request;
  skald_engine* none = NULL;
  skald_audio audio;
  skald_error error;
  int32_t codes[16] = {0};
  size_t count;
  float sample;
  CHECK(skald_engine_open("/no/such/folder", NULL, &none, &error) == SKALD_ERROR_MODEL_NOT_FOUND);
  CHECK(none == NULL && error.status == SKALD_ERROR_MODEL_NOT_FOUND && strlen(error.message) > 10);
  CHECK(skald_engine_open(NULL, NULL, &none, &error) == SKALD_ERROR_INVALID_ARGUMENT);
  CHECK(skald_engine_open("x", NULL, NULL, NULL) == SKALD_ERROR_INVALID_ARGUMENT);
  request.voice = "nobody";
  CHECK(skald_stream_start(engine, &request, &stream, &error) == SKALD_ERROR_UNKNOWN_VOICE);
  CHECK(stream == NULL && strstr(error.message, "carl") != NULL);
  request = simple("...");
  CHECK(skald_stream_start(engine, &request, &stream, NULL) == SKALD_ERROR_NOTHING_TO_SPEAK);
  request = simple("\xff");
  CHECK(skald_stream_start(engine, &request, &stream, NULL) == SKALD_ERROR_INVALID_TEXT);
  request = simple("Hello");
  request.layout = 9;
  CHECK(skald_stream_start(engine, &request, &stream, &error) == SKALD_ERROR_INVALID_ARGUMENT);
  request = simple("Hello");
  request.max_frames = 0;
  CHECK(skald_stream_start(engine, &request, &stream, &error) == SKALD_ERROR_INVALID_ARGUMENT);
  request = simple("Hello");
  request.temperature = -1.0f;
  CHECK(skald_stream_start(engine, &request, &stream, &error) == SKALD_ERROR_INVALID_ARGUMENT);
  CHECK(skald_stream_start(engine, NULL, &stream, &error) == SKALD_ERROR_INVALID_ARGUMENT);
  CHECK(skald_stream_next(NULL, 1, &audio, &error) == SKALD_ERROR_INVALID_ARGUMENT);
  CHECK(skald_engine_decode(engine, codes, 15, 0, &sample, 0, &count, &error) ==
        SKALD_ERROR_INVALID_ARGUMENT);
  codes[2] = 9999;
  CHECK(skald_engine_decode(engine, codes, 16, 0, &sample, 1, &count, &error) ==
        SKALD_ERROR_INVALID_ARGUMENT);
  /* A message longer than its room is cut between two characters. */
  {
    char* name = malloc(3 * 2000 + 1);
    size_t i;
    for (i = 0; i < 2000; ++i) memcpy(name + 3 * i, "\xe2\x82\xac", 3);
    name[3 * 2000] = '\0';
    request = simple("Hello");
    request.voice = name;
    CHECK(skald_stream_start(engine, &request, &stream, &error) == SKALD_ERROR_UNKNOWN_VOICE);
    i = strlen(error.message);
    CHECK(i > SKALD_MESSAGE_SIZE - 5 && i < SKALD_MESSAGE_SIZE &&
          (unsigned char)error.message[i - 1] == 0xac);
    free(name);
  }
  skald_engine_close(NULL);
  skald_stream_close(NULL);
  skald_text_stream_close(NULL);
}

static void test_cancel(skald_engine* engine) {
  skald_request request = simple("Hello");
  skald_stream* stream;
  skald_audio audio;
  skald_error error;
  CHECK(skald_stream_start(engine, &request, &stream, &error) == SKALD_OK);
  CHECK(skald_stream_next(stream, 1, &audio, &error) == SKALD_OK);
  skald_stream_cancel(stream);
  CHECK(skald_stream_next(stream, 1, &audio, &error) == SKALD_ERROR_CANCELLED);
  CHECK(audio.count == 0 && error.status == SKALD_ERROR_CANCELLED);
  skald_stream_close(stream);
}

static void test_text_stream(skald_engine* engine) {
  static const char* const pieces[] = {"Hello there, this ", "is a longer sen", "tence that comes ",
                                       "in pieces."};
  skald_request request = simple(NULL);
  skald_text_stream* stream;
  skald_audio audio;
  skald_result result;
  skald_error error;
  int32_t event, accepted;
  size_t next = 0, samples = 0, count;
  CHECK(skald_text_stream_start(engine, &request, &stream, &error) == SKALD_OK);
  for (;;) {
    CHECK(skald_text_stream_poll(stream, 4, &event, &audio, &error) == SKALD_OK);
    if (event == SKALD_EVENT_FINISHED) break;
    if (event == SKALD_EVENT_CHUNK) {
      samples += audio.count;
    } else if (next < sizeof pieces / sizeof *pieces) {
      CHECK(skald_text_stream_try_push(stream, pieces[next], strlen(pieces[next]), &accepted, &error) ==
            SKALD_OK);
      CHECK(accepted == 1);
      ++next;
    } else {
      CHECK(skald_text_stream_finish(stream, &error) == SKALD_OK);
    }
  }
  CHECK(samples == 12 * 1920);
  result.size = sizeof result;
  CHECK(skald_text_stream_result(stream, &result, &error) == SKALD_OK && result.frames == 12);
  CHECK(skald_text_stream_codes(stream, NULL, 0, &count, &error) == SKALD_OK && count == 12 * 16);
  CHECK(skald_text_stream_push(stream, "late", 4, &accepted, &error) == SKALD_OK && accepted == 0);
  skald_text_stream_close(stream);

  CHECK(skald_text_stream_start(engine, &request, &stream, &error) == SKALD_OK);
  CHECK(skald_text_stream_push(stream, "...", 3, NULL, &error) == SKALD_OK);
  CHECK(skald_text_stream_finish(stream, &error) == SKALD_OK);
  CHECK(skald_text_stream_next(stream, 4, &event, &audio, &error) == SKALD_ERROR_NOTHING_TO_SPEAK);
  CHECK(event == SKALD_EVENT_ERROR && error.status == SKALD_ERROR_NOTHING_TO_SPEAK && audio.count == 0);
  skald_text_stream_cancel(stream);
  skald_text_stream_close(stream);
}

static void test_stream_after_engine(void) {
  skald_engine* engine = open_model("tiny-endless");
  skald_request request = simple("Hello");
  skald_stream* stream;
  skald_audio audio;
  CHECK(skald_stream_start(engine, &request, &stream, NULL) == SKALD_OK);
  skald_engine_close(engine);
  CHECK(skald_stream_next(stream, 1, &audio, NULL) == SKALD_OK && audio.frames == 1);
  skald_stream_close(stream);
}

static int audited = 0;
static void audit(void* context, const char* line) {
  CHECK(strcmp((const char*)context, "mine") == 0);
  CHECK(line[0] == '{' && strstr(line, "\"voice\":\"anna\"") != NULL);
  ++audited;
}

static void join(void* context, const char* name) { strcat(strcat((char*)context, name), ";"); }

/* A recording made of plain C: a buzz with some noise. */
static float* recording(size_t count) {
  float* samples = malloc(count * sizeof *samples);
  uint32_t noise = 1;
  size_t i;
  for (i = 0; i < count; ++i) {
    noise = noise * 1664525u + 1013904223u;
    samples[i] = (float)(i % 160) / 400.0f - 0.2f + (float)(noise >> 16) / 655360.0f;
  }
  return samples;
}

/* The names of an engine that has one voice, and a copy of that voice. */
static skald_voice* find_anna(const skald_engine* engine, const char* hash) {
  char names[100] = "";
  skald_voice* found = NULL;
  skald_voice_info info;
  skald_error error;
  CHECK(skald_engine_voice_names(engine, join, names, &error) == SKALD_OK && strcmp(names, "anna;") == 0);
  CHECK(skald_engine_voice_names(engine, NULL, names, &error) == SKALD_ERROR_INVALID_ARGUMENT);
  CHECK(skald_engine_find_voice(engine, "nobody", &found, &error) == SKALD_OK && found == NULL);
  CHECK(skald_engine_find_voice(engine, NULL, &found, &error) == SKALD_ERROR_INVALID_ARGUMENT);
  CHECK(skald_engine_find_voice(engine, "anna", &found, &error) == SKALD_OK && found != NULL);
  info.size = sizeof info;
  CHECK(skald_voice_get_info(found, &info, &error) == SKALD_OK);
  CHECK(strcmp(info.name, "anna") == 0 && strcmp(info.hash, hash) == 0);
  return found;
}

/* With a voice that no name leads to; closes it. */
static void speak_as(skald_engine* engine, skald_voice* voice) {
  skald_request speech = simple("Hello");
  skald_stream* stream = NULL;
  skald_audio audio;
  const int before = audited;
  speech.voice = NULL, speech.clone = voice;
  CHECK(skald_stream_start(engine, &speech, &stream, NULL) == SKALD_OK && audited == before + 1);
  skald_voice_close(voice);
  CHECK(skald_stream_next(stream, 12, &audio, NULL) == SKALD_OK && audio.count > 0);
  skald_stream_close(stream);
}

/* B118: straight through the C interface. */
static void test_voice(void) {
  enum { kCount = 30000, kFrames = 16 };
  char path[8192];
  skald_engine_options options;
  skald_engine* engine = NULL;
  skald_voice_request request;
  skald_voice *voice = NULL, *back = NULL, *found;
  skald_voice_info info;
  skald_request speech = simple("Hello");
  skald_stream* stream = NULL;
  skald_audio audio;
  skald_result result;
  skald_error error;
  float* samples = recording(kCount);
  int32_t codes[kFrames * 16];
  size_t size, count;
  char* bytes;
  snprintf(path, sizeof path, "%s/tiny-base", models);
  skald_engine_options_default(&options, sizeof options);
  options.threads = 1, options.on_audit = audit, options.audit_context = "mine";
  CHECK(skald_engine_open(path, &options, &engine, &error) == SKALD_OK);

  /* No clone without consent, whatever the door. */
  skald_voice_request_default(&request, sizeof request);
  request.name = "anna", request.samples = samples, request.sample_count = kCount,
  request.ref_text = "Some words";
  CHECK(skald_voice_make(engine, &request, &voice, &error) == SKALD_ERROR_CONSENT_REQUIRED);
  CHECK(voice == NULL && audited == 0);
  request.consent = "I have the rights";
  request.identity = 7;
  CHECK(skald_voice_make(engine, &request, &voice, &error) == SKALD_ERROR_INVALID_ARGUMENT);
  request.identity = SKALD_IDENTITY_REAL;
  CHECK(skald_voice_make(engine, &request, &voice, &error) == SKALD_OK && audited == 1);
  info.size = sizeof info;
  CHECK(skald_voice_get_info(voice, &info, &error) == SKALD_OK);
  CHECK(strcmp(info.name, "anna") == 0 && strcmp(info.consent, "I have the rights") == 0 &&
        info.is_clone == 1);
  CHECK(info.x_vector_count == 32 && info.codes_count == kFrames * 16 &&
        info.identity == SKALD_IDENTITY_REAL);
  CHECK(strcmp(info.ref_text, "Some words") == 0 && strlen(info.hash) == 64 && strlen(info.audio_hash) == 64);
  CHECK(info.warning_count > 0 && strstr(info.warnings[info.warning_count - 1], "only 1.2 s") != NULL);
  CHECK(skald_engine_encode(engine, samples, kCount, codes, kFrames * 16, &count, &error) == SKALD_OK);
  CHECK(count == kFrames * 16 && memcmp(codes, info.codes, sizeof codes) == 0);
  CHECK(skald_engine_encode(engine, samples, kCount, codes, 5, &count, &error) ==
        SKALD_ERROR_INVALID_ARGUMENT);
  CHECK(count == kFrames * 16);

  /* To a file and back. */
  CHECK(skald_voice_write(voice, NULL, 0, &size, &error) == SKALD_OK && size > 1000);
  bytes = malloc(size);
  CHECK(skald_voice_write(voice, bytes, size, &size, &error) == SKALD_OK);
  CHECK(skald_voice_read(bytes, size / 2, "half", &back, &error) == SKALD_ERROR_VOICE_INVALID);
  CHECK(back == NULL && strstr(error.message, "half") != NULL);
  CHECK(skald_voice_read(bytes, size, "anna", &back, &error) == SKALD_OK);
  CHECK(skald_voice_set_consent(back, " ", &error) == SKALD_OK);
  CHECK(skald_engine_add_voice(engine, back, 0, &error) == SKALD_ERROR_CONSENT_REQUIRED);
  CHECK(skald_voice_set_consent(back, "stated anew", &error) == SKALD_OK);

  /* Named, spoken with, removed. */
  CHECK(skald_stream_start(engine, &speech, &stream, &error) == SKALD_ERROR_UNKNOWN_VOICE);
  CHECK(skald_engine_add_voice(engine, back, 0, &error) == SKALD_OK);
  CHECK(skald_engine_add_voice(engine, voice, 0, &error) == SKALD_ERROR_VOICE_EXISTS);
  CHECK(skald_engine_add_voice(engine, voice, 1, &error) == SKALD_OK);
  found = find_anna(engine, info.hash);
  CHECK(skald_stream_start(engine, &speech, &stream, &error) == SKALD_OK && audited == 2);
  CHECK(skald_stream_next(stream, 12, &audio, &error) == SKALD_OK && audio.count > 0);
  skald_stream_close(stream);
  CHECK(skald_stream_start(engine, &speech, &stream, &error) == SKALD_OK);
  CHECK(skald_stream_next(stream, 12, &audio, &error) == SKALD_OK);
  result.size = sizeof result;
  CHECK(skald_stream_result(stream, &result, &error) == SKALD_OK);
  CHECK(result.reused_rows > 0 && result.reused_reference == 1);
  skald_stream_close(stream);
  CHECK(skald_engine_remove_voice(engine, "anna", &error) == SKALD_OK);
  CHECK(skald_engine_remove_voice(engine, "anna", &error) == SKALD_ERROR_UNKNOWN_VOICE);
  CHECK(skald_engine_remove_voice(engine, NULL, &error) == SKALD_ERROR_INVALID_ARGUMENT);

  speak_as(engine, found);

  /* The numbers themselves. */
  speech.voice = NULL, speech.x_vector = info.x_vector, speech.x_vector_count = info.x_vector_count;
  CHECK(skald_stream_start(engine, &speech, &stream, &error) == SKALD_ERROR_CONSENT_REQUIRED);
  skald_voice_close(voice);
  skald_voice_close(back);
  skald_voice_close(NULL);
  skald_engine_close(engine);
  free(samples);
  free(bytes);
}

int main(int argc, char** argv) {
  skald_engine* engine;
  if (argc != 2) return 2;
  snprintf(models, sizeof models, "%s", argv[1]);
  engine = open_model("tiny-endless");
  test_names();
  test_info(engine);
  test_status(engine);
  test_device_options();
  test_short_structures(engine);
  test_speech(engine);
  test_errors(engine);
  test_cancel(engine);
  test_text_stream(engine);
  test_stream_after_engine();
  test_voice();
  skald_engine_close(engine);
  if (failures) fprintf(stderr, "%d checks failed\n", failures);
  return failures != 0;
}
