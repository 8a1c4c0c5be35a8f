// A pickle machine without the dangerous half: calls are recognised, not made.
#include "voice/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "voice/byte_reader.h"
#include "voice/voice_checks.h"

namespace skald::voice {
namespace {

using Kind = PickleValue::Kind;

constexpr size_t kMostValues = 1 << 18, kMostStack = 1 << 16;
/// Of all containers together. A value that is recalled costs two bytes of the file, however much it holds.
constexpr size_t kMostItems = 1 << 20;
constexpr size_t kMostName = 256;  ///< of modules, classes and raw data

/// What a pickle may name. Everything else ends the reading.
constexpr std::string_view kGlobals[] = {
    "torch._utils _rebuild_tensor_v2",
    "collections OrderedDict",
    "torch FloatStorage",
    "torch DoubleStorage",
    "torch HalfStorage",
    "torch BFloat16Storage",
    "torch LongStorage",
    "torch IntStorage",
    "torch ShortStorage",
    "torch CharStorage",
    "torch ByteStorage",
    "torch BoolStorage",
};
constexpr std::string_view kItem = "VoiceClonePromptItem";  // in whatever module it lives

class Machine final : ByteReader {
 public:
  Machine(std::string_view bytes, const std::string& file) : ByteReader(bytes), file_(file) {}

  PickleDocument run() {
    while (!done_) step(static_cast<unsigned char>(take(1)[0]));
    if (stack_.size() != 1) fail("does not end with one value");
    document_.root = stack_[0];
    check_depth();
    return std::move(document_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    refuse(file_, fmt::format("holds a pickle that {} (byte {}); nothing of it was executed", why, at_));
  }

  [[noreturn]] void cut_short() const override { fail("was cut short"); }
  std::string line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos || end - at_ > kMostName) fail("names something without an end");
    const std::string out(bytes_.substr(at_, end - at_));
    at_ = end + 1;
    return out;
  }

  void push(PickleValue value) {
    if (document_.values.size() >= kMostValues || stack_.size() >= kMostStack) fail("has too many values");
    stack_.push_back(static_cast<int32_t>(document_.values.size()));
    document_.values.push_back(std::move(value));
  }
  void push(Kind kind) { push(PickleValue{.kind = kind}); }
  void push_integer(Kind kind, int64_t value) { push(kind), value_of(stack_.back()).integer = value; }
  void push_text(Kind kind, std::string text) { push(kind), value_of(stack_.back()).text = std::move(text); }

  int32_t pop() {
    if (stack_.empty() || value_of(stack_.back()).kind == Kind::mark) fail("takes a value that is not there");
    const int32_t index = stack_.back();
    stack_.pop_back();
    return index;
  }
  std::vector<int32_t> pop_to_mark() {
    const auto mark = std::find_if(stack_.rbegin(), stack_.rend(),
                                   [&](int32_t i) { return value_of(i).kind == Kind::mark; });
    if (mark == stack_.rend()) fail("closes a list that was not opened");
    std::vector<int32_t> items(mark.base(), stack_.end());
    stack_.erase(mark.base() - 1, stack_.end());
    count_items(items.size());
    return items;
  }
  PickleValue& value_of(int32_t index) { return document_.values[static_cast<size_t>(index)]; }
  PickleValue& top(Kind kind) {
    if (stack_.empty() || value_of(stack_.back()).kind != kind) fail("fills something that is no container");
    return value_of(stack_.back());
  }

  void count_items(size_t more) {
    if (more > kMostItems - items_) fail("has too many values");
    items_ += more;
  }

  void tuple(size_t size) {
    count_items(size);
    std::vector<int32_t> items(size);
    for (size_t i = size; i-- > 0;) items[i] = pop();
    push(Kind::list);
    value_of(stack_.back()).items = std::move(items);
  }
  void add_items(std::vector<int32_t> items, Kind kind) {
    if (kind == Kind::dictionary && items.size() % 2 != 0) fail("has a key without a value");
    count_items(items.size());
    PickleValue& container = top(kind);
    container.items.insert(container.items.end(), items.begin(), items.end());
  }

  void global(const std::string& module, const std::string& name) {
    if (module.size() > kMostName || name.size() > kMostName) fail("names something too long");
    const std::string full = module + " " + name;
    if (name != kItem && std::find(std::begin(kGlobals), std::end(kGlobals), full) == std::end(kGlobals)) {
      std::string shown;
      for (const char c : full.substr(0, 100)) shown += c >= ' ' && c <= '~' ? (c == ' ' ? '.' : c) : '?';
      fail(fmt::format("names '{}', which no voice needs", shown));
    }
    push_text(Kind::global, full);
  }

  /// An object without state, to be filled by BUILD: a dictionary.
  void new_object() {
    pop();
    if (value_of(pop()).kind != Kind::global) fail("makes an object of what is no class");
    push(Kind::dictionary);
  }

  void persistent() {
    const PickleValue& id = value_of(pop());
    const auto text = [&](size_t i) -> const std::string& { return value_of(id.items[i]).text; };
    if (id.kind != Kind::list || id.items.size() != 5 || text(0) != "storage" ||
        value_of(id.items[1]).kind != Kind::global || value_of(id.items[4]).kind != Kind::integer)
      fail("refers to data in a way that torch does not");
    if (text(2).size() > kMostName) fail("names something too long");
    PickleValue storage{.kind = Kind::storage, .text = text(1), .key = text(2)};
    storage.integer = value_of(id.items[4]).integer;
    push(std::move(storage));
  }

  std::vector<int64_t> integers(int32_t index) {
    const PickleValue& list = value_of(index);
    if (list.kind != Kind::list || list.items.size() > 8) fail("has a tensor of an impossible shape");
    std::vector<int64_t> out;
    for (const int32_t i : list.items) {
      if (value_of(i).kind != Kind::integer) fail("has a tensor of an impossible shape");
      out.push_back(value_of(i).integer);
    }
    return out;
  }

  /// The two calls that a voice contains: a tensor over a storage, and an empty dictionary.
  void reduce() {
    const PickleValue& arguments = value_of(pop());
    const PickleValue& function = value_of(pop());
    if (function.kind != Kind::global || arguments.kind != Kind::list) fail("calls what is no function");
    if (function.text == "collections OrderedDict" && arguments.items.empty()) return push(Kind::dictionary);
    if (function.text != kGlobals[0] || arguments.items.size() < 4) fail("makes a call that no voice needs");
    const PickleValue& storage = value_of(arguments.items[0]);
    const PickleValue& offset = value_of(arguments.items[1]);
    if (storage.kind != Kind::storage || offset.kind != Kind::integer) fail("has a tensor without data");
    PickleValue tensor{.kind = Kind::tensor, .text = storage.text, .key = storage.key};
    tensor.integer = offset.integer;
    tensor.shape = integers(arguments.items[2]), tensor.stride = integers(arguments.items[3]);
    push(std::move(tensor));
  }

  /// State of the object below: its dictionary, or a pair of that and nothing.
  void build() {
    int32_t state = pop();
    if (value_of(state).kind == Kind::list && value_of(state).items.size() == 2)
      state = value_of(state).items[0];
    if (value_of(state).kind != Kind::dictionary) fail("gives an object a state that is no dictionary");
    const std::vector<int32_t> items = value_of(state).items;
    add_items(items, Kind::dictionary);
  }

  void memoize(uint64_t slot) {
    if (stack_.empty()) fail("remembers a value that is not there");
    if (memo_.size() >= kMostValues && !memo_.contains(slot)) fail("remembers too many values");
    memo_[slot] = stack_.back();
  }
  void recall(uint64_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) fail("recalls a value that it did not keep");
    if (stack_.size() >= kMostStack) fail("has too many values");
    stack_.push_back(found->second);
  }

  int64_t long_integer() {
    const uint64_t size = number(1);
    if (size > 8) fail("has a number beyond 64 bits");
    if (size == 0) return 0;
    const uint64_t bits = number(size) << (64 - 8 * size);
    return static_cast<int64_t>(bits) >> (64 - 8 * size);
  }

  bool step_values(unsigned char code) {
    switch (code) {
      case 'N': push(Kind::none); break;
      case 0x88: push_integer(Kind::boolean, 1); break;
      case 0x89: push_integer(Kind::boolean, 0); break;
      case 'J': push_integer(Kind::integer, static_cast<int32_t>(number(4))); break;
      case 'K': push_integer(Kind::integer, static_cast<int64_t>(number(1))); break;
      case 'M': push_integer(Kind::integer, static_cast<int64_t>(number(2))); break;
      case 0x8A: push_integer(Kind::integer, long_integer()); break;
      case 'G': {
        uint64_t bits = 0;
        for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
        push(Kind::real);
        value_of(stack_.back()).real = std::bit_cast<double>(bits);
        break;
      }
      case 'X': push_text(Kind::text, std::string(take(number(4)))); break;
      case 0x8C: push_text(Kind::text, std::string(take(number(1)))); break;
      case 0x8D: push_text(Kind::text, std::string(take(number(8)))); break;
      default: return false;
    }
    return true;
  }

  bool step_containers(unsigned char code) {
    switch (code) {
      case '(': push(Kind::mark); break;
      case ')': push(Kind::list); break;
      case ']': push(Kind::list); break;
      case '}': push(Kind::dictionary); break;
      case 't': {
        std::vector<int32_t> items = pop_to_mark();
        push(Kind::list);
        value_of(stack_.back()).items = std::move(items);
        break;
      }
      case 0x85: tuple(1); break;
      case 0x86: tuple(2); break;
      case 0x87: tuple(3); break;
      case 'a': {
        const int32_t item = pop();
        add_items({item}, Kind::list);
        break;
      }
      case 'e': add_items(pop_to_mark(), Kind::list); break;
      case 's': {
        const int32_t value = pop(), key = pop();
        add_items({key, value}, Kind::dictionary);
        break;
      }
      case 'u': add_items(pop_to_mark(), Kind::dictionary); break;
      default: return false;
    }
    return true;
  }

  void step(unsigned char code) {
    if (step_values(code) || step_containers(code)) return;
    switch (code) {
      case 0x80:
        if (const uint64_t version = number(1); version < 2 || version > 5) fail("has an unknown version");
        break;
      case 0x95: number(8); break;  // a frame: its length is of no interest
      case '.': done_ = true; break;
      case 'q': memoize(number(1)); break;
      case 'r': memoize(number(4)); break;
      case 0x94: memoize(memo_.size()); break;
      case 'h': recall(number(1)); break;
      case 'j': recall(number(4)); break;
      case '0': pop(); break;
      case 'c': {
        const std::string module = line();
        global(module, line());
        break;
      }
      case 0x93: {
        const std::string name = value_of(pop()).text, module = value_of(pop()).text;
        global(module, name);
        break;
      }
      case 'Q': persistent(); break;
      case 'R': reduce(); break;
      case 0x81: new_object(); break;
      case 'b': build(); break;
      default: fail(fmt::format("has the instruction {:#04x}, which no voice needs", code));
    }
  }

  /// Readers go down a few levels; a value that holds itself, or a very deep one, is no voice.
  void check_depth() {
    constexpr int kDeepest = 16;
    std::vector<int32_t> level{document_.root};
    for (int depth = 0; !level.empty(); ++depth) {
      if (depth > kDeepest) fail("is nested too deeply");
      std::vector<int32_t> next;
      for (const int32_t i : level) {
        const std::vector<int32_t>& items = value_of(i).items;
        next.insert(next.end(), items.begin(), items.end());
        if (next.size() > kMostValues) fail("has too many values");
      }
      level = std::move(next);
    }
  }

  const std::string& file_;
  size_t items_ = 0;  ///< of all containers
  bool done_ = false;
  std::vector<int32_t> stack_;
  std::map<uint64_t, int32_t> memo_;
  PickleDocument document_;
};

}  // namespace

const PickleValue* PickleDocument::find(const PickleValue& dictionary, std::string_view key) const {
  if (dictionary.kind != Kind::dictionary) return nullptr;
  for (size_t i = 0; i + 1 < dictionary.items.size(); i += 2) {
    const PickleValue& k = at(dictionary.items[i]);
    if (k.kind == Kind::text && k.text == key) return &at(dictionary.items[i + 1]);
  }
  return nullptr;
}

PickleDocument read_pickle(std::string_view bytes, const std::string& file) {
  return Machine(bytes, file).run();
}

}  // namespace skald::voice
