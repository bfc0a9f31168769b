#include "models/weights/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/json_file.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors numbers are copied as they are stored");

constexpr uint64_t kPrefixBytes = 8;              // the header's length, u64 little-endian
constexpr uint64_t kLargestHeader = 100'000'000;  // bytes; the format's own limit (MAX_HEADER_SIZE)

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  unsigned bits;
};
constexpr std::array<DtypeRow, 20> kDtypes = {{
    {Dtype::kBool, "BOOL", 8},      {Dtype::kU8, "U8", 8},          {Dtype::kI8, "I8", 8},
    {Dtype::kI16, "I16", 16},       {Dtype::kU16, "U16", 16},       {Dtype::kI32, "I32", 32},
    {Dtype::kU32, "U32", 32},       {Dtype::kI64, "I64", 64},       {Dtype::kU64, "U64", 64},
    {Dtype::kBF16, "BF16", 16},     {Dtype::kF16, "F16", 16},       {Dtype::kF32, "F32", 32},
    {Dtype::kF64, "F64", 64},       {Dtype::kC64, "C64", 64},       {Dtype::kF8E5M2, "F8_E5M2", 8},
    {Dtype::kF8E4M3, "F8_E4M3", 8}, {Dtype::kF8E8M0, "F8_E8M0", 8}, {Dtype::kF6E2M3, "F6_E2M3", 6},
    {Dtype::kF6E3M2, "F6_E3M2", 6}, {Dtype::kF4, "F4", 4},
}};

[[noreturn]] void refuse(const CheckedFile& file, std::string detail, std::string advice = {}) {
  throw Error({.doing = "read the safetensors header of",
               .object = file.path().string(),
               .detail = std::move(detail),
               .advice = std::move(advice)});
}

// Fills `tensors` while the parser reads the header. The only nesting that a header may have is
//   { "__metadata__": {text: text}, name: {"dtype": text, "shape": [n...], "data_offsets": [begin, end]} }
// so anything deeper is refused where it opens, and no document is built.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const CheckedFile& file, std::vector<TensorInfo>& tensors) : file_(file), tensors_(tensors) {}

  bool start_object(std::size_t) override {
    if (at_ == At::before) return go(At::names);
    if (at_ == At::metadata_value) return go(At::metadata);
    if (at_ == At::tensor_value) return go(At::fields);
    unexpected("an object");
  }

  bool key(string_t& key) override {
    if (at_ == At::names) {
      if (!names_.insert(key).second) refuse(file_, fmt::format("the name {} appears twice", in_quotes(key)));
      if (key == "__metadata__") return go(At::metadata_value);
      tensors_.push_back({.name = std::move(key), .file = &file_});
      seen_dtype_ = seen_shape_ = seen_offsets_ = false;
      return go(At::tensor_value);
    }
    if (at_ == At::metadata) {
      if (!metadata_keys_.insert(key).second)
        refuse(file_, fmt::format("the key {} appears twice in __metadata__", in_quotes(key)));
      return go(At::metadata_text);
    }
    if (key == "dtype") return field(seen_dtype_, At::dtype, key);
    if (key == "shape") return field(seen_shape_, At::shape_value, key);
    if (key == "data_offsets") return field(seen_offsets_, At::offsets_value, key);
    refuse_tensor(fmt::format("has an unknown field {}", in_quotes(key)));
  }

  bool string(string_t& text) override {
    if (at_ == At::metadata_text) return go(At::metadata);
    if (at_ != At::dtype) unexpected("a string");
    const auto* row = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeRow& d) { return d.name == text; });
    if (row == kDtypes.end()) refuse_tensor(fmt::format("has the unknown dtype {}", in_quotes(text)));
    tensors_.back().dtype = row->dtype;
    return go(At::fields);
  }

  bool start_array(std::size_t) override {
    if (at_ == At::shape_value) return go(At::shape);
    if (at_ == At::offsets_value) {
      offsets_.clear();
      return go(At::offsets);
    }
    unexpected("an array");
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (at_ == At::shape) {
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        refuse_tensor(fmt::format("has a dimension of {}, beyond 2^63 - 1", number));
      tensors_.back().shape.push_back(static_cast<int64_t>(number));
      return true;
    }
    if (at_ != At::offsets) unexpected("a number");
    if (offsets_.size() == 2) refuse_tensor("has more than two data_offsets");
    offsets_.push_back(number);
    return true;
  }

  bool end_array() override {
    if (at_ == At::shape) return go(At::fields);
    if (offsets_.size() != 2) refuse_tensor(fmt::format("has {} data_offsets, expected 2", offsets_.size()));
    if (offsets_[0] > offsets_[1])
      refuse_tensor(fmt::format("has data_offsets [{}, {}], which end before they begin", offsets_[0], offsets_[1]));
    tensors_.back().offset = offsets_[0];  // from the start of the data, until the caller adds the header
    tensors_.back().bytes = offsets_[1] - offsets_[0];
    return go(At::fields);
  }

  bool end_object() override {
    if (at_ == At::names) return go(At::after);
    if (at_ == At::fields && !(seen_dtype_ && seen_shape_ && seen_offsets_))
      refuse_tensor(fmt::format("has no {}", !seen_dtype_ ? "dtype" : !seen_shape_ ? "shape" : "data_offsets"));
    return go(At::names);
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("true or false"); }
  bool number_integer(number_integer_t number) override { unexpected(fmt::format("the negative number {}", number)); }
  bool number_float(number_float_t, const string_t& text) override {
    unexpected(fmt::format("the number {}, which is no unsigned 64-bit integer,", in_quotes(text)));
  }
  bool binary(binary_t&) override { unexpected("binary data"); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& e) override {
    refuse(file_, fmt::format("not valid JSON: {}", json_fault(e)), "download the file again");
  }

 private:
  enum class At {
    before,
    names,
    metadata_value,
    metadata,
    metadata_text,
    tensor_value,
    fields,
    dtype,
    shape_value,
    shape,
    offsets_value,
    offsets,
    after
  };

  bool go(At next) {
    at_ = next;
    return true;
  }

  bool field(bool& seen, At next, const std::string& name) {
    if (seen) refuse_tensor(fmt::format("has two fields {}", in_quotes(name)));
    seen = true;
    return go(next);
  }

  [[noreturn]] void refuse_tensor(const std::string& detail) const {
    refuse(file_, fmt::format("tensor {} {}", in_quotes(tensors_.back().name), detail));
  }

  [[noreturn]] void unexpected(const std::string& what) const {
    if (at_ == At::metadata_value || at_ == At::metadata_text)
      refuse(file_, fmt::format("found {} in __metadata__, where only text belongs", what));
    if (at_ == At::before) refuse(file_, fmt::format("found {} where the header's object belongs", what));
    refuse_tensor(fmt::format("has {} in a place where the format has none", what));
  }

  const CheckedFile& file_;
  std::vector<TensorInfo>& tensors_;
  std::set<std::string> names_;
  std::set<std::string> metadata_keys_;
  std::vector<uint64_t> offsets_;
  At at_ = At::before;
  bool seen_dtype_ = false, seen_shape_ = false, seen_offsets_ = false;
};

std::string read_header_text(const CheckedFile& file) {
  if (file.bytes() < kPrefixBytes)
    refuse(file, fmt::format("the file has {} bytes, too few for the 8-byte header length", file.bytes()),
           "download the file again");
  uint64_t header_bytes = 0;
  file.read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > kLargestHeader)
    refuse(file, fmt::format("the header claims {} bytes, the format allows {}", header_bytes, kLargestHeader),
           "check that this is a safetensors file");
  if (header_bytes > file.bytes() - kPrefixBytes)
    refuse(file, fmt::format("the header claims {} bytes, the file has {}", header_bytes, file.bytes()),
           "download the file again");
  std::string text(header_bytes, '\0');
  file.read(kPrefixBytes, std::as_writable_bytes(std::span(text)));
  if (text.empty() || text[0] != '{') refuse(file, "the header does not start with '{'");
  // The parser would take a zero byte for the end of the text and believe what stands before it.
  if (const size_t zero = text.find('\0'); zero != std::string::npos)
    refuse(file, fmt::format("not valid JSON: byte {} is zero", zero));
  return text;
}

// Throws unless dtype and shape give exactly the bytes between the offsets.
void check_bytes(const CheckedFile& file, const TensorInfo& tensor) {
  uint64_t bits = dtype_bits(tensor.dtype);
  bool overflow = false;
  for (const int64_t dimension : tensor.shape)
    overflow |= __builtin_mul_overflow(bits, static_cast<uint64_t>(dimension), &bits);
  const std::string what =
      fmt::format("tensor {} {} {}", in_quotes(tensor.name), dtype_name(tensor.dtype), shape_text(tensor.shape));
  if (overflow) refuse(file, what + " has more than 2^64 - 1 bits");
  if (bits % 8 != 0) refuse(file, what + fmt::format(" has {} bits, not a whole number of bytes", bits));
  if (bits / 8 != tensor.bytes)
    refuse(file, what + fmt::format(" needs {} bytes, its data_offsets hold {}", bits / 8, tensor.bytes));
}

// Throws unless the tensors, sorted by offset, cover the `data_bytes` after the header exactly once.
void check_coverage(const CheckedFile& file, const std::vector<TensorInfo>& tensors, uint64_t data_bytes) {
  uint64_t end = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset != end)
      refuse(file, fmt::format("tensor {} begins at {}, {} the previous one, which ends at {}", in_quotes(tensor.name),
                               tensor.offset, tensor.offset < end ? "inside" : "leaving a hole after", end));
    end += tensor.bytes;  // cannot wrap: offset + bytes is the data_offsets' own second number
  }
  if (end != data_bytes)
    refuse(file, fmt::format("the tensors end at {}, the file holds {} bytes of data", end, data_bytes),
           end > data_bytes ? "download the file again" : "");
}

}  // namespace

std::string_view dtype_name(Dtype dtype) { return kDtypes.at(static_cast<size_t>(dtype)).name; }
unsigned dtype_bits(Dtype dtype) { return kDtypes.at(static_cast<size_t>(dtype)).bits; }

std::string shape_text(const std::vector<int64_t>& shape) {
  constexpr size_t kLongest = 8;
  if (shape.size() <= kLongest) return fmt::format("[{}]", fmt::join(shape, ", "));
  return fmt::format("[{}, ...] ({} dimensions)", fmt::join(shape.begin(), shape.begin() + kLongest, ", "),
                     shape.size());
}

std::vector<TensorInfo> read_safetensors_header(const CheckedFile& file) {
  const std::string text = read_header_text(file);
  std::vector<TensorInfo> tensors;
  HeaderReader reader(file, tensors);
  nlohmann::json::sax_parse(text, &reader);
  for (const TensorInfo& tensor : tensors) check_bytes(file, tensor);
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  const uint64_t data_begin = kPrefixBytes + text.size();
  check_coverage(file, tensors, file.bytes() - data_begin);
  for (TensorInfo& tensor : tensors) tensor.offset += data_begin;
  return tensors;
}

}  // namespace nodewright
