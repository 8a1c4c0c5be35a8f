// Findings: each from the surroundings that call for it, and none from those that do not.
#include "diagnose/doctor.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace skald::diagnose {
namespace {

backend::GpuInfo radeon(const std::string& id = "hip:0") {
  return {.id = id,
          .name = "AMD Radeon RX 7900 XTX",
          .architecture = "gfx1100",
          .uuid = "GPU-1234",
          .driver = "HIP 6.2.41134",
          .memory = size_t{24} << 30,
          .compute_units = 96,
          .warp = 32};
}

/// A machine whose Radeon works.
Surroundings sound() {
  Surroundings s;
  s.machine.kernel = "6.8.0";
  s.machine.kfd = {
      .path = "/dev/kfd", .exists = true, .usable = true, .group = "render", .group_id = 992, .mode = "0660"};
  s.machine.dxg = {.path = "/dev/dxg"};
  s.machine.render_nodes = {{.path = "/dev/dri/renderD128",
                             .exists = true,
                             .usable = true,
                             .group = "render",
                             .group_id = 992,
                             .mode = "0660"}};
  s.machine.cards = {{.name = "card1",
                      .address = "0000:03:00.0",
                      .vendor = 0x1002,
                      .driver = "amdgpu",
                      .clock_policy = "auto"}};
  s.machine.kfd_nodes = {{.number = 1, .architecture = "gfx1100"}};
  s.device = "auto";
  s.threads = "8 threads, all";
  s.cpu_targets = {"AVX2", "scalar"};
  s.memory_available = uint64_t{32} << 30;
  s.gpus.devices = {radeon()};
  s.gpus.vendors = {{.vendor = "AMD",
                     .attempts = {{"libamdhip64.so.7", false, "cannot open shared object file"},
                                  {"libamdhip64.so.6", true, "/usr/lib/x86_64-linux-gnu/libamdhip64.so.6.2"}},
                     .library = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.6.2"},
                    {.vendor = "NVIDIA",
                     .attempts = {{"libcuda.so.1", false, "cannot open shared object file"}},
                     .problem = "no usable libcuda.so.1 was found"}};
  return s;
}

/// The finding with an id; fails when there is none or several.
Finding finding(const std::vector<Finding>& all, const std::string& id) {
  Finding found;
  int count = 0;
  for (const Finding& f : all)
    if (f.id == id) found = f, ++count;
  EXPECT_EQ(count, 1) << id;
  return found;
}
bool has(const std::vector<Finding>& all, const std::string& id) {
  return std::any_of(all.begin(), all.end(), [&](const Finding& f) { return f.id == id; });
}
bool says(const Finding& f, const std::string& words) {
  return f.what.find(words) != std::string::npos || f.fix.find(words) != std::string::npos;
}

TEST(Examine, ASoundMachineHasNothingToDo) {
  const auto all = examine(sound());
  EXPECT_FALSE(any_error(all));
  for (const Finding& f : all) EXPECT_NE(f.severity, Severity::warning) << f.id << f.what;
  const Finding library = finding(all, "library-amd");
  EXPECT_EQ(library.severity, Severity::ok);
  EXPECT_TRUE(says(library, "HIP 6.2.41134"));  // the library's version, not the kernel's
  EXPECT_EQ(library.details.size(), 2u);
  EXPECT_NE(library.details[0].find("cannot open shared object file"), std::string::npos);
  EXPECT_EQ(finding(all, "library-nvidia").severity, Severity::note);
  const Finding device = finding(all, "device");
  for (const char* words : {"hip:0", "RX 7900 XTX", "gfx1100", "24.0 GiB", "96 units", "GPU-1234"})
    EXPECT_TRUE(says(device, words)) << words;
  EXPECT_EQ(finding(all, "kfd").severity, Severity::ok);
  EXPECT_TRUE(says(finding(all, "clock-policy"), "\"auto\""));
}

TEST(Examine, AMachineWithoutGpuIsSound) {
  Surroundings s = sound();
  s.machine = {};
  s.gpus.devices.clear();
  for (auto& v : s.gpus.vendors) v.library.clear(), v.problem = "no usable library was found";
  const auto all = examine(s);
  EXPECT_FALSE(any_error(all));
  EXPECT_EQ(finding(all, "no-device").severity, Severity::note);
  EXPECT_FALSE(has(all, "kfd"));
  // Asked for, it is an error.
  s.device = "hip:0";
  EXPECT_EQ(finding(examine(s), "no-device").severity, Severity::error);
}

/// B108: no driver, no permission and no chip told apart.
TEST(Examine, NodesOfAmd) {
  Surroundings s = sound();
  s.gpus.devices.clear();
  s.gpus.vendors[0].problem = "the driver lists no device";
  s.machine.kfd.usable = false;
  Finding kfd = finding(examine(s), "kfd");
  EXPECT_EQ(kfd.severity, Severity::error);
  EXPECT_TRUE(says(kfd, "group render (992), mode 0660"));
  EXPECT_TRUE(says(kfd, "usermod -aG render"));
  EXPECT_TRUE(says(finding(examine(s), "library-amd"), "See the finding about /dev/kfd"));
  s.machine.container = "docker";
  EXPECT_TRUE(says(finding(examine(s), "kfd"), "--group-add 992"));
  s.machine.kfd = {.path = "/dev/kfd"};
  kfd = finding(examine(s), "kfd");
  EXPECT_TRUE(says(kfd, "is missing"));
  EXPECT_TRUE(says(kfd, "--device /dev/kfd --device /dev/dri"));
  s.machine.render_nodes[0].usable = false;
  EXPECT_TRUE(says(finding(examine(s), "render-node"), "/dev/dri/renderD128"));
  s.machine.render_nodes.clear();
  EXPECT_EQ(finding(examine(s), "render-node").severity, Severity::error);
}

/// C024: what the runtime lists works, whatever the nodes look like.
TEST(Examine, AMissingNodeIsAHintWhereADeviceIsListed) {
  Surroundings s = sound();
  s.machine.kfd = {.path = "/dev/kfd"};
  s.machine.render_nodes.clear();
  EXPECT_EQ(finding(examine(s), "kfd").severity, Severity::note);
  EXPECT_FALSE(any_error(examine(s)));
}

/// C024: Linux under Windows.
TEST(Examine, Windows) {
  Surroundings s = sound();
  s.machine.wsl = true;
  s.machine.kfd = {.path = "/dev/kfd"};
  s.machine.dxg = {.path = "/dev/dxg", .exists = true, .usable = true};
  EXPECT_FALSE(has(examine(s), "wsl"));  // it works
  EXPECT_FALSE(has(examine(s), "kfd"));
  s.gpus.devices.clear();
  EXPECT_TRUE(says(finding(examine(s), "wsl"), "HSA_ENABLE_DXG_DETECTION=1"));
  s.variables["HSA_ENABLE_DXG_DETECTION"] = "1";
  EXPECT_FALSE(has(examine(s), "wsl"));
  s.machine.dxg.exists = false;
  EXPECT_TRUE(says(finding(examine(s), "wsl"), "/dev/dxg"));
}

/// C043 of the requirements: a library that ends its process.
TEST(Examine, LibrariesThatAreMissingOrBroken) {
  Surroundings s = sound();
  s.gpus.devices.clear();
  s.gpus.vendors[0].problem = "starting it failed: it was ended by signal 11";
  Finding library = finding(examine(s), "library-amd");
  EXPECT_EQ(library.severity, Severity::error);
  EXPECT_TRUE(says(library, "signal 11"));
  EXPECT_TRUE(says(library, "install another version"));
  EXPECT_EQ(finding(examine(s), "no-device").severity, Severity::error);  // there is hardware
  s.gpus.vendors[0].library.clear();
  library = finding(examine(s), "library-amd");
  EXPECT_TRUE(says(library, "SKALD_GPU_LIBRARIES"));
  s.machine = {};
  EXPECT_EQ(finding(examine(s), "library-amd").severity, Severity::note);  // nobody needs it
}

TEST(Examine, Nvidia) {
  Surroundings s = sound();
  s.machine = {};
  s.machine.nvidia_driver = "550.54";
  s.gpus.devices.clear();
  Finding node = finding(examine(s), "nvidia-node");
  EXPECT_EQ(node.severity, Severity::error);
  EXPECT_TRUE(says(node, "550.54 is loaded"));
  s.machine.container = "docker";
  EXPECT_TRUE(says(finding(examine(s), "nvidia-node"), "--gpus all"));
  s.machine.nvidia_nodes = {
      {.path = "/dev/nvidia0", .exists = true, .usable = false, .group = "video", .mode = "0660"}};
  EXPECT_TRUE(says(finding(examine(s), "nvidia-node"), "group video"));
  s.machine.nvidia_nodes[0].usable = true;
  EXPECT_FALSE(has(examine(s), "nvidia-node"));
}

/// B099, C024: who can make code, and whether it is there.
TEST(Examine, CompilerAndCode) {
  Surroundings s = sound();
  backend::GpuInfo& d = s.gpus.devices[0];
  backend::GpuVendorReport& amd = s.gpus.vendors[0];
  EXPECT_FALSE(has(examine(s), "code"));  // nothing was counted
  d.code_pieces = 6;
  EXPECT_EQ(finding(examine(s), "compiler").severity, Severity::error);
  EXPECT_TRUE(says(finding(examine(s), "compiler"), "hiprtc of the same ROCm"));
  EXPECT_TRUE(says(finding(examine(s), "code"), "6 of 6 pieces"));
  amd.compiler = "9.0 /usr/lib/x86_64-linux-gnu/libhiprtc.so.6", amd.architectures = {"gfx906", "gfx1100"};
  EXPECT_EQ(finding(examine(s), "compiler").severity, Severity::ok);
  EXPECT_FALSE(any_error(examine(s)));
  amd.architectures = {"gfx906", "gfx1036"};
  EXPECT_EQ(finding(examine(s), "compiler").severity, Severity::error);
  EXPECT_TRUE(says(finding(examine(s), "compiler"), "does not know gfx1100; its newest is gfx1036"));
  // With prepared code nobody has to compile.
  d.code_prepared = 4, d.code_kept = 2;
  EXPECT_EQ(finding(examine(s), "compiler").severity, Severity::note);
  EXPECT_TRUE(says(finding(examine(s), "code"), "6 pieces, 4 of them prepared, 2 kept"));
}

/// B101, and rows 44, 48 of the requirements.
TEST(Examine, Variables) {
  Surroundings s = sound();
  s.variables = {{"HSA_OVERRIDE_GFX_VERSION", "11.0.0"}};
  EXPECT_EQ(finding(examine(s), "override").severity, Severity::warning);
  EXPECT_FALSE(has(examine(s), "override-effect"));  // it says what is true
  s.machine.kfd_nodes[0].architecture = "gfx1103";
  const Finding effect = finding(examine(s), "override-effect");
  EXPECT_TRUE(says(effect, "gfx1100"));
  EXPECT_TRUE(says(effect, "gfx1103"));
  s.variables = {{"HSA_OVERRIDE_GFX_VERSION_1", ""}};
  EXPECT_EQ(finding(examine(s), "override").severity, Severity::error);
  EXPECT_TRUE(says(finding(examine(s), "override"), "hides every AMD GPU"));
  s.variables = {{"HSA_ENABLE_SDMA", "0"}, {"HSA_ENABLE_INTERRUPT", "0"}, {"AMD_LOG_LEVEL", "4"}};
  EXPECT_TRUE(says(finding(examine(s), "sdma"), "HSA_ENABLE_SDMA=0"));
  EXPECT_TRUE(says(finding(examine(s), "interrupts"), "HSA_ENABLE_INTERRUPT=0"));
  EXPECT_TRUE(says(finding(examine(s), "variable"), "AMD_LOG_LEVEL=4"));
  s.variables = {{"HIP_VISIBLE_DEVICES", "1"}};
  EXPECT_EQ(finding(examine(s), "visible-devices").severity, Severity::note);
  s.variables = {{"ROCR_VISIBLE_DEVICES", ""}};
  EXPECT_EQ(finding(examine(s), "visible-devices").severity, Severity::warning);
  // Every name that is looked for has something said about it.
  for (std::string name : variables_of_interest()) {
    if (name.ends_with('*')) name.pop_back();
    s.variables = {{name, "1"}};
    s.machine.wsl = true;
    const size_t with = examine(s).size();
    s.variables.clear();
    EXPECT_NE(examine(s).size(), with) << name;
  }
}

TEST(Examine, Clocks) {
  Surroundings s = sound();
  GraphicsCard& c = s.machine.cards[0];
  c.clock_policy = "low", c.clock = "500Mhz", c.highest_clock = "2482Mhz";
  const Finding policy = finding(examine(s), "clock-policy");
  EXPECT_EQ(policy.severity, Severity::warning);
  EXPECT_TRUE(says(policy, "500Mhz of 2482Mhz"));
  EXPECT_TRUE(says(policy, "/sys/class/drm/card1/device/power_dpm_force_performance_level"));
  c.memory = uint64_t{512} << 20, c.memory_used = uint64_t{256} << 20, c.shared_memory = uint64_t{16} << 30;
  EXPECT_TRUE(says(finding(examine(s), "card-memory"), "0.5 GiB of its own, 0.2 GiB in use"));
  EXPECT_TRUE(says(finding(examine(s), "card-memory"), "may take 16.0 GiB"));
}

/// Rows 11 of the requirements, B103.
TEST(Examine, DevicesThatAreBrokenIntegratedOrHidden) {
  Surroundings s = sound();
  s.gpus.devices[0].problem = "its waves have 16 lanes";
  EXPECT_TRUE(says(finding(examine(s), "device"), "16 lanes"));
  EXPECT_EQ(finding(examine(s), "device").severity, Severity::error);
  s = sound();
  s.gpus.devices[0].integrated = true;
  EXPECT_TRUE(says(finding(examine(s), "integrated-only"), "--device hip:0"));
  s.device = "hip:0";
  EXPECT_FALSE(has(examine(s), "integrated-only"));
  s.device = "cuda:3";
  EXPECT_EQ(finding(examine(s), "device-asked-for").severity, Severity::error);
  s = sound();
  s.machine.cards.push_back(s.machine.cards[0]);
  EXPECT_TRUE(says(finding(examine(s), "device-hidden"), "shows 2 AMD cards, their software 1"));
}

TEST(ChosenGpu, IsTheOneTheEngineTakes) {
  backend::GpuList list;
  list.devices = {radeon("hip:1"), radeon("hip:0")};
  list.devices[1].integrated = true, list.devices[1].architecture = "gfx1036",
  list.devices[1].uuid = "GPU-5678";
  EXPECT_EQ(chosen_gpu(list, "auto")->id, "hip:1");
  EXPECT_EQ(chosen_gpu(list, "gpu")->id, "hip:1");
  EXPECT_EQ(chosen_gpu(list, "hip:0")->id, "hip:0");
  EXPECT_EQ(chosen_gpu(list, "GFX1036")->id, "hip:0");
  EXPECT_EQ(chosen_gpu(list, "gpu-5678")->id, "hip:0");
  EXPECT_EQ(chosen_gpu(list, "cuda"), nullptr);
  EXPECT_EQ(chosen_gpu(list, "cpu"), nullptr);
  list.devices[0].problem = "broken";
  EXPECT_EQ(chosen_gpu(list, "hip:1"), nullptr);
}

TEST(ExamineModel, SoundBrokenAndTooLarge) {
  Surroundings s = sound();
  model::VerifyReport report;
  report.type = "custom_voice", report.size = "1b7";
  auto all = examine_model(report, uint64_t{5} << 30, s);
  EXPECT_TRUE(says(finding(all, "model"), "custom_voice 1b7, and needs about 5.0 GiB"));
  EXPECT_FALSE(has(all, "model-memory"));
  EXPECT_TRUE(
      says(finding(examine_model(report, uint64_t{30} << 30, s), "model-memory"), "hip:0 has 24.0 GiB"));
  s.gpus.devices.clear();
  EXPECT_TRUE(
      says(finding(examine_model(report, uint64_t{40} << 30, s), "model-memory"), "32.0 GiB of memory"));
  report.findings = {{"error", "a tensor is missing", "download it again"}};
  const Finding broken = finding(examine_model(report, 0, s), "model");
  EXPECT_EQ(broken.severity, Severity::error);
  EXPECT_EQ(broken.fix, "download it again");
  EXPECT_EQ(broken.details.size(), 1u);
}

SelfTestReport good_report() {
  SelfTestReport r;
  r.device = "hip:0 Radeon", r.model = "custom_voice 0b6";
  r.kernels.emplace();
  r.kernels->ops_compared = 5000;
  r.generations = {{.frames = 16, .ms_per_frame = 9},
                   {.frames = 1000, .ms_per_frame = 8, .first_quarter_ms = 8, .last_quarter_ms = 8}};
  r.read_bytes_per_second = 200e9, r.bytes_per_frame = 800e6;
  return r;
}

TEST(ExamineSelfTest, PassedWithSpeeds) {
  const auto all = examine_self_test(good_report());
  EXPECT_EQ(finding(all, "self-test").severity, Severity::ok);
  EXPECT_EQ(finding(all, "self-test").details.size(), 2u);
  EXPECT_TRUE(says(finding(all, "speed"), "factor 0.100 measured"));
  EXPECT_TRUE(says(finding(all, "speed"), "0.050 predicted from 800 MB a frame at 200 GB/s"));
  EXPECT_FALSE(has(all, "lost-completions"));
}

TEST(ExamineSelfTest, EveryWayToFail) {
  SelfTestReport r = good_report();
  r.generations[1].lost_completions = 3;
  EXPECT_EQ(finding(examine_self_test(r), "lost-completions").severity, Severity::warning);
  EXPECT_FALSE(any_error(examine_self_test(r)));
  r.repeatable = false;
  EXPECT_TRUE(says(finding(examine_self_test(r), "self-test"), "other codes the second time"));
  r = good_report();
  r.stage = "generation of 1000 frames";
  r.error = Error(ErrorCode::device_wedged, "no progress for 20 s");
  const Finding wedged = finding(examine_self_test(r), "self-test");
  EXPECT_EQ(wedged.severity, Severity::error);
  EXPECT_TRUE(says(wedged, "generation of 1000 frames: no progress for 20 s"));
  EXPECT_TRUE(says(wedged, "HSA_ENABLE_INTERRUPT=0"));
  r = good_report();
  r.kernels->failures = {{"lock step", "program \"x\" differs"}};
  EXPECT_TRUE(says(finding(examine_self_test(r), "self-test"), "program \"x\" differs"));
  r = good_report();
  r.generations[1].ms_per_frame = 100;  // B109: slower than speech
  EXPECT_EQ(finding(examine_self_test(r), "speed").severity, Severity::warning);
  r.generations[1].ms_per_frame = 50;
  EXPECT_TRUE(says(finding(examine_self_test(r), "speed"), "Far from what the memory allows"));
}

TEST(Print, ListsHaveTheFourFields) {
  const std::vector<Finding> findings{{"kfd", Severity::error, "It is closed.", "Open it.", {"a", "b"}},
                                      {"machine", Severity::ok, "Fine.", "", {}}};
  const nlohmann::json list = nlohmann::json::parse(to_json(findings).dump());
  ASSERT_TRUE(list.is_array());
  EXPECT_EQ(list[0], (nlohmann::json{{"id", "kfd"},
                                     {"severity", "error"},
                                     {"what", "It is closed."},
                                     {"do", "Open it."},
                                     {"details", {"a", "b"}}}));
  EXPECT_EQ(list[1]["do"], "");
  const std::string text = to_text(findings[0]);
  EXPECT_NE(text.find("error"), std::string::npos);
  EXPECT_NE(text.find("> Open it."), std::string::npos);
}

}  // namespace
}  // namespace skald::diagnose
