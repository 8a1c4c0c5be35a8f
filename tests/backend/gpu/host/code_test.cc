// Machine code: sources, cache, the compiler in a process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "backend/gpu/code/cache.h"
#include "backend/gpu/code/child.h"
#include "backend/gpu/code/job.h"
#include "backend/gpu/code/provider.h"
#include "backend/gpu/driver/handles.h"
#include "backend/gpu/open.h"
#include "standin/rig.h"

namespace skald::backend::gpu {
namespace {

namespace fs = std::filesystem;
using standin::Face;
using standin::Standin;
using standin::TempFolder;
using testing::HasSubstr;

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::device_code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

// ---- sources

TEST(Sources, IncludesStandOnceInTheirPlaces) {
  const SourceFile files[] = {
      {"a.h", "#pragma once\nint a;\n"},
      {"b.h", "#pragma once\n#include \"backend/gpu/kernels/a.h\"\nint b;\n"},
      {"m.cuh", "#include \"backend/gpu/kernels/b.h\"\n#include \"backend/gpu/kernels/a.h\"\nint m;"}};
  const SourceModule module = make_module(files, "m");
  EXPECT_EQ(
      module.text,
      "#line 1 \"m.cuh\"\n#line 1 \"b.h\"\n\n#line 1 \"a.h\"\n\nint a;\n#line 3 \"b.h\"\nint b;\n#line 2 "
      "\"m.cuh\"\n#line 3 \"m.cuh\"\nint m;");
  const SourceFile lone[] = {{"m.cuh", "#include \"backend/gpu/kernels/gone.h\"\n"}};
  EXPECT_THROW(make_module(lone, "m"), Error);
}

TEST(Sources, EveryModuleOfTheBuildIsWhole) {
  for (const SourceModule& m : kernel_modules()) {
    EXPECT_EQ(m.text.find("#include \"backend"), std::string::npos) << m.name;
    EXPECT_NE(m.text.find("__global__"), std::string::npos) << m.name;
  }
}

// ---- cache

const CodeKey kKey{"gfx1100", "linear", "0123", "-O3", "9.0"};

TEST(Cache, KeepsAndFindsByEverythingInTheKey) {
  const TempFolder folder;
  const CodeCache cache(folder.path() / "deep/er");
  EXPECT_FALSE(cache.find(kKey));
  EXPECT_EQ(cache.keep(kKey, bytes_of("code")), "");
  EXPECT_EQ(cache.find(kKey), bytes_of("code"));
  for (std::string CodeKey::*field : {&CodeKey::architecture, &CodeKey::module, &CodeKey::source_digest,
                                      &CodeKey::options, &CodeKey::compiler}) {
    CodeKey other = kKey;
    other.*field += "x";
    EXPECT_FALSE(cache.find(other));
  }
  // Fields do not run into each other.
  CodeKey shifted = kKey;
  shifted.options += shifted.compiler.substr(0, 1), shifted.compiler.erase(0, 1);
  EXPECT_NE(hex(shifted.digest()), hex(kKey.digest()));
}

TEST(Cache, DamageOfAnyByteIsFoundAndRepaired) {
  const TempFolder folder;
  const CodeCache cache(folder.path());
  const std::string code = "some machine code";
  ASSERT_EQ(cache.keep(kKey, bytes_of(code)), "");
  const fs::path file = folder.path() / kKey.file_name();
  std::ifstream in(file, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  const auto put = [&](const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; };
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    put(bad);
    EXPECT_FALSE(cache.find(kKey)) << "byte " << i;
  }
  for (size_t n = 0; n < good.size(); ++n) {
    put(good.substr(0, n));
    EXPECT_FALSE(cache.find(kKey)) << "cut to " << n;
  }
  put(good + "x");
  EXPECT_FALSE(cache.find(kKey));
  ASSERT_EQ(cache.keep(kKey, bytes_of(code)), "");
  EXPECT_EQ(cache.find(kKey), bytes_of(code));
}

TEST(Cache, AnEntryUnderAnothersNameIsNotTaken) {
  const TempFolder folder;
  const CodeCache cache(folder.path());
  CodeKey other = kKey;
  other.compiler = "10.0";
  ASSERT_EQ(cache.keep(other, bytes_of("code")), "");
  fs::rename(folder.path() / other.file_name(), folder.path() / kKey.file_name());
  EXPECT_FALSE(cache.find(kKey));
}

TEST(Cache, ManyWritersAtOnceLeaveOneWholeEntryAndNoRest) {
  const TempFolder folder;
  const CodeCache cache(folder.path());
  const std::vector<std::byte> code(300000, std::byte{42});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(cache.keep(kKey, code), "");
        const auto found = cache.find(kKey);
        EXPECT_TRUE(found && *found == code);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator{}), 1);
}

TEST(Cache, AFolderThatCannotBeWrittenIsSaidAndHarmless) {
  const TempFolder folder;
  folder.write("file", "");
  const CodeCache cache(folder.path() / "file/below");
  EXPECT_THAT(cache.keep(kKey, bytes_of("code")), HasSubstr("cannot create"));
  EXPECT_FALSE(cache.find(kKey));
  EXPECT_EQ(CodeCache({}).keep(kKey, bytes_of("code")), "");
}

// ---- child processes

TEST(Child, OutputStatusSignalAndDeadline) {
  ChildResult r = run_child("/bin/sh", {"-c", "echo out; echo err >&2; exit 3"}, {}, 5000);
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_EQ(r.output, "out\nerr\n");
  r = run_child("/bin/sh", {"-c", "kill -ABRT $$"}, {}, 5000);
  EXPECT_EQ(r.signal, 6);
  EXPECT_THAT(r.describe(5000), HasSubstr("signal 6"));
  const auto from = std::chrono::steady_clock::now();
  r = run_child("/bin/sh", {"-c", "sleep 60 & sleep 60"}, {}, 300);
  EXPECT_TRUE(r.timed_out);
  EXPECT_FALSE(r.ok());
  EXPECT_LT(std::chrono::steady_clock::now() - from, std::chrono::seconds(5));
  EXPECT_FALSE(run_child("/no/such/program", {}, {}, 1000).started);
}

TEST(Child, OneThatHangsOnceIsStartedAgain) {
  const TempFolder folder;
  const auto once = [&](const std::string& hang) {
    return run_child_again(
        "/bin/sh",
        {"-c", "mkdir '" + (folder.path() / "once").string() + "' 2>/dev/null && " + hang + "; echo ok"},
        20000, 300);
  };
  const auto from = std::chrono::steady_clock::now();
  const ChildResult again = once("sleep 60");
  EXPECT_TRUE(again.ok());
  EXPECT_EQ(again.output, "ok\n");
  EXPECT_LT(std::chrono::steady_clock::now() - from, std::chrono::seconds(15));
}

TEST(Child, AFirstThatIsSlowIsWaitedFor) {
  // Those that are started meanwhile hang.
  const TempFolder folder;
  const ChildResult slow = run_child_again("/bin/sh",
                                           {"-c", "mkdir '" + (folder.path() / "once").string() +
                                                      "' 2>/dev/null || exec sleep 60; sleep 2; echo first"},
                                           30000, 200);
  EXPECT_TRUE(slow.ok());
  EXPECT_EQ(slow.output, "first\n");
}

TEST(Child, SeveralThatHangEndWithTheDeadline) {
  const auto from = std::chrono::steady_clock::now();
  EXPECT_TRUE(run_child_again("/bin/sh", {"-c", "sleep 60"}, 700, 200).timed_out);
  EXPECT_LT(std::chrono::steady_clock::now() - from, std::chrono::seconds(20));
  EXPECT_FALSE(run_child_again("/no/such/program", {}, 1000, 200).started);
}

TEST(Child, ALongOutputIsCutFromTheFront) {
  const ChildResult r = run_child("/bin/sh", {"-c", "seq 1 20000; echo end"}, {}, 10000);
  EXPECT_LE(r.output.size(), ChildResult::kMost);
  EXPECT_TRUE(r.output.ends_with("20000\nend\n"));
}

TEST(Child, PassedDescriptorsAreThreeAndFourAndNothingElseIsOpen) {
  const MemoryFile in("in"), out("out");
  in.write("question");
  const int stray = dup(in.fd());  // without close-on-exec
  const ChildResult r =
      run_child("/bin/sh", {"-c", "cat <&3 >&4; ls /proc/self/fd | wc -l"}, {in.fd(), out.fd()}, 5000);
  close(stray);
  EXPECT_EQ(out.read(), "question");
  EXPECT_EQ(r.output, "6\n");  // 0, 1, 2, 3, 4 and the folder that ls reads
}

TEST(Job, GoesThroughBytesUnchanged) {
  const CompileJob job{
      Vendor::nvidia, "/lib/x", {"a", ""}, "sm_90", {"-O3"}, "name", std::string("source\0with", 11)};
  const CompileJob got = decode_job(encode(job));
  EXPECT_EQ(got.vendor, job.vendor);
  EXPECT_EQ(got.driver_library, job.driver_library);
  EXPECT_EQ(got.folders, job.folders);
  EXPECT_EQ(got.architecture, job.architecture);
  EXPECT_EQ(got.options, job.options);
  EXPECT_EQ(got.source, job.source);
  const std::string bytes = encode(job);
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_THROW(decode_job(bytes.substr(0, n)), Error);
  EXPECT_THROW(decode_job(bytes + "x"), Error);
}

// ---- the provider

SourceModule small_module(const std::string& text = "") {
  const SourceFile files[] = {{"small.cuh", text.empty()
                                                ? "extern \"C\" __global__ void nothing(int a) { (void)a; }\n"
                                                : std::string_view(text)}};
  return make_module(files, "small");
}

struct Opened {
  explicit Opened(const GpuOptions& o) : options(o), device(open_device(o)) {}
  DeviceCode get(const SourceModule& module) const {
    return device_code({module}, *device.driver, device.info, device.compiler, options).at(0);
  }
  GpuOptions options;
  OpenDevice device;
};

TEST(Provider, CompilesOnceThenKeepsThenRepairs) {
  for (const Face face : {Face::hip, Face::hip5, Face::cuda}) {
    const Standin driver(face);
    const TempFolder folder;
    GpuOptions options = driver.options();
    options.cache_folder = folder.path();
    const Opened opened(options);
    EXPECT_EQ(opened.get(small_module()).origin, DeviceCode::compiled);
    const DeviceCode again = opened.get(small_module());
    EXPECT_EQ(again.origin, DeviceCode::kept);
    const Context context(opened.device.driver, opened.device.info.index);
    EXPECT_TRUE(load_module(context, again.name, again.image.data()));
    for (const auto& entry : fs::directory_iterator(folder.path())) fs::resize_file(entry, 100);
    EXPECT_EQ(opened.get(small_module()).origin, DeviceCode::compiled);
    EXPECT_EQ(opened.get(small_module()).origin, DeviceCode::kept);
  }
}

TEST(Provider, PreparedCodeComesFirstAndNeedsNoCompiler) {
  const Standin driver(Face::hip);
  const TempFolder prepared;
  const SourceModule module = small_module();
  GpuOptions options = driver.options();
  options.code_folder = prepared.path();
  Opened opened(options);
  prepared.write("gfx1100-small-" + module.digest + ".co", "ready");
  opened.device.compiler.clear();
  const DeviceCode code = opened.get(module);
  EXPECT_EQ(code.origin, DeviceCode::prepared);
  EXPECT_EQ(code.image.size(), 6u);
  // Of other sources, or for another card, it is not taken.
  EXPECT_THAT(
      message([&] { opened.get(small_module("extern \"C\" __global__ void other(int a) { (void)a; }\n")); }),
      testing::AllOf(HasSubstr("gfx1100"), HasSubstr(prepared.path().string()), HasSubstr("libhiprtc")));
}

TEST(Provider, ErrorsOfTheSourceAreTheCompilersWords) {
  const Standin driver(Face::hip);
  GpuOptions options = driver.options();
  options.cache_folder.clear();
  const Opened opened(options);
  EXPECT_THAT(message([&] {
                opened.get(small_module("extern \"C\" __global__ void broken(int a) { nonsense; }\n"));
              }),
              testing::AllOf(HasSubstr("nonsense"), HasSubstr("small.cuh")));
}

TEST(Provider, ACompilerThatEndsItsProcessOrHangsIsContained) {
  for (const Face face : {Face::hip, Face::cuda}) {
    const std::string architecture = face == Face::hip ? "gfx1100" : "sm_90";
    Standin driver(face, "", "rtcabort=" + architecture);
    GpuOptions options = driver.options();
    options.cache_folder.clear();
    options.compile_deadline_ms = 700;
    const Opened opened(options);
    EXPECT_THAT(message([&] { opened.get(small_module()); }),
                testing::AllOf(HasSubstr("signal 6"), HasSubstr("munmap_chunk"), HasSubstr(architecture)));
    driver.set_faults("rtchang=" + architecture);
    EXPECT_THAT(message([&] { opened.get(small_module()); }), HasSubstr("did not end within 1 s"));
  }
}

TEST(Provider, B097_AnArchitectureThatRocmDoesNotKnowIsSaidBeforeTheCompilerIsAsked) {
  const Standin driver(Face::hip, "gfx1152:4096:d", "rtcabort=gfx1152");
  GpuOptions options = driver.options();
  options.cache_folder.clear();
  const Opened opened(options);
  EXPECT_THAT(message([&] { opened.get(small_module()); }),
              testing::AllOf(HasSubstr("does not know gfx1152"), HasSubstr("newer ROCm")));
}

TEST(Provider, ACardNewerThanNvrtcGetsPortableCode) {
  const Standin driver(Face::cuda, "sm_120:8192:d");
  GpuOptions options = driver.options();
  options.cache_folder.clear();
  const Opened opened(options);
  const DeviceCode code = opened.get(small_module());
  const Context context(opened.device.driver, opened.device.info.index);
  EXPECT_TRUE(load_module(context, code.name, code.image.data()));
}

TEST(Provider, WithoutTheHelperItSaysSo) {
  const Standin driver(Face::hip);
  GpuOptions options = driver.options();
  options.cache_folder.clear();
  Opened opened(options);
  opened.options.helper = "/nowhere/skald-rtc";
  EXPECT_THAT(message([&] { opened.get(small_module()); }), HasSubstr("could not be started"));
}

}  // namespace
}  // namespace skald::backend::gpu
