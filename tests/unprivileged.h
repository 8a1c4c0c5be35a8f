// Tests of permissions, which the superuser does not feel.
#pragma once

#include <unistd.h>

namespace skald::test {

/// While it lives, a process of the superuser has the rights of nobody; any other stays what it is.
class Unprivileged {
 public:
  Unprivileged() : root_(::geteuid() == 0) {
    if (root_) dropped_ = ::seteuid(kNobody) == 0;
  }
  ~Unprivileged() {
    if (root_) (void)!::seteuid(0);
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;
  bool works() const { return !root_ || dropped_; }

 private:
  static constexpr uid_t kNobody = 65534;
  bool root_, dropped_ = false;
};

}  // namespace skald::test
