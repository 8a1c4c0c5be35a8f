// Why a file or folder that must be there cannot be read: what it is instead, in one wording for everybody.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "skald/error.h"

namespace skald {

/// What stands in the way, and what to do about it.
struct FileFault {
  ErrorCode code = ErrorCode::io;
  std::string what;  ///< names the path
  std::string fix;

  bool missing() const { return code == ErrorCode::model_not_found; }
  Error error() const { return Error(code, what + "; " + fix); }
};

/// Of a call of the system on `path` that failed with `error` (an errno): model_not_found for what is not
/// there, model_invalid for links in a circle, out_of_memory, else io.
FileFault file_fault(const std::filesystem::path& path, int error);

/// Nothing for a plain file that can be opened for reading. A folder, a pipe, a socket or a device is
/// model_invalid and called by its name; a pipe is not opened.
std::optional<FileFault> file_fault(const std::filesystem::path& path);

/// Nothing for a folder, whatever it holds.
std::optional<FileFault> folder_fault(const std::filesystem::path& path);

}  // namespace skald
