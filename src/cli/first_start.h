// The self-test of a GPU at its first start.
#pragma once

#include "skald/skald.h"

namespace skald::cli {

struct Session;

/// Has every GPU that is opened with these options checked: once per device, driver and build by the
/// self-test (diagnose/self_test.h), later by the result that was kept. A device that failed is refused with
/// Error(device). SKALD_SELF_TEST=off skips it with a warning. The session must outlive the options.
void check_gpus_first(Session& session, EngineOptions& options);

}  // namespace skald::cli
