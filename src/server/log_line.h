// What the server tells the person who runs it. Never a text, a transcript or a name of a request.
#pragma once

#include <functional>
#include <string>

namespace skald::server {

enum class LogLevel : uint8_t { note, warning, error };
/// Called from any thread; must not block.
using LogSink = std::function<void(LogLevel, const std::string&)>;

}  // namespace skald::server
