// Results of self-tests on disk.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "diagnose/self_test.h"

namespace skald::diagnose {
namespace {

namespace fs = std::filesystem;

/// FNV-1a: names only have to differ, the key itself stands in the file.
uint64_t hash(std::string_view text) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001B3u;
  return h;
}

}  // namespace

fs::path SelfTestCache::file_of(const std::string& key) const {
  return folder_ / fmt::format("self-test-{:016x}.json", hash(key));
}

std::optional<KeptResult> SelfTestCache::find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  std::ifstream in(file_of(key));
  const nlohmann::json kept = nlohmann::json::parse(in, nullptr, false);
  if (!kept.is_object() || kept.value("key", nlohmann::json()) != key) return std::nullopt;
  const auto passed = kept.find("passed"), failure = kept.find("failure"),
             lost = kept.find("lost_completions");
  if (passed == kept.end() || !passed->is_boolean() || failure == kept.end() || !failure->is_string() ||
      lost == kept.end() || !lost->is_number_unsigned())
    return std::nullopt;
  return KeptResult{passed->get<bool>(), failure->get<std::string>(), lost->get<uint64_t>()};
}

void SelfTestCache::keep(const std::string& key, const KeptResult& result) const noexcept {
  if (folder_.empty()) return;
  try {
    const nlohmann::json kept{{"key", key},
                              {"passed", result.passed},
                              {"failure", result.failure},
                              {"lost_completions", result.lost_completions}};
    std::error_code failure;
    fs::create_directories(folder_, failure);
    const fs::path file = file_of(key), fresh = file.string() + fmt::format(".{}", ::getpid());
    std::ofstream out(fresh);
    out << kept.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    out.close();
    if (out) fs::rename(fresh, file, failure);
    if (!out || failure) fs::remove(fresh, failure);
  } catch (const std::exception&) {  // a result that cannot be kept is found again at the next start
  }
}

}  // namespace skald::diagnose
