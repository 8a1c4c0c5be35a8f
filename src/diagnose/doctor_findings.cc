// The findings: what each fact means, and what to do.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "diagnose/doctor.h"

namespace skald::diagnose {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

double gib(uint64_t bytes) { return static_cast<double>(bytes) / kGib; }

/// Name of a container runtime's option for a group.
std::string permission_fix(const DeviceNode& node, const Machine& machine) {
  if (!machine.container.empty())
    return fmt::format(
        "Start the container with --group-add {} (the group of {} outside), or as a user of it.",
        node.group_id, node.path);
  return fmt::format("Run: sudo usermod -aG {} $USER; then log in again.", node.group);
}

class Examination {
 public:
  explicit Examination(const Surroundings& s) : s_(s), m_(s.machine) {}

  std::vector<Finding> run() {
    machine();
    for (const backend::GpuVendorReport& vendor : s_.gpus.vendors) library(vendor);
    devices();
    if (amd_matters()) amd_nodes();
    if (nvidia_matters()) nvidia_nodes();
    variables();
    for (const GraphicsCard& card : m_.cards)
      if (card.amd()) clocks(card);
    return std::move(all_);
  }

 private:
  void add(std::string id, Severity severity, std::string what, std::string fix = {},
           std::vector<std::string> details = {}) {
    all_.push_back({std::move(id), severity, std::move(what), std::move(fix), std::move(details)});
  }

  const std::string* variable(const std::string& name) const {
    const auto found = s_.variables.find(name);
    return found == s_.variables.end() ? nullptr : &found->second;
  }
  bool wants(std::string_view prefix) const { return s_.device.starts_with(prefix); }
  bool amd_matters() const { return m_.has_amd() || m_.wsl || wants("hip") || lists(false); }
  bool nvidia_matters() const { return m_.has_nvidia() || wants("cuda") || lists(true); }
  bool lists(bool nvidia) const {
    return std::any_of(s_.gpus.devices.begin(), s_.gpus.devices.end(),
                       [&](const backend::GpuInfo& d) { return d.nvidia == nvidia && d.problem.empty(); });
  }

  void machine() {
    std::string what =
        fmt::format("Linux {}{}{}; {}; SIMD {}", m_.kernel, m_.wsl ? " under Windows (WSL)" : "",
                    m_.container.empty() ? "" : fmt::format(", in a container ({})", m_.container),
                    s_.threads, fmt::join(s_.cpu_targets, ", "));
    if (s_.memory_available)
      what += fmt::format("; {:.1f} GiB of memory to be had", gib(*s_.memory_available));
    add("machine", Severity::ok, what + ".");
  }

  // ---- libraries

  void library(const backend::GpuVendorReport& vendor) {
    const bool amd = vendor.vendor == "AMD";
    const std::string id = amd ? "library-amd" : "library-nvidia";
    const bool needed = (amd ? m_.has_amd() : m_.has_nvidia()) || wants(amd ? "hip" : "cuda");
    std::vector<std::string> tried;
    for (const backend::GpuAttempt& a : vendor.attempts)
      tried.push_back(fmt::format("{}: {}", a.path, a.outcome));
    if (vendor.library.empty()) {
      add(id, needed ? Severity::error : Severity::note,
          fmt::format("No driver library of {} can be used{}.", vendor.vendor,
                      needed ? ", though its hardware is here or was asked for"
                             : "; none is needed without its hardware"),
          needed ? library_fix(amd) : "", std::move(tried));
      return;
    }
    const std::string version = version_of(amd);
    if (!vendor.problem.empty()) {
      add(id, needed ? Severity::error : Severity::note,
          fmt::format("{} is there{}, but gives no device: {}.", vendor.library, version, vendor.problem),
          needed ? start_fix(amd, vendor.problem) : "", std::move(tried));
      return;
    }
    add(id, Severity::ok, fmt::format("{} is in use{}.", vendor.library, version), "", std::move(tried));
  }

  /// As the library tells it; the kernel's version says nothing about it.
  std::string version_of(bool amd) const {
    for (const backend::GpuInfo& d : s_.gpus.devices)
      if (d.nvidia != amd && !d.driver.empty()) return fmt::format(" ({})", d.driver);
    return "";
  }

  std::string library_fix(bool amd) const {
    if (!amd)
      return m_.container.empty() ? "Install the NVIDIA driver, whose user part has libcuda.so.1."
                                  : "Start the container with the NVIDIA container toolkit (--gpus all), "
                                    "which brings libcuda.so.1 in.";
    return "Install the HIP runtime of ROCm 5 to 7 (packages hip-runtime-amd or libamdhip64), or name its "
           "folder "
           "in SKALD_GPU_LIBRARIES; only libamdhip64.so and libhiprtc.so of one installation are needed.";
  }

  std::string start_fix(bool amd, const std::string& problem) const {
    if (amd && m_.kfd.exists && !m_.kfd.usable) return "See the finding about /dev/kfd.";
    if (problem.find("signal") != std::string::npos)
      return "The library ends its process when it starts: install another version of it.";
    if (amd && m_.wsl && !variable("HSA_ENABLE_DXG_DETECTION")) return "See the finding about WSL.";
    return amd ? "If this names no device, the card may be too new for this ROCm; compare with rocminfo."
               : "Run nvidia-smi: driver library and kernel module must be of one version.";
  }

  // ---- devices

  void devices() {
    for (const backend::GpuInfo& d : s_.gpus.devices) device(d);
    if (s_.gpus.devices.empty()) {
      const bool hardware = m_.has_amd() || m_.has_nvidia();
      const bool asked = s_.device != "auto" && !wants("cpu");
      add("no-device", hardware || asked ? Severity::error : Severity::note,
          hardware ? "This machine has a GPU, but no software lists it."
          : asked  ? fmt::format("\"{}\" was asked for, but there is no GPU.", s_.device)
                   : "There is no GPU here: everything runs on the CPU.",
          hardware || asked ? "The findings about libraries and device nodes say what is missing." : "");
      return;
    }
    const bool usable =
        std::any_of(s_.gpus.devices.begin(), s_.gpus.devices.end(),
                    [](const backend::GpuInfo& d) { return d.problem.empty() && !d.integrated; });
    if (!usable && lists(false) && s_.device == "auto")
      add("integrated-only", Severity::note,
          "The only usable GPU is integrated, which --device auto leaves alone: it shares the memory of the "
          "CPU, "
          "and may be slower.",
          fmt::format("Try it: --device {}, and compare `skald bench` on both.", s_.gpus.devices.front().id));
    hidden(false);
    hidden(true);
    if (s_.device != "auto" && !wants("cpu") && !chosen_gpu(s_.gpus, s_.device))
      add("device-asked-for", Severity::error,
          fmt::format("\"{}\" was asked for, and cannot be used.", s_.device),
          "Take one of the ids that are listed here, or --device auto.");
  }

  void device(const backend::GpuInfo& d) {
    const std::string name = fmt::format("{} {} ({})", d.id, d.name.empty() ? "unknown" : d.name,
                                         d.architecture.empty() ? "architecture unknown" : d.architecture);
    if (!d.problem.empty()) {
      add("device", Severity::error, fmt::format("{} cannot be used: {}.", name, d.problem),
          "Choose another one, or look at the driver's messages (dmesg).");
      return;
    }
    add("device", Severity::ok,
        fmt::format("{}: {:.1f} GiB{}, {} units, {}, {}.", name, gib(d.memory),
                    d.integrated ? ", integrated" : "", d.compute_units, d.driver,
                    d.uuid.empty() ? "no UUID" : d.uuid));
    override_of(d);
    code_of(d);
  }

  /// Machine code and who could make it.
  void code_of(const backend::GpuInfo& d) {
    const auto vendor = std::find_if(s_.gpus.vendors.begin(), s_.gpus.vendors.end(),
                                     [&](const auto& v) { return (v.vendor == "NVIDIA") == d.nvidia; });
    if (vendor == s_.gpus.vendors.end() || d.code_pieces == 0) return;
    const int missing = d.code_pieces - d.code_prepared - d.code_kept;
    const Severity grave = missing > 0 ? Severity::error : Severity::note;
    const std::string name = d.nvidia ? "libnvrtc" : "libhiprtc";
    if (vendor->compiler.empty()) {
      add("compiler", grave, fmt::format("There is no run-time compiler for {} ({}).", d.id, name),
          d.nvidia
              ? "Install NVRTC of the driver's CUDA version (package libnvrtc or cuda-nvrtc), or a skald "
                "with "
                "code for this card."
              : "Install hiprtc of the same ROCm as the driver library, or a skald with code for this card.");
    } else if (!knows(*vendor, d)) {
      add("compiler", d.nvidia ? Severity::note : grave,
          fmt::format("The run-time compiler ({}) does not know {}; its newest is {}.", vendor->compiler,
                      d.architecture, vendor->architectures.back()),
          d.nvidia ? "It makes portable code, which the driver compiles: slower at first use."
                   : "Install a newer ROCm, or a skald with code for this card. An override is no cure.");
    } else {
      add("compiler", Severity::ok, fmt::format("The run-time compiler is {}.", vendor->compiler));
    }
    if (missing == 0)
      add("code", Severity::ok,
          fmt::format(
              "Machine code for {} is there: {} pieces, {} of them prepared, {} kept from an earlier start.",
              d.id, d.code_pieces, d.code_prepared, d.code_kept));
    else
      add("code", Severity::note,
          fmt::format("{} of {} pieces of machine code for {} are made at first use, which takes up to a "
                      "minute; then "
                      "they are kept.",
                      missing, d.code_pieces, d.id));
  }

  static bool knows(const backend::GpuVendorReport& vendor, const backend::GpuInfo& d) {
    const auto& known = vendor.architectures;
    return known.empty() || std::find(known.begin(), known.end(), d.architecture) != known.end();
  }

  /// The true architecture beside the one that an override makes of it.
  void override_of(const backend::GpuInfo& d) {
    if (d.nvidia || m_.kfd_nodes.empty()) return;
    const bool known = std::any_of(m_.kfd_nodes.begin(), m_.kfd_nodes.end(),
                                   [&](const KfdNode& n) { return n.architecture == d.architecture; });
    if (known) return;
    std::vector<std::string> real;
    for (const KfdNode& n : m_.kfd_nodes) real.push_back(n.architecture);
    add("override-effect", Severity::warning,
        fmt::format("{} is given as {}, but the kernel driver knows {} here: an override is in effect.", d.id,
                    d.architecture, fmt::join(real, ", ")),
        "skald has code for the true architectures. Unset HSA_OVERRIDE_GFX_VERSION unless the device fails "
        "without it.");
  }

  void hidden(bool nvidia) {
    const auto cards = std::count_if(m_.cards.begin(), m_.cards.end(), [&](const GraphicsCard& c) {
      return nvidia ? c.nvidia() : c.amd() && c.driver == "amdgpu";
    });
    const auto listed = std::count_if(s_.gpus.devices.begin(), s_.gpus.devices.end(),
                                      [&](const backend::GpuInfo& d) { return d.nvidia == nvidia; });
    if (listed == 0 || cards <= listed) return;
    add("device-hidden", Severity::note,
        fmt::format("The kernel shows {} {} cards, their software {}.", cards, nvidia ? "NVIDIA" : "AMD",
                    listed),
        nvidia ? "If one is missed: see CUDA_VISIBLE_DEVICES."
               : "If one is missed: see HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, and whether this ROCm "
                 "knows it.");
  }

  // ---- device nodes

  void amd_nodes() {
    if (m_.wsl) return wsl();
    // What the runtime lists works, whatever the nodes look like from here.
    const Severity missing = lists(false) ? Severity::note : Severity::error;
    if (!m_.kfd.exists) {
      add("kfd", missing, "/dev/kfd is missing: the compute part of the amdgpu driver is not reachable.",
          m_.container.empty() ? "Load the amdgpu module of a kernel with CONFIG_HSA_AMD."
                               : "Start the container with --device /dev/kfd --device /dev/dri.");
    } else if (!m_.kfd.usable) {
      add("kfd", missing,
          fmt::format("/dev/kfd may not be opened: it belongs to group {} ({}), mode {}.", m_.kfd.group,
                      m_.kfd.group_id, m_.kfd.mode),
          permission_fix(m_.kfd, m_));
    } else {
      add("kfd", Severity::ok,
          fmt::format("/dev/kfd can be opened (group {}, mode {}).", m_.kfd.group, m_.kfd.mode));
    }
    if (m_.render_nodes.empty()) {
      add("render-node", missing, "There is no /dev/dri/renderD*: cards are not reachable.",
          m_.container.empty() ? "Load the amdgpu module." : "Start the container with --device /dev/dri.");
      return;
    }
    const auto closed = std::find_if(m_.render_nodes.begin(), m_.render_nodes.end(),
                                     [](const DeviceNode& n) { return !n.usable; });
    if (closed != m_.render_nodes.end())
      add("render-node", missing,
          fmt::format("{} may not be opened: it belongs to group {} ({}), mode {}.", closed->path,
                      closed->group, closed->group_id, closed->mode),
          permission_fix(*closed, m_));
  }

  void wsl() {
    const std::string* detection = variable("HSA_ENABLE_DXG_DETECTION");
    if (lists(false)) return;
    if (!m_.dxg.exists) {
      if (m_.container.empty())
        add("wsl", Severity::note, "Under Windows a GPU is reached through /dev/dxg, which is missing.",
            "Update WSL (wsl --update) and the Windows driver.");
      else
        add("wsl", Severity::note,
            "Under Windows a GPU is reached through /dev/dxg, which is not in the container.",
            "Start the container with --device /dev/dxg.");
      return;
    }
    if (!m_.dxg.usable) {
      add("wsl", Severity::warning,
          fmt::format("/dev/dxg may not be opened: it belongs to group {}, mode {}.", m_.dxg.group,
                      m_.dxg.mode),
          permission_fix(m_.dxg, m_));
    } else if (!detection || *detection != "1") {
      add("wsl", wants("hip") ? Severity::error : Severity::note,
          "AMD cards under Windows are reached through /dev/dxg, which ROCm before 7.13 uses only when told "
          "to.",
          "For an AMD card, set HSA_ENABLE_DXG_DETECTION=1 and install the rocdxg library of ROCm.");
    }
  }

  void nvidia_nodes() {
    if (m_.wsl) return;
    const Severity missing = lists(true) ? Severity::note : Severity::error;
    if (m_.nvidia_nodes.empty()) {
      add("nvidia-node", missing,
          fmt::format("There is no /dev/nvidia*, {}.",
                      m_.nvidia_driver.empty()
                          ? "and the kernel module is not loaded"
                          : fmt::format("though the kernel module {} is loaded", m_.nvidia_driver)),
          m_.container.empty() ? "Load the module: sudo nvidia-modprobe -u -c=0."
                               : "Start the container with --gpus all.");
      return;
    }
    const auto closed = std::find_if(m_.nvidia_nodes.begin(), m_.nvidia_nodes.end(),
                                     [](const DeviceNode& n) { return !n.usable; });
    if (closed != m_.nvidia_nodes.end())
      add("nvidia-node", missing,
          fmt::format("{} may not be opened: group {}, mode {}.", closed->path, closed->group, closed->mode),
          permission_fix(*closed, m_));
  }

  // ---- variables

  void variables() {
    for (const auto& [name, value] : s_.variables) {
      if (name.starts_with("HSA_OVERRIDE_GFX_VERSION")) {
        override_variable(name, value);
      } else if (name.ends_with("VISIBLE_DEVICES") || name == "GPU_DEVICE_ORDINAL") {
        visible_devices(name, value);
      } else if (name == "HSA_ENABLE_SDMA") {
        add("sdma", Severity::note,
            fmt::format(
                "{}={} is set. skald copies with kernels while it speaks, so the copy engines are used for "
                "loading alone.",
                name, value));
      } else if (name == "HSA_ENABLE_INTERRUPT") {
        add("interrupts", Severity::note,
            fmt::format("{}={} is set, and left alone: reports differ (it helped on gfx1151, and did harm on "
                        "gfx1103).",
                        name, value),
            "If generation stands still, try it the other way round.");
      } else if (name != "HSA_ENABLE_DXG_DETECTION" || m_.wsl) {
        add("variable", Severity::note, fmt::format("{}={} is set and in effect.", name, value));
      }
    }
  }

  void override_variable(const std::string& name, const std::string& value) {
    if (value.empty()) {
      add("override", Severity::error, fmt::format("{} is set to nothing, which hides every AMD GPU.", name),
          fmt::format("Run: unset {}", name));
      return;
    }
    add("override", Severity::warning,
        fmt::format(
            "{}={} is set: the runtime gives AMD cards for something they are not. Cards of another kind in "
            "the machine are affected too.",
            name, value),
        fmt::format("skald has code for the true architectures and needs no override. Run: unset {}", name));
  }

  void visible_devices(const std::string& name, const std::string& value) {
    const bool none = value.empty() || value == "-1";
    const bool amd = name != "CUDA_VISIBLE_DEVICES" || m_.has_amd();
    add("visible-devices",
        none && (amd ? m_.has_amd() : m_.has_nvidia()) ? Severity::warning : Severity::note,
        none ? fmt::format("{}=\"{}\" hides every GPU.", name, value)
             : fmt::format("{}={} hides devices, and the others are numbered anew.", name, value),
        none ? fmt::format("Run: unset {}", name) : "");
  }

  // ---- clocks and memory

  void clocks(const GraphicsCard& c) {
    const std::string name =
        fmt::format("{} ({}{}{})", c.name, c.address, c.driver.empty() ? "" : ", ", c.driver);
    if (!c.clock_policy.empty()) {
      std::string what = fmt::format("{} has the clock policy \"{}\"", name, c.clock_policy);
      if (!c.highest_clock.empty()) what += fmt::format("; core {} of {}", c.clock, c.highest_clock);
      if (!c.highest_memory_clock.empty())
        what += fmt::format(", memory {} of {}", c.memory_clock, c.highest_memory_clock);
      const bool low = c.clock_policy == "low" || c.clock_policy == "profile_min_sclk" ||
                       c.clock_policy == "profile_min_mclk";
      add("clock-policy", low ? Severity::warning : Severity::note, what + ".",
          low ? fmt::format(
                    "Run: echo auto | sudo tee /sys/class/drm/{}/device/power_dpm_force_performance_level",
                    c.name)
          : c.clock_policy == "auto"
              ? fmt::format("If speech begins slowly after a pause, try: echo high | sudo tee "
                            "/sys/class/drm/{}/device/power_dpm_force_performance_level",
                            c.name)
              : "");
    }
    if (c.memory)
      add("card-memory", Severity::note,
          fmt::format("{} has {:.1f} GiB of its own, {:.1f} GiB in use{}.", name, gib(*c.memory),
                      gib(c.memory_used.value_or(0)),
                      c.shared_memory
                          ? fmt::format(", and may take {:.1f} GiB of the machine's", gib(*c.shared_memory))
                          : ""));
  }

  const Surroundings& s_;
  const Machine& m_;
  std::vector<Finding> all_;
};

}  // namespace

const std::vector<std::string>& variables_of_interest() {
  static const std::vector<std::string> names{"HSA_OVERRIDE_GFX_VERSION*",
                                              "HSA_ENABLE_SDMA",
                                              "HSA_ENABLE_INTERRUPT",
                                              "HSA_ENABLE_DXG_DETECTION",
                                              "HSA_XNACK",
                                              "HIP_VISIBLE_DEVICES",
                                              "ROCR_VISIBLE_DEVICES",
                                              "GPU_DEVICE_ORDINAL",
                                              "CUDA_VISIBLE_DEVICES",
                                              "HIP_LAUNCH_BLOCKING",
                                              "CUDA_LAUNCH_BLOCKING",
                                              "AMD_SERIALIZE_KERNEL",
                                              "AMD_SERIALIZE_COPY",
                                              "AMD_LOG_LEVEL",
                                              "GPU_MAX_HW_QUEUES",
                                              "ROCM_PATH",
                                              "HIP_PATH",
                                              "CUDA_HOME",
                                              "LD_LIBRARY_PATH",
                                              "LD_PRELOAD",
                                              "HSA_TOOLS_LIB",
                                              "ROCP_TOOL_LIB",
                                              "CUDA_DEVICE_ORDER",
                                              "CUDA_CACHE_DISABLE"};
  return names;
}

std::vector<Finding> examine(const Surroundings& surroundings) { return Examination(surroundings).run(); }

std::vector<Finding> examine_model(const model::VerifyReport& report, uint64_t needed,
                                   const Surroundings& s) {
  std::vector<Finding> all;
  if (!report.ok()) {
    std::vector<std::string> details;
    for (const model::Finding& f : report.findings)
      details.push_back(fmt::format("{}: {}", f.severity, f.what));
    all.push_back({"model", Severity::error, "The model cannot be used.",
                   report.findings.empty() ? "Run `skald verify`." : report.findings.front().fix,
                   std::move(details)});
    return all;
  }
  all.push_back({"model",
                 Severity::ok,
                 fmt::format("The model is a {} {}, and needs about {:.1f} GiB.", report.type, report.size,
                             gib(needed)),
                 "",
                 {}});
  const backend::GpuInfo* gpu = chosen_gpu(s.gpus, s.device);
  if (gpu && !gpu->integrated && needed > gpu->memory)
    all.push_back({"model-memory",
                   Severity::error,
                   fmt::format("{} has {:.1f} GiB, but the model needs {:.1f}.", gpu->id, gib(gpu->memory),
                               gib(needed)),
                   "Take --weights int8, a smaller model, or another device.",
                   {}});
  if (!gpu && s.memory_available && needed > *s.memory_available)
    all.push_back({"model-memory",
                   Severity::error,
                   fmt::format("{:.1f} GiB of memory are to be had, but the model needs {:.1f}.",
                               gib(*s.memory_available), gib(needed)),
                   "Take --weights int8, a smaller model, or free memory.",
                   {}});
  return all;
}

std::vector<Finding> examine_self_test(const SelfTestReport& r) {
  std::vector<Finding> all;
  std::vector<std::string> details;
  for (const GenerationReport& g : r.generations)
    details.push_back(fmt::format(
        "{} frames: {:.3f} ms a frame (first quarter {:.3f}, last {:.3f}), longest wait {:.1f} ms, "
        "{} questions to the driver, {} lost completions",
        g.frames, g.ms_per_frame, g.first_quarter_ms, g.last_quarter_ms, g.slowest_ms, g.waits,
        g.lost_completions));
  if (r.passed()) {
    all.push_back({"self-test", Severity::ok,
                   fmt::format("{} computes what the CPU computes ({} ops compared on the {}), and speaks {} "
                               "frames without a fault.",
                               r.device, r.kernels->ops_compared, r.model,
                               r.generations.empty() ? 0 : r.generations.back().frames),
                   "", std::move(details)});
  } else {
    const bool stands =
        r.error && (r.error->code() == ErrorCode::device_wedged || r.error->code() == ErrorCode::device_lost);
    all.push_back({"self-test", Severity::error, fmt::format("{} failed at {}.", r.device, r.failure()),
                   stands ? "Update kernel, firmware and GPU software; try HSA_ENABLE_INTERRUPT=0 on an AMD "
                            "card; until then use --device cpu."
                   : r.error ? "The message says what is missing; until then use --device cpu."
                             : "This device computes wrong numbers: use --device cpu, and report this with "
                               "the output of `skald compare --json`.",
                   std::move(details)});
  }
  if (r.lost_completions() > 0)
    all.push_back(
        {"lost-completions",
         Severity::warning,
         fmt::format(
             "{} times work was done, but the driver never said so. skald reads results from memory and is "
             "not held up, other programs may be.",
             r.lost_completions()),
         "A newer kernel and firmware may cure it; on some AMD cards HSA_ENABLE_INTERRUPT=0 does.",
         {}});
  if (r.measured_rtf() > 0 && !r.error) {
    const double predicted = r.predicted_rtf(), measured = r.measured_rtf();
    const bool slow = measured > 1,
               far = predicted > 0 && measured > 5 * predicted && r.model != "test model";
    std::string what = fmt::format("Real-time factor {:.3f} measured on the {}", measured, r.model);
    if (predicted > 0)
      what += fmt::format(", {:.3f} predicted from {:.0f} MB a frame at {:.0f} GB/s (without the codec)",
                          predicted, r.bytes_per_frame / 1e6, r.read_bytes_per_second / 1e9);
    all.push_back(
        {"speed",
         slow || far ? Severity::warning : Severity::ok,
         what + ".",
         slow  ? "Speech takes longer than it lasts: take --weights int8, a smaller model, or another device."
         : far ? "Far from what the memory allows: look at the clocks, and whether other work runs on the "
                 "device."
               : "",
         {}});
  }
  return all;
}

}  // namespace skald::diagnose
