// expect 1: quern::gguf::File: a view of a temporary File would dangle; keep the File in a variable
// expect 2: quern::gguf::File: a view of a temporary File would dangle; keep the File in a variable
// expect 3: quern::gguf::File: a view of a temporary File would dangle; keep the File in a variable
// expect 4: quern::gguf::File: a view of a temporary File would dangle; keep the File in a variable
// expect 5: quern::gguf::File: metadata of a temporary File would dangle; keep the File in a
// variable
// expect 6: quern::gguf::File: the tensor table of a temporary File would dangle; keep the File in
// a variable
// expect 7: quern::gguf::File: bytes of a temporary File would dangle; keep the File in a variable
// expect 8: quern::gguf::File: from_bytes borrows; keep the bytes in a variable that outlives the
// File
// expect 9: quern::gguf::SplitSet: a view of a temporary set would dangle; keep the set in a
// variable
// expect 10: quern::gguf::SplitSet: files of a temporary set would dangle; keep the set in a
// variable
// expect 11: quern::gguf::Writer: tensor data is not copied; keep the bytes in a variable until the
// file is written
// expect 12: quern::gguf::Writer: a GGUF file holds RowMajor; call quern::prepack<RowMajor>(view,
// scope) first
#include <cstddef>
#include <vector>

#include <quern/formats/q4_0.hpp>
#include <quern/gguf/file.hpp>
#include <quern/gguf/split.hpp>
#include <quern/gguf/writer.hpp>

#ifndef QUERN_MISUSE
#define QUERN_MISUSE 0
#endif

std::vector<std::byte> download();

void control(const quern::PackedView<quern::Q4_0, quern::InputBlockMajor>& prepacked,
             const quern::PackedView<quern::Q4_0, quern::RowMajor>& as_in_the_file) {
  using quern::Q4_0;
  using quern::gguf::File;
  const std::vector<std::byte> bytes = download();
  const File file = File::from_bytes(bytes);
  const auto print = [](const auto& view) { (void)view.out(); };
  (void)file.weight<Q4_0>("w");
  (void)file.weight<Q4_0>("w", 1);
  file.visit_weight("w", print);
  (void)file.metadata().size();
  (void)file.tensors().size();
  (void)file.bytes("w");
  const auto set = quern::gguf::SplitSet::map("m-00001-of-00002.gguf");
  (void)set.weight<Q4_0>("w");
  quern::gguf::Writer writer;
  writer.add_tensor("t", 24, {3}, bytes);
  writer.add_weight("w", as_in_the_file);
  (void)prepacked;

#if QUERN_MISUSE == 1
  const auto view = File::map("model.gguf").weight<Q4_0>("w");
#elif QUERN_MISUSE == 2
  const auto view = File::read("model.gguf").weight<Q4_0>("w", 1);
#elif QUERN_MISUSE == 3
  File::map("model.gguf").visit_weight("w", print);
#elif QUERN_MISUSE == 4
  File::map("model.gguf").visit_weight("w", 1, print);
#elif QUERN_MISUSE == 5
  for (const auto& entry : File::map("model.gguf").metadata())
    (void)entry;
#elif QUERN_MISUSE == 6
  for (const auto& tensor : File::map("model.gguf").tensors())
    (void)tensor;
#elif QUERN_MISUSE == 7
  const auto data = File::map("model.gguf").bytes("w");
#elif QUERN_MISUSE == 8
  const File of_temporary = File::from_bytes(download());
#elif QUERN_MISUSE == 9
  const auto view = quern::gguf::SplitSet::map("m-00001-of-00002.gguf").weight<Q4_0>("w");
#elif QUERN_MISUSE == 10
  const auto files = quern::gguf::SplitSet::map("m-00001-of-00002.gguf").files();
#elif QUERN_MISUSE == 11
  writer.add_tensor("u", 24, {3}, download());
#elif QUERN_MISUSE == 12
  writer.add_weight("p", prepacked);
#endif
}
