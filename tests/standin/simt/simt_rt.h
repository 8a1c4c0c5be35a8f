// The scheduler of the host stand-in: runs one launch, a fiber a lane, on the calling thread.
//
// A lane runs until it stops at a barrier, in an exchange or at its end. Without a seed lanes run in order;
// with one, whole warps run far ahead of others in a random order, which is what uncovers a missing barrier.
// Blocks run one after the other. Shared memory and dynamic shared memory start as NaN patterns.
#pragma once
#define SIMT_RUNTIME 1
#include "simt.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace simt {

#if defined(__x86_64__)
// Callee-saved registers go to the old stack, then the stacks change.
extern "C" void simt_switch(void** save, void* load);
__asm__(R"(
  .pushsection .text
  .weak simt_switch
  .type simt_switch,@function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size simt_switch,.-simt_switch
  .popsection
)");
constexpr size_t kSavedRegisters = 6;
#elif defined(__aarch64__)
extern "C" void simt_switch(void** save, void* load);
__asm__(R"(
  .pushsection .text
  .weak simt_switch
  .type simt_switch,%function
simt_switch:
  sub sp, sp, #176
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #176
  ret
  .size simt_switch,.-simt_switch
  .popsection
)");
#else
#error "simt_rt.h: no context switch for this processor"
#endif

/// A kernel module compiled for the host: a shared library. Stays loaded.
class Module {
 public:
  /// Throws std::runtime_error when the file cannot be loaded.
  explicit Module(const std::string& file) {
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    current = static_cast<simt_lane**>(dlsym(library, "simt_cur"));
    table_ = static_cast<const simt_kernel*>(dlsym(library, "simt_kernels"));
    const auto range = symbol<void (*)(void**, size_t*)>(library, "simt_lds_range");
    const auto width = symbol<int (*)()>(library, "simt_warp_size");
    race_begin = symbol<void (*)(bool (*)(const void*))>(library, "simt_race_launch");
    race_count = symbol<int (*)()>(library, "simt_race_count");
    race_text = symbol<const char* (*)(int)>(library, "simt_race_text");
    if (!current || !table_ || !range || !width) throw std::runtime_error(file + " is not a kernel module");
    range(&shared, &shared_bytes);
    warp = width();
  }
  /// Null when there is no such kernel.
  const simt_kernel* find(const std::string& name) const {
    for (const simt_kernel* k = table_; k->name; ++k)
      if (name == k->name) return k;
    return nullptr;
  }

  simt_lane** current = nullptr;
  void* shared = nullptr;  ///< static shared memory
  size_t shared_bytes = 0;
  int warp = 32;
  // Only in modules built for the race check.
  void (*race_begin)(bool (*is_global)(const void*)) = nullptr;
  int (*race_count)() = nullptr;
  const char* (*race_text)(int) = nullptr;

 private:
  template <class F>
  static F symbol(void* library, const char* name) {
    return reinterpret_cast<F>(dlsym(library, name));
  }
  const simt_kernel* table_ = nullptr;
};

class Runner {
 public:
  /// Runs one launch; "" or what went wrong. `seed` 0 = lanes in order.
  std::string run(Module& module, const simt_kernel& kernel, const void* args, int blocks, int threads,
                  size_t dynamic, unsigned seed) {
    module_ = &module, kernel_ = &kernel, args_ = args, seeded_ = seed != 0;
    random_.seed(seed);
    error_.clear(), note_.clear();
    if (module.race_begin) module.race_begin(nullptr);
    install_handler();
    Runner* const outer = self();
    self() = this;
    for (int b = 0; b < blocks && error_.empty(); ++b) run_block(b, threads, dynamic);
    self() = outer;
    if (error_.empty()) error_ = note_;
    if (error_.empty() && module.race_count && module.race_count() > 0)
      error_ = std::string("data race: ") + module.race_text(0);
    return error_.empty() ? "" : std::string(kernel.name) + ": " + error_;
  }

  ~Runner() {
    for (void* block : stack_blocks_) munmap(block, kStack * (kStacksPerBlock + 1));
  }

 private:
  enum State { ready, at_barrier, meeting, ended };
  struct Fiber {
    simt_lane me{};
    void* stack_pointer = nullptr;
    char* stack = nullptr;
    State state = ready;
  };
  static constexpr size_t kStack = 64 * 1024, kStacksPerBlock = 64;
  static constexpr int kWarp = 32;  // the virtual warp that meets

  static Runner*& self() {
    static thread_local Runner* runner = nullptr;
    return runner;
  }

  void run_block(int bid, int threads, size_t dynamic) {
    poison(static_cast<char*>(module_->shared), module_->shared_bytes);
    dynamic_.resize(dynamic + 16);
    poison(dynamic_.data(), dynamic_.size());
    make_fibers(bid, threads);
    while (error_.empty() && alive_ > 0) {
      if (ready_count_ == 0) error_ = describe_stop();
      while (error_.empty() && ready_count_ > 0) resume(take_next());
    }
    for (Fiber& f : fibers_) free_stacks_.push_back(f.stack);
    fibers_.clear();
  }

  static void poison(char* at, size_t bytes) {
    const uint32_t pattern = 0x7fc0dead;
    for (size_t i = 0; i + 4 <= bytes; i += 4) memcpy(at + i, &pattern, 4);
  }

  void make_fibers(int bid, int threads) {
    const int width = module_->warp;
    fibers_.assign(static_cast<size_t>(threads), {});
    waves_.assign(static_cast<size_t>((threads + width - 1) / width), {});
    copies_.resize(static_cast<size_t>(threads));
    for (simt_copies& c : copies_) c.count = c.closed = 0;
    const size_t warps = static_cast<size_t>((threads + kWarp - 1) / kWarp);
    warp_alive_.assign(warps, 0), warp_meeting_.assign(warps, 0), priority_.assign(warps, 0);
    alive_ = threads, waiting_ = 0;
    ready_.assign(warps, {}), ready_count_ = 0;
    auto* const shared =
        reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(dynamic_.data()) + 15) & ~uintptr_t{15});
    for (int t = 0; t < threads; ++t) {
      Fiber& f = fibers_[static_cast<size_t>(t)];
      f.me = {t, t % width, bid,         0,        &waves_[static_cast<size_t>(t / width)], shared,
              0, 0,         &on_barrier, &on_meet, &copies_[static_cast<size_t>(t)]};
      ++warp_alive_[static_cast<size_t>(t / kWarp)];
      add_ready(t);
      f.stack = take_stack();
      start(f);
    }
  }

  char* take_stack() {
    if (free_stacks_.empty()) {
      void* const block = mmap(nullptr, kStack * (kStacksPerBlock + 1), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (block == MAP_FAILED) abort();
      stack_blocks_.push_back(block);
      char* const first = static_cast<char*>(block) + (kStack - reinterpret_cast<uintptr_t>(block) % kStack);
      for (size_t i = 0; i < kStacksPerBlock; ++i) free_stacks_.push_back(first + kStack * i);
    }
    char* const stack = free_stacks_.back();
    free_stacks_.pop_back();
    return stack;
  }

  /// Lays out a stack on which simt_switch() returns into entry().
  static void start(Fiber& f) {
#if defined(__x86_64__)
    // Stacks begin at different places within their 64 KB, or all of them would share the same few cache
    // lines.
    auto* sp = reinterpret_cast<void**>(f.stack + kStack - static_cast<size_t>(f.me.tid % 61) * 320);
    *--sp = nullptr;  // entry() never returns; keeps the stack at 16 bytes + 8 as after a call
    *--sp = reinterpret_cast<void*>(&entry);
    for (size_t i = 0; i < kSavedRegisters; ++i) *--sp = nullptr;
#else
    auto* sp = reinterpret_cast<void**>(f.stack + kStack - 176);
    memset(sp, 0, 176);
    sp[11] = reinterpret_cast<void*>(&entry);  // x30
#endif
    f.stack_pointer = sp;
  }

  void add_ready(int lane) {
    ready_[static_cast<size_t>(lane / kWarp)].push_back(lane);
    ++ready_count_;
  }

  /// The next lane to run. Seeded: any of the warp that is first in an order that is redrawn now and then.
  int take_next() {
    if (seeded_ && left_-- <= 0) {
      for (int& p : priority_) p = static_cast<int>(random_() & 0xffff);
      left_ = 1 + static_cast<int>(random_() % 1000);
    }
    size_t best = ready_.size();
    for (size_t w = 0; w < ready_.size(); ++w)
      if (!ready_[w].empty() && (best == ready_.size() || priority_[w] > priority_[best])) best = w;
    std::vector<int>& lanes = ready_[best];
    const size_t at = seeded_ ? random_() % lanes.size() : lanes.size() - 1;
    const int lane = lanes[at];
    lanes[at] = lanes.back();
    lanes.pop_back();
    --ready_count_;
    return lane;
  }

  void resume(int lane) {
    Fiber& f = fibers_[static_cast<size_t>(lane)];
    running_ = &f;
    *module_->current = &f.me;
    if (sigsetjmp(escape_, 0) == 0) {
      simt_switch(&main_stack_, f.stack_pointer);
    } else {
      error_ = fault_;
      return;
    }
    if (f.state != ended) return;
    --alive_, --warp_alive_[static_cast<size_t>(lane / kWarp)];
    // An end can complete a barrier or a meeting.
    if (alive_ > 0 && waiting_ == alive_) release_barrier();
    const auto w = static_cast<size_t>(lane / kWarp);
    if (warp_alive_[w] > 0 && warp_meeting_[w] == warp_alive_[w]) release_warp(w);
  }

  void release_barrier() {
    if (alive_ != static_cast<int>(fibers_.size()) && note_.empty())
      note_ = "barrier in divergent code: " + std::to_string(fibers_.size() - static_cast<size_t>(alive_)) +
              " lanes of block " + std::to_string(running_->me.bid) + " had ended before it";
    waiting_ = 0;
    for (Fiber& f : fibers_)
      if (f.state == at_barrier) wake(f), ++f.me.bar_epoch;
  }
  void release_warp(size_t w) {
    warp_meeting_[w] = 0;
    for (size_t t = w * kWarp; t < (w + 1) * kWarp && t < fibers_.size(); ++t)
      if (fibers_[t].state == meeting) wake(fibers_[t]), ++fibers_[t].me.warp_epoch;
  }
  void wake(Fiber& f) {
    f.state = ready;
    add_ready(f.me.tid);
  }

  std::string describe_stop() const {
    int bar = 0, met = 0;
    for (const Fiber& f : fibers_) bar += f.state == at_barrier, met += f.state == meeting;
    return "divergence: block stuck with " + std::to_string(bar) + " lanes at a barrier and " +
           std::to_string(met) + " in an exchange, of " + std::to_string(alive_) + " alive";
  }

  void leave() { simt_switch(&running_->stack_pointer, main_stack_); }
  static void on_barrier() {
    Runner& r = *self();
    r.running_->state = at_barrier;
    if (++r.waiting_ == r.alive_) r.release_barrier();
    r.leave();
  }
  static void on_meet() {
    Runner& r = *self();
    r.running_->state = meeting;
    const auto w = static_cast<size_t>(r.running_->me.tid / kWarp);
    if (++r.warp_meeting_[w] == r.warp_alive_[w]) r.release_warp(w);
    r.leave();
  }
  static void entry() {
    Runner& r = *self();
    r.kernel_->call(r.args_);
    r.running_->state = ended;
    r.leave();
    abort();
  }

  /// An access outside a buffer meets a guard page: the lane is named instead of the process dying.
  static void on_fault(int number, siginfo_t* info, void*) {
    Runner* const r = self();
    if (!r || !r->running_) {
      signal(number, SIG_DFL);
      raise(number);
      return;
    }
    char text[200];
    snprintf(text, sizeof text, "memory access fault: block %d thread %d address %p", r->running_->me.bid,
             r->running_->me.tid, info->si_addr);
    r->fault_ = text;
    siglongjmp(r->escape_, 1);
  }
  static void install_handler() {
    static thread_local bool installed = false;
    if (installed) return;
    installed = true;
    static thread_local std::vector<char> stack(64 * 1024);
    stack_t alternate{};
    alternate.ss_sp = stack.data(), alternate.ss_size = stack.size();
    sigaltstack(&alternate, nullptr);
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
  }

  Module* module_ = nullptr;
  const simt_kernel* kernel_ = nullptr;
  const void* args_ = nullptr;
  bool seeded_ = false;
  std::mt19937 random_;
  std::string error_, note_, fault_;
  std::vector<Fiber> fibers_;
  std::vector<simt_wave> waves_;
  std::vector<simt_copies> copies_;
  std::vector<int> warp_alive_, warp_meeting_, priority_;
  std::vector<std::vector<int>> ready_;  ///< by virtual warp
  int ready_count_ = 0, alive_ = 0, waiting_ = 0, left_ = 0;
  std::vector<char> dynamic_;
  std::vector<char*> free_stacks_;
  std::vector<void*> stack_blocks_;
  Fiber* running_ = nullptr;
  void* main_stack_ = nullptr;
  sigjmp_buf escape_;
};

}  // namespace simt
