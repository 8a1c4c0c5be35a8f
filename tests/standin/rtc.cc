// A run-time compiler that compiles kernels for the CPU.
#include "rtc.h"

#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace standin {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Names of the kernels in preprocessed source: `__global__ void MACRO(...) name(`.
std::vector<std::string> kernel_names(const std::string& text) {
  const std::string mark = "__global__";
  std::vector<std::string> names;
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    at += mark.size();
    std::string word;
    for (; at < text.size(); ++at) {
      const char c = text[at];
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
        word += c;
      } else if (c == '(' && word.rfind("KP_", 0) == 0) {
        at = text.find(')', at);
        word.clear();
      } else if (c == '(') {
        names.push_back(word);
        break;
      } else {
        word.clear();
      }
    }
  }
  return names;
}

class Folder {
 public:
  Folder() {
    if (!mkdtemp(path_.data())) std::abort();
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "standin-rtc-XXXXXX").string();
};

}  // namespace

bool compile(const std::string& source, const std::string& architecture,
             const std::vector<std::string>& options, const std::string& faults, std::string& code,
             std::string& log) {
  if (faults.find("rtcabort=" + architecture) != std::string::npos) {
    std::fprintf(stderr, "munmap_chunk(): invalid pointer\n");
    std::abort();
  }
  if (faults.find("rtchang=" + architecture) != std::string::npos)
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));

  const Folder folder;
  const std::string in = folder.file("kernels.cc"), scan = folder.file("scan.ii"),
                    out = folder.file("kernels.so"), words = folder.file("log");
  std::ofstream(in) << source;
  const std::string compiler = STANDIN_CXX;
  std::string flags = " -std=c++17 -O2 -w -fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno";
  for (const std::string& o : options)
    if (o.rfind("-D", 0) == 0) flags += " '" + o + "'";
  // Without simt.h, so that __global__ still stands there.
  if (std::system((compiler + " -E -P -DKP_HOST=1 " + in + " -o " + scan + " 2>" + words).c_str()) != 0) {
    log = read_file(words);
    return false;
  }
  std::ofstream tail(in, std::ios::app);
  tail << "\n#line 1 \"table\"\nextern \"C\" __attribute__((visibility(\"default\"))) const char "
          "standin_arch[] = \""
       << architecture
       << "\";\nextern \"C\" __attribute__((visibility(\"default\"))) const simt_kernel simt_kernels[] = {\n";
  for (const std::string& name : kernel_names(read_file(scan))) tail << "  SIMT_KERNEL(" << name << "),\n";
  tail << "  {nullptr, 0, nullptr}};\n";
  tail.close();
  const int warp = architecture.rfind("gfx9", 0) == 0 ? 64 : 32;
  const bool copies = architecture.rfind("sm_", 0) == 0 && std::atoi(architecture.c_str() + 3) >= 80;
  const std::string command = compiler + flags + " -DSIMT_WARP=" + std::to_string(warp) +
                              (copies ? " -DSIMT_ASYNC=1" : "") + " -include " +
                              STANDIN_FOLDER "/simt/simt.h -shared " + in + " -o " + out + " 2>" + words;
  const int status = std::system(command.c_str());
  log = read_file(words);
  if (status != 0) return false;
  code = read_file(out);
  return true;
}

}  // namespace standin
