// A small model with random weights, for checking a device where no real model is at hand.
#pragma once

#include <filesystem>

namespace skald::diagnose {

/// Writes a snapshot of every part that a published one has, in BF16 as they are, about 20 MB, the same bytes
/// each time. It has no tokenizer: it speaks from given ids. Throws Error(io).
void write_test_model(const std::filesystem::path& folder);

/// A fresh folder with that model below `parent`, removed with the object.
class TestModel {
 public:
  explicit TestModel(const std::filesystem::path& parent);
  ~TestModel();
  TestModel(const TestModel&) = delete;
  TestModel& operator=(const TestModel&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace skald::diagnose
