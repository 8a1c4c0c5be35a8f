// Finds the format of a foreign voice file by its first bytes.
#include "voice/import.h"

#include <cstddef>

#include "voice/voice_checks.h"

namespace skald {

std::vector<Voice> import_voices(std::string_view bytes, const std::string& file) {
  if (bytes.size() > voice::kMostFileBytes) voice::refuse(file, "is larger than any file of voices");
  std::vector<Voice> voices;
  if (bytes.starts_with("GGUF")) {
    voices = voice::import_gguf(bytes, file);
  } else if (bytes.starts_with("PK\x03\x04")) {
    voices = voice::import_torch(bytes, file);
  } else if (bytes.size() > 8 && bytes[8] == '{') {
    voices.push_back(read_voice(bytes, file));
  } else if (const size_t first = bytes.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
             first < bytes.size() && bytes[first] == '{') {
    voices = voice::import_json(bytes, file);
  } else if (bytes.starts_with("\x80\x02") || bytes.starts_with("\x80\x04")) {
    voice::refuse(file, "is a bare pickle or a file of torch before 1.6; save it again with a newer torch");
  } else {
    voice::refuse(
        file,
        "is no voice that can be imported: neither prompt JSON, nor a .pt of torch, nor a GGUF voice "
        "pack, nor a voice of skald");
  }
  if (voices.empty()) voice::refuse(file, "holds no voice");
  return voices;
}

}  // namespace skald
