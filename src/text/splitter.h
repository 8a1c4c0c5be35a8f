// The two split expressions of model-spec 2.2, compiled.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "text/tokenizer.h"

namespace skald::text {

/// Cuts normalised text into the pieces that BPE works on. Immutable; one Scratch per thread of use.
class Splitter {
 public:
  Splitter();
  ~Splitter();
  Splitter(const Splitter&) = delete;
  Splitter& operator=(const Splitter&) = delete;

  /// Working memory of the matcher.
  class Scratch {
   public:
    explicit Scratch(const Splitter& splitter);
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class Splitter;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  /// Bytes of the piece that starts at `start` (below the size) of valid UTF-8. With `more_may_follow`,
  /// nothing if text after the end could change the piece.
  std::optional<size_t> piece_length(SplitRule rule, std::string_view text, size_t start,
                                     bool more_may_follow, Scratch& scratch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skald::text
