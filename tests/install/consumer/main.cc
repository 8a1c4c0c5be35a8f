// A stranger's C++ program: the exception crosses the library's border with its type and code.
#include <skald/skald.h>

#include <cstdio>

int main() {
  try {
    skald::Engine::open("no-such-folder");
  } catch (const skald::Error& error) {
    std::printf("%s: %s\n", std::string(skald::error_code_name(error.code())).c_str(), error.what());
    return error.code() == skald::ErrorCode::model_not_found ? 0 : 1;
  }
  return 1;
}
