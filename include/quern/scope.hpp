// floor: 2
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <quern/detail/memory.hpp>
#include <quern/detail/poison.hpp>
#include <quern/detail/step_slab.hpp>
#include <quern/error.hpp>
#include <quern/trace.hpp>

/// @file
/// Where bytes live and for how long. A scope is a std::pmr::memory_resource that knows its kind
/// and counts its live bytes. A scope serves one thread at a time.

namespace quern {

namespace detail {

/// Aligned memory; large blocks ask the kernel for large pages.
class WeightMemory final : public std::pmr::memory_resource {
  static std::align_val_t alignment(std::size_t bytes, std::size_t wanted) noexcept {
    return std::align_val_t{std::max(alignment_for(bytes), wanted)};
  }
  void* do_allocate(std::size_t bytes, std::size_t wanted) override {
    refuse_impossible(bytes);
    void* data = ::operator new(bytes, alignment(bytes, wanted));
    advise_huge_pages(data, bytes);
    return data;
  }
  void do_deallocate(void* data, std::size_t bytes, std::size_t wanted) override {
    ::operator delete(data, alignment(bytes, wanted));
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

inline WeightMemory weight_memory_instance;

} // namespace detail

/// The memory resource that ModelScope draws from by default: aligned to a cache line, blocks of
/// 4 MiB and more to 2 MiB with a request for large pages.
[[nodiscard]] inline std::pmr::memory_resource* weight_memory() noexcept {
  return &detail::weight_memory_instance;
}

/// A memory resource with a kind and a byte count.
class Scope : public std::pmr::memory_resource {
public:
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  /// Frees nothing by itself: derived classes own the memory.
  ~Scope() override = default;

  /// The kind of scope, as it stands in trace events.
  [[nodiscard]] std::string_view kind() const noexcept { return kind_; }
  /// True when memory stays valid until the scope dies, as a prepacked weight needs.
  [[nodiscard]] bool holds_weights() const noexcept { return holds_weights_; }
  /// Bytes handed out and not given back, without padding.
  [[nodiscard]] std::size_t live_bytes() const noexcept { return live_; }
  /// The largest value that live_bytes() ever had.
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return peak_; }

protected:
  /// For derived classes. The text of `kind` and the sink must outlive the scope.
  Scope(std::string_view kind, bool holds_weights, Trace& trace) noexcept
      : kind_(kind), holds_weights_(holds_weights), trace_(trace) {}

  /// Adds to live_bytes(), and raises peak_bytes() with it.
  void count_in(std::size_t bytes) noexcept {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  /// Takes from live_bytes() what count_in() added.
  void count_out(std::size_t bytes) noexcept { live_ -= bytes; }
  /// The sink that derived classes report to.
  [[nodiscard]] Trace& trace() const noexcept { return trace_; }

private:
  std::string_view kind_;
  bool holds_weights_;
  Trace& trace_;
  std::size_t live_ = 0;
  std::size_t peak_ = 0;
};

/// "model scope, 216 bytes live, 432 at most".
[[nodiscard]] inline std::string to_string(const Scope& scope) {
  return std::string(scope.kind()) + " scope, " + std::to_string(scope.live_bytes()) +
         " bytes live, " + std::to_string(scope.peak_bytes()) + " at most";
}

/// Memory that lives as long as the model: freed when the scope dies, or earlier by deallocate().
class ModelScope final : public Scope {
public:
  /// Takes memory from `upstream` block by block and reports it to `trace`; both must outlive the
  /// scope.
  explicit ModelScope(Trace& trace = no_trace,
                      std::pmr::memory_resource* upstream = weight_memory())
      : Scope("model", true, trace), upstream_(upstream) {}
  /// Frees what is still live, with a Free event for each block.
  ~ModelScope() override {
    for (const auto& [data, block] : blocks_) {
      upstream_->deallocate(data, block.bytes, block.alignment);
      count_out(block.bytes);
      trace().emit(Free{kind(), block.bytes});
    }
  }

private:
  struct Block {
    std::size_t bytes;
    std::size_t alignment;
  };

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* data = upstream_->allocate(bytes, alignment);
    try {
      blocks_.emplace(data, Block{bytes, alignment});
    } catch (...) {
      upstream_->deallocate(data, bytes, alignment);
      throw;
    }
    count_in(bytes);
    trace().emit(Allocation{kind(), bytes});
    return data;
  }
  void do_deallocate(void* data, std::size_t /*bytes*/, std::size_t /*alignment*/) override {
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return;
    const Block block = found->second;
    blocks_.erase(found);
    upstream_->deallocate(data, block.bytes, block.alignment);
    count_out(block.bytes);
    trace().emit(Free{kind(), block.bytes});
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::pmr::memory_resource* upstream_;
  std::unordered_map<void*, Block> blocks_;
};

/// Whether a ForwardScope looks for uses of memory whose step has ended. It costs a second slab,
/// and a pass over both per step.
enum class ResetChecks {
  off, ///< no pass; uses after the end of a step go unseen
  on,  ///< a write after the end of its step is an Error, a read gives NaN
};

/// Memory of one forward step: a slab from which pieces are cut, given back all at once by
/// reset(). Requests that do not fit the slab are served one by one and counted as overflow. The
/// slab and the overflow are reported as Allocation and Free, pieces of the slab are not.
///
/// With ResetChecks::on, memory outside the pieces of this step is filled with 0xFF: reading it
/// gives NaN, and writing to it is found by the next allocate() or reset(), which then throws
/// Error(use_after_reset). Steps take turns with two slabs, so that no piece lies where one of the
/// step before was, though steps may all ask for the same. Under the address sanitizer a use of
/// memory outside the pieces stops the program where it is made, with or without these checks.
class ForwardScope final : public Scope {
public:
  /// `capacity` bytes are taken now and kept for all steps; twice as many with checks.
  explicit ForwardScope(std::size_t capacity, Trace& trace = no_trace,
                        ResetChecks checks = ResetChecks::off)
      : Scope("forward", false, trace), slab_(capacity, checks == ResetChecks::on) {
    trace.emit(Allocation{kind(), slab_.bytes()});
  }
  /// Frees the slab and the overflow, with their Free events.
  ~ForwardScope() override {
    free_blocks(overflow_, true);
    free_blocks(ended_, false);
    trace().emit(Free{kind(), slab_.bytes()});
  }

  /// Ends the step: everything allocated since the last reset is invalid. Emits ScopeReset. Throws
  /// Error(use_after_reset), see above; the step then has ended all the same.
  void reset() {
    trace().emit(ScopeReset{kind(), live_bytes(), peak_bytes()});
    const std::size_t changed = slab_.end_step();
    const bool block_changed = slab_.checks() && any_ended_block_changed();
    free_blocks(ended_, false);
    if (slab_.checks())
      end_blocks();
    else
      free_blocks(overflow_, true);
    overflow_bytes_ = 0;
    count_out(live_bytes());
    ++steps_;
    if (changed != capacity()) detail::StepSlab::throw_changed("reset", changed);
    if (block_changed)
      throw Error(ErrorCode::use_after_reset,
                  "quern::ForwardScope::reset: memory outside the slab was written after its step "
                  "had ended; keep no pointer across reset(), or retain() what must last");
  }

  /// Bytes of the slab.
  [[nodiscard]] std::size_t capacity() const noexcept { return slab_.capacity(); }
  /// How often reset() ran.
  [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
  /// Bytes of this step that did not fit the slab.
  [[nodiscard]] std::size_t overflow_bytes() const noexcept { return overflow_bytes_; }

private:
  struct Block {
    void* data;
    std::size_t bytes;
    std::size_t alignment;
  };
  using Blocks = std::vector<Block>;

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* at = slab_.take(bytes, alignment);
    if (at == nullptr) {
      // The entry comes first: if it can't be made, nothing has been taken yet.
      overflow_.push_back(Block{nullptr, bytes, alignment});
      try {
        if (slab_.checks()) ended_.reserve(overflow_.size()); // so that reset() needs no memory
        at = weight_memory()->allocate(bytes, alignment);
      } catch (...) {
        overflow_.pop_back();
        throw;
      }
      overflow_.back().data = at;
      overflow_bytes_ += bytes;
      trace().emit(Allocation{kind(), bytes});
    }
    count_in(bytes);
    return at;
  }
  void do_deallocate(void* /*data*/, std::size_t /*bytes*/, std::size_t /*align*/) override {
    // A step's memory is given back by reset() only.
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  void free_blocks(Blocks& blocks, bool report) noexcept {
    for (const Block& block : blocks) {
      detail::unpoison(static_cast<std::byte*>(block.data), block.bytes);
      weight_memory()->deallocate(block.data, block.bytes, block.alignment);
      if (report) trace().emit(Free{kind(), block.bytes});
    }
    blocks.clear();
  }

  /// Gives up the overflow of this step, but keeps its memory until the next reset, to see whether
  /// somebody still writes to it.
  void end_blocks() noexcept {
    for (const Block& block : overflow_) {
      auto* const data = static_cast<std::byte*>(block.data);
      std::fill_n(data, block.bytes, detail::dead_byte);
      detail::poison(data, block.bytes);
      trace().emit(Free{kind(), block.bytes});
    }
    ended_.swap(overflow_);
  }
  [[nodiscard]] bool any_ended_block_changed() const noexcept {
    return std::ranges::any_of(ended_, [](const Block& block) {
      const auto* const data = static_cast<const std::byte*>(block.data);
      detail::unpoison(data, block.bytes);
      return detail::first_changed(data, 0, block.bytes) != block.bytes;
    });
  }

  detail::StepSlab slab_;
  std::size_t steps_ = 0;
  std::size_t overflow_bytes_ = 0;
  Blocks overflow_;
  Blocks ended_; // overflow of the step before, while checks are on
};

} // namespace quern
