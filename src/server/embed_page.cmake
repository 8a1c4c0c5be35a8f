# Writes a C++ source with the page's files: cmake -DOUT=... -DFILES="a;b" -P embed_page.cmake
set(types_html "text/html; charset=utf-8")
set(types_js "text/javascript; charset=utf-8")
set(types_css "text/css; charset=utf-8")
set(body "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  string(REGEX REPLACE ".*\\." "" extension ${name})
  file(READ ${file} hex HEX)
  string(LENGTH "${hex}" digits)
  # Literals of a few thousand bytes: compilers need not take longer ones.
  set(text "")
  set(at 0)
  while(at LESS digits)
    string(SUBSTRING "${hex}" ${at} 4000 part)
    string(REGEX REPLACE "(..)" "\\\\x\\1" part "${part}")
    string(APPEND text "\n      \"${part}\"")
    math(EXPR at "${at} + 4000")
  endwhile()
  math(EXPR bytes "${digits} / 2")
  string(APPEND body "    {\"${name}\", \"${types_${extension}}\", std::string_view(${text},\n      ${bytes})},\n")
endforeach()
file(WRITE ${OUT} "// The page; made by embed_page.cmake.
#include \"server/page.h\"

namespace skald::server {

std::span<const PageFile> page_files() {
  static constexpr PageFile kFiles[] = {
${body}  };
  return kFiles;
}

}  // namespace skald::server
")
