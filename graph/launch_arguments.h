// The arguments of a foreign kernel: what each passes to the code, and what the kernel does with memory through it.
//
//   g.launch("saxpy", saxpy, shape, n, value<"a">(3.0f), reads<"x">(x), updates<"y">(y));
//
// An argument is a scalar, a struct that can hold no pointer, or one of
//   reads(view), writes(view), updates(view), frozen(weight)   a pointer to the view's first element (graph/uses.h)
//   sends(view), takes(view)                                   the same, of packets between devices
//   opaque(pointer)                                            a pointer that the kernel does not use in this launch
//   with_uses(value, reads(x), opaque(p), ...)                 a struct that holds pointers, and what is done there
//   a ConditionHandle                                          a cudaGraphConditionalHandle, which the kernel sets
//   without_pointers(value)                                    a struct that is aligned like a pointer and holds none
//   value<"name">(scalar)                                      a scalar or handle that dumps and patches call by name
// Arguments without a name are called by their place: "0", "1". A scalar, or eight bytes of a struct, whose value is an
// address in memory that the plan, the library or the driver knows is refused: a CUdeviceptr is an integer.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/uses.h"
#include "runtime/kernels/foreign_kernel.h"
#include "runtime/kernels/parameter_layout.h"

namespace nodewright {

// A condition made by one builder, tested by one conditional node of that builder, and set by kernels before it or in
// its bodies. Pass it as the argument for a Condition field; the kernel calls set_condition(args.field, value). Or pass
// it as an argument of a foreign kernel: that gets the driver's handle, for cudaGraphSetConditional, and its stand-in
// calls Driver::set_condition.
struct ConditionHandle {
  uint64_t address = 0;                                      // ConditionInfo::address
  operator Condition() const { return {address, nullptr}; }  // the argument for a kernel's field
};

// What an argument is, by its type alone: nvcc does not match specialisations of types with names in them. scalar:
// value(); memory: reads() and its like; opaque: opaque(); structure: with_uses() and without_pointers().
enum class ArgumentKind : uint8_t { scalar, memory, opaque, structure };

// A scalar, `value`, of type Value, that reports call kField; kKind is its kind.
template <class T, FixedName kName>
struct ValueArgument {
  static constexpr ArgumentKind kKind = ArgumentKind::scalar;
  static constexpr std::string_view kField = kName.view();
  using Value = T;
  T value;
};
// A scalar with a name: value<"n">(1000u).
template <FixedName kName, class T>
ValueArgument<T, kName> value(const T& scalar) {
  return {scalar};
}

// A pointer that the kernel does not use in this launch, and that reports call kField; kKind is its kind.
template <FixedName kName>
struct OpaqueArgument {
  static constexpr ArgumentKind kKind = ArgumentKind::opaque;
  static constexpr std::string_view kField = kName.view();
  const void* pointer = nullptr;
};
// A pointer that the kernel does not use in this launch. The plan learns nothing of its memory.
template <FixedName kName = "">
OpaqueArgument<kName> opaque(const void* pointer) {
  return {pointer};
}
// The same of an address, as a CUdeviceptr is one.
template <FixedName kName = "", class Address>
requires(std::same_as<Address, CUdeviceptr> ||
         std::same_as<Address, uint64_t>) OpaqueArgument<kName> opaque(Address address) {
  return {reinterpret_cast<const void*>(address)};
}

// A struct, `value`, of type Value, with its kUses `uses`, that reports call kField; kKind is its kind.
// kHoldsNoPointers: its author's word, and no use.
template <bool kPlain, class S, FixedName kName, class... Uses>
struct StructArgument {
  static constexpr ArgumentKind kKind = ArgumentKind::structure;
  static constexpr std::string_view kField = kName.view();
  static constexpr size_t kUses = sizeof...(Uses);
  static constexpr bool kHoldsNoPointers = kPlain;
  using Value = S;
  S value;
  std::tuple<Uses...> uses;
};
// A struct that is aligned like a pointer and holds none. An address in it is refused when the node is added.
template <FixedName kName = "", class S>
StructArgument<true, S, kName> without_pointers(const S& value) {
  return {value, {}};
}

// reads() and its like, or opaque().
template <class U>
concept PointerArgument = requires {
  U::kAccess;
}
|| requires(const U& use) { use.pointer; };
// A struct that holds pointers, and what the kernel does through them: with_uses(args, reads(x), opaque(p)). Each
// pointer in it lies in a range of the list or is an opaque() one. An empty list is refused.
template <FixedName kName = "", class S, PointerArgument... Uses>
StructArgument<false, S, kName, Uses...> with_uses(const S& value, const Uses&... uses) {
  return {value, {uses...}};
}

// A range that an argument names, before it is known which buffer it lies in.
struct ArgumentUse {
  std::string_view field;                         // its name or place
  uint64_t address = 0, count = 0;                // elements
  uint64_t widest_address = 0, widest_count = 0;  // what patches may reach
  uint64_t element_bytes = 1, align_bytes = 1;    // of one element
  Access access = Access::in;                     // what the kernel does there
  PeerUse peer = PeerUse::none;                   // packets: whose
  size_t argument = 0;                            // its place in the launch
  bool opaque = false;                            // a pointer that the launch does not use: no element
};

// Why an argument of this type is refused, if it is: none, a raw_pointer or a bare_view without a role, not_bytes (a
// type that cannot be copied as bytes), a struct with perhaps_pointers in it, or with_uses() that lists no_uses.
enum class ArgumentProblem : uint8_t { none, raw_pointer, bare_view, not_bytes, perhaps_pointers, no_uses };

namespace launch_arguments_detail {

template <class T>
inline constexpr bool kIsView = false;
template <class T>
inline constexpr bool kIsView<View<T>> = true;
template <class T>
inline constexpr bool kIsView<Weight<T>> = true;
template <>
inline constexpr bool kIsView<DeviceBuffer> = true;
template <>
inline constexpr bool kIsView<PinnedBuffer> = true;

constexpr Role role_of(Access access, PeerUse peer) {
  return peer == PeerUse::out       ? Role::peer_out
         : peer == PeerUse::in      ? Role::peer_in
         : access == Access::frozen ? Role::frozen
         : access == Access::in     ? Role::in
         : access == Access::out    ? Role::out
                                    : Role::in_out;
}

// Text made while compiling.
struct Text {
  char chars[64]{};
  size_t length = 0;
  constexpr void add(std::string_view more) {
    for (const char c : more) chars[length++] = c;
  }
  constexpr void add(size_t number) {
    if (number >= 10) add(number / 10);
    chars[length++] = static_cast<char>('0' + number % 10);
  }
  constexpr std::string_view view() const { return {chars, length}; }
};

template <class P>
concept Named = requires {
  P::kField;
};
template <class P>
concept Memory = requires {
  P::kAccess;
};
template <class P, ArgumentKind kWanted>
concept OfKind = requires {
  P::kKind;
}
&&P::kKind == kWanted;

// A ConditionHandle, with or without a name.
template <class P>
inline constexpr bool kIsCondition = std::is_same_v<P, ConditionHandle>;
template <class P>
requires OfKind<P, ArgumentKind::scalar>
inline constexpr bool kIsCondition<P> = std::is_same_v<typename P::Value, ConditionHandle>;

inline ConditionHandle condition_of(ConditionHandle condition) { return condition; }
template <FixedName kName>
ConditionHandle condition_of(const ValueArgument<ConditionHandle, kName>& argument) {
  return argument.value;
}

// The name of argument kIndex, and that of use kUse inside it.
template <class P, size_t kIndex>
struct Name {
  static constexpr Text kText = [] {
    Text text;
    if constexpr (Named<P>) text.add(P::kField);
    if (text.length == 0) text.add(kIndex);
    return text;
  }();
};
template <class P, size_t kIndex, class Use, size_t kUse>
struct InnerName {
  static constexpr Text kText = [] {
    Text text = Name<P, kIndex>::kText;
    text.add(".");
    if (Use::kField.empty())
      text.add(kUse);
    else
      text.add(Use::kField);
    return text;
  }();
};

// What argument number `argument`, or something inside it, names.
template <class Use>
ArgumentUse argument_use(size_t argument, std::string_view field, const Use& use) {
  if constexpr (Memory<Use>) {
    using T = typename Use::element;
    return {field,     use.address, use.count,    use.widest_address, use.widest_count,
            sizeof(T), alignof(T),  Use::kAccess, Use::kPeer,         argument};
  } else {
    return {.field = field, .address = reinterpret_cast<uint64_t>(use.pointer), .argument = argument, .opaque = true};
  }
}

// A scalar or a struct without pointers.
template <class P, size_t kIndex>
struct Argument {
  using Passed = P;
  using Patch = P;
  static constexpr Role kRole = Role::scalar;
  static constexpr size_t kElementBytes = 0;
  static constexpr ElementType kElement = element_type<P>();
  static constexpr size_t kUses = 0;
  static Passed passed(const P& argument) { return argument; }
  static std::array<ArgumentUse, 0> uses(const P&) { return {}; }
};

// The plan's address of the condition, until there is the driver's handle.
template <class P, size_t kIndex>
requires kIsCondition<P>
struct Argument<P, kIndex> {
  using Passed = uint64_t;
  using Patch = ConditionHandle;
  static constexpr Role kRole = Role::condition;
  static constexpr size_t kElementBytes = kConditionBytes;
  static constexpr ElementType kElement = ElementType::other;
  static constexpr size_t kUses = 1;
  static Passed passed(const auto& argument) { return condition_of(argument).address; }
  static std::array<ArgumentUse, 1> uses(const auto& argument) {
    const uint64_t address = passed(argument);
    return {ArgumentUse{.field = Name<P, kIndex>::kText.view(),
                        .address = address,
                        .count = 1,
                        .widest_address = address,
                        .widest_count = 1,
                        .element_bytes = kConditionBytes,
                        .access = Access::out,
                        .argument = kIndex}};
  }
};

template <class P, size_t kIndex>
requires(OfKind<P, ArgumentKind::scalar> && !kIsCondition<P>) struct Argument<P, kIndex>
    : Argument<typename P::Value, kIndex> {
  using Scalar = Argument<typename P::Value, kIndex>;
  using Scalar::passed;
  using Scalar::uses;
  static typename P::Value passed(const P& argument) { return argument.value; }
  static std::array<ArgumentUse, 0> uses(const P&) { return {}; }
};

template <class P, size_t kIndex>
requires Memory<P>
struct Argument<P, kIndex> {
  using T = typename P::element;
  using Passed = uint64_t;
  using Patch = std::conditional_t<P::kAccess == Access::frozen, Weight<T>, View<T>>;
  static constexpr Role kRole = role_of(P::kAccess, P::kPeer);
  static constexpr size_t kElementBytes = sizeof(T);
  static constexpr ElementType kElement = element_type<T>();
  static constexpr size_t kUses = 1;
  static Passed passed(const P& argument) { return argument.address; }
  static Passed passed(const Patch& patch) { return patch.address(); }
  static std::array<ArgumentUse, 1> uses(const P& argument) {
    return {argument_use(kIndex, Name<P, kIndex>::kText.view(), argument)};
  }
  static std::array<ArgumentUse, 1> uses(const Patch& patch) { return uses(P::of(patch)); }
};

template <class P, size_t kIndex>
requires OfKind<P, ArgumentKind::opaque>
struct Argument<P, kIndex> : Argument<uint64_t, kIndex> {
  using Patch = P;
  static constexpr ElementType kElement = ElementType::other;  // an address means nothing in a dump
  static constexpr size_t kUses = 1;
  static uint64_t passed(const P& argument) { return reinterpret_cast<uint64_t>(argument.pointer); }
  static std::array<ArgumentUse, 1> uses(const P& argument) {
    return {argument_use(kIndex, Name<P, kIndex>::kText.view(), argument)};
  }
};

template <class P, size_t kIndex>
requires OfKind<P, ArgumentKind::structure>
struct Argument<P, kIndex> {
  using Passed = typename P::Value;
  using Patch = P;
  static constexpr Role kRole = Role::scalar;
  static constexpr size_t kElementBytes = 0;
  static constexpr ElementType kElement = ElementType::other;
  static constexpr size_t kUses = P::kUses;
  static Passed passed(const P& argument) { return argument.value; }
  static std::array<ArgumentUse, kUses> uses(const P& argument) {
    return uses(argument, std::make_index_sequence<kUses>());
  }

 private:
  template <size_t... I>
  static std::array<ArgumentUse, kUses> uses(const P& argument, std::index_sequence<I...>) {
    return {argument_use(
        kIndex, InnerName<P, kIndex, std::remove_cvref_t<decltype(std::get<I>(argument.uses))>, I>::kText.view(),
        std::get<I>(argument.uses))...};
  }
};

template <class P>
constexpr ArgumentProblem problem_of() {
  if constexpr (Memory<P> || OfKind<P, ArgumentKind::opaque> || kIsCondition<P>)
    return ArgumentProblem::none;
  else if constexpr (OfKind<P, ArgumentKind::structure>)
    return !std::is_trivially_copyable_v<typename P::Value> ? ArgumentProblem::not_bytes
           : P::kUses == 0 && !P::kHoldsNoPointers          ? ArgumentProblem::no_uses
                                                            : ArgumentProblem::none;
  else if constexpr (OfKind<P, ArgumentKind::scalar>)
    return problem_of<typename P::Value>();
  else if constexpr (std::is_pointer_v<P> || std::is_array_v<P> || std::is_null_pointer_v<P>)
    return ArgumentProblem::raw_pointer;
  else if constexpr (kIsView<P>)
    return ArgumentProblem::bare_view;
  else if constexpr (!std::is_trivially_copyable_v<P>)
    return ArgumentProblem::not_bytes;
  else if constexpr (std::is_arithmetic_v<P> || std::is_enum_v<P> || alignof(P) < alignof(void*))
    return ArgumentProblem::none;
  else
    return ArgumentProblem::perhaps_pointers;
}

}  // namespace launch_arguments_detail

// The argument of type P.
template <class P>
constexpr ArgumentProblem argument_problem() {
  return launch_arguments_detail::problem_of<P>();
}

// Stops the compiler at an argument that is refused.
template <class P>
constexpr void check_argument() {
  constexpr ArgumentProblem problem = argument_problem<P>();
  static_assert(problem != ArgumentProblem::raw_pointer,
                "a raw pointer says nothing about what the kernel does there: pass reads(view), writes(view) or "
                "updates(view), or opaque(pointer) for memory that this launch does not use");
  static_assert(problem != ArgumentProblem::bare_view,
                "say what the kernel does with the memory: reads(view), writes(view), updates(view) or frozen(weight)");
  static_assert(problem != ArgumentProblem::not_bytes, "a kernel's arguments are trivially copyable");
  static_assert(problem != ArgumentProblem::perhaps_pointers,
                "a struct that is aligned like a pointer may hold one: pass with_uses(value, reads(x), ...), or "
                "without_pointers(value) when it holds none (an address in it is refused when the node is added)");
  static_assert(problem != ArgumentProblem::no_uses,
                "with_uses(value) lists nothing: name what the kernel does through the struct's pointers, with_uses("
                "value, reads(x), ...), or pass without_pointers(value)");
}

namespace launch_arguments_detail {

template <class Indices, class... P>
struct BlockOf;
template <size_t... I, class... P>
struct BlockOf<std::index_sequence<I...>, P...> {
  static constexpr auto layout() { return parameter_layout<typename Argument<P, I>::Passed...>(); }
  static constexpr std::array<FieldInfo, sizeof...(P)> fields() {
    return {FieldInfo{Name<P, I>::kText.view(), layout()[I].offset, layout()[I].bytes, Argument<P, I>::kRole,
                      Argument<P, I>::kElementBytes, Argument<P, I>::kElement}...};
  }
  static constexpr size_t uses() { return (Argument<P, I>::kUses + ... + 0); }
  // The place of the argument called `name`; how many there are when there is none.
  static constexpr size_t index_of(std::string_view name) {
    size_t index = 0;
    (void)((Name<P, I>::kText.view() == name || (++index, false)) || ...);
    return index;
  }
  static constexpr bool names_differ() { return ((index_of(Name<P, I>::kText.view()) == I) && ...); }
};

}  // namespace launch_arguments_detail

// The arguments P as the parameter block of a kernel: `bytes`, kBytes of them, laid out as kLayout says, with the
// `uses` of all arguments; kFields has one entry an argument. Of and Argument say how.
template <class... P>
struct ArgumentBlock {
  using Of = launch_arguments_detail::BlockOf<std::index_sequence_for<P...>, P...>;
  template <size_t I>
  using Argument = launch_arguments_detail::Argument<std::tuple_element_t<I, std::tuple<P...>>, I>;

  static constexpr auto kLayout = Of::layout();
  static constexpr auto kFields = Of::fields();
  static constexpr size_t kBytes = kLayout.empty() ? 0 : kLayout.back().end();
  static_assert(Of::names_differ(), "two arguments of a launch have the same name");

  std::array<std::byte, kBytes> bytes{};
  std::array<ArgumentUse, Of::uses()> uses{};

  explicit ArgumentBlock(const P&... arguments) {  // copies them
    [&]<size_t... I>(std::index_sequence<I...>) { (set<I>(arguments), ...); }
    (std::index_sequence_for<P...>());
  }

 private:
  template <size_t I>
  void set(const std::tuple_element_t<I, std::tuple<P...>>& argument) {
    const auto passed = Argument<I>::passed(argument);
    std::memcpy(bytes.data() + kLayout[I].offset, &passed, sizeof passed);
    for (const ArgumentUse& use : Argument<I>::uses(argument)) uses[next_use_++] = use;
  }
  size_t next_use_ = 0;
};

// Why a kernel cannot take such arguments: another number, size or place of a parameter than its code has. Empty when
// it can.
std::string parameter_problem(const LoadedKernel& kernel, std::span<const FieldInfo> arguments);

// A node whose kernel was launched with arguments of the types P. Patches name an argument by its place or its name:
// Argument is what stands at a place, index_of the place of a name.
template <class... P>
struct ForeignNode : NodeId {
  template <size_t I>
  using Argument = typename ArgumentBlock<P...>::template Argument<I>;
  template <FixedName kName>
  static constexpr size_t index_of() {
    constexpr size_t index = ArgumentBlock<P...>::Of::index_of(kName.view());
    static_assert(index < sizeof...(P), "the launch has no argument of this name");
    return index;
  }
  // What a patch of an argument takes. An alias: nvcc finds no function whose parameter spells this out.
  template <size_t I>
  using PatchAt = typename Argument<I>::Patch;
  template <FixedName kName>
  using PatchOf = typename Argument<index_of<kName>()>::Patch;
};

}  // namespace nodewright
