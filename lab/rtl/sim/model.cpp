// The Verilated scheduler as a program: it reads one request from standard input, plays the memory
// and the clock around `ss_top`, and writes what happened to standard output.
//
// All numbers are little-endian. The request begins with "SSR1" and a byte for what is wanted:
//   'R' replay, 'O' order blocks, 'C' count clocks. See src/protocol.rs, the other end.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "Vss_top.h"
#include "verilated.h"

namespace {

constexpr int kSlots = SS_N;
constexpr int kIdBits = SS_N <= 32 ? 5 : 6;

// Bits `low .. low + width` of a port, however Verilator stores it.
template <typename T>
uint32_t bits(const T& port, int low, int width) {
  return static_cast<uint32_t>((static_cast<uint64_t>(port) >> low) & ((1ULL << width) - 1));
}
template <std::size_t W>
uint32_t bits(const VlWide<W>& port, int low, int width) {
  const int word = low / 32, shift = low % 32;
  uint64_t both = port[word];
  if (word + 1 < static_cast<int>(W)) both |= static_cast<uint64_t>(port[word + 1]) << 32;
  return static_cast<uint32_t>((both >> shift) & ((1ULL << width) - 1));
}

[[noreturn]] void fail(const char* why) {
  std::fprintf(stderr, "%s\n", why);
  std::exit(3);
}

uint64_t get(int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) {
    const int c = std::getchar();
    if (c == EOF) fail("the request ends early");
    value |= static_cast<uint64_t>(c) << (8 * i);
  }
  return value;
}

void put(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) std::putchar(static_cast<int>(value >> (8 * i)) & 0xff);
}

struct Stream {
  uint16_t period = 1, first = 0, flags = 0;
  uint8_t x = 0, y = 0;
  std::vector<uint64_t> arrivals;  // in order of time
  std::size_t fetched = 0;
};

struct Record {
  uint8_t kind;
  uint16_t deadline;
};
enum Kind : uint8_t { kDrop = 1, kMiss, kSend, kSendLate, kIdle, kTotals, kRange, kBlockEnd };

class Model {
 public:
  Model() {
    top_.rst_i = 1;
    clock();
    top_.rst_i = 0;
    top_.advance_i = 1;
  }

  void load(int id, const Stream& s) {
    const uint16_t words[4] = {s.period, static_cast<uint16_t>(s.x << 8 | s.y), s.first, s.flags};
    for (int word = 0; word < 4; word++) {
      top_.load_i = 1;
      top_.load_id_i = id;
      top_.load_word_i = word;
      top_.load_data_i = words[word];
      clock();
    }
    top_.load_i = 0;
  }

  void eval() { top_.eval(); }

  // One rising edge. Outputs are then those of the clock that begins with it.
  void clock() {
    top_.clk_i = 0;
    top_.eval();
    top_.clk_i = 1;
    top_.eval();
    clocks_++;
  }

  void start(uint16_t at) {
    top_.time_i = at;
    clock();
    top_.run_i = 1;
    clock();
  }

  uint32_t counter(int id, int which) {
    top_.read_id_i = id;
    top_.read_i = which;
    top_.eval();
    return top_.read_o;
  }

  Vss_top top_;
  uint64_t clocks_ = 0;
};

// A replay: every slot of time from 0 to `ticks`, exactly as the unit-slot model has it.
class Replay {
 public:
  Replay() {
    ticks_ = get(8);
    min_first_ = get(1);
    block_ = get(1);
    advance_ = get(1);
    streams_.resize(get(1));
    if (streams_.size() > kSlots) fail("more streams than slots");
    for (Stream& s : streams_) {
      s.period = get(2);
      s.x = get(1);
      s.y = get(1);
      s.first = get(2);
      s.flags = get(2);
      const uint64_t count = get(4);
      s.arrivals.resize(count);
      for (uint64_t& at : s.arrivals) at = get(8);
    }
    records_.resize(streams_.size());
  }

  void run() {
    Vss_top& top = model_.top_;
    top.min_first_i = min_first_;
    top.serve_all_i = block_;
    for (std::size_t id = 0; id < streams_.size(); id++) model_.load(id, streams_[id]);
    model_.start(0);
    for (t_ = 0; t_ < ticks_ && !range_; t_ += advance_) {
      // Nothing may expire after the last slot.
      top.advance_i = t_ + advance_ < ticks_ ? advance_ : 0;
      top.go_i = 0;
      for (;;) {
        offer();
        if (top.ready_o) break;
        step();
      }
      tell_expired();
      if (range_) break;
      top.go_i = 1;
      bool decided = false;
      while (!decided) {
        offer();
        step();
        top.go_i = 0;
        decided = told_;
        told_ = false;
      }
    }
    if (range_) {
      put(kRange, 1);
      put(range_stream_, 1);
      put(0, 2);
      put(range_, 1);
      put(range_at_, 8);
      return;
    }
    step();
    put(kTotals, 1);
    put(0, 3);
    for (std::size_t id = 0; id < streams_.size(); id++) {
      for (int which = 0; which < 6; which++) put(model_.counter(id, which), 4);
    }
    put(model_.clocks_, 8);
  }

 private:
  // Says which queues hold a frame that has arrived, and answers the fetch of the clock before.
  void offer() {
    uint64_t queued = 0;
    for (std::size_t id = 0; id < streams_.size(); id++) {
      const Stream& s = streams_[id];
      const bool there = s.fetched < s.arrivals.size() && s.arrivals[s.fetched] <= t_;
      queued |= static_cast<uint64_t>(there) << id;
    }
    model_.top_.queued_i = queued;
    model_.eval();
  }

  void step() {
    Vss_top& top = model_.top_;
    const bool fetch = top.fetch_o;
    const int id = top.fetch_id_o;
    model_.clock();
    if (fetch) {
      const uint64_t at = streams_[id].arrivals[streams_[id].fetched++];
      if (t_ - at > 32767) found(id, 2);
      top.arrival_i = static_cast<uint16_t>(at);
      model_.eval();
    }
    if (top.updated_o) take_events();
    if (ranges()) note_ranges();
  }

  bool ranges() const {
    for (int id = 0; id < static_cast<int>(streams_.size()); id++) {
      if (bits(model_.top_.seen_range_o, 3 * id, 3)) return true;
    }
    return false;
  }

  void note_ranges() {
    for (int id = 0; id < static_cast<int>(streams_.size()); id++) {
      const uint32_t range = bits(model_.top_.seen_range_o, 3 * id, 3);
      if (range) found(id, range);
    }
  }

  void found(int id, uint32_t range) {
    if (range_) return;
    range_ = range;
    range_stream_ = id;
    range_at_ = t_;
  }

  // The events of an update. Those of a decision are sends; the misses of the same update belong to
  // the next slot, and are told when it begins.
  void take_events() {
    Vss_top& top = model_.top_;
    const int count = static_cast<int>(streams_.size());
    if (top.decided_o) {
      told_ = true;
      if (block_) {
        for (int place = 0; place < kSlots; place++) {
          if (bits(top.block_valid_o, place, 1)) {
            send(bits(top.block_o, place * kIdBits, kIdBits));
          }
        }
      } else {
        for (int id = 0; id < count; id++) {
          if (bits(top.sent_o, id, 1)) send(id);
        }
      }
      if (!sent_) emit(kIdle, 0, 0);
      if (block_) put(kBlockEnd, 4);
      sent_ = false;
    }
    for (int id = 0; id < count; id++) {
      if (!bits(top.missed_o, id, 1)) continue;
      const uint8_t kind = bits(top.dropped_o, id, 1) ? kDrop : kMiss;
      records_[id].push_back({kind, seen(id)});
    }
  }

  uint16_t seen(int id) const { return bits(model_.top_.seen_deadline_o, 16 * id, 16); }

  void send(int id) {
    sent_ = true;
    emit(bits(model_.top_.late_o, id, 1) ? kSendLate : kSend, id, seen(id));
  }

  void tell_expired() {
    for (std::size_t id = 0; id < records_.size(); id++) {
      for (const Record& r : records_[id]) emit(r.kind, id, r.deadline);
      records_[id].clear();
    }
  }

  // A deadline leaves as its distance from the present slot.
  void emit(uint8_t kind, int id, uint16_t deadline) {
    put(kind, 1);
    put(id, 1);
    put(static_cast<uint16_t>(deadline - static_cast<uint16_t>(t_)), 2);
  }

  Model model_;
  std::vector<Stream> streams_;
  std::vector<std::vector<Record>> records_;
  uint64_t ticks_ = 0, t_ = 0, range_at_ = 0;
  uint8_t min_first_ = 0, block_ = 0, advance_ = 1;
  uint32_t range_ = 0;
  int range_stream_ = 0;
  bool told_ = false, sent_ = false;
};

// Blocks: heads are loaded with the deadlines and windows given, one decision is made.
void order() {
  const uint64_t trials = get(4);
  const uint8_t min_first = get(1);
  for (uint64_t trial = 0; trial < trials; trial++) {
    Model model;
    model.top_.min_first_i = min_first;
    for (int id = 0; id < kSlots; id++) {
      Stream s;
      s.flags = 0x1e;  // work-conserving, deadline stated, backlogged, active
      s.first = get(2);
      s.x = get(1);
      s.y = get(1);
      model.load(id, s);
    }
    model.start(0);
    model.eval();
    while (!model.top_.ready_o) model.clock();
    model.top_.go_i = 1;
    while (!model.top_.decided_o) {
      model.clock();
      model.top_.go_i = 0;
    }
    for (int place = 0; place < kSlots; place++) {
      put(bits(model.top_.block_o, place * kIdBits, kIdBits), 1);
    }
  }
}

// Clocks: backlogged streams, `go` held high. From the first clock of a decision to the one in which
// the winner is found; and from the first decision to the last.
void count() {
  const uint64_t decisions = get(4);
  Model model;
  for (int id = 0; id < kSlots; id++) {
    Stream s;
    s.period = kSlots;
    s.flags = 0x1a;
    s.x = 1;
    s.y = 2;
    model.load(id, s);
  }
  model.start(0);
  model.eval();
  while (!model.top_.ready_o) model.clock();
  model.top_.go_i = 1;
  const uint64_t begun = model.clocks_;
  uint64_t found = 0, first = 0, last = 0;
  for (uint64_t made = 0; made < decisions;) {
    model.clock();
    if (!found && model.top_.found_o) found = model.clocks_ - begun;
    if (!model.top_.decided_o) continue;
    made++;
    last = model.clocks_;
    if (made == 1) first = last;
  }
  put(found, 8);
  put(last - first, 8);
}

}  // namespace

int main() {
  static char out[1 << 16];
  std::setvbuf(stdout, out, _IOFBF, sizeof out);
  if (get(4) != 0x31525353) fail("the request does not begin with SSR1");
  switch (get(1)) {
    case 'R': {
      Replay replay;
      replay.run();
      break;
    }
    case 'O': order(); break;
    case 'C': count(); break;
    default: fail("unknown request");
  }
  return std::fflush(stdout) ? 3 : 0;
}
