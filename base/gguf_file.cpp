#include "base/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <regex>
#include <set>
#include <span>
#include <system_error>

#include "base/file_to_read.h"
#include "base/json_file.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr uint64_t kLargestGgufHeader = uint64_t{1} << 27;  // bytes; a vocabulary of 262 144 tokens takes about 10 MB
constexpr uint64_t kLongestText = uint64_t{1} << 26;        // bytes of one
constexpr uint32_t kMostDimensions = 4;                     // GGML_MAX_DIMS
constexpr uint64_t kMostParts = 1000;                       // of one model
constexpr uint64_t kMostElements = uint64_t{1} << 22;       // of an array; a vocabulary has 2^18, and twice the merges
constexpr uint64_t kDefaultAlignment = 32;                  // bytes, of tensors

// ggml.h (enum ggml_type) and ggml-common.h (the blocks), as gguf 0.19 lists them.
constexpr std::array<GgufType, 16> kTypes = {{{0, "F32", 1, 4},
                                              {1, "F16", 1, 2},
                                              {2, "Q4_0", 32, 18},
                                              {3, "Q4_1", 32, 20},
                                              {6, "Q5_0", 32, 22},
                                              {7, "Q5_1", 32, 24},
                                              {8, "Q8_0", 32, 34},
                                              {10, "Q2_K", 256, 84},
                                              {11, "Q3_K", 256, 110},
                                              {12, "Q4_K", 256, 144},
                                              {13, "Q5_K", 256, 176},
                                              {14, "Q6_K", 256, 210},
                                              {20, "IQ4_NL", 32, 18},
                                              {23, "IQ4_XS", 256, 136},
                                              {30, "BF16", 1, 2},
                                              {39, "MXFP4", 32, 17}}};
// That are known by name and are not read.
constexpr std::pair<uint32_t, std::string_view> kOtherTypes[] = {
    {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {21, "IQ3_S"}, {22, "IQ2_S"}, {24, "I8"},      {25, "I16"},    {26, "I32"},     {29, "IQ1_M"},
    {34, "TQ1_0"}, {35, "TQ2_0"}, {40, "NVFP4"},   {41, "Q1_0"}};

[[noreturn]] void refuse_gguf_header(const CheckedFile& file, std::string detail, std::string advice = {}) {
  throw Error({.doing = "read the GGUF header of",
               .object = file.path().string(),
               .detail = std::move(detail),
               .advice = std::move(advice)});
}

enum ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kText, kArray, kU64, kI64, kF64 };

class GgufReader {
 public:
  GgufReader(const CheckedFile& file, std::string_view passed_over)
      : file_(file), bytes_(file.bytes()), passed_over_(passed_over) {}

  // Appends to `all`.
  void read(std::map<std::string, GgufValue, std::less<>>& metadata, std::vector<GgufTensor>& all) {
    std::vector<GgufTensor> tensors;
    std::array<char, 4> magic{};
    copy(magic.data(), magic.size(), "the magic");
    if (std::string_view(magic.data(), 4) != "GGUF")
      refuse_gguf_header(file_, "it does not begin with GGUF", "check that this is a GGUF file");
    const auto version = number<uint32_t>("the version");
    if (version != 2 && version != 3)
      refuse_gguf_header(file_, fmt::format("its version is {}, expected 2 or 3", version),
                         "convert the model again with a newer llama.cpp");
    const auto tensor_count = number<uint64_t>("the number of tensors"), keys = number<uint64_t>("the number of keys");
    for (uint64_t i = 0; i < keys; ++i) {
      std::string key = text("a key");
      what_ = fmt::format("key {}", in_quotes(key));
      const auto type = number<uint32_t>("its type");
      if (type == kArray && !passed_over_.empty() && key.starts_with(passed_over_)) {
        array(false);
        continue;
      }
      GgufValue found = value(type);
      if (!metadata.emplace(std::move(key), std::move(found)).second)
        refuse_gguf_header(file_, what_ + " appears twice");
    }
    for (uint64_t i = 0; i < tensor_count; ++i) tensors.push_back(tensor());
    place(metadata, tensors);
    std::ranges::move(tensors, std::back_inserter(all));
  }

 private:
  void copy(void* to, uint64_t count, const char* what) {
    if (count > bytes_ - at_ || at_ + count > kLargestGgufHeader)
      refuse_gguf_header(file_, fmt::format("the header ends inside {}{}{}", what, what_.empty() ? "" : " of ", what_),
                         "download the file again");
    auto* out = static_cast<char*>(to);
    while (count > 0) {
      if (at_ < window_at_ || at_ >= window_at_ + window_.size()) {
        window_.resize(std::min<uint64_t>(kWindow, bytes_ - at_));
        file_.read(at_, std::as_writable_bytes(std::span(window_)));
        window_at_ = at_;
      }
      const uint64_t part = std::min(count, window_at_ + window_.size() - at_);
      std::memcpy(out, window_.data() + (at_ - window_at_), part);
      out += part, at_ += part, count -= part;
    }
  }

  template <class T>
  T number(const char* what) {
    T value;
    copy(&value, sizeof value, what);
    return value;
  }

  uint64_t text_length(const char* what) {
    const auto length = number<uint64_t>(what);
    if (length > kLongestText || length > bytes_ - at_)
      refuse_gguf_header(file_, fmt::format("{}{}{} claims {} bytes, the file has {} more", what,
                                            what_.empty() ? "" : " of ", what_, length, bytes_ - at_));
    return length;
  }
  std::string text(const char* what) {
    std::string text(text_length(what), '\0');
    copy(text.data(), text.size(), what);
    return text;
  }

  int64_t unsigned_of(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      refuse_gguf_header(file_, fmt::format("{} is {}, beyond 2^63 - 1", what_, value));
    return static_cast<int64_t>(value);
  }

  GgufValue value(uint32_t type) {
    constexpr const char* kWhat = "the value";
    switch (type) {
      case kU8:
        return int64_t{number<uint8_t>(kWhat)};
      case kI8:
        return int64_t{number<int8_t>(kWhat)};
      case kU16:
        return int64_t{number<uint16_t>(kWhat)};
      case kI16:
        return int64_t{number<int16_t>(kWhat)};
      case kU32:
        return int64_t{number<uint32_t>(kWhat)};
      case kI32:
        return int64_t{number<int32_t>(kWhat)};
      case kF32:
        return double{number<float>(kWhat)};
      case kBool:
        return number<uint8_t>(kWhat) != 0;
      case kText:
        return text(kWhat);
      case kArray:
        return array(true);
      case kU64:
        return unsigned_of(number<uint64_t>(kWhat));
      case kI64:
        return number<int64_t>(kWhat);
      case kF64:
        return number<double>(kWhat);
      default:
        refuse_gguf_header(file_, fmt::format("{} has the unknown type {}", what_, type));
    }
  }

  GgufValue array(bool kept) {
    const auto type = number<uint32_t>("the type of an array");
    const auto count = number<uint64_t>("the length of an array");
    if (count > bytes_ - at_)  // each takes a byte at least
      refuse_gguf_header(file_,
                         fmt::format("{} claims {} elements, the file has {} more bytes", what_, count, bytes_ - at_));
    if (count > kMostElements)
      refuse_gguf_header(file_, fmt::format("{} has {} elements, at most {} are read", what_, count, kMostElements));
    if (type == kArray) refuse_gguf_header(file_, what_ + " is an array of arrays, which is not supported");
    if (type == kText) {
      std::vector<std::string> texts;
      for (uint64_t i = 0; i < count; ++i) {
        if (kept)
          texts.push_back(text("a text"));
        else
          at_ += text_length("a text");
      }
      return texts;
    }
    std::vector<double> numbers;
    if (kept) numbers.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      const GgufValue one = value(type);
      if (!kept) continue;
      if (const auto* whole = std::get_if<int64_t>(&one)) numbers.push_back(static_cast<double>(*whole));
      if (const auto* real = std::get_if<double>(&one)) numbers.push_back(*real);
      if (const auto* flag = std::get_if<bool>(&one)) numbers.push_back(*flag ? 1 : 0);
    }
    return numbers;
  }

  GgufTensor tensor() {
    what_.clear();
    GgufTensor tensor{.name = text("a tensor's name"), .file = &file_};
    what_ = fmt::format("tensor {}", in_quotes(tensor.name));
    if (!names_.insert(tensor.name).second) refuse_gguf_header(file_, what_ + " appears twice");
    const auto dimensions = number<uint32_t>("the dimensions");
    if (dimensions > kMostDimensions)
      refuse_gguf_header(file_,
                         fmt::format("{} has {} dimensions, expected at most {}", what_, dimensions, kMostDimensions));
    for (uint32_t i = 0; i < dimensions; ++i)
      tensor.shape.insert(tensor.shape.begin(), unsigned_of(number<uint64_t>("the dimensions")));
    const auto code = number<uint32_t>("the type");
    tensor.type = gguf_type(code);
    if (tensor.type == nullptr) refuse_type(code);
    tensor.offset = number<uint64_t>("the offset");
    uint64_t elements = 1;
    bool overflow = false;
    for (const int64_t dimension : tensor.shape)
      overflow |= __builtin_mul_overflow(elements, static_cast<uint64_t>(dimension), &elements);
    const auto row = tensor.shape.empty() ? 1 : static_cast<uint64_t>(tensor.shape.back());
    if (row % tensor.type->elements != 0)
      refuse_gguf_header(file_, fmt::format("{} has rows of {} elements, {} needs multiples of {}", what_, row,
                                            tensor.type->name, tensor.type->elements));
    overflow |= __builtin_mul_overflow(elements / tensor.type->elements, uint64_t{tensor.type->bytes}, &tensor.bytes);
    if (overflow) refuse_gguf_header(file_, what_ + " has more than 2^64 - 1 bytes");
    return tensor;
  }

  [[noreturn]] void refuse_type(uint32_t code) const {
    for (const auto& [other, name] : kOtherTypes)
      if (other == code)
        refuse_gguf_header(file_, fmt::format("{} is stored as {}, which is not supported", what_, name),
                           "a file of the types Q2_K to Q6_K, Q4_0 to Q8_0, IQ4_NL, IQ4_XS, MXFP4, BF16, F16 or F32");
    refuse_gguf_header(file_, fmt::format("{} has the unknown type {}", what_, code));
  }

  // Offsets count from the end of the header, rounded up.
  void place(const std::map<std::string, GgufValue, std::less<>>& metadata, std::vector<GgufTensor>& tensors) {
    uint64_t alignment = kDefaultAlignment;
    if (const auto found = metadata.find("general.alignment"); found != metadata.end()) {
      const auto* asked = std::get_if<int64_t>(&found->second);
      if (asked == nullptr || *asked < 1 || *asked > (1 << 20))
        refuse_gguf_header(file_, "general.alignment is not a number from 1 to 1048576");
      alignment = static_cast<uint64_t>(*asked);
    }
    const uint64_t begin = (at_ + alignment - 1) / alignment * alignment;
    for (GgufTensor& tensor : tensors) {
      const std::string what = fmt::format("tensor {}", in_quotes(tensor.name));
      if (tensor.offset % alignment != 0)
        refuse_gguf_header(file_,
                           fmt::format("{} begins at {}, expected a multiple of {}", what, tensor.offset, alignment));
      if (begin > bytes_ || tensor.offset > bytes_ - begin || tensor.bytes > bytes_ - begin - tensor.offset)
        refuse_gguf_header(file_,
                           fmt::format("{} has {} bytes from {} on, the file holds {} bytes of data", what,
                                       tensor.bytes, tensor.offset, begin > bytes_ ? 0 : bytes_ - begin),
                           "download the file again");
      tensor.offset += begin;
    }
    std::vector<const GgufTensor*> order;
    for (const GgufTensor& tensor : tensors) order.push_back(&tensor);
    std::ranges::sort(order, {}, &GgufTensor::offset);
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i]->offset < order[i - 1]->offset + order[i - 1]->bytes)
        refuse_gguf_header(
            file_, fmt::format("tensor {} begins inside {}", in_quotes(order[i]->name), in_quotes(order[i - 1]->name)));
  }

  static constexpr uint64_t kWindow = 1 << 16;
  const CheckedFile& file_;
  const uint64_t bytes_;
  const std::string_view passed_over_;
  uint64_t at_ = 0, window_at_ = 0;
  std::vector<char> window_;
  std::string what_;  // that is being read
  std::set<std::string, std::less<>> names_;
};

// "x-00001-of-00004.gguf": the others, in order; of any other name none.
std::vector<std::filesystem::path> other_parts(const std::filesystem::path& path, uint64_t count) {
  const std::string stem = path.stem().string();
  const std::string ending = fmt::format("-00001-of-{:05}", count);
  std::vector<std::filesystem::path> parts;
  if (!stem.ends_with(ending)) return parts;
  for (uint64_t i = 2; i <= count; ++i)
    parts.push_back(path.parent_path() /
                    fmt::format("{}-{:05}-of-{:05}.gguf", stem.substr(0, stem.size() - ending.size()), i, count));
  return parts;
}

}  // namespace

bool is_gguf(const std::filesystem::path& path) { return path.extension() == ".gguf"; }

std::vector<std::filesystem::path> gguf_files_in(const std::filesystem::path& folder) {
  const std::regex later_part(R"(.*-(?!00001)\d{5}-of-\d{5}\.gguf)");
  std::vector<std::filesystem::path> files;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
    const std::string name = entry.path().filename().string();
    if (is_gguf(entry.path()) && !name.starts_with("mmproj") && !std::regex_match(name, later_part))
      files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

const GgufType* gguf_type(uint32_t code) {
  const auto found = std::ranges::find(kTypes, code, &GgufType::code);
  return found == kTypes.end() ? nullptr : &*found;
}

GgufModel GgufModel::open(const std::filesystem::path& path, std::string_view passed_over) {
  GgufModel model;
  model.path_ = path;
  model.files_.push_back(std::make_unique<CheckedFile>(path));
  const CheckedFile& first = *model.files_.front();
  GgufReader(first, passed_over).read(model.metadata_, model.tensors_);
  const int64_t count = model.integer("split.count").value_or(1), number = model.integer("split.no").value_or(0);
  if (count <= 1) return model;
  if (number != 0 || static_cast<uint64_t>(count) > kMostParts ||
      other_parts(path, static_cast<uint64_t>(count)).empty())
    refuse_gguf_header(first, fmt::format("it is part {} of {}", static_cast<uint64_t>(number) + 1, count),
                       fmt::format("the first part, whose name ends in -00001-of-{:05}.gguf", count));
  int64_t next = 1;
  for (const std::filesystem::path& part : other_parts(path, static_cast<uint64_t>(count))) {
    if (!is_present(part))
      refuse_gguf_header(first, fmt::format("part {} is missing", in_quotes(part.filename().string())),
                         "download the missing file");
    model.files_.push_back(std::make_unique<CheckedFile>(part));
    std::map<std::string, GgufValue, std::less<>> own;
    GgufReader(*model.files_.back(), passed_over).read(own, model.tensors_);
    for (const auto& [key, expected] : {std::pair{"split.no", next}, std::pair{"split.count", count}}) {
      const auto found = own.find(key);
      if (found == own.end() || found->second != GgufValue(expected))
        refuse_gguf_header(*model.files_.back(), fmt::format("key '{}' is not {}", key, expected),
                           "the parts of one model");
    }
    ++next;
  }
  if (const auto all = model.integer("split.tensors.count"); all && *all != std::ssize(model.tensors_))
    refuse_gguf_header(
        first, fmt::format("the parts hold {} tensors, key 'split.tensors.count' says {}", model.tensors_.size(), *all),
        "the parts of one model");
  return model;
}

const GgufTensor* GgufModel::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &GgufTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

template <class T>
const T* GgufModel::value(std::string_view key, const char* expected) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return nullptr;
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) refuse_gguf_header(*files_.front(), fmt::format("key {} is not {}", in_quotes(key), expected));
  return value;
}

std::optional<int64_t> GgufModel::integer(std::string_view key) const {
  const int64_t* found = value<int64_t>(key, "an integer");
  return found ? std::optional(*found) : std::nullopt;
}
std::optional<double> GgufModel::number(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found != metadata_.end())
    if (const auto* whole = std::get_if<int64_t>(&found->second)) return static_cast<double>(*whole);
  const double* real = value<double>(key, "a number");
  return real ? std::optional(*real) : std::nullopt;
}
std::optional<bool> GgufModel::boolean(std::string_view key) const {
  const bool* found = value<bool>(key, "true or false");
  return found ? std::optional(*found) : std::nullopt;
}
std::optional<std::string> GgufModel::text(std::string_view key) const {
  const std::string* found = value<std::string>(key, "text");
  return found ? std::optional(*found) : std::nullopt;
}
const std::vector<double>* GgufModel::numbers(std::string_view key) const {
  return value<std::vector<double>>(key, "an array of numbers");
}
const std::vector<std::string>* GgufModel::texts(std::string_view key) const {
  return value<std::vector<std::string>>(key, "an array of texts");
}

}  // namespace nodewright
