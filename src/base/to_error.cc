// The one chain of handlers between exceptions and codes.
#include "base/to_error.h"

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <system_error>

namespace skald {
namespace {

/// The standard library reports a thread that cannot be started as a resource that is unavailable.
Error of_system(const std::system_error& error) {
  if (error.code() == std::errc::resource_unavailable_try_again)
    return Error(ErrorCode::device,
                 fmt::format("cannot start a thread ({}); raise the limits on memory and processes",
                             error.code().message()));
  return Error(ErrorCode::internal, error.what());
}

}  // namespace

Error to_error(std::exception_ptr error) noexcept {
  try {
    std::rethrow_exception(std::move(error));
  } catch (const Error& e) {
    return e;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::out_of_memory, "memory ran out");
  } catch (const std::filesystem::filesystem_error& e) {
    return Error(ErrorCode::io, fmt::format("cannot use '{}': {}", e.path1().string(), e.code().message()));
  } catch (const std::system_error& e) {
    return of_system(e);
  } catch (const std::exception& e) {
    return Error(ErrorCode::internal, e.what());
  } catch (...) {
    return Error(ErrorCode::internal, "an exception of unknown type");
  }
}

}  // namespace skald
