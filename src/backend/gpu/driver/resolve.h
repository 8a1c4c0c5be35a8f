// Fills function pointers from a library and remembers the first one that is missing.
#pragma once

#include <string>

#include "backend/gpu/driver/search.h"

namespace skald::backend::gpu {

class Resolver {
 public:
  explicit Resolver(const Library& library) : library_(library) {}

  template <class F>
  void need(F*& to, const char* name) {
    to = reinterpret_cast<F*>(library_.find(name));
    if (!to && missing_.empty()) missing_ = name;
  }
  template <class F>
  void want(F*& to, const char* name) {
    to = reinterpret_cast<F*>(library_.find(name));
  }
  /// The newer name of a function, else the older one.
  template <class F>
  void need(F*& to, const char* name, const char* older) {
    want(to, name);
    if (!to) need(to, older);
  }
  const std::string& missing() const { return missing_; }

 private:
  const Library& library_;
  std::string missing_;
};

}  // namespace skald::backend::gpu
