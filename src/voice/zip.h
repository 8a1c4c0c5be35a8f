// ZIP archives with uncompressed members, as torch.save writes them.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace skald::voice {

/// Name -> contents, views of `bytes`. Every offset and size is checked against the file, every checksum
/// against its contents. Throws Error(voice_invalid), for compressed or encrypted members too.
std::map<std::string, std::string_view> read_zip(std::string_view bytes, const std::string& file);

}  // namespace skald::voice
