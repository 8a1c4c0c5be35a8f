// Crafts snapshot folders for tests.
#include "snapshot_files.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

namespace skald::test {

TempDir::TempDir() {
  std::string pattern = (fs::temp_directory_path() / "skald-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) throw std::runtime_error("cannot read " + path.string());
  return text.str();
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream stream(path, std::ios::binary);
  stream << text;
  if (!stream.flush()) throw std::runtime_error("cannot write " + path.string());
}

void copy_model(const std::string& name, const fs::path& to) {
  fs::copy(fs::path(SKALD_FIXTURES) / "models" / name, to,
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
}

void copy_model_without_weights(const std::string& name, const fs::path& to) {
  const fs::path from = fs::path(SKALD_FIXTURES) / "models" / name;
  for (const fs::path& part : {fs::path("."), fs::path("speech_tokenizer")}) {
    fs::create_directories(to / part);
    for (const auto& entry : fs::directory_iterator(from / part)) {
      if (entry.is_directory() || entry.path().extension() == ".safetensors") continue;
      fs::copy_file(entry.path(), to / part / entry.path().filename());
    }
  }
}

void edit_json(const fs::path& path, const std::function<void(json&)>& edit) {
  json document = json::parse(read_file(path));
  edit(document);
  write_file(path, document.dump(1));
}

size_t type_bytes(const std::string& type) {
  if (type == "F64" || type == "I64") return 8;
  if (type == "F32" || type == "I32") return 4;
  if (type == "F16" || type == "BF16" || type == "I16") return 2;
  return 1;
}

int64_t elements(const RawTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
}

std::string safetensors(const std::string& header, const std::string& data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  return out + header + data;
}

namespace {

std::string header_of(const std::vector<RawTensor>& tensors, uint64_t& total) {
  json header = json::object();
  total = 0;
  for (const RawTensor& t : tensors) {
    const uint64_t size = static_cast<uint64_t>(elements(t)) * type_bytes(t.type);
    header[t.name] = {{"dtype", t.type}, {"shape", t.shape}, {"data_offsets", {total, total + size}}};
    total += size;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

std::string safetensors(const std::vector<RawTensor>& tensors) {
  uint64_t total = 0;
  const std::string header = header_of(tensors, total);
  std::string data;
  for (const RawTensor& t : tensors) data += t.bytes;
  EXPECT_EQ(data.size(), total);
  return safetensors(header, data);
}

void write_sparse(const fs::path& path, const std::vector<RawTensor>& tensors) {
  uint64_t total = 0;
  const std::string start = safetensors(header_of(tensors, total), "");
  write_file(path, start);
  fs::resize_file(path, start.size() + total);
}

std::vector<RawTensor> read_tensors(const fs::path& path) {
  const std::string file = read_file(path);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(file[i]);
  const json header = json::parse(file.substr(8, length));
  std::vector<RawTensor> out;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    out.push_back({name, entry["dtype"], entry["shape"], file.substr(8 + length + begin, end - begin)});
  }
  return out;
}

}  // namespace skald::test
