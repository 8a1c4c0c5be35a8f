// From an errno or a kind of file to a sentence.
#include "base/file_fault.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace skald {
namespace {

namespace fs = std::filesystem;

const char* kind_name(fs::file_type type) {
  switch (type) {
    case fs::file_type::regular: return "a plain file";
    case fs::file_type::directory: return "a folder";
    case fs::file_type::fifo: return "a pipe (FIFO)";
    case fs::file_type::socket: return "a socket";
    case fs::file_type::block:
    case fs::file_type::character: return "a device";
    default: return "of a kind of its own";
  }
}

FileFault absent(const fs::path& path) {
  std::error_code failure;
  if (fs::is_symlink(fs::symlink_status(path, failure)))
    return {ErrorCode::model_not_found, path.string() + " is a link to something that is missing",
            "put the file itself here, or bring what the link leads to"};
  return {ErrorCode::model_not_found, path.string() + " is missing",
          "download it from the model's repository into this folder"};
}

}  // namespace

FileFault file_fault(const fs::path& path, int error) {
  const std::string name = path.string();
  switch (error) {
    case ENOENT: return absent(path);
    case ENOTDIR:
      return {ErrorCode::model_not_found, name + " is missing: a part of its path is a file, not a folder",
              "put the folder of the model's repository there"};
    case ELOOP:
      return {ErrorCode::model_invalid, name + " cannot be opened: its links lead in a circle",
              "replace the link by the file of the model's repository"};
    case EACCES:
    case EPERM:
      return {ErrorCode::io, fmt::format("{} may not be read ({})", name, std::strerror(error)),
              "check the permissions of it and of the folders above it"};
    case EMFILE:
    case ENFILE:
      return {ErrorCode::io, fmt::format("{} cannot be opened ({})", name, std::strerror(error)),
              "raise the limit of open files (ulimit -n)"};
    case ENOMEM:
      return {ErrorCode::out_of_memory, fmt::format("{} cannot be read ({})", name, std::strerror(error)),
              "raise the limits of memory and address space (ulimit -v), or end other programs"};
    default:
      return {ErrorCode::io, fmt::format("{} cannot be read ({})", name, std::strerror(error)),
              "check the path and the file system that it is on"};
  }
}

std::optional<FileFault> file_fault(const fs::path& path) {
  std::error_code failure;
  const fs::file_type type = fs::status(path, failure).type();
  if (failure) return file_fault(path, failure.value());
  if (type != fs::file_type::regular)
    return FileFault{ErrorCode::model_invalid,
                     fmt::format("{} is {}, not a plain file", path.string(), kind_name(type)),
                     "put the file of the model's repository here"};
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return file_fault(path, errno);
  ::close(descriptor);
  return std::nullopt;
}

std::optional<FileFault> folder_fault(const fs::path& path) {
  std::error_code failure;
  const fs::file_type type = fs::status(path, failure).type();
  if (failure) return file_fault(path, failure.value());
  if (type == fs::file_type::directory) return std::nullopt;
  return FileFault{ErrorCode::model_not_found,
                   fmt::format("{} is {}, not a folder", path.string(), kind_name(type)),
                   "name the folder that holds config.json and model.safetensors"};
}

}  // namespace skald
