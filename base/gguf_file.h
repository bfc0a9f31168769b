// The header of a GGUF file: its metadata, and which tensors it holds and where. It reads no tensor data.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/checked_file.h"

namespace nodewright {

// Where the keys of a tokenizer begin, whose arrays are nearly all of a header.
inline constexpr std::string_view kGgufTokenizer = "tokenizer.";

// Whether the path's name says so: "model.gguf".
bool is_gguf(const std::filesystem::path& path);
// The models of a folder that may be opened, by name: not later parts of one, nor projectors of images (mmproj-*).
std::vector<std::filesystem::path> gguf_files_in(const std::filesystem::path& folder);

// How the elements of a tensor are stored: in blocks of `elements`, each of as many bytes.
struct GgufType {
  uint32_t code;
  std::string_view name;  // "Q4_K"
  uint32_t elements, bytes;
};
// By its number in the file; null if it is not known.
const GgufType* gguf_type(uint32_t code);

struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;
  std::vector<int64_t> shape;         // outermost first, as safetensors has it; the file has it the other way round
  const CheckedFile* file = nullptr;  // outlives this description
  uint64_t offset = 0;                // first byte, from the start of the file
  uint64_t bytes = 0;
};

// Integers of all widths are int64_t (larger unsigned ones are refused), and an array is one of numbers or of texts.
using GgufValue = std::variant<bool, int64_t, double, std::string, std::vector<double>, std::vector<std::string>>;

// A model in one file or several. Immutable.
class GgufModel {
 public:
  // Opens a file, and where its name ends in -00001-of-00004.gguf the others, too. Throws Error, naming the file, the
  // key or tensor and the numbers, for another format or version, a header that is cut short, a key or tensor that
  // appears twice, a type that is not known, a tensor that the file does not hold, and a part that is missing.
  // Arrays of keys that begin with `passed_over` are checked and not kept, unless that is empty.
  static GgufModel open(const std::filesystem::path& path, std::string_view passed_over = {});

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }  // of the first file
  const std::vector<GgufTensor>& tensors() const { return tensors_; }                          // of all files
  const GgufTensor* find(std::string_view name) const;

  // The value of a key; none where there is no such key. Throws Error, naming the key, where it is of another type.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // integers, too
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  const std::vector<double>* numbers(std::string_view key) const;  // null: there is none
  const std::vector<std::string>* texts(std::string_view key) const;

  // What keeps the files open, for those who use the tensors for longer than this.
  std::vector<std::unique_ptr<CheckedFile>> take_files() && { return std::move(files_); }

 private:
  template <class T>
  const T* value(std::string_view key, const char* expected) const;

  std::filesystem::path path_;
  std::vector<std::unique_ptr<CheckedFile>> files_;  // at addresses that the tensors keep
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace nodewright
