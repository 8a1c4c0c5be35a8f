// Fixtures, engines and whole runs for the tests of the engine.
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

namespace skald::test {
namespace {

/// With SKALD_TEST_DEVICE the fixtures run on that device (tools/gpu-check.sh): "cuda:0", "hip:0".
EngineOptions tiny_options() {
  EngineOptions options;
  options.threads = 1;
  options.slots = 2;
  if (const char* device = std::getenv("SKALD_TEST_DEVICE")) {
    options.device = device;
    if (const char* folder = std::getenv("SKALD_GPU_LIBRARIES")) options.gpu_libraries = {folder};
    if (const char* folder = std::getenv("SKALD_TEST_CACHE")) options.gpu_cache = folder;
  }
  return options;
}

/// Where the source tree is not where the program was built, SKALD_TEST_FIXTURES says where they are.
std::filesystem::path fixtures() {
  const char* given = std::getenv("SKALD_TEST_FIXTURES");
  return given ? given : SKALD_FIXTURES;
}

void set_sampling(const nlohmann::json& from, Sampling& to) {
  for (const auto& [key, value] : from.items()) {
    if (key == "do_sample") {
      if (!value.get<bool>()) to.temperature = 0;  // the talker alone
    } else if (key == "subtalker_dosample") {
      to.sub_greedy = !value.get<bool>();
    } else if (key == "temperature") {
      to.temperature = value.get<float>();
    } else if (key == "top_k") {
      to.top_k = value.get<int32_t>();
    } else if (key == "top_p") {
      to.top_p = value.get<float>();
    } else if (key == "repetition_penalty") {
      to.repetition_penalty = value.get<float>();
    } else if (key == "subtalker_temperature") {
      to.sub_temperature = value.get<float>();
    } else if (key == "subtalker_top_k") {
      to.sub_top_k = value.get<int32_t>();
    } else if (key == "subtalker_top_p") {
      to.sub_top_p = value.get<float>();
    } else {
      ADD_FAILURE() << "unknown sampling setting " << key;
    }
  }
}

/// The member as text, empty for null.
std::string string_of(const nlohmann::json& info, const char* key) {
  return info[key].is_null() ? std::string() : info[key].get<std::string>();
}

Case read_case(const std::filesystem::path& folder) {
  std::ifstream in(folder / "case.json");
  const nlohmann::json info = nlohmann::json::parse(in);
  Case c;
  c.name = folder.filename().string(), c.folder = folder;
  c.model = info["model"], c.mode = info["mode"], c.frames = info["frames"], c.samples = info["samples"];
  for (const auto& [file, shape] : info["files"].items()) c.arrays.insert(file);
  for (const char* ids : {"ids", "instruct_ids", "ref_ids"})
    if (info.contains(ids)) c.arrays.insert(ids), c.lists[ids] = info[ids].get<std::vector<int32_t>>();
  if (c.mode == "codec") {
    c.window_frames = info["window_frames"], c.stride = info["stride"],
    c.window_starts = info["window_starts"].get<std::vector<size_t>>();
    return c;
  }
  c.text = string_of(info, "text"), c.language = string_of(info, "language"),
  c.speaker = string_of(info, "speaker");
  c.instruct = string_of(info, "instruct"), c.ref_text = string_of(info, "ref_text");
  c.layout = info["layout"], c.stop = info["stop"];
  c.max_new_tokens = info["max_new_tokens"], c.prompt_rows = info["prompt_rows"];
  if (info.contains("clip")) c.clip_samples = info["clip"]["samples"], c.clip_seed = info["clip"]["seed"];
  set_sampling(info["sampling"], c.sampling);
  return c;
}

}  // namespace

std::filesystem::path model_dir(const std::string& name) { return fixtures() / "models" / name; }

Engine& tiny(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Engine>> engines;
  auto& engine = engines[name];
  if (!engine) engine = Engine::open(model_dir(name), tiny_options());
  return *engine;
}

std::shared_ptr<engine::Core> tiny_core(const std::string& name) {
  static std::map<std::string, std::shared_ptr<engine::Core>> cores;
  auto& core = cores[name];
  if (!core) core = engine::load_core(model_dir(name), tiny_options());
  return core;
}

std::vector<float> Case::floats(const std::string& array) const {
  return audio::read_npy(folder / (array + ".npy")).floats();
}
std::vector<int32_t> Case::ints(const std::string& array) const {
  if (const auto list = lists.find(array); list != lists.end()) return list->second;
  return audio::read_npy(folder / (array + ".npy")).ints();
}
std::vector<Case> load_cases(bool codec) {
  std::vector<Case> cases;
  for (const auto& entry : std::filesystem::directory_iterator(fixtures() / "cases")) {
    if (entry.path().filename().string().starts_with("encode-")) continue;  // tests/model/encoder_test.cc
    Case c = read_case(entry.path());
    if ((c.mode == "codec") == codec) cases.push_back(std::move(c));
  }
  std::sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) { return a.name < b.name; });
  return cases;
}

SpeechRequest request_of(const Case& c) {
  SpeechRequest r;
  r.text = c.text, r.language = c.language, r.voice = c.speaker, r.instruct = c.instruct;
  r.layout = c.layout == "whole" ? TextLayout::whole : TextLayout::stream;
  r.raw_tokens = true;
  r.max_new_tokens = c.max_new_tokens;
  r.decode = DecodeMode::official, r.cut = CutMode::official;
  r.sampling = c.sampling;
  if (c.has("xvector")) r.x_vector = c.floats("xvector"), r.consent = "synthetic numbers";
  if (c.has("ref_codes")) r.ref_codes = c.ints("ref_codes"), r.ref_text = c.ref_text;
  r.seed = 1;
  return r;
}

std::vector<int32_t> Outcome::code0(int32_t groups) const {
  std::vector<int32_t> out;
  for (size_t i = 0; i < codes.size(); i += static_cast<size_t>(groups)) out.push_back(codes[i]);
  return out;
}

Outcome drain(SpeechStream& stream, int32_t chunk) {
  Outcome out;
  try {
    for (bool last = false; !last;) {
      const AudioChunk got = stream.next_audio(chunk);
      out.samples.insert(out.samples.end(), got.samples.begin(), got.samples.end());
      if (got.frames > 0) out.chunks.push_back(got.frames);
      last = got.last;
    }
  } catch (const Error& e) {
    out.error = e;
  }
  out.codes = stream.codes();
  out.result = stream.result();
  return out;
}

Outcome speak(Engine& engine, const SpeechRequest& request, const Diagnosis* diagnosis, int32_t chunk) {
  const auto stream = engine.start_stream(request, diagnosis);
  return drain(*stream, chunk);
}

Outcome speak_pieces(Engine& engine, const SpeechRequest& request, const std::vector<std::string>& pieces,
                     int32_t chunk) {
  const auto stream = engine.start_text_stream(request);
  Outcome out;
  size_t next = 0;
  for (;;) {
    StreamReply reply = stream->poll(chunk);
    if (reply.event == StreamEvent::need_text) {
      if (next < pieces.size()) {
        EXPECT_TRUE(stream->try_push(pieces[next]));
      } else {
        stream->finish();
      }
      ++next;
    } else if (reply.event == StreamEvent::chunk) {
      out.samples.insert(out.samples.end(), reply.chunk.samples.begin(), reply.chunk.samples.end());
      out.chunks.push_back(reply.chunk.frames);
    } else {
      out.error = reply.error;
      break;
    }
  }
  out.codes = stream->codes();
  out.result = stream->result();
  return out;
}

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorCode::internal, "no error was thrown");
}

SpeechRequest simple(const std::string& text, int32_t max_frames) {
  SpeechRequest r;
  r.text = text, r.voice = "anna", r.language = "english";
  r.sampling.greedy = true;
  r.max_frames = max_frames;
  r.seed = 1;
  return r;
}

}  // namespace skald::test
