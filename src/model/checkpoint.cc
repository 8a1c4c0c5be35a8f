// Checkpoints of safetensors files: mapping, shards, lookup, conversion to float32.
#include "model/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "backend/tensors.h"
#include "base/file_fault.h"
#include "model/fault.h"
#include "model/json_fields.h"
#include "model/safetensors.h"

namespace skald::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kMostShards = 1024;

/// A whole file mapped read-only.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path) : name_(path.string()) {
    if (const auto fault = file_fault(path)) throw fault->error();
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) throw file_fault(path, errno).error();
    const int error = map(descriptor);
    ::close(descriptor);
    if (error != 0) throw map_failure(error);
  }
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& name() const { return name_; }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

  /// Gives back the whole pages of a range; they are read again from the file when touched. Advice only.
  void release(size_t offset, size_t count) const {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t first = (offset + page - 1) / page * page, end = (offset + count) / page * page;
    if (first < end) ::madvise(static_cast<std::byte*>(data_) + first, end - first, MADV_DONTNEED);
  }

 private:
  /// Returns an errno, 0 for none.
  int map(int descriptor) {
    struct stat status = {};
    if (::fstat(descriptor, &status) != 0) return errno;
    const auto size = static_cast<size_t>(status.st_size);
    if (size == 0) return 0;  // the header check reports it
    void* const at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    size_ = size;
    if (at == MAP_FAILED) return errno;
    data_ = at;
    return 0;
  }

  Error map_failure(int error) {
    const bool memory = error == ENOMEM;
    return Error(memory ? ErrorCode::out_of_memory : ErrorCode::io,
                 fmt::format("{} with {} bytes cannot be mapped ({}); {}", name_, size_, std::strerror(error),
                             memory ? "raise the limit of address space (ulimit -v)"
                                    : "copy it to a file system that can map files"));
  }

  std::string name_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

std::optional<backend::Dtype> known_type(std::string_view type) {
  if (type == "F32") return backend::Dtype::f32;
  if (type == "F16") return backend::Dtype::f16;
  if (type == "BF16") return backend::Dtype::bf16;
  if (type == "I32") return backend::Dtype::i32;
  if (type == "U8") return backend::Dtype::u8;
  return std::nullopt;
}

struct Stored {
  TensorEntry entry;
  const MappedFile* file;
};

class SafetensorsCheckpoint final : public Checkpoint {
 public:
  explicit SafetensorsCheckpoint(std::string where) : where_(std::move(where)) {}

  /// Maps one file and takes over its tensors. Returns their names.
  std::set<std::string> add(const fs::path& path) {
    const MappedFile& file = *files_.emplace_back(std::make_unique<MappedFile>(path));
    std::set<std::string> names;
    for (TensorEntry& entry : parse_safetensors(file.bytes(), file.name())) {
      names.insert(entry.name);
      const auto found = tensors_.find(entry.name);
      if (found != tensors_.end()) {
        throw Error(
            ErrorCode::model_invalid,
            fmt::format("tensor {} is in {} and in {}; download the shards again, they belong to different "
                        "checkpoints",
                        quote(entry.name), found->second.file->name(), file.name()));
      }
      std::string name = entry.name;
      tensors_.emplace(std::move(name), Stored{std::move(entry), &file});
    }
    return names;
  }

  bool has(std::string_view name) const override { return tensors_.find(name) != tensors_.end(); }

  backend::TensorSource get(std::string_view name, const std::vector<int64_t>& shape) const override {
    const auto& [key, stored] = find(name);
    const TensorEntry& entry = stored.entry;
    if (entry.shape != shape) {
      throw Error(
          ErrorCode::model_invalid,
          fmt::format(
              "{}: tensor {} at byte {} has the shape {}, expected {} from the configuration; the weights "
              "and the configuration files are of different models, or the file was converted",
              stored.file->name(), quote(name), entry.offset, shape_text(entry.shape), shape_text(shape)));
    }
    const auto type = known_type(entry.type);
    if (!type || dtype_size(*type) == 1 || *type == backend::Dtype::i32) {
      throw Error(
          ErrorCode::model_invalid,
          fmt::format(
              "{}: tensor {} at byte {} has the type {}, expected BF16, F32 or F16; use the weights of the "
              "model's repository",
              stored.file->name(), quote(name), entry.offset, quote(entry.type)));
    }
    return {key, *type, entry.shape, aligned(key, stored, dtype_size(*type))};
  }

  void release(std::string_view name) const override {
    const auto& [key, stored] = find(name);
    stored.file->release(stored.entry.offset, stored.entry.bytes);
    const std::lock_guard lock(copies_mutex_);
    copies_.erase(key);
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    out.reserve(tensors_.size());
    for (const auto& [name, stored] : tensors_) out.push_back(name);
    return out;
  }
  std::vector<int64_t> shape(std::string_view name) const override { return find(name).second.entry.shape; }
  backend::Dtype dtype(std::string_view name) const override {
    const Stored& stored = find(name).second;
    if (const auto type = known_type(stored.entry.type)) return *type;
    throw Error(ErrorCode::model_invalid,
                fmt::format("{}: tensor {} has the type {}, which cannot be used", stored.file->name(),
                            quote(name), quote(stored.entry.type)));
  }
  std::string type_name(std::string_view name) const override { return find(name).second.entry.type; }
  std::string file(std::string_view name) const override { return find(name).second.file->name(); }

 private:
  using Tensors = std::map<std::string, Stored, std::less<>>;

  const Tensors::value_type& find(std::string_view name) const {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) return *found;
    throw Error(
        ErrorCode::model_invalid,
        fmt::format(
            "{}: tensor {} is missing; the weights are incomplete or of another model, download them again",
            where_, quote(name)));
  }

  /// The bytes in place, or copied once where a header of odd length left them misaligned for their type.
  std::span<const std::byte> aligned(const std::string& name, const Stored& stored, size_t alignment) const {
    const auto bytes = stored.file->bytes().subspan(stored.entry.offset, stored.entry.bytes);
    if (stored.entry.offset % alignment == 0) return bytes;
    const std::lock_guard lock(copies_mutex_);
    std::vector<std::byte>& copy = copies_[name];
    if (copy.size() != bytes.size()) copy.assign(bytes.begin(), bytes.end());
    return copy;
  }

  std::string where_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  Tensors tensors_;
  mutable std::mutex copies_mutex_;
  mutable std::map<std::string, std::vector<std::byte>> copies_;
};

/// A shard is a plain file name beside the index, nothing that leads elsewhere.
bool plain_file_name(const std::string& name) {
  return !name.empty() && name.size() < 256 && name.front() != '.' &&
         name.find_first_of("/\\:") == std::string::npos && name.find('\0') == std::string::npos &&
         name.ends_with(".safetensors");
}

/// Shard file -> tensors, from an index.
std::map<std::string, std::set<std::string>> read_index(const fs::path& path) {
  const std::string file = path.string();
  Faults faults;
  const auto text = read_small_file(path, "without it the shards are unknown", faults);
  const Document document = text ? parse_document(*text, file, faults) : nullptr;
  throw_first(faults);
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::model_invalid, fmt::format("{}: {}; download the index again", file, what));
  };
  const auto map = document->find("weight_map");
  if (map == document->end() || !map->is_object() || map->empty())
    refuse("weight_map is not a table of tensors");
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [tensor, value] : map->items()) {
    if (!value.is_string()) refuse(fmt::format("weight_map gives no file name for tensor {}", quote(tensor)));
    const auto& shard = value.get_ref<const std::string&>();
    if (!plain_file_name(shard)) {
      refuse(fmt::format(
          "weight_map puts tensor {} into {}, expected the plain name of a .safetensors file in the same "
          "folder",
          quote(tensor), quote(shard)));
    }
    shards[shard].insert(tensor);
    if (shards.size() > kMostShards) refuse(fmt::format("weight_map names more than {} files", kMostShards));
  }
  return shards;
}

/// The shard's tensors must be exactly those that the index promises.
void compare_with_index(const std::string& shard, const std::set<std::string>& found,
                        const std::set<std::string>& promised) {
  const auto refuse = [&](const std::string& name, std::string_view what) {
    throw Error(ErrorCode::model_invalid,
                fmt::format("{}: tensor {} {}; index and shards belong to different downloads, "
                            "download both again",
                            shard, quote(name), what));
  };
  for (const std::string& name : promised) {
    if (!found.contains(name)) refuse(name, "is missing, although the index puts it here");
  }
  for (const std::string& name : found) {
    if (!promised.contains(name)) refuse(name, "is here, although the index does not list it in this file");
  }
}

}  // namespace

std::shared_ptr<const Checkpoint> Checkpoint::open(const fs::path& dir) {
  std::error_code failure;
  auto checkpoint = std::make_shared<SafetensorsCheckpoint>(dir.string());
  const fs::path single = dir / kSingleFile, index = dir / kIndexFile;
  // What cannot be looked at counts as being there: opening it says why.
  const auto absent = [&](const fs::path& path) {
    return fs::symlink_status(path, failure).type() == fs::file_type::not_found;
  };
  if (!absent(single)) {
    checkpoint->add(single);
    return checkpoint;
  }
  if (absent(index)) {
    throw Error(
        ErrorCode::model_not_found,
        fmt::format(
            "there is neither {} nor {} in {}; download the weights from the model's repository into it",
            kSingleFile, kIndexFile, dir.string()));
  }
  for (const auto& [shard, promised] : read_index(index)) {
    const fs::path path = dir / shard;
    compare_with_index(path.string(), checkpoint->add(path), promised);
  }
  return checkpoint;
}

std::vector<float> to_floats(const backend::TensorSource& source) {
  using backend::Dtype;
  const bool is_float =
      source.dtype == Dtype::f32 || source.dtype == Dtype::f16 || source.dtype == Dtype::bf16;
  if (!is_float) {
    throw Error(
        ErrorCode::model_invalid,
        fmt::format(
            "tensor {} does not hold floating-point numbers; use the weights of the model's repository",
            quote(source.name)));
  }
  std::vector<float> out(source.data.size() / dtype_size(source.dtype));
  backend::each_element(source.dtype, source.data.data(), static_cast<int64_t>(out.size()),
                        [&](int64_t i, float value) { out[static_cast<size_t>(i)] = value; });
  return out;
}

}  // namespace skald::model
