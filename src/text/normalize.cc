// NFC on utf8proc's character data.
#include "text/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "skald/error.h"
#include "text/utf8.h"

namespace skald::text {
namespace {

using Unit = utf8proc_int32_t;
using Units = std::vector<Unit>;

constexpr char32_t kLastDecomposable = 0x2FFFF;  // no canonical mapping lies above plane 2
constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);

/// The reference normalises with the data of Unicode 9: these later characters have no combining class and
/// compose with nothing there. The list holds those that utf8proc treats otherwise, and whole blocks that
/// were empty in Unicode 9.
struct Range {
  char32_t first, last;
};
constexpr std::array<Range, 44> kInert{
    {{0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
     {0xCF3, 0xCF3},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x1715, 0x1715},
     {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x105C0, 0x105FF}, {0x10D24, 0x10D27},
     {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFC, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
     {0x11070, 0x11070}, {0x11241, 0x11241}, {0x1133B, 0x1133B}, {0x11380, 0x113FF}, {0x1145E, 0x1145E},
     {0x11839, 0x1183A}, {0x11900, 0x1195F}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
     {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F00, 0x11F5F},
     {0x16100, 0x1613F}, {0x16D40, 0x16D7F}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E08F}, {0x1E130, 0x1E136},
     {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4D0, 0x1E4FF}, {0x1E5D0, 0x1E5FF}}};

bool is_inert(char32_t c) {
  const auto it = std::lower_bound(kInert.begin(), kInert.end(), c,
                                   [](const Range& r, char32_t x) { return r.last < x; });
  return it != kInert.end() && it->first <= c;
}

int combining_class(Unit c) { return utf8proc_get_property(c)->combining_class; }

/// The full canonical decomposition of a character; its marks are not ordered yet.
struct Decomposed {
  std::array<Unit, 32> units;
  size_t count = 0;

  explicit Decomposed(char32_t c) {
    int boundary = 0;
    const auto result = utf8proc_decompose_char(static_cast<Unit>(c), units.data(), units.size(),
                                                UTF8PROC_DECOMPOSE, &boundary);
    if (result < 1 || static_cast<size_t>(result) > units.size()) {
      throw Error(ErrorCode::internal, "utf8proc could not decompose a character");
    }
    count = static_cast<size_t>(result);
  }
  const Unit* begin() const { return units.data(); }
  const Unit* end() const { return units.data() + count; }
};

/// Composes in place; the marks must be in canonical order.
void compose(Units& units) {
  const auto count =
      utf8proc_normalize_utf32(units.data(), static_cast<utf8proc_ssize_t>(units.size()), kCompose);
  if (count < 0) throw Error(ErrorCode::internal, "utf8proc could not compose a text");
  units.resize(static_cast<size_t>(count));
}

/// utf8proc's own ordering swaps neighbours, which is quadratic for hostile runs of marks.
void order_marks(Units& units) {
  for (auto run = units.begin(); run != units.end();) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(run, units.end(), [](Unit c) { return combining_class(c) == 0; });
    std::stable_sort(run, end, [](Unit a, Unit b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
}

/// Which characters take part in canonical composition, read off utf8proc's own data.
struct Compositions {
  std::vector<Unit> firsts;   // can absorb a following character
  std::vector<Unit> seconds;  // can be absorbed by a preceding one

  Compositions() {
    for (char32_t c = 0xC0; c <= kLastDecomposable; ++c) {
      if ((c >= 0xAC00 && c <= 0xD7FF) || is_inert(c)) continue;  // Hangul follows by arithmetic
      const Decomposed parts(c);
      seconds.insert(seconds.end(), parts.begin() + 1, parts.end());
      for (size_t length = 1; length < parts.count; ++length) {
        Units prefix(parts.begin(), parts.begin() + length);
        compose(prefix);
        firsts.push_back(prefix.back());
      }
    }
    for (Unit c = 0x1100; c <= 0x1112; ++c) firsts.push_back(c);
    for (Unit c = 0xAC00; c <= 0xD7A3; c += 28) firsts.push_back(c);
    for (Unit c = 0x1161; c <= 0x1175; ++c) seconds.push_back(c);
    for (Unit c = 0x11A8; c <= 0x11C2; ++c) seconds.push_back(c);
    for (auto* list : {&firsts, &seconds}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
  }

  static const Compositions& table() {
    static const Compositions instance;
    return instance;
  }
};

bool contains(const std::vector<Unit>& sorted, Unit c) {
  return std::binary_search(sorted.begin(), sorted.end(), c);
}

}  // namespace

void append_nfc(std::string_view utf8, std::string& out) {
  // Nothing below U+0300 (lead byte 0xCC) changes or combines.
  if (std::all_of(utf8.begin(), utf8.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; })) {
    out += utf8;
    return;
  }
  Units units;
  units.reserve(utf8.size());
  const auto flush = [&] {
    order_marks(units);
    compose(units);
    for (const Unit unit : units) append_utf8(out, static_cast<char32_t>(unit));
    units.clear();
  };
  for (size_t pos = 0; pos < utf8.size();) {
    const CodePoint cp = code_point_at(utf8, pos);
    pos += cp.length;
    if (is_inert(cp.value)) {
      flush();
      append_utf8(out, cp.value);
    } else {
      const Decomposed parts(cp.value);
      units.insert(units.end(), parts.begin(), parts.end());
    }
  }
  flush();
}

bool nfc_starts(char32_t c) {
  if (c < 0x300 || is_inert(c)) return true;
  const Unit front = Decomposed(c).units[0];
  return combining_class(front) == 0 && !contains(Compositions::table().seconds, front);
}

bool nfc_closed(char32_t c) {
  if (is_inert(c)) return true;
  if (!nfc_starts(c)) return false;
  const Decomposed decomposed(c);
  // A later mark may slip in front of the marks inside a precomposed letter.
  if (std::any_of(decomposed.begin(), decomposed.end(), [](Unit u) { return combining_class(u) != 0; }))
    return false;
  Units parts(decomposed.begin(), decomposed.end());
  compose(parts);
  return parts.size() == 1 && !contains(Compositions::table().firsts, parts.front());
}

}  // namespace skald::text
