# Writes a C++ source with the text of kernel files: cmake -DOUT=... -DFILES="a;b" -P embed.cmake
set(body "")
list(SORT FILES)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(APPEND body "    {\"${name}\", R\"skald(${text})skald\"},\n")
endforeach()
file(WRITE ${OUT} "// Kernel sources; made by cmake/embed.cmake.
#include \"backend/gpu/code/sources.h\"

namespace skald::backend::gpu {

std::span<const SourceFile> kernel_sources() {
  static constexpr SourceFile kFiles[] = {
${body}  };
  return kFiles;
}

}  // namespace skald::backend::gpu
")
