// expect 1: quern::load: a ForwardScope frees its memory at every step, so no weight can live
// there; load into a ModelScope
// expect 2: quern::LoadedModel: a tensor of a temporary would dangle; keep the model in a variable
#include <utility>

#include <quern/gguf/file.hpp>
#include <quern/load.hpp>
#include <quern/scope.hpp>

// Nothing is evaluated, so the test compiles fast.
template <class Scope>
using Loaded = decltype(quern::load(std::declval<const quern::gguf::File&>(), "w",
                                    quern::WeightForm{}, std::declval<Scope&>()));
template <class Model>
using Found = decltype(std::declval<Model>().at("w"));

using FromModelScope = Loaded<quern::ModelScope>;
using FromVariable = Found<const quern::LoadedModel&>;

#if QUERN_MISUSE == 1
using FromForwardScope = Loaded<quern::ForwardScope>;
#elif QUERN_MISUSE == 2
using FromTemporary = Found<quern::LoadedModel>;
#endif
