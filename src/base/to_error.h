// Whatever was thrown, as the library's one exception type.
#pragma once

#include <exception>

#include "skald/error.h"

namespace skald {

/// An Error as it is (of a derived type only its Error); memory exhaustion, files and threads that the system
/// refuses, and foreign exceptions get a code and a sentence. `error` must not be null.
Error to_error(std::exception_ptr error) noexcept;

}  // namespace skald
