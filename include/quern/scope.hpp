// floor: 2
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <new>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <quern/detail/memory.hpp>
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
  Scope(std::string_view kind, bool holds_weights, Trace& trace) noexcept
      : kind_(kind), holds_weights_(holds_weights), trace_(trace) {}

  void count_in(std::size_t bytes) noexcept {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  void count_out(std::size_t bytes) noexcept { live_ -= bytes; }
  [[nodiscard]] Trace& trace() const noexcept { return trace_; }

private:
  std::string_view kind_;
  bool holds_weights_;
  Trace& trace_;
  std::size_t live_ = 0;
  std::size_t peak_ = 0;
};

/// Memory that lives as long as the model: freed when the scope dies, or earlier by deallocate().
class ModelScope final : public Scope {
public:
  explicit ModelScope(Trace& trace = no_trace,
                      std::pmr::memory_resource* upstream = weight_memory())
      : Scope("model", true, trace), upstream_(upstream) {}
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

/// Memory of one forward step: a slab from which pieces are cut, given back all at once by
/// reset(). Requests that do not fit the slab are served one by one and counted as overflow. The
/// slab and the overflow are reported as Allocation and Free, pieces of the slab are not.
class ForwardScope final : public Scope {
public:
  /// `capacity` bytes are taken now and kept for all steps.
  explicit ForwardScope(std::size_t capacity, Trace& trace = no_trace)
      : Scope("forward", false, trace), slab_(detail::allocate_bytes(capacity)),
        capacity_(capacity) {
    trace.emit(Allocation{kind(), capacity});
  }
  ~ForwardScope() override {
    free_overflow();
    trace().emit(Free{kind(), capacity_});
  }

  /// Ends the step: everything allocated since the last reset is invalid. Emits ScopeReset.
  void reset() {
    trace().emit(ScopeReset{kind(), live_bytes(), peak_bytes()});
    free_overflow();
    used_ = 0;
    count_out(live_bytes());
    ++steps_;
  }

  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
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

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* at = slab_.get() + used_;
    std::size_t room = capacity_ - used_;
    if (std::align(alignment, bytes, at, room) != nullptr) {
      used_ = capacity_ - room + bytes;
    } else {
      // The entry comes first: if it can't be made, nothing has been taken yet.
      overflow_.push_back(Block{nullptr, bytes, alignment});
      try {
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

  void free_overflow() noexcept {
    for (const Block& block : overflow_) {
      weight_memory()->deallocate(block.data, block.bytes, block.alignment);
      trace().emit(Free{kind(), block.bytes});
    }
    overflow_.clear();
    overflow_bytes_ = 0;
  }

  detail::Bytes slab_;
  std::size_t capacity_;
  std::size_t used_ = 0;
  std::size_t steps_ = 0;
  std::size_t overflow_bytes_ = 0;
  std::vector<Block> overflow_;
};

} // namespace quern
