// Writes the dump files of requests.
#include "cli/dump.h"

#include <fstream>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "audio/npy.h"
#include "cli/request_options.h"

namespace skald::cli {
namespace {

namespace fs = std::filesystem;
using audio::NpyType;
using audio::NpyWriter;

const char* layout_name(TextLayout layout) {
  switch (layout) {
    case TextLayout::whole: return "whole";
    case TextLayout::stream: return "stream";
    case TextLayout::ahead: return "ahead";
    case TextLayout::automatic: break;
  }
  return "automatic";
}

template <class T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

nlohmann::json sampling_json(const Sampling& s) {
  return {{"greedy", s.greedy},
          {"sub_greedy", s.sub_greedy},
          {"temperature", or_null(s.temperature)},
          {"top_k", or_null(s.top_k)},
          {"top_p", or_null(s.top_p)},
          {"repetition_penalty", or_null(s.repetition_penalty)},
          {"min_new_tokens", or_null(s.min_new_tokens)},
          {"sub_temperature", or_null(s.sub_temperature)},
          {"sub_top_k", or_null(s.sub_top_k)},
          {"sub_top_p", or_null(s.sub_top_p)}};
}

/// Noise of a shape [rows, ...]; `row` is checked, the number of rows is the engine's business.
std::vector<float> load_noise(const fs::path& path, const std::vector<uint64_t>& row) {
  const audio::NpyArray array = audio::read_npy(path);
  if (array.shape.size() != row.size() + 1 || !std::equal(row.begin(), row.end(), array.shape.begin() + 1)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("'{}' must have the shape [N, {}]", path.string(), fmt::join(row, ", ")));
  }
  return array.floats();
}

}  // namespace

/// The open files of one request. The rows' widths are those of the model.
struct Recorder::Files {
  NpyWriter codes, hidden, logits, predictor_logits;
  std::optional<NpyWriter> prompt_rows, probs, predictor_probs;

  Files(const fs::path& dir, const ModelInfo& info, bool want_probs)
      : codes(dir / "codes.npy", NpyType::i2, {u(info.groups)}),
        hidden(dir / "hidden.npy", NpyType::f4, {u(info.hidden_size)}),
        logits(dir / "logits.npy", NpyType::f4, {u(info.vocab_size)}),
        predictor_logits(dir / "predictor_logits.npy", NpyType::f4, {u(info.groups - 1), u(info.codes)}) {
    if (!want_probs) return;
    probs.emplace(dir / "probs.npy", NpyType::f4, std::vector{u(info.vocab_size)});
    predictor_probs.emplace(dir / "predictor_probs.npy", NpyType::f4,
                            std::vector{u(info.groups - 1), u(info.codes)});
  }
  static uint64_t u(int32_t value) { return static_cast<uint64_t>(value); }

  void step(const StepView& view) {
    hidden.append(view.hidden);
    logits.append(view.logits);
    codes.append(view.codes);
    predictor_logits.append(view.predictor_logits);
    if (probs) {
      probs->append(view.probs);
      predictor_probs->append(view.predictor_probs);
    }
  }
  void close() {
    for (NpyWriter* writer : {&codes, &hidden, &logits, &predictor_logits}) writer->close();
    for (auto* writer : {&prompt_rows, &probs, &predictor_probs}) {
      if (*writer) (*writer)->close();
    }
  }
};

Recorder::Recorder(const Engine& engine, fs::path dir, Diagnosis base)
    : engine_(engine), dir_(std::move(dir)), base_(std::move(base)) {}
Recorder::~Recorder() = default;

const Diagnosis* Recorder::try_begin(int32_t piece, int32_t attempt, const SpeechRequest& request) {
  diagnosis_ = piece < 0 ? Diagnosis{} : base_;  // recorded numbers are those of the text
  if (dir_.empty()) return &diagnosis_;
  request_ = request;
  attempt_ = attempt;
  folder_ = dir_ / (piece < 0 ? std::string("disclaimer") : fmt::format("piece-{:03}", piece));
  std::error_code error;
  made_dir_ |= !fs::exists(dir_, error);
  fs::create_directories(folder_, error);
  if (error)
    throw Error(ErrorCode::io, fmt::format("cannot create '{}': {}", folder_.string(), error.message()));
  diagnosis_.want_probs = !request.sampling.greedy || !diagnosis_.replay.empty();
  if (!diagnosis_.want_probs) {  // of an earlier run with other settings
    fs::remove(folder_ / "probs.npy", error);
    fs::remove(folder_ / "predictor_probs.npy", error);
  }
  files_.reset();  // a first try writes its last bytes before the files are made anew
  files_ = std::make_unique<Files>(folder_, engine_.info(), diagnosis_.want_probs);
  Files* const files = files_.get();
  diagnosis_.on_step = [files](const StepView& view) { files->step(view); };
  diagnosis_.on_prompt = [files, path = folder_ / "prompt_rows.npy"](std::span<const float> rows,
                                                                     int32_t hidden) {
    files->prompt_rows.emplace(path, NpyType::f4, std::vector{Files::u(hidden)});
    files->prompt_rows->append(rows);
  };
  write_request(nullptr);
  return &diagnosis_;
}

void Recorder::try_end(const engine::PieceReport& report) {
  close();
  request_.text = report.text;
  NpyWriter ids(folder_ / "ids.npy", NpyType::i4, {});
  ids.append(engine_.prompt(request_).ids);
  ids.close();
  write_request(&report);
}

void Recorder::close() {
  if (files_) files_->close();
}

void Recorder::abandon() {
  try {
    close();
  } catch (const Error&) {
    discard();
  }
}

/// Half a file would read as a whole one of fewer rows.
void Recorder::discard() noexcept {
  files_.reset();
  if (folder_.empty()) return;
  std::error_code unused;
  for (const char* name : {"ids.npy", "prompt_rows.npy", "codes.npy", "hidden.npy", "logits.npy",
                           "predictor_logits.npy", "probs.npy", "predictor_probs.npy", "request.json"})
    fs::remove(folder_ / name, unused);
  fs::remove(folder_, unused);  // where nothing else is in it
  if (made_dir_) fs::remove(dir_, unused);
}

const Diagnosis* Recorder::begin(int32_t piece, int32_t attempt, const SpeechRequest& request) {
  try {
    return try_begin(piece, attempt, request);
  } catch (const Error&) {
    discard();
    throw;
  }
}

void Recorder::end(const engine::PieceReport& report, const std::vector<int32_t>&) {
  if (dir_.empty()) return;
  try {
    try_end(report);
  } catch (const Error&) {
    discard();
    throw;
  }
}

void Recorder::write_request(const engine::PieceReport* report) {
  nlohmann::ordered_json json;
  json["text"] = request_.text;
  json["voice"] = request_.voice;
  json["language"] = request_.language;
  json["instruct"] = request_.instruct;
  json["layout"] = layout_name(request_.layout);
  json["split"] = request_.split == TextSplit::mistral ? "mistral" : "qwen";
  json["raw_tokens"] = request_.raw_tokens;
  json["seed"] = request_.seed.value_or(0);
  json["attempt"] = attempt_;
  json["max_frames"] = or_null(request_.max_frames);
  json["max_new_tokens"] = or_null(request_.max_new_tokens);
  json["sampling"] = sampling_json(request_.sampling);
  if (report != nullptr) {
    json["frames"] = report->result.frames;
    json["samples"] = report->result.samples;
    json["stop"] = stop_reason_name(report->result.stop);
    json["prompt_rows"] = report->result.prompt_rows;
    json["text_tokens"] = report->result.text_tokens;
    json["frame_bound"] = report->result.frame_bound;
    json["warnings"] = report->result.warnings;
  }
  const fs::path path = folder_ / "request.json";
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  out.close();
  if (!out) throw Error(ErrorCode::io, fmt::format("cannot write '{}'", path.string()));
}

Diagnosis load_diagnosis(const std::string& replay, const std::string& noise, const ModelInfo& info) {
  Diagnosis out;
  if (!replay.empty()) out.replay = load_codes(replay, info.groups);
  if (noise.empty()) return out;
  const fs::path dir = noise;
  const auto u = [](int32_t value) { return static_cast<uint64_t>(value); };
  out.noise = load_noise(dir / "noise.npy", {u(info.vocab_size)});
  // A run whose predictor is greedy draws nothing there, so the second file may be absent.
  if (std::filesystem::exists(dir / "predictor_noise.npy")) {
    out.predictor_noise = load_noise(dir / "predictor_noise.npy", {u(info.groups - 1), u(info.codes)});
  }
  return out;
}

}  // namespace skald::cli
