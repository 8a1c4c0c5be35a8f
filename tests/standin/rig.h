// What tests on the stand-in drivers share: folders, faults, options.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "backend/gpu/gpu.h"

namespace skald::standin {

enum class Face { hip, hip5, cuda };

/// One of the stand-in drivers, set up for a test: sets devices and faults for this process and for the
/// helper processes that it starts, and takes them back at the end.
class Standin {
 public:
  explicit Standin(Face face, const std::string& devices = "", const std::string& faults = "");
  Standin(const Standin&) = delete;
  Standin& operator=(const Standin&) = delete;
  ~Standin();

  /// New faults; counts begin anew.
  void set_faults(const std::string& faults);
  /// Calls since then, by name; see core.h.
  unsigned long count(const char* what) const;
  /// Options that find this driver and nothing else. Machine code is kept from test to test.
  backend::GpuOptions options() const;
  std::filesystem::path folder() const { return folder_; }

 private:
  void configure(const char* devices, const std::string& faults) const;

  std::filesystem::path folder_;
  std::string library_, prefix_;
};

/// An empty folder that goes away at the end.
class TempFolder {
 public:
  TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();
  const std::filesystem::path& path() const { return path_; }
  /// A link in a subfolder of it, made with its folders.
  void link(const std::filesystem::path& to, const std::filesystem::path& name) const;
  void write(const std::filesystem::path& name, const std::string& text) const;

 private:
  std::filesystem::path path_;
};

/// Folders of the stand-in libraries, the helper program, and where machine code is kept.
std::filesystem::path standin_folder(const std::string& name);
std::filesystem::path helper_program();
std::filesystem::path code_cache();

}  // namespace skald::standin
