// `skald verify`: names the model and compares every tensor with the configuration.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace skald::model {

struct Finding {
  std::string severity;  ///< "error" or "warning"
  std::string what;      ///< one sentence: which file, which tensor, expected and found
  std::string fix;       ///< what to do about it
};

struct VerifyReport {
  std::string type, size;  ///< as configured: "custom_voice", "0b6"
  std::string found_size;  ///< what the tensors say: "0b6", "1b7", "other"
  size_t tensors = 0, parameters = 0, codec_tensors = 0, codec_parameters = 0;
  bool fine_tuned = false;  ///< a fine-tuned snapshot made by the official script (specification 1.1)
  std::vector<Finding> findings;
  bool ok() const;  ///< no error among the findings
};

struct VerifyOptions {
  bool scan_values = true;  ///< look for NaN and infinity in every weight: reads the files completely
};

/// Reads everything that loading would read and reports all faults at once instead of the first, errors
/// before warnings. Never throws for what it finds in files.
VerifyReport verify_model(const std::filesystem::path& model_dir, const VerifyOptions& options = {});

}  // namespace skald::model
