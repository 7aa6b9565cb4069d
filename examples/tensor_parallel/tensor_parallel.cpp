// mpirun -n N tensor_parallel [model.gguf]
// Shares each packed matrix of a GGUF file among N processes. Every process maps the file and
// narrows its part of the weight, without a copy: rows, whose results are joined by an allgather,
// or block columns, whose partial sums are joined by an allreduce. By rows the result is that of
// one process bit for bit. Without a file the first process writes a model of its own.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include <engine/convert.hpp>
#include <engine/linear.hpp>
#include <quern/gguf/file.hpp>
#include <quern/quern.hpp>

namespace {

constexpr std::size_t rows_of_x = 4;

void multiply(const engine::Linear& part, quern::MatrixView<const float> x, std::span<float> y) {
  quern::ModelScope unused; // floats are not converted
  engine::Activations activations(x, false, unused, quern::no_trace);
  part.run(activations, {y, x.rows(), part.shape().out});
}

// What process `rank` of `size` gets of `count` rows or block columns: even shares, the first ones
// larger by one where they do not divide.
struct Share {
  std::size_t from, count;
  Share(std::size_t count_of_all, int rank, int size) {
    const auto r = static_cast<std::size_t>(rank);
    const std::size_t even = count_of_all / static_cast<std::size_t>(size);
    const std::size_t rest = count_of_all % static_cast<std::size_t>(size);
    from = r * even + std::min(r, rest);
    count = even + (r < rest ? 1 : 0);
  }
};

struct Timing {
  double multiply = std::numeric_limits<double>::max();
  double join = std::numeric_limits<double>::max();
};

// The best of a few rounds; of each the slowest process counts.
template <class Multiply, class Join>
Timing measure(Multiply multiply, Join join) {
  Timing best;
  for (int round = 0; round < 50; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    multiply();
    double spent[2] = {MPI_Wtime() - start, 0};
    MPI_Barrier(MPI_COMM_WORLD);
    const double joining = MPI_Wtime();
    join();
    spent[1] = MPI_Wtime() - joining;
    double slowest[2];
    MPI_Allreduce(spent, slowest, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    best = {std::min(best.multiply, slowest[0]), std::min(best.join, slowest[1])};
  }
  return best;
}

// Returns whether the results are right on this process.
bool share_out(const quern::gguf::File& file, const quern::gguf::Tensor& tensor, int rank,
               int size) {
  const std::string name(tensor.name);
  const auto in = static_cast<std::size_t>(tensor.extents[0]);
  const auto out = static_cast<std::size_t>(tensor.extents[1]);
  std::mt19937 generator(1); // the same activations everywhere
  std::normal_distribution<float> normal;
  std::vector<float> values(rows_of_x * in);
  for (float& value : values)
    value = normal(generator);
  const quern::MatrixView<const float> x(values, rows_of_x, in);
  std::vector<float> whole(rows_of_x * out);
  multiply(engine::Linear(file, name, {}), x, whole);

  // By rows. Each process has columns of y, so what is gathered comes process by process and is
  // put into its place.
  const Share rows(out, rank, size);
  const engine::Linear row_part(file, name, {},
                                engine::Part{engine::Part::Of::rows, rows.from, rows.count});
  std::vector<float> part(rows_of_x * rows.count);
  std::vector<float> gathered(whole.size());
  std::vector<float> joined(whole.size());
  std::vector<int> counts;
  std::vector<int> places;
  for (int r = 0; r < size; ++r) {
    const Share share(out, r, size);
    counts.push_back(static_cast<int>(rows_of_x * share.count));
    places.push_back(static_cast<int>(rows_of_x * share.from));
  }
  const Timing by_rows = measure(
      [&] { multiply(row_part, x, part); },
      [&] {
        MPI_Allgatherv(part.data(), static_cast<int>(part.size()), MPI_FLOAT, gathered.data(),
                       counts.data(), places.data(), MPI_FLOAT, MPI_COMM_WORLD);
        for (int r = 0; r < size; ++r) {
          const Share share(out, r, size);
          for (std::size_t i = 0; i < rows_of_x; ++i)
            std::copy_n(gathered.data() + rows_of_x * share.from + i * share.count, share.count,
                        joined.data() + i * out + share.from);
        }
      });
  const bool same = std::memcmp(joined.data(), whole.data(), whole.size() * sizeof(float)) == 0;

  // By block columns. Sums are taken in another order, so the last bits may differ.
  const std::size_t block = tensor.type->block_size;
  const Share blocks(in / block, rank, size);
  const engine::Linear block_part(
      file, name, {}, engine::Part{engine::Part::Of::block_columns, blocks.from, blocks.count});
  const auto x_part = x.narrow_cols(blocks.from * block, blocks.count * block);
  std::vector<float> sums(whole.size());
  std::vector<float> total(whole.size());
  const Timing by_blocks =
      measure([&] { multiply(block_part, x_part, sums); },
              [&] {
                MPI_Allreduce(sums.data(), total.data(), static_cast<int>(sums.size()), MPI_FLOAT,
                              MPI_SUM, MPI_COMM_WORLD);
              });
  double difference = 0;
  double largest = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const double here = std::abs(static_cast<double>(total[i]) - static_cast<double>(whole[i]));
    if (!(here <= difference)) difference = here;
    largest = std::max(largest, std::abs(static_cast<double>(whole[i])));
  }
  const bool close = difference <= 1e-5 * largest;
  if (rank == 0)
    std::printf("%-26s %14s  rows: %s %8.1f + %6.1f us   blocks: %s %8.1f + %6.1f us\n",
                name.c_str(), quern::to_string(quern::OutIn{out, in}).c_str(),
                same ? "same bits" : "DIFFERENT", by_rows.multiply * 1e6, by_rows.join * 1e6,
                close ? "close" : "WRONG", by_blocks.multiply * 1e6, by_blocks.join * 1e6);
  return same && close;
}

std::string own_model(int rank) {
  const auto path =
      (std::filesystem::temp_directory_path() / "quern-tensor-parallel.gguf").string();
  if (rank == 0) {
    const auto bytes = engine::random_model({.layers = 1});
    engine::convert(quern::gguf::File::from_bytes(bytes),
                    {quern::Q4_K::gguf_type, quern::Q8_0::gguf_type, quern::IQ4_XS::gguf_type},
                    path);
  }
  return path;
}

int run(const std::string& given, int rank, int size) {
  const std::string path = given.empty() ? own_model(rank) : given;
  MPI_Barrier(MPI_COMM_WORLD); // the file is there
  const auto file = quern::gguf::File::map(path);
  int good = 1;
  if (rank == 0) std::printf("%d processes, %zu rows of x; multiply + join\n", size, rows_of_x);
  for (const auto& tensor : file.tensors()) {
    if (!tensor.is_matrix() || tensor.extents[1] == 1 || !quern::find_format(tensor.type_id))
      continue;
    if (tensor.type->block_size > 1 && !share_out(file, tensor, rank, size)) good = 0;
  }
  int all_good = 0;
  MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (rank == 0)
    std::printf("%s: %d processes against one\n", all_good == 1 ? "PASS" : "FAIL", size);
  return all_good == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  try {
    const int status = run(argc > 1 ? argv[1] : "", rank, size);
    MPI_Finalize();
    return status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "process %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE); // the others wait for this one
    return EXIT_FAILURE;
  }
}
