// Jobs of the helper as bytes: every field is a length and its text.
#include "backend/gpu/code/job.h"

#include <cstring>

#include "skald/error.h"

namespace skald::backend::gpu {
namespace {

void put(std::string& to, std::string_view text) {
  const auto size = static_cast<uint32_t>(text.size());
  to.append(reinterpret_cast<const char*>(&size), sizeof size);
  to += text;
}

void put(std::string& to, const std::vector<std::string>& list) {
  put(to, std::to_string(list.size()));
  for (const std::string& text : list) put(to, text);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::string text() {
    uint32_t size = 0;
    if (rest_.size() < sizeof size) fail();
    std::memcpy(&size, rest_.data(), sizeof size);
    rest_.remove_prefix(sizeof size);
    if (rest_.size() < size) fail();
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }
  std::vector<std::string> list() {
    std::vector<std::string> all;
    const std::string count = text();
    while (std::to_string(all.size()) != count) all.push_back(text());
    return all;
  }
  void end() const {
    if (!rest_.empty()) fail();
  }

 private:
  [[noreturn]] static void fail() {
    throw Error(ErrorCode::internal, "the helper was given bytes that are no job of this version");
  }
  std::string_view rest_;
};

constexpr std::string_view kVersion = "skald-rtc 1";

}  // namespace

std::string encode(const CompileJob& job) {
  std::string bytes;
  put(bytes, kVersion);
  put(bytes, vendor_prefix(job.vendor));
  put(bytes, job.driver_library);
  put(bytes, job.folders);
  put(bytes, job.architecture);
  put(bytes, job.options);
  put(bytes, job.name);
  put(bytes, job.source);
  return bytes;
}

CompileJob decode_job(std::string_view bytes) {
  Reader in(bytes);
  CompileJob job;
  if (in.text() != kVersion)
    throw Error(ErrorCode::internal, "skald-rtc is of another version than the program that started it");
  job.vendor = in.text() == vendor_prefix(Vendor::nvidia) ? Vendor::nvidia : Vendor::amd;
  job.driver_library = in.text();
  job.folders = in.list();
  job.architecture = in.text();
  job.options = in.list();
  job.name = in.text();
  job.source = in.text();
  in.end();
  return job;
}

}  // namespace skald::backend::gpu
