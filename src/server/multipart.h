// multipart/form-data (RFC 7578), as uploads send it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace skald::server {

struct FormPart {
  std::string name;          ///< of the field
  std::string filename;      ///< as sent; never used as a path
  std::string_view content;  ///< in the body
};

/// The parts of a body; views into it. At most 32. Throws ApiError(400, invalid_form) where the boundary is
/// missing, a part does not end, or its head is not understood.
std::vector<FormPart> parse_multipart(std::string_view content_type, std::string_view body);

}  // namespace skald::server
