// Audio files to samples. The only file that includes libsndfile.
#include "audio/decode.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sndfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "audio/clip_check.h"

namespace skald::audio {
namespace {

constexpr std::string_view kReadable[] = {"WAV", "FLAC", "MP3", "Ogg", "AIFF", "AU", "CAF"};
constexpr size_t kHead = 16;
constexpr uint64_t kMostUnseekable = 1'000'000'000;

[[noreturn]] void fail_io(const std::string& name, const char* doing, int error) {
  throw Error(ErrorCode::io, fmt::format("cannot {} '{}': {}", doing, name, std::strerror(error)));
}

/// Where the bytes of a file come from.
class Source {
 public:
  virtual ~Source() = default;
  virtual sf_count_t size() const = 0;
  /// Bytes read at an offset; fewer at the end.
  virtual sf_count_t read(void* to, sf_count_t count, sf_count_t offset) = 0;
  virtual int error() const { return 0; }  ///< what a read ran into
};

class MemorySource final : public Source {
 public:
  explicit MemorySource(std::string_view bytes) : bytes_(bytes) {}
  explicit MemorySource(std::string owned) : owned_(std::move(owned)), bytes_(owned_) {}
  sf_count_t size() const override { return static_cast<sf_count_t>(bytes_.size()); }
  sf_count_t read(void* to, sf_count_t count, sf_count_t offset) override {
    if (offset >= size()) return 0;
    count = std::min(count, size() - offset);
    std::memcpy(to, bytes_.data() + offset, static_cast<size_t>(count));
    return count;
  }

 private:
  std::string owned_;
  std::string_view bytes_;
};

class FileSource final : public Source {
 public:
  FileSource(int fd, sf_count_t size) : fd_(fd), size_(size) {}
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  ~FileSource() override { ::close(fd_); }
  sf_count_t size() const override { return size_; }
  sf_count_t read(void* to, sf_count_t count, sf_count_t offset) override {
    sf_count_t done = 0;
    while (done < count) {
      const ssize_t n =
          ::pread(fd_, static_cast<char*>(to) + done, static_cast<size_t>(count - done), offset + done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) error_ = errno;
      if (n <= 0) break;
      done += n;
    }
    return done;
  }
  int error() const override { return error_; }

 private:
  int fd_;
  sf_count_t size_;
  int error_ = 0;
};

uint32_t little_endian(const char* bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

bool looks_like_chunk(std::string_view head, sf_count_t left) {
  const bool letters =
      std::all_of(head.begin(), head.begin() + 4, [](char c) { return c >= ' ' && c <= '~'; });
  return letters && little_endian(head.data() + 4) <= left - 8;
}

/// Where the samples of a WAV are, as its chunks say.
struct WavData {
  sf_count_t at = 0;    ///< of the size of the data; 0 = none was found
  uint32_t length = 0;  ///< that size
  sf_count_t left = 0;  ///< bytes that follow in the file
  uint32_t frame = 0;   ///< bytes of a sample of all channels; 0 = not of a fixed size
};

WavData find_data(Source& source) {
  constexpr int kMostChunks = 1000;
  WavData data;
  char head[8], format[16];
  sf_count_t at = 12;
  for (int i = 0; i < kMostChunks && source.read(head, 8, at) == 8; ++i) {
    const uint32_t length = little_endian(head + 4);
    if (std::string_view(head, 4) == "data") {
      data.at = at + 4, data.length = length, data.left = source.size() - at - 8;
      return data;
    }
    if (std::string_view(head, 4) == "fmt " && length >= 16 && source.read(format, 16, at + 8) == 16) {
      const uint32_t kind = little_endian(format) & 0xFFFF;  // PCM, float, or one of them by a GUID
      data.frame = kind == 1 || kind == 3 || kind == 0xFFFE ? little_endian(format + 12) & 0xFFFF : 0;
    }
    at += 8 + sf_count_t{length} + length % 2;
  }
  return data;
}

/// A WAV that was written to a pipe may say that its data has no bytes, though they follow.
bool says_nothing(Source& source, const WavData& data) {
  char head[8];
  if (data.at == 0 || data.length != 0 || data.left <= 0) return false;
  return source.read(head, 8, data.at + 4) != 8 || !looks_like_chunk({head, 8}, data.left);
}

/// A source with four bytes replaced.
class PatchedSource final : public Source {
 public:
  PatchedSource(std::unique_ptr<Source> source, sf_count_t at, uint32_t value)
      : source_(std::move(source)), at_(at), value_(value) {}
  sf_count_t size() const override { return source_->size(); }
  sf_count_t read(void* to, sf_count_t count, sf_count_t offset) override {
    const sf_count_t n = source_->read(to, count, offset);
    for (int i = 0; i < 4; ++i)
      if (at_ + i >= offset && at_ + i < offset + n)
        static_cast<char*>(to)[at_ + i - offset] = static_cast<char>(value_ >> (8 * i));
    return n;
  }
  int error() const override { return source_->error(); }

 private:
  std::unique_ptr<Source> source_;
  sf_count_t at_;
  uint32_t value_;
};

/// The virtual file that libsndfile reads.
struct Cursor {
  std::unique_ptr<Source> source;
  sf_count_t at = 0;

  static sf_count_t length(void* user) { return static_cast<Cursor*>(user)->source->size(); }
  static sf_count_t seek(sf_count_t offset, int whence, void* user) {
    auto& c = *static_cast<Cursor*>(user);
    const sf_count_t base = whence == SEEK_CUR ? c.at : whence == SEEK_END ? c.source->size() : 0;
    sf_count_t to = 0;
    if (__builtin_add_overflow(base, offset, &to) || to < 0) return -1;
    return c.at = to;
  }
  static sf_count_t read(void* to, sf_count_t count, void* user) {
    auto& c = *static_cast<Cursor*>(user);
    const sf_count_t n = count > 0 ? c.source->read(to, count, c.at) : 0;
    c.at += n;
    return n;
  }
  static sf_count_t write(const void*, sf_count_t, void*) { return 0; }
  static sf_count_t tell(void* user) { return static_cast<Cursor*>(user)->at; }
};

class SndfileReader final : public AudioReader {
 public:
  SndfileReader(std::unique_ptr<Source> source, std::string name, const DecodeLimits& limits)
      : name_(std::move(name)), limits_(limits), cursor_{std::move(source)} {
    char head[kHead] = {};
    const auto got = static_cast<size_t>(cursor_.source->read(head, kHead, 0));
    container_ = container_of({head, got});
    check_container(got);
    if (container_ == "WAV" && head[3] == 'F') read_wav_head();
    SF_VIRTUAL_IO io{&Cursor::length, &Cursor::seek, &Cursor::read, &Cursor::write, &Cursor::tell};
    file_ = sf_open_virtual(&io, SFM_READ, &info_, &cursor_);
    if (!file_)
      refuse("cannot be decoded: its header is damaged, or it holds a kind of audio that is not supported");
    // What the constructor throws leaves the destructor out.
    try {
      check_format();
    } catch (...) {
      sf_close(file_);
      throw;
    }
  }
  ~SndfileReader() override { sf_close(file_); }
  SndfileReader(const SndfileReader&) = delete;
  SndfileReader& operator=(const SndfileReader&) = delete;

  int32_t channels() const override { return info_.channels; }
  int32_t sample_rate() const override { return info_.samplerate; }
  uint64_t announced_frames() const override {
    if (announced_ > 0) return announced_;
    return info_.frames > 0 && info_.frames < SF_COUNT_MAX ? static_cast<uint64_t>(info_.frames) : 0;
  }

  size_t read(std::span<float> to) override {
    const auto channels = static_cast<size_t>(info_.channels);
    const sf_count_t got = sf_readf_float(file_, to.data(), static_cast<sf_count_t>(to.size() / channels));
    if (const int error = cursor_.source->error()) fail_io(name_, "read", error);
    if (got <= 0) {
      if (frames_ == 0) refuse("holds no audio, or none that can be decoded");
      return 0;
    }
    frames_ += static_cast<uint64_t>(got);
    if (limits_.seconds > 0 && static_cast<double>(frames_) > limits_.seconds * info_.samplerate)
      refuse(fmt::format("is longer than {:.0f} s; cut it", limits_.seconds));
    if (limits_.seconds > 0 &&
        static_cast<double>(frames_ * channels) > limits_.seconds * kMostSamplesPerSecond)
      refuse(
          fmt::format("holds more samples ({} channels of {} Hz) than {:.0f} s of speech need; convert it to "
                      "mono of 24000 Hz",
                      info_.channels, info_.samplerate, limits_.seconds));
    return static_cast<size_t>(got) * channels;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(
        ErrorCode::audio_invalid,
        fmt::format("'{}'{} {}", name_, container_.empty() ? "" : fmt::format(" ({})", container_), why));
  }

  void check_container(size_t got) const {
    if (got == 0) refuse("is empty");
    if (std::find(std::begin(kReadable), std::end(kReadable), container_) != std::end(kReadable)) return;
    refuse("is no audio file that can be read; convert it to WAV, FLAC, MP3 or Ogg");
  }

  void check_format() const {
    if (info_.channels < 1 || info_.channels > kMostChannels)
      refuse(fmt::format("has {} channels, but must have 1 to {}", info_.channels, kMostChannels));
    if (info_.samplerate < kLeastRate || info_.samplerate > kMostRate)
      refuse(fmt::format("has a rate of {} Hz, but must have {} to {}; convert it to 24000 Hz",
                         info_.samplerate, kLeastRate, kMostRate));
  }

  /// libsndfile takes what is there for what was announced.
  void read_wav_head() {
    constexpr uint32_t kUnknown = 0x7FFF0000;  // from there on writers into pipes mean that they do not know
    const WavData data = find_data(*cursor_.source);
    if (says_nothing(*cursor_.source, data)) {
      const auto left = static_cast<uint32_t>(std::min<sf_count_t>(data.left, 0xFFFFFFFE));
      cursor_.source = std::make_unique<PatchedSource>(std::move(cursor_.source), data.at, left);
    } else if (data.at > 0 && data.frame > 0 && data.length < kUnknown) {
      announced_ = data.length / data.frame;
    }
  }

  std::string name_;
  DecodeLimits limits_;
  Cursor cursor_;
  uint64_t announced_ = 0;
  std::string_view container_;
  SF_INFO info_ = {};
  SNDFILE* file_ = nullptr;
  uint64_t frames_ = 0;
};

void check_size(const std::string& name, uint64_t bytes, uint64_t limit) {
  if (limit > 0 && bytes > limit)
    throw Error(ErrorCode::audio_invalid,
                fmt::format("'{}' is larger than {} bytes, the most that is taken", name, limit));
}

std::string read_stream(int fd, const std::string& name, uint64_t limit) {
  std::string bytes;
  for (char block[1 << 16];;) {
    const ssize_t n = ::read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_io(name, "read", errno);
    if (n == 0) return bytes;
    bytes.append(block, static_cast<size_t>(n));
    check_size(name, bytes.size(), limit > 0 ? limit : kMostUnseekable);
  }
}

}  // namespace

std::string_view container_of(std::string_view head) noexcept {
  const auto at = [&](size_t offset, std::string_view mark) {
    return head.substr(std::min(offset, head.size()), mark.size()) == mark;
  };
  if ((at(0, "RIFF") || at(0, "RIFX") || at(0, "RF64")) && at(8, "WAVE")) return "WAV";
  if (at(0, "fLaC")) return "FLAC";
  if (at(0, "OggS")) return "Ogg";
  if (at(0, "FORM") && (at(8, "AIFF") || at(8, "AIFC"))) return "AIFF";
  if (at(0, ".snd")) return "AU";
  if (at(0, "caff")) return "CAF";
  if (at(0, "ID3")) return "MP3";
  if (at(4, "ftyp")) return "MP4";
  if (at(0, "\x1A\x45\xDF\xA3")) return "WebM or Matroska";
  if (at(0, "\x30\x26\xB2\x75")) return "ASF or WMA";
  if (at(0, "#!AMR")) return "AMR";
  if (at(0, "ADIF")) return "AAC";
  if (at(0, "RIFF") && at(8, "AVI ")) return "AVI";
  // A frame header of MPEG audio: eleven set bits, then a layer; layer 0 is AAC in ADTS.
  if (head.size() >= 2 && static_cast<unsigned char>(head[0]) == 0xFF) {
    const auto second = static_cast<unsigned char>(head[1]);
    if ((second & 0xF6) == 0xF0) return "AAC";
    if ((second & 0xE0) == 0xE0 && (second & 0x06) != 0) return "MP3";
  }
  return "";
}

std::unique_ptr<AudioReader> AudioReader::open(const std::string& path, const DecodeLimits& limits) {
  if (path == "-")
    return std::make_unique<SndfileReader>(
        std::make_unique<MemorySource>(read_stream(STDIN_FILENO, "standard input", limits.bytes)),
        "standard input", limits);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_io(path, "open", errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
    const int error = S_ISDIR(info.st_mode) ? EISDIR : errno;
    ::close(fd);
    fail_io(path, "read", error);
  }
  auto file = std::make_unique<FileSource>(fd, info.st_size);
  if (S_ISREG(info.st_mode)) {
    check_size(path, static_cast<uint64_t>(info.st_size), limits.bytes);
    return std::make_unique<SndfileReader>(std::move(file), path, limits);
  }
  return std::make_unique<SndfileReader>(std::make_unique<MemorySource>(read_stream(fd, path, limits.bytes)),
                                         path, limits);
}

std::unique_ptr<AudioReader> AudioReader::parse(std::string_view bytes, std::string name,
                                                const DecodeLimits& limits) {
  check_size(name, bytes.size(), limits.bytes);
  return std::make_unique<SndfileReader>(std::make_unique<MemorySource>(bytes), std::move(name), limits);
}

Recording read_all(AudioReader& reader) {
  Recording recording{.samples = {}, .channels = reader.channels(), .sample_rate = reader.sample_rate()};
  const size_t block = static_cast<size_t>(reader.channels()) * 16384;
  // Growing copies, and takes up to three times the memory. A header may announce anything.
  constexpr uint64_t kMostReserved = 1 << 24;
  const uint64_t announced = std::min(reader.announced_frames(), kMostReserved);
  recording.samples.reserve(std::min(announced * static_cast<uint64_t>(reader.channels()), kMostReserved) +
                            block);
  for (size_t done = 0;;) {
    recording.samples.resize(done + block);
    const size_t got = reader.read(std::span(recording.samples).subspan(done));
    done += got;
    recording.samples.resize(done);
    if (got == 0) return recording;
  }
}

std::string ends_early(const AudioReader& reader, uint64_t frames) {
  if (frames >= reader.announced_frames()) return {};
  return fmt::format("ends early: {} of {} samples are there", frames, reader.announced_frames());
}

}  // namespace skald::audio
