// floor: 7.5
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <quern/detail/convert_rows.hpp>
#include <quern/detail/memory.hpp>
#include <quern/error.hpp>
#include <quern/executor.hpp>
#include <quern/formats.hpp>
#include <quern/gguf/error.hpp>
#include <quern/gguf/type.hpp>
#include <quern/plan_tensor.hpp>
#include <quern/scope.hpp>

namespace quern {

/// How loading runs.
struct LoadOptions {
  /// Works on the pieces; empty: the calling thread alone.
  ExecutorRef executor = {};
  /// Called after each piece with the bytes of the files that are done and their sum; by one thread
  /// at a time, though maybe not by the calling one. An exception stops the loading.
  std::function<void(std::size_t done, std::size_t total)> progress = {};
  /// The size of a piece, at least one row. Each thread needs that much memory besides; where
  /// values are decoded, twice that much and a row of floats.
  std::size_t piece_bytes = std::size_t{1} << 20;
  /// Refuse, before anything is read or allocated, to load what is not as asked for: a tensor that
  /// has a downgrade.
  bool strict = false;
};

namespace detail {

/// The memory that one load takes from a scope; given back unless keep() was called.
class LoadMemory {
public:
  explicit LoadMemory(Scope& scope) : scope_(scope) {}
  LoadMemory(const LoadMemory&) = delete;
  LoadMemory& operator=(const LoadMemory&) = delete;
  ~LoadMemory() {
    for (const std::span<std::byte> block : blocks_)
      scope_.deallocate(block.data(), block.size(), cache_line);
  }

  std::span<std::byte> take(std::size_t bytes) {
    if (bytes == 0) return {};
    blocks_.emplace_back(); // first, so that nothing is lost when it can't be made
    try {
      blocks_.back() = {static_cast<std::byte*>(scope_.allocate(bytes, cache_line)), bytes};
    } catch (...) {
      blocks_.pop_back();
      throw;
    }
    return blocks_.back();
  }
  void keep() noexcept { blocks_.clear(); }

private:
  Scope& scope_;
  std::vector<std::span<std::byte>> blocks_;
};

/// Brings tensors to their places in pieces of rows, on any number of threads.
class PieceLoader {
public:
  explicit PieceLoader(const LoadOptions& options) : options_(options) {}

  /// The tensor `plan`, which outlives the loader, is to fill `to`.
  void add(const PlannedTensor& plan, std::span<std::byte> to) {
    if (plan.bytes_before == 0) return;
    const gguf::Type& stored = *gguf::find_type(plan.stored_type);
    const gguf::Type& loaded = *gguf::find_type(plan.type);
    Job job{&plan,
            to,
            plan.shape.in / stored.block_size * stored.bytes_per_block,
            plan.shape.in / loaded.block_size * loaded.bytes_per_block,
            0,
            0,
            pieces_};
    const std::size_t widest = std::max(job.row_before, job.row);
    job.rows = std::clamp<std::size_t>(options_.piece_bytes / widest, 1, plan.shape.out);
    // Pieces of a column then meet at the end of a cache line.
    const std::size_t even =
        detail::cache_line / std::gcd(detail::cache_line, loaded.bytes_per_block);
    if (plan.relays() && job.rows > even) job.rows -= job.rows % even;
    job.pieces_per_slice = (plan.shape.out + job.rows - 1) / job.rows;
    pieces_ += job.pieces_per_slice * plan.slices;
    total_ += plan.bytes_before;
    if (plan.reader) reading_ = std::max(reading_, job.rows * job.row_before);
    if (plan.relays() && plan.converts()) staging_ = std::max(staging_, job.rows * job.row);
    if (plan.converts()) values_ = std::max(values_, plan.shape.in.value());
    jobs_.push_back(job);
  }

  /// Loads everything. Throws what a conversion or the progress callback throws.
  void run() {
    const std::size_t threads =
        std::min(std::max<std::size_t>(options_.executor.concurrency(), 1), pieces_);
    const auto work = [&](std::size_t) noexcept {
      try {
        const Bytes staging = allocate_bytes(staging_);
        const Bytes reading = allocate_bytes(reading_);
        const Bytes values = allocate_bytes(values_ * sizeof(float));
        const Buffers buffers{staging.get(), reading.get(), reinterpret_cast<float*>(values.get())};
        for (std::size_t piece = next_++; piece < pieces_ && !failed_; piece = next_++)
          load(piece, buffers);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failed_) failure_ = std::current_exception();
        failed_ = true;
      }
    };
    options_.executor.parallel_for(threads, work);
    if (failure_) std::rethrow_exception(failure_);
  }

private:
  struct Job {
    const PlannedTensor* plan;
    std::span<std::byte> to;
    std::size_t row_before; // bytes of a row in the file
    std::size_t row;        // and when loaded
    std::size_t rows;       // in a piece
    std::size_t pieces_per_slice;
    std::size_t first_piece;
  };

  /// Memory of one thread.
  struct Buffers {
    std::byte* staging; // a piece by columns
    std::byte* reading; // a piece as the file has it
    float* values;      // a row
  };

  void load(std::size_t piece, const Buffers& buffers) {
    const Job& job =
        *std::prev(std::ranges::upper_bound(jobs_, piece, std::ranges::less{}, &Job::first_piece));
    const PlannedTensor& plan = *job.plan;
    const std::size_t slice = (piece - job.first_piece) / job.pieces_per_slice;
    const std::size_t first = (piece - job.first_piece) % job.pieces_per_slice * job.rows;
    const std::size_t rows = std::min(job.rows, plan.shape.out - first);
    std::span<const std::byte> from = plan.stored.subspan(
        (slice * plan.shape.out + first) * job.row_before, rows * job.row_before);
    const RowTarget target{job.to.data() + slice * plan.shape.out * job.row, plan.shape.out,
                           plan.blocks_per_row(), plan.relays()};
    if (plan.keeps_bytes()) {
      const std::span<std::byte> to{target.data + first * job.row, from.size()};
      if (plan.reader)
        read(plan, from.data(), to);
      else
        std::memcpy(to.data(), from.data(), to.size());
    } else {
      if (plan.reader) {
        const std::span<std::byte> buffer{buffers.reading, from.size()};
        read(plan, from.data(), buffer);
        from = buffer;
      }
      if (plan.converts())
        convert(plan, from.data(), first, rows, target, buffers);
      else
        with_format(plan.type, [&](auto tag) {
          using F = typename decltype(tag)::type;
          place_rows<F::bytes_per_block>(from.data(), first, rows, target);
        });
    }
    report(from.size());
  }

  /// Through the file, not the mapping, whose pages would stay in the process and cost more to
  /// touch than to copy.
  static void read(const PlannedTensor& plan, const std::byte* part, std::span<std::byte> into) {
    if (!plan.reader.read(part, into))
      throw Error(ErrorCode::file_read,
                  "quern::load: tensor " + gguf::detail::in_quotes(plan.name) + ": " +
                      std::to_string(into.size()) +
                      " bytes can't be read any more; the file has changed since it was opened");
  }

  static void convert(const PlannedTensor& plan, const std::byte* from, std::size_t first,
                      std::size_t rows, const RowTarget& target, const Buffers& buffers) {
    try {
      convert_rows(plan.stored_type, from, plan.type, first, rows, target,
                   {buffers.values, plan.shape.in}, buffers.staging);
    } catch (const Error& error) {
      throw Error(error.code(), "quern::load: tensor " + gguf::detail::in_quotes(plan.name) + ": " +
                                    error.what());
    }
  }

  void report(std::size_t bytes) {
    if (!options_.progress) return;
    const std::lock_guard lock(progress_mutex_);
    done_ += bytes;
    options_.progress(done_, total_);
  }

  const LoadOptions& options_;
  std::vector<Job> jobs_;
  std::size_t pieces_ = 0;
  std::size_t total_ = 0;
  std::size_t staging_ = 0;
  std::size_t reading_ = 0;
  std::size_t values_ = 0;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::mutex progress_mutex_;
  std::size_t done_ = 0;
};

} // namespace detail

} // namespace quern
