// Reflection over an argument struct: its fields in order, each with name, offset, role and element size. Host only.
// Everything that is derived from a kernel's arguments (hazards, dumps, patches, access checks) starts here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#ifndef NODEWRIGHT_KERNEL_IMAGE
#include <array>
#include <span>
#include <string_view>
#endif

#include "kernels_src/args.h"

namespace nodewright {

#ifdef NODEWRIGHT_KERNEL_IMAGE  // <string_view> takes a fifth of the time in which a kernel compiles for the CPU driver
class FieldName {
 public:
  constexpr FieldName() = default;
  constexpr FieldName(const char* data, size_t size) : data_(data), size_(size) {}
  constexpr const char* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr char operator[](size_t i) const { return data_[i]; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};
#else
using FieldName = std::string_view;
#endif

enum class Role : uint8_t {
  scalar,
  frozen,
  settled,
  in,
  out,
  partial_out,
  in_out,
  settled_in_out,
  condition,
  peer_out,
  peer_in,
  exchange_number,  // a scalar
};

// Whether the field is memory, or a condition, which counts as memory.
constexpr bool is_memory(Role role) { return role != Role::scalar && role != Role::exchange_number; }

// Whether a kernel may read such a field before it has waited for the nodes before it.
constexpr bool reads_before_wait(Role role) {
  return role == Role::frozen || role == Role::settled || role == Role::settled_in_out;
}

template <class F>
struct RoleOf {
  static constexpr Role role = Role::scalar;
  static constexpr size_t element_bytes = 0;
};
template <class T>
struct RoleOf<Frozen<T>> {
  static constexpr Role role = Role::frozen;
  static constexpr size_t element_bytes = sizeof(T);
};
template <class T>
struct RoleOf<Settled<T>> {
  static constexpr Role role = Role::settled;
  static constexpr size_t element_bytes = sizeof(T);
};
template <class T>
struct RoleOf<SettledInOut<T>> {
  static constexpr Role role = Role::settled_in_out;
  static constexpr size_t element_bytes = sizeof(T);
};
template <class T>
struct RoleOf<In<T>> {
  static constexpr Role role = Role::in;
  static constexpr size_t element_bytes = sizeof(T);
};
template <class T>
struct RoleOf<Out<T>> {
  static constexpr Role role = Role::out;
  static constexpr size_t element_bytes = sizeof(T);
};
template <class T>
struct RoleOf<PartialOut<T>> {
  static constexpr Role role = Role::partial_out;
  static constexpr size_t element_bytes = sizeof(T);
};
template <class T>
struct RoleOf<InOut<T>> {
  static constexpr Role role = Role::in_out;
  static constexpr size_t element_bytes = sizeof(T);
};
template <class T>
struct RoleOf<PeerOut<T>> {
  static constexpr Role role = Role::peer_out;
  static constexpr size_t element_bytes = sizeof(T);
};
template <class T>
struct RoleOf<PeerIn<T>> {
  static constexpr Role role = Role::peer_in;
  static constexpr size_t element_bytes = sizeof(T);
};
template <>
struct RoleOf<ExchangeNumber> {
  static constexpr Role role = Role::exchange_number;
  static constexpr size_t element_bytes = 0;
};
template <class R>
struct RoleOf<Optional<R>> : RoleOf<R> {};
template <>
struct RoleOf<Condition> {
  static constexpr Role role = Role::condition;
  static constexpr size_t element_bytes = sizeof(uint32_t);
};

// See FieldInfo::element_bytes.
template <class F>
constexpr size_t element_bytes_of() {
  if constexpr (std::is_array_v<F>)
    return sizeof(std::remove_all_extents_t<F>);
  else
    return RoleOf<F>::element_bytes;
}

template <class F>
inline constexpr bool is_optional = false;
template <class R>
inline constexpr bool is_optional<Optional<R>> = true;

// What a scalar is, or what a role field points to. `other`: a struct or a type that dumps do not print.
enum class ElementType : uint8_t {
  other,
  boolean,
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  bfloat16,
  float32,
  float64,
};

// An enumeration counts as the integer under it, an array as its elements.
template <class T>
constexpr ElementType element_type() {
  using enum ElementType;
  if constexpr (std::is_array_v<T>) {
    return element_type<std::remove_all_extents_t<T>>();
  } else if constexpr (requires { typename T::element; }) {  // Frozen, In, Out and their like
    return element_type<typename T::element>();
  } else if constexpr (std::is_enum_v<T>) {
    return element_type<std::underlying_type_t<T>>();
  } else if constexpr (std::is_same_v<T, ExchangeNumber>) {
    return element_type<decltype(T::value)>();
  } else if constexpr (std::is_same_v<T, bool>) {
    return boolean;
  } else if constexpr (std::is_integral_v<T>) {
    constexpr ElementType types[][2] = {{uint8, int8}, {uint16, int16}, {uint32, int32}, {uint64, int64}};
    return types[sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3][std::is_signed_v<T>];
  } else {
    return std::is_same_v<T, bf16>     ? bfloat16
           : std::is_same_v<T, float>  ? float32
           : std::is_same_v<T, double> ? float64
                                       : other;
  }
}

// One field of an argument struct.
struct FieldInfo {
  FieldName name;
  size_t offset;  // bytes from the start of the struct
  size_t bytes;   // sizeof the field
  Role role;
  size_t element_bytes;   // sizeof the pointee for role fields, of an array's elements; 0 for scalars
  ElementType element;    // of the scalar or the array's elements, or of the pointee
  bool optional = false;  // memory that a launch may leave out
};

// What every role field holds, whatever its element type. Of a Condition only the first member is its own.
struct RoleField {
  uint64_t address, count;
};
static_assert(sizeof(RoleField) == sizeof(In<float>) && sizeof(RoleField) == sizeof(Condition));

inline constexpr size_t kMaxFields = 24;  // of an argument struct

namespace field_visit_detail {

struct AnyField {
  template <class T>
  requires(!is_optional<T>)  // which takes what becomes its role
      constexpr
      operator T() const;  // never defined: used in unevaluated contexts only
};

template <class A, size_t... I>
constexpr bool constructible_from(std::index_sequence<I...>) {
  return requires { A{(void(I), AnyField{})...}; };
}
// An array takes one list; without the braces it would take as many values as it has elements.
template <class A, size_t... I>
constexpr bool constructible_from_lists(std::index_sequence<I...>) {
  return requires { A{{(void(I), AnyField{})}...}; };
}
template <class A, size_t... I>
constexpr bool takes_another(std::index_sequence<I...>) {
  return requires { A{{(void(I), AnyField{})}..., AnyField{}}; };
}

template <class A, size_t N = kMaxFields>
constexpr size_t count_plain_fields() {
  static_assert(N > 0, "argument struct has no fields or more than 24");
  if constexpr (constructible_from<A>(std::make_index_sequence<N>{}))
    return N;
  else
    return count_plain_fields<A, N - 1>();
}

// A class with several constructors takes no list: then no field may be an array.
template <class A, size_t N = kMaxFields>
constexpr size_t count_fields() {
  if constexpr (N == 0 || !constructible_from_lists<A>(std::make_index_sequence<N>{})) {
    if constexpr (N == 0)
      return count_plain_fields<A>();
    else
      return count_fields<A, N - 1>();
  } else if constexpr (N < kMaxFields && takes_another<A>(std::make_index_sequence<N>{})) {
    return count_plain_fields<A>();
  } else {
    return N;
  }
}

// Pointers to fields, in order. Not a std::tuple: that takes a fifth of the time in which a kernel compiles.
template <size_t I, class F>
struct PlacedPointer {
  F* pointer;
};
template <class Places, class... F>
struct Pointers;
template <size_t... I, class... F>
struct Pointers<std::index_sequence<I...>, F...> : PlacedPointer<I, F>... {
  static constexpr size_t count = sizeof...(F);
};
template <size_t I, class F>
constexpr F* at_place(const PlacedPointer<I, F>& placed) {
  return placed.pointer;
}
template <class... F>
constexpr auto pointers_to(F&... f) {
  return Pointers<std::make_index_sequence<sizeof...(F)>, F...>{{&f}...};
}

template <class A>
constexpr auto field_pointers(A& a) {
  constexpr size_t n = count_fields<std::remove_const_t<A>>();
#define NODEWRIGHT_FIELDS(count, ...) \
  if constexpr (n == count) {         \
    auto& [__VA_ARGS__] = a;          \
    return pointers_to(__VA_ARGS__);  \
  } else
  NODEWRIGHT_FIELDS(1, a0)
  NODEWRIGHT_FIELDS(2, a0, a1)
  NODEWRIGHT_FIELDS(3, a0, a1, a2)
  NODEWRIGHT_FIELDS(4, a0, a1, a2, a3)
  NODEWRIGHT_FIELDS(5, a0, a1, a2, a3, a4)
  NODEWRIGHT_FIELDS(6, a0, a1, a2, a3, a4, a5)
  NODEWRIGHT_FIELDS(7, a0, a1, a2, a3, a4, a5, a6)
  NODEWRIGHT_FIELDS(8, a0, a1, a2, a3, a4, a5, a6, a7)
  NODEWRIGHT_FIELDS(9, a0, a1, a2, a3, a4, a5, a6, a7, a8)
  NODEWRIGHT_FIELDS(10, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9)
  NODEWRIGHT_FIELDS(11, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10)
  NODEWRIGHT_FIELDS(12, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11)
  NODEWRIGHT_FIELDS(13, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12)
  NODEWRIGHT_FIELDS(14, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13)
  NODEWRIGHT_FIELDS(15, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14)
  NODEWRIGHT_FIELDS(16, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15)
  NODEWRIGHT_FIELDS(17, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16)
  NODEWRIGHT_FIELDS(18, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17)
  NODEWRIGHT_FIELDS(19, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18)
  NODEWRIGHT_FIELDS(20, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19)
  NODEWRIGHT_FIELDS(21, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20)
  NODEWRIGHT_FIELDS(22, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20,
                    a21)
  NODEWRIGHT_FIELDS(23, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20,
                    a21, a22)
  NODEWRIGHT_FIELDS(24, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20,
                    a21, a22, a23)
  static_assert(n <= kMaxFields, "add a line above for larger argument structs");
#undef NODEWRIGHT_FIELDS
}

// An A that is never made: only the addresses of its members are named.
template <class A>
union NeverMade {
  char nothing;
  A args;
  constexpr NeverMade() : nothing() {}
};
template <class A>
inline const NeverMade<A> never_made;

// A pointer to a member of an object as a template argument: clang takes it inside a struct alone.
template <class F>
struct FieldPointer {
  const F* pointer;
};

template <class F>
FieldPointer(const F*) -> FieldPointer<F>;

template <FieldPointer kPointer>
constexpr FieldName name_of_pointer() {
  // g++: "... kPointer = ...::FieldPointer<float>{(& never_made<Args>.NeverMade<Args>::args.Args::weight)}; ...]"
  // clang: "... [kPointer = FieldPointer<float>{&never_made.args.weight}]"
  // nvcc's front end, which has a text of its own, evaluates this, too, and leaves the name to the host compiler.
  constexpr const char* text = __PRETTY_FUNCTION__;
  constexpr size_t size = sizeof __PRETTY_FUNCTION__ - 1;
#ifdef __clang__
  size_t end = size - 1;
  while (end > 0 && (text[end] != '}' || text[end + 1] != ']')) --end;
#else
  size_t end = 0;
  while (end + 2 < size && (text[end] != '{' || text[end + 1] != '(' || text[end + 2] != '&')) ++end;
  while (end + 2 < size && (text[end] != ')' || text[end + 1] != '}')) ++end;
#endif
  size_t begin = end;
  while (begin > 0 && text[begin - 1] != '.' && text[begin - 1] != ':') --begin;
  return {text + begin, end - begin};
}

template <class A, size_t I>
constexpr FieldName field_name() {
  return name_of_pointer<FieldPointer{at_place<I>(field_pointers(never_made<A>.args))}>();
}

}  // namespace field_visit_detail

template <class A>
concept KernelArgs = std::is_aggregate_v<A> && std::is_trivially_copyable_v<A>;

template <KernelArgs A>
constexpr bool holds_raw_pointers();

namespace field_visit_detail {

// Whether a field is a pointer, or a struct that holds one or may: nothing would say what the kernel does there.
template <class F>
constexpr bool may_be_pointer() {
  using Element = std::remove_all_extents_t<F>;
  if constexpr (RoleOf<F>::role != Role::scalar || (!std::is_pointer_v<Element> && alignof(Element) < alignof(void*)))
    return false;
  else if constexpr (std::is_class_v<Element> && KernelArgs<Element>)
    return holds_raw_pointers<Element>();
  else
    return !std::is_arithmetic_v<Element> && !std::is_enum_v<Element>;
}

}  // namespace field_visit_detail

// Whether a field of A is memory without a role: such a struct does not compile as a kernel's arguments.
template <KernelArgs A>
constexpr bool holds_raw_pointers() {
  return []<class Places, class... F>(const field_visit_detail::Pointers<Places, F...>*) {
    return (field_visit_detail::may_be_pointer<F>() || ...);
  }(static_cast<decltype(field_visit_detail::field_pointers(std::declval<A&>()))*>(nullptr));
}

namespace field_visit_detail {

// Whether a field is a struct with fields that have roles, itself or in a struct of its own: visitors see those.
template <class F>
constexpr bool holds_roles() {
  if constexpr (RoleOf<F>::role != Role::scalar || !std::is_class_v<F> || alignof(F) < alignof(RoleField)) {
    return false;
  } else if constexpr (KernelArgs<F>) {
    return []<class Places, class... Inner>(const Pointers<Places, Inner...>*) {
      return ((RoleOf<Inner>::role != Role::scalar || holds_roles<Inner>()) || ...);
    }(static_cast<decltype(field_pointers(std::declval<F&>()))*>(nullptr));
  } else {
    return false;
  }
}

// Whether a struct says that its fields are named without it.
template <class F>
concept Flat = requires {
  requires F::kIsFlat;
};

// Names of fields from the argument struct on: "x", "from.x".
struct OutsideOfAll {
  static constexpr FieldName text{};
};
template <size_t Size>
struct Characters {
  char of[Size];
};
template <class Outside, class A, size_t I>
struct FieldPath {
  static constexpr FieldName last = field_name<A, I>();
  static constexpr size_t before = Outside::text.size() == 0 ? 0 : Outside::text.size() + 1;
  static constexpr Characters<before + last.size()> characters = [] {
    Characters<before + last.size()> all{};
    for (size_t i = 0; i < Outside::text.size(); ++i) all.of[i] = Outside::text[i];
    if constexpr (before > 0) all.of[before - 1] = '.';
    for (size_t i = 0; i < last.size(); ++i) all.of[before + i] = last[i];
    return all;
  }();
  static constexpr FieldName text{characters.of, before + last.size()};
};

template <class Outside, class A, class Function>
void visit_fields(const A& args, size_t offset, Function& f) {
  const auto pointers = field_pointers(args);
  const auto visit = [&]<size_t I>(std::integral_constant<size_t, I>) {
    const auto& field = *at_place<I>(pointers);
    using Field = std::remove_cvref_t<decltype(field)>;
    using Path = FieldPath<Outside, A, I>;
    const auto at =
        offset + static_cast<size_t>(reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&args));
    if constexpr (Flat<Field>)
      visit_fields<Outside>(field, at, f);
    else if constexpr (holds_roles<Field>())
      visit_fields<Path>(field, at, f);
    else
      f(FieldInfo{Path::text, at, sizeof(Field), RoleOf<Field>::role, element_bytes_of<Field>(), element_type<Field>(),
                  is_optional<Field>},
        field);
  };
  [&]<size_t... I>(std::index_sequence<I...>) { (visit(std::integral_constant<size_t, I>()), ...); }
  (std::make_index_sequence<decltype(pointers)::count>());
}

// Fields that visitors see.
template <class A>
constexpr size_t count_visited() {
  return []<class Places, class... F>(const Pointers<Places, F...>*) {
    const auto of = []<class One>(std::type_identity<One>) {
      if constexpr (Flat<One> || holds_roles<One>())
        return count_visited<One>();
      else
        return size_t{1};
    };
    return (of(std::type_identity<F>()) + ...);
  }(static_cast<decltype(field_pointers(std::declval<A&>()))*>(nullptr));
}

}  // namespace field_visit_detail

// Calls f(FieldInfo, const Field&) for every field of `args`, in order. A field that is a struct with roles in it
// stands for its own fields, named as in the source, "from.x", or with kIsFlat without the struct, "x".
template <KernelArgs A, class Function>
void for_each_field(const A& args, Function&& f) {
  static_assert(
      !holds_raw_pointers<A>(),
      "a field is a raw pointer, a struct that may hold one, or an array of memory fields, and says nothing about what "
      "the kernel does there: make it Frozen<T>, In<T>, Out<T>, PartialOut<T>, InOut<T>, Settled<T>, SettledInOut<T>, "
      "PeerOut<T> or PeerIn<T>");
  field_visit_detail::visit_fields<field_visit_detail::OutsideOfAll>(args, 0, f);
}

#ifndef NODEWRIGHT_KERNEL_IMAGE
// The fields of an A, in order, as for_each_field visits them; static.
template <KernelArgs A>
std::span<const FieldInfo> fields_of() {
  static const auto fields = [] {
    std::array<FieldInfo, field_visit_detail::count_visited<A>()> all{};
    size_t next = 0;
    for_each_field(A{}, [&](const FieldInfo& info, const auto&) { all[next++] = info; });
    return all;
  }();
  return fields;
}
#endif

}  // namespace nodewright
