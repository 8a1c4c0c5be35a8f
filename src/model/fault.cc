// Collected faults and the words that messages share.
#include "model/fault.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/file_fault.h"

namespace skald::model {

size_t count_errors(const Faults& faults) {
  return static_cast<size_t>(
      std::count_if(faults.begin(), faults.end(), [](const Fault& fault) { return !fault.warning; }));
}

void throw_first(const Faults& faults) {
  const size_t errors = count_errors(faults);
  if (errors == 0) return;
  const Fault& first =
      *std::find_if(faults.begin(), faults.end(), [](const Fault& fault) { return !fault.warning; });
  std::string message = first.what + "; " + first.fix;
  if (errors > 1) {
    message += fmt::format(" (and {} more fault{}: `skald verify` lists them all)", errors - 1,
                           errors > 2 ? "s" : "");
  }
  throw Error(first.code, message);
}

bool add_file_fault(const std::filesystem::path& path, std::string_view consequence, Faults& faults) {
  const auto fault = file_fault(path);
  if (!fault) return false;
  faults.push_back({fault->code,
                    fault->missing() ? fmt::format("{}, {}", fault->what, consequence) : fault->what,
                    fault->fix});
  return true;
}

std::string quote(std::string_view text) {
  constexpr size_t kLongest = 120;
  std::string out = "'";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return out + (text.size() > kLongest ? "...'" : "'");
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace skald::model
