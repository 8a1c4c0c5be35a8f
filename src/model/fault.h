// What is wrong with a snapshot: loading throws the first fault, `skald verify` prints them all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "skald/error.h"

namespace skald::model {

/// One fault. `what` names file, key or tensor, the value expected and the value found; `fix` says what to
/// do.
struct Fault {
  ErrorCode code = ErrorCode::model_invalid;
  std::string what;
  std::string fix;
  bool warning = false;  ///< the model still loads
};

using Faults = std::vector<Fault>;

/// How many of the faults are errors.
size_t count_errors(const Faults& faults);

/// Throws the first error among the faults, if there is one, and says how many more there are.
void throw_first(const Faults& faults);

/// What keeps the file from being read, if anything, as one more fault. `consequence` is said of a missing
/// one.
bool add_file_fault(const std::filesystem::path& path, std::string_view consequence, Faults& faults);

/// Text from a file as part of a message: quoted, control bytes replaced, at most 120 bytes.
std::string quote(std::string_view text);

/// "[2048, 1024]".
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace skald::model
