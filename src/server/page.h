// The files of the page, embedded in the program.
#pragma once

#include <span>
#include <string_view>

namespace skald::server {

struct PageFile {
  std::string_view name, type, text;
};

std::span<const PageFile> page_files();

}  // namespace skald::server
