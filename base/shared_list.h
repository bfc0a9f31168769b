// A list whose copies are one until one of them is changed: what a call asks for is held once, however many prompts and
// outputs it has.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace nodewright {

// As a std::vector, which it converts from and to. Copies may be used on different threads.
template <class T>
class SharedList {
 public:
  using value_type = T;
  using const_iterator = const T*;

  SharedList() = default;
  SharedList(std::vector<T> values)  // NOLINT(google-explicit-constructor)
      : values_(values.empty() ? nullptr : std::make_shared<std::vector<T>>(std::move(values))) {}
  SharedList(std::initializer_list<T> values) : SharedList(std::vector<T>(values)) {}
  SharedList(size_t count, const T& value) : SharedList(std::vector<T>(count, value)) {}

  operator const std::vector<T>&() const { return all(); }  // NOLINT(google-explicit-constructor)
  size_t size() const { return all().size(); }
  bool empty() const { return all().empty(); }
  const T* data() const { return all().data(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  const T& operator[](size_t i) const { return all()[i]; }
  const T& front() const { return all().front(); }
  const T& back() const { return all().back(); }
  bool operator==(const SharedList& other) const { return values_ == other.values_ || all() == other.all(); }
  bool operator==(const std::vector<T>& other) const { return all() == other; }

  // Changes are this copy's alone.
  void push_back(T value) { own().push_back(std::move(value)); }
  void resize(size_t size, const T& value) { own().resize(size, value); }
  template <class Iterator>
  void insert(const T* place, Iterator first, Iterator last) {
    const std::ptrdiff_t at = place - begin();
    std::vector<T>& values = own();
    values.insert(values.begin() + at, first, last);
  }

 private:
  const std::vector<T>& all() const {
    static const std::vector<T> none;
    return values_ ? *values_ : none;
  }
  std::vector<T>& own() {
    if (!values_ || values_.use_count() > 1) values_ = std::make_shared<std::vector<T>>(all());
    return *values_;
  }

  std::shared_ptr<std::vector<T>> values_;  // null: empty
};

}  // namespace nodewright
