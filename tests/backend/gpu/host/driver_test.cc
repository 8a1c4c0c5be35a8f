// Looking for GPU libraries, listing devices, choosing one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backend/gpu/driver/devices.h"
#include "backend/gpu/open.h"
#include "standin/rig.h"

namespace skald::backend::gpu {
namespace {

namespace fs = std::filesystem;
using standin::Face;
using standin::Standin;
using standin::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> ids(const std::vector<GpuInfo>& devices) {
  std::vector<std::string> all;
  for (const GpuInfo& d : devices) all.push_back(d.id + " " + d.architecture);
  return all;
}

std::string message(const std::function<void()>& f, ErrorCode code) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

// ---- search

TEST(Search, GivenFoldersThenTheLoaderThenStandardFoldersNewestFirst) {
  EXPECT_THAT(candidates({"x.so.2", "x.so.1"}, {"/a", "/b"}, {"/s"}),
              ElementsAre("/a/x.so.2", "/a/x.so.1", "/b/x.so.2", "/b/x.so.1", "x.so.2", "x.so.1", "/s/x.so.2",
                          "/s/x.so.1"));
}

TEST(Search, StandardFoldersAreTheNewestVersionsFirst) {
  const TempFolder root;
  for (const char* name : {"rocm-6.4.1", "rocm-6.10.0", "rocm-7.0.0"})
    fs::create_directories(root.path() / "opt" / name / "lib");
  fs::create_directories(root.path() / "opt/rocm/core-7.2/lib");
  std::vector<std::string> found;
  for (const fs::path& p : standard_folders(Vendor::amd, root.path()))
    found.push_back(fs::relative(p, root.path()).string());
  EXPECT_THAT(found, ElementsAre("opt/rocm-7.0.0/lib", "opt/rocm-6.10.0/lib", "opt/rocm-6.4.1/lib",
                                 "opt/rocm/core-7.2/lib"));
}

TEST(Search, MajorVersionOfAName) {
  EXPECT_EQ(major_version("/x/libamdhip64.so.6.2.41134"), 6);
  EXPECT_EQ(major_version("libamdhip64.so"), -1);
}

TEST(Search, C024_FoundInAVersionedFolderThatTheLoaderDoesNotKnow) {
  const Standin driver(Face::hip);
  const TempFolder root;
  root.link(driver.folder(), "opt/rocm-7.1.0/lib");
  GpuOptions options = driver.options();
  options.library_folders.clear();
  options.root = root.path();
  const OpenVendor found = open_vendor(Vendor::amd, options);
  if (!found.report.library.empty() && found.report.library.find("libamdhip64.so.6") == std::string::npos)
    GTEST_SKIP() << "this machine has a HIP of its own: " << found.report.library;
  EXPECT_EQ(found.report.library, (driver.folder() / "libamdhip64.so.6").string());
  EXPECT_EQ(found.report.problem, "");
  EXPECT_THAT(ids(found.devices), ElementsAre("hip:0 gfx1100"));
}

TEST(Search, C024_ABrokenLibraryIsNotedWithTheLoadersWordsAndPassedOver) {
  const Standin driver(Face::hip5);
  const TempFolder broken;
  broken.write("libamdhip64.so.6", "not a library");
  GpuOptions options = driver.options();
  options.library_folders = {broken.path(), driver.folder()};
  const OpenVendor found = open_vendor(Vendor::amd, options);
  ASSERT_TRUE(found.driver);
  EXPECT_EQ(found.report.library, (driver.folder() / "libamdhip64.so.5").string());
  const auto attempt = std::find_if(
      found.report.attempts.begin(), found.report.attempts.end(),
      [&](const GpuAttempt& a) { return a.path == (broken.path() / "libamdhip64.so.6").string(); });
  ASSERT_NE(attempt, found.report.attempts.end());
  EXPECT_FALSE(attempt->opened);
  EXPECT_THAT(attempt->outcome, HasSubstr("file too short"));
  EXPECT_TRUE(found.report.attempts.back().opened);
}

TEST(Search, ALibraryWithoutTheFunctionsIsRefusedByName) {
  const TempFolder folder;
  folder.link(standin::standin_folder("hip") / "libhiprtc.so.6", "libamdhip64.so.7");
  std::vector<Attempt> attempts;
  EXPECT_FALSE(Driver::open_file(Vendor::amd, (folder.path() / "libamdhip64.so.7").string(), attempts));
  EXPECT_THAT(attempts.back().outcome, HasSubstr("hipInit"));
  EXPECT_FALSE(attempts.back().opened);
}

TEST(Search, C024_TheCompilerComesFromTheDriversOwnInstallation) {
  const Standin driver(Face::hip);
  const TempFolder alone;  // the driver without a compiler; another folder has one
  fs::copy_file(driver.folder() / "libamdhip64.so.6", alone.path() / "libamdhip64.so.6");
  std::vector<Attempt> attempts;
  const auto opened = Driver::open_file(Vendor::amd, (alone.path() / "libamdhip64.so.6").string(), attempts);
  ASSERT_TRUE(opened);
  attempts.clear();
  EXPECT_FALSE(open_compiler(*opened, {{driver.folder()}, "/nowhere"}, attempts));
  for (const Attempt& a : attempts)
    EXPECT_EQ(a.path.find(driver.folder().string()), std::string::npos)
        << a.path << " is of another installation";
  EXPECT_THAT(attempts.back().outcome, HasSubstr("no compiler inside"));
}

TEST(Search, CompilerBesideOrInsideTheDriverLibrary) {
  for (const Face face : {Face::hip, Face::hip5}) {
    const Standin driver(face);
    const OpenVendor found = open_vendor(Vendor::amd, driver.options());
    ASSERT_TRUE(found.driver) << found.report.problem;
    EXPECT_THAT(found.compiler, HasSubstr(face == Face::hip ? "libhiprtc.so.6" : "libamdhip64.so.5"));
  }
}

TEST(Search, NvrtcNewerThanTheDriverIsPassedOver) {
  const Standin driver(Face::cuda);
  std::vector<Attempt> attempts;
  const auto opened =
      Driver::open_file(Vendor::nvidia, (driver.folder() / "libcuda.so.1").string(), attempts);
  ASSERT_TRUE(opened);
  attempts.clear();
  const auto compiler =
      open_compiler(*opened, {{standin::standin_folder("cuda-new"), driver.folder()}, "/nowhere"}, attempts);
  ASSERT_TRUE(compiler);
  EXPECT_EQ(compiler->major, 13);
  EXPECT_EQ(compiler->library.file(), driver.folder() / "libnvrtc.so.13");
  EXPECT_THAT(attempts.front().outcome, HasSubstr("newer than the driver's CUDA 13.0"));
}

TEST(Search, WithoutAnyLibraryTheReportHasEveryPlace) {
  GpuOptions options;
  const TempFolder empty;
  options.library_folders = {empty.path()};
  options.root = "/nowhere";
  options.device = "hip";
  const OpenVendor found = open_vendor(Vendor::amd, options);
  if (found.driver) GTEST_SKIP() << "this machine has a HIP of its own";
  EXPECT_EQ(found.report.attempts.size(), 8u);
  EXPECT_THAT(message([&] { open_device(options); }, ErrorCode::device),
              testing::AllOf(HasSubstr("libamdhip64.so"), HasSubstr("the device \"cpu\" needs none")));
}

// ---- start and listing

TEST(Listing, NamesMemoryArchitectureAndVersionsAreTheDrivers) {
  const Standin driver(Face::hip, "gfx90a:65536:d,gfx1036:512:i");
  const OpenVendor found = open_vendor(Vendor::amd, driver.options());
  ASSERT_EQ(found.devices.size(), 2u);
  const GpuInfo& d = found.devices[0];
  EXPECT_EQ(d.name, "Stand-in Radeon gfx90a");
  EXPECT_EQ(d.architecture, "gfx90a");  // without :sramecc-:xnack-
  EXPECT_EQ(d.memory, size_t{64} << 30);
  EXPECT_EQ(d.warp, 64);
  EXPECT_EQ(d.uuid, "GPU-000000000000abc0");
  EXPECT_EQ(d.bus_id, "0000:00:00.0");
  EXPECT_EQ(found.devices[1].bus_id, "0000:01:00.0");
  EXPECT_EQ(d.driver, "HIP 6.2.41134");
  EXPECT_FALSE(d.integrated);
  EXPECT_TRUE(found.devices[1].integrated);
  EXPECT_EQ(found.devices[1].compute_units, 1);
}

TEST(Listing, TheLayoutOfPropertiesBeforeRocm6) {
  const Standin driver(Face::hip5, "gfx1030:16384:d");
  const OpenVendor found = open_vendor(Vendor::amd, driver.options());
  EXPECT_THAT(ids(found.devices), ElementsAre("hip:0 gfx1030"));
}

TEST(Listing, Nvidia) {
  const Standin driver(Face::cuda, "sm_90:143155:d");
  const OpenVendor found = open_vendor(Vendor::nvidia, driver.options());
  ASSERT_EQ(found.devices.size(), 1u);
  EXPECT_EQ(found.devices[0].id, "cuda:0");
  EXPECT_EQ(found.devices[0].architecture, "sm_90");
  EXPECT_EQ(found.devices[0].capability, 90);
  EXPECT_EQ(found.devices[0].uuid, "GPU-80818283-8485-8687-8889-8a8b8c8d8e8f");
  EXPECT_EQ(found.devices[0].bus_id, "0000:00:00.0");
  EXPECT_EQ(found.devices[0].driver, "CUDA 13.0");
}

TEST(Listing, AUuidThatTellsNothingIsNone) {
  for (const Face face : {Face::hip, Face::cuda}) {
    const char* const arch = face == Face::hip ? "gfx1100" : "sm_90";
    const auto vendor = face == Face::hip ? Vendor::amd : Vendor::nvidia;
    const Standin zeros(face, std::string(arch) + ":4096:d", "nouuid");
    EXPECT_EQ(open_vendor(vendor, zeros.options()).devices.at(0).uuid, "");
    const auto one = [&](const char* serial) { return std::string(arch) + ":4096:d:32:" + serial; };
    const Standin twins(face, one("7") + "," + one("7") + "," + one("8"));
    const auto devices = open_vendor(vendor, twins.options()).devices;
    EXPECT_EQ(devices.at(0).uuid + devices.at(1).uuid, "");
    EXPECT_NE(devices.at(2).uuid, "");
  }
}

TEST(Listing, BothVendorsDiscreteFirstThenMemory) {
  const Standin amd(Face::hip, "gfx1036:65536:i,gfx1100:24576:d");
  const Standin nvidia(Face::cuda, "sm_90:81920:d");
  GpuOptions options = amd.options();
  options.library_folders = {amd.folder(), nvidia.folder()};
  EXPECT_THAT(ids(list_gpus(options).devices), ElementsAre("cuda:0 sm_90", "hip:1 gfx1100", "hip:0 gfx1036"));
}

TEST(Listing, ADriverThatCrashesInItsStartIsAFindingNotACrash) {
  const Standin driver(Face::hip, "", "crash@init");
  const OpenVendor found = open_vendor(Vendor::amd, driver.options());
  EXPECT_TRUE(found.devices.empty());
  EXPECT_THAT(found.report.problem, HasSubstr("signal 6"));
  EXPECT_THAT(message([&] { open_device(driver.options()); }, ErrorCode::device), HasSubstr("signal 6"));
}

TEST(Listing, ADriverThatHangsInItsStartEndsAtTheDeadline) {
  const Standin driver(Face::hip, "", "hang@init");
  GpuOptions options = driver.options();
  options.probe_deadline_ms = 500;
  const auto from = std::chrono::steady_clock::now();
  const OpenVendor found = open_vendor(Vendor::amd, options);
  EXPECT_LT(std::chrono::steady_clock::now() - from, std::chrono::seconds(10));
  EXPECT_THAT(found.report.problem, HasSubstr("did not end within 1 s"));
}

TEST(Listing, ADriverWithoutDevicesSaysSo) {
  const Standin driver(Face::hip, ",");
  EXPECT_THAT(open_vendor(Vendor::amd, driver.options()).report.problem, HasSubstr("hipErrorNoDevice"));
}

TEST(Listing, B103_EveryCallThatFailsLeavesADeviceWithAProblemOrNone) {
  for (const char* call : {"init", "device_count"}) {
    const Standin driver(Face::hip, "", std::string("fail=") + call + ":999");
    EXPECT_THAT(open_vendor(Vendor::amd, driver.options()).report.problem, HasSubstr("hipErrorUnknown"))
        << call;
  }
}

// ---- choice

GpuInfo device(const char* id, const char* architecture, bool integrated, size_t gib,
               const char* problem = "") {
  GpuInfo d;
  d.id = id, d.architecture = architecture, d.integrated = integrated, d.memory = gib << 30,
  d.problem = problem;
  d.nvidia = d.id.starts_with("cuda");
  d.name = std::string("Card ") + architecture;
  d.uuid = std::string("GPU-") + id;
  d.bus_id = std::string("0000:0a:00.") + id[std::strlen(id) - 1];
  d.index = d.id.back() - '0';
  return d;
}

TEST(Choice, TwoDevicesInBothOrders) {
  for (const bool swap : {false, true}) {
    std::vector<GpuInfo> all{device("hip:0", "gfx1100", false, 24), device("hip:1", "gfx1036", true, 64)};
    if (swap) std::swap(all[0], all[1]);
    order_devices(all);
    EXPECT_EQ(choose_device(all, "gpu").architecture, "gfx1100");
    EXPECT_EQ(choose_device(all, "hip").architecture, "gfx1100");
    EXPECT_EQ(choose_device(all, "hip:1").architecture, "gfx1036");
    EXPECT_EQ(choose_device(all, "GFX1036").id, "hip:1");
    EXPECT_EQ(choose_device(all, "gpu-HIP:1").id, "hip:1");
    EXPECT_EQ(choose_device(all, "card gfx1036").id, "hip:1");
    EXPECT_EQ(choose_device(all, "0000:0A:00.1").id, "hip:1");
  }
}

TEST(Choice, IntegratedOnlyWhereItIsMeant) {
  std::vector<GpuInfo> all{device("hip:0", "gfx1036", true, 64)};
  EXPECT_EQ(choose_device(all, "gpu").id, "hip:0");
  EXPECT_THAT(message([&] { choose_device(all, "discrete"); }, ErrorCode::device), HasSubstr("hip:0"));
}

TEST(Choice, ABrokenDeviceIsNotChosenWhileAnotherWorksAndNamedWhenMeant) {
  std::vector<GpuInfo> all{device("hip:0", "gfx1100", false, 48, "it burns"),
                           device("hip:1", "gfx1101", false, 16)};
  order_devices(all);
  EXPECT_EQ(choose_device(all, "gpu").id, "hip:1");
  EXPECT_THAT(message([&] { choose_device(all, "hip:0"); }, ErrorCode::device), HasSubstr("it burns"));
}

TEST(Choice, AnUnknownNameListsWhatThereIs) {
  const std::vector<GpuInfo> all{device("hip:0", "gfx1100", false, 24)};
  EXPECT_THAT(message([&] { choose_device(all, "hip:3"); }, ErrorCode::device),
              testing::AllOf(HasSubstr("hip:3"), HasSubstr("hip:0 (Card gfx1100, gfx1100)")));
}

}  // namespace
}  // namespace skald::backend::gpu
