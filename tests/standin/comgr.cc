// The code object manager's list of architectures: the variable STANDIN_COMGR, or two.
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "core.h"

namespace {
const std::vector<std::string>& names() {
  static const std::vector<std::string> all = [] {
    const char* list = std::getenv("STANDIN_COMGR");
    std::stringstream in(list ? list : "gfx906 gfx1036 gfx1100");
    std::vector<std::string> v;
    for (std::string word; in >> word;) v.push_back("amdgcn-amd-amdhsa--" + word);
    return v;
  }();
  return all;
}
}  // namespace

STANDIN_API int amd_comgr_get_isa_count(size_t* n) {
  *n = names().size();
  return 0;
}
STANDIN_API int amd_comgr_get_isa_name(size_t i, const char** name) {
  *name = names().at(i).c_str();
  return 0;
}
