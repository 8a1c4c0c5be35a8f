// Bounds for what a test may allocate: replaces operator new of the program. Included by one of its files
// only.
#pragma once

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace skald::test {

inline std::atomic<size_t> heap_used = 0, heap_most = SIZE_MAX, heap_largest = SIZE_MAX;

/// While it lives, std::bad_alloc comes of every allocation, on any thread, that is larger than `largest` or
/// brings the heap more than `growth` bytes above what it was.
class HeapLimit {
 public:
  explicit HeapLimit(size_t growth, size_t largest = SIZE_MAX) {
    heap_most = heap_used > SIZE_MAX - growth ? SIZE_MAX : heap_used + growth;
    heap_largest = largest;
  }
  HeapLimit(const HeapLimit&) = delete;
  HeapLimit& operator=(const HeapLimit&) = delete;
  ~HeapLimit() { heap_most = heap_largest = SIZE_MAX; }
};

}  // namespace skald::test

void* operator new(size_t size) {
  using namespace skald::test;
  if (size > heap_largest || size > heap_most || heap_used > heap_most - size) throw std::bad_alloc();
  void* const p = std::malloc(size > 0 ? size : 1);
  if (!p) throw std::bad_alloc();
  heap_used += malloc_usable_size(p);
  return p;
}

// All forms that come and go in pairs, since a sanitizer has its own of each.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (...) {
    return nullptr;
  }
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new[](size_t size, const std::nothrow_t& tag) noexcept { return operator new(size, tag); }

void operator delete(void* p) noexcept {
  if (p) skald::test::heap_used -= malloc_usable_size(p);
  std::free(p);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }
void operator delete[](void* p) noexcept { operator delete(p); }
void operator delete[](void* p, size_t) noexcept { operator delete(p); }
