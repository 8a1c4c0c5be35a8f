// The one table of fields: what a request for speech may hold, as the reference and the OpenAPI document say.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace skald::server {

enum class FieldType : uint8_t { text, number, whole, flag, choice, voice };

struct ApiField {
  std::string_view names;  ///< ", " between other names of the same
  FieldType type;
  double least = 0, most = 0;     ///< of numbers
  std::string_view choices = {};  ///< ", " between them
  std::string_view meaning;
  bool required = false;
};

std::span<const ApiField> api_fields();

/// The fields as a table in Markdown: the one that docs/server.md shows.
std::string field_table();

/// The routes and fields as an OpenAPI 3.1 document. `formats`: those that this build writes, ", " between.
std::string openapi_document(std::string_view formats);

}  // namespace skald::server
