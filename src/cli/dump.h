// --dump: every number of every request as .npy files, the same bytes run after run.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/long_text.h"

namespace skald::cli {

/// Also carries --replay and --noise, since both speak through the Diagnosis of a request.
class Recorder : public engine::PieceObserver {
 public:
  /// `dir` empty = nothing is written. One folder per piece: piece-000, piece-001, ..., and "disclaimer"; a
  /// second try overwrites the first. Where a file cannot be written (a full disk), those of its request are
  /// removed.
  Recorder(const Engine& engine, std::filesystem::path dir, Diagnosis base);
  ~Recorder() override;

  const Diagnosis* begin(int32_t piece, int32_t attempt, const SpeechRequest& request) override;
  void end(const engine::PieceReport& report, const std::vector<int32_t>& codes) override;
  /// Ends the files of a request that failed: what was written stays, unless it could not be written whole.
  void abandon();

 private:
  struct Files;
  const Diagnosis* try_begin(int32_t piece, int32_t attempt, const SpeechRequest& request);
  void try_end(const engine::PieceReport& report);
  void close();
  void discard() noexcept;
  void write_request(const engine::PieceReport* report);

  const Engine& engine_;
  std::filesystem::path dir_;
  bool made_dir_ = false;
  Diagnosis base_, diagnosis_;
  std::filesystem::path folder_;
  SpeechRequest request_;
  int32_t attempt_ = 0;
  std::unique_ptr<Files> files_;
};

/// Reads --replay and --noise. Throws Error(io), Error(invalid_argument) naming file and shape.
Diagnosis load_diagnosis(const std::string& replay, const std::string& noise, const ModelInfo& info);

}  // namespace skald::cli
