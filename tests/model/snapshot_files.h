// Crafts snapshot folders for tests: copies of the tiny models, edited JSON, safetensors files of any kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace skald::test {

namespace fs = std::filesystem;
using nlohmann::json;

/// A fresh folder that is removed with its contents.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  fs::path operator/(const fs::path& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string read_file(const fs::path& path);
void write_file(const fs::path& path, const std::string& text);

/// Copies a committed tiny model ("tiny-cv") into `to`.
void copy_model(const std::string& name, const fs::path& to);
/// Like copy_model, but tests that only read JSON save the copying of weights.
void copy_model_without_weights(const std::string& name, const fs::path& to);

void edit_json(const fs::path& path, const std::function<void(json&)>& edit);

/// One tensor of a crafted file. `bytes` may be left empty when the file is written sparse.
struct RawTensor {
  std::string name, type;
  std::vector<int64_t> shape;
  std::string bytes;
};

size_t type_bytes(const std::string& type);
int64_t elements(const RawTensor& tensor);

/// A whole file in memory, tensors in the given order.
std::string safetensors(const std::vector<RawTensor>& tensors);
/// A file around a header given as text.
std::string safetensors(const std::string& header, const std::string& data);
/// The same layout with zeros for data that take no disk space.
void write_sparse(const fs::path& path, const std::vector<RawTensor>& tensors);
/// Everything in a file, with its bytes.
std::vector<RawTensor> read_tensors(const fs::path& path);

/// A tensor of `values`, little endian.
template <class T>
RawTensor tensor(const std::string& name, const std::string& type, std::vector<int64_t> shape,
                 const std::vector<T>& values) {
  return {name, type, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

}  // namespace skald::test
