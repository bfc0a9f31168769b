#include "runtime/compilers/cubin_reader.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "runtime/error.h"

namespace nodewright {
namespace {

// ELF64 header and section header, System V ABI; only the fields that are read.
constexpr uint64_t kHeaderBytes = 64, kSectionBytes = 64, kSymbolBytes = 24;
constexpr uint64_t kLongestName = 4096;  // bounds the work that a hostile file can ask for
constexpr uint16_t kMachineCuda = 190;
constexpr uint32_t kSectionNoBits = 8;
constexpr uint8_t kSymbolFunction = 2;     // low four bits of st_info
constexpr uint8_t kSymbolIsKernel = 0x10;  // st_other of an entry function, as cuobjdump -elf shows it

// Attributes of .nv.info sections, named as cuobjdump -elf names them.
constexpr uint8_t kFormatSized = 4;  // the payload's length is in the entry; other formats have no payload
constexpr uint8_t kAttrMaxThreads = 0x05, kAttrFrameSize = 0x11, kAttrKernelParam = 0x17, kAttrRegisterCount = 0x2f;

// What griddepcontrol.wait becomes, predicated or not. Found with cuobjdump -sass on sm_90, sm_100 and sm_120
// (CUDA 13.0, 2026-11-20).
constexpr uint64_t kAcqBulk = 0x82e, kOpcode = 0xfff;
constexpr int kOldestSmThatWaits = 90;
constexpr uint64_t kInstructionBytes = 16;

// Since sm_90 the toolkit counts the 1 KB that the system keeps of every block into .nv.shared.<kernel>.
constexpr uint64_t kReservedSharedBytes = 1024;

class Reader {
 public:
  Reader(std::span<const std::byte> image, std::string_view name) : image_(image), name_(name) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error({.doing = "read cubin",
                 .object = std::string(name_),
                 .detail = why + " (file of " + std::to_string(image_.size()) + " bytes)",
                 .advice = "compile the kernel again"});
  }
  template <class T>
  T at(uint64_t offset) const {
    T value;
    std::memcpy(&value, range(offset, sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> range(uint64_t offset, uint64_t bytes) const {
    if (offset > image_.size() || bytes > image_.size() - offset)
      refuse("bytes " + std::to_string(offset) + "+" + std::to_string(bytes) + " lie outside");
    return image_.subspan(offset, bytes);
  }
  // The text from `offset` up to its zero, which must come before `end`.
  std::string text(uint64_t offset, uint64_t end) const {
    if (offset >= end) refuse("a name lies outside its table");
    const auto bytes = range(offset, std::min(end - offset, kLongestName));
    const auto zero = std::find(bytes.begin(), bytes.end(), std::byte{0});
    if (zero == bytes.end()) refuse("a name has no end");
    return {reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(zero - bytes.begin())};
  }

 private:
  std::span<const std::byte> image_;
  std::string_view name_;
};

struct Section {
  uint32_t type, link;
  uint64_t offset, bytes;
};

struct Symbol {
  std::string name;
  bool is_kernel;
};

struct Sections {
  std::vector<Section> by_index;
  std::map<std::string, uint64_t> index_of;  // the first of that name

  const Section* find(const std::string& name) const {
    const auto found = index_of.find(name);
    return found == index_of.end() ? nullptr : &by_index[found->second];
  }
};

Sections read_sections(const Reader& file) {
  const auto table = file.at<uint64_t>(40);
  const uint64_t count = file.at<uint16_t>(60), names_index = file.at<uint16_t>(62);
  if (file.at<uint16_t>(58) != kSectionBytes) file.refuse("unexpected size of section headers");
  if (names_index >= count) file.refuse("no table of section names");
  file.range(table, count * kSectionBytes);
  const auto header = [&](uint64_t index) { return table + index * kSectionBytes; };
  const auto names = file.at<uint64_t>(header(names_index) + 24);
  const auto names_bytes = file.at<uint64_t>(header(names_index) + 32);
  file.range(names, names_bytes);
  Sections sections;
  for (uint64_t i = 0; i < count; ++i) {
    const Section section{file.at<uint32_t>(header(i) + 4), file.at<uint32_t>(header(i) + 40),
                          file.at<uint64_t>(header(i) + 24), file.at<uint64_t>(header(i) + 32)};
    if (section.type != kSectionNoBits && i != 0) file.range(section.offset, section.bytes);
    sections.index_of.try_emplace(file.text(names + file.at<uint32_t>(header(i)), names + names_bytes), i);
    sections.by_index.push_back(section);
  }
  return sections;
}

std::vector<Symbol> read_symbols(const Reader& file, const Sections& sections) {
  const Section* table = sections.find(".symtab");
  if (table == nullptr) file.refuse("no symbol table");
  if (table->type == kSectionNoBits || table->link >= sections.by_index.size()) file.refuse("damaged symbol table");
  const Section& names = sections.by_index[table->link];
  if (names.type == kSectionNoBits) file.refuse("damaged symbol names");
  std::vector<Symbol> symbols;
  for (uint64_t at = table->offset; at + kSymbolBytes <= table->offset + table->bytes; at += kSymbolBytes) {
    const bool function = (file.at<uint8_t>(at + 4) & 15) == kSymbolFunction;
    const bool kernel = function && (file.at<uint8_t>(at + 5) & kSymbolIsKernel) != 0;
    // Only names that are needed are read: a hostile file may give every symbol the same long one.
    symbols.push_back(
        {kernel ? file.text(names.offset + file.at<uint32_t>(at), names.offset + names.bytes) : std::string(), kernel});
  }
  return symbols;
}

// Calls entry(attribute, offset of the payload, bytes of the payload) for every sized entry of an .nv.info section.
template <class Function>
void for_each_info(const Reader& file, const Section* section, Function&& entry) {
  if (section == nullptr || section->type == kSectionNoBits) return;
  const uint64_t end = section->offset + section->bytes;
  for (uint64_t at = section->offset; at + 4 <= end;) {
    const auto format = file.at<uint8_t>(at), attribute = file.at<uint8_t>(at + 1);
    const uint64_t bytes = format == kFormatSized ? file.at<uint16_t>(at + 2) : 0;
    at += 4;
    if (bytes > end - at) file.refuse("an attribute runs past its section");
    if (format == kFormatSized) entry(attribute, at, bytes);
    at += bytes;
  }
}

int count_waits(const Reader& file, const Section& code) {
  int waits = 0;
  for (uint64_t at = 0; at + kInstructionBytes <= code.bytes; at += kInstructionBytes)
    waits += (file.at<uint64_t>(code.offset + at) & kOpcode) == kAcqBulk ? 1 : 0;
  return waits;
}

}  // namespace

std::vector<CubinKernel> read_cubin(std::span<const std::byte> image, std::string_view name) {
  const Reader file(image, name);
  file.range(0, kHeaderBytes);
  if (file.at<uint32_t>(0) != 0x464c457f || file.at<uint8_t>(4) != 2 || file.at<uint8_t>(5) != 1)
    file.refuse("not a 64-bit little-endian ELF file");
  if (file.at<uint16_t>(18) != kMachineCuda) file.refuse("not for CUDA");
  const auto flags = file.at<uint32_t>(48);
  // Bits of the target moved with version 8 of the ABI (CUDA 13).
  const auto sm = static_cast<int>(file.at<uint8_t>(8) >= 8 ? flags >> 8 & 0xff : flags & 0xff);

  const Sections sections = read_sections(file);
  const std::vector<Symbol> symbols = read_symbols(file, sections);
  const bool reserves_shared = sections.find(".nv.shared.reserved.0") != nullptr;

  std::vector<CubinKernel> kernels;
  std::map<uint64_t, size_t> kernel_of_symbol;
  std::set<std::string> seen;
  for (uint64_t i = 0; i < symbols.size(); ++i) {
    if (!symbols[i].is_kernel) continue;
    if (!seen.insert(symbols[i].name).second) file.refuse("two kernels called " + symbols[i].name);
    const Section* code = sections.find(".text." + symbols[i].name);
    if (code == nullptr || code->type == kSectionNoBits) file.refuse("kernel " + symbols[i].name + " has no code");
    CubinKernel kernel{.name = symbols[i].name, .code_bytes = code->bytes};
    if (sm >= kOldestSmThatWaits) kernel.waits = count_waits(file, *code);
    if (const Section* shared = sections.find(".nv.shared." + kernel.name)) {
      const uint64_t reserved = reserves_shared ? std::min(shared->bytes, kReservedSharedBytes) : 0;
      kernel.shared_bytes = shared->bytes - reserved;
    }
    for_each_info(file, sections.find(".nv.info." + kernel.name), [&](uint8_t attribute, uint64_t at, uint64_t bytes) {
      if (attribute == kAttrKernelParam && bytes == 12)
        kernel.parameters.push_back(
            {file.at<uint16_t>(at + 4), file.at<uint16_t>(at + 6), file.at<uint32_t>(at + 8) >> 18 & 0x3fff});
      if (attribute == kAttrMaxThreads && bytes == 12)
        kernel.max_threads = static_cast<int>(
            std::min<uint64_t>(uint64_t{1024}, std::min<uint64_t>(file.at<uint32_t>(at), 1024) *
                                                   std::min<uint64_t>(file.at<uint32_t>(at + 4), 1024) *
                                                   std::min<uint64_t>(file.at<uint32_t>(at + 8), 1024)));
    });
    std::sort(kernel.parameters.begin(), kernel.parameters.end(),
              [](const CubinParameter& a, const CubinParameter& b) { return a.ordinal < b.ordinal; });
    kernel_of_symbol[i] = kernels.size();
    kernels.push_back(std::move(kernel));
  }
  if (kernels.empty()) file.refuse("it holds no kernel");

  // .nv.info names kernels by their symbol: {symbol, value}.
  for_each_info(file, sections.find(".nv.info"), [&](uint8_t attribute, uint64_t at, uint64_t bytes) {
    if (bytes != 8) return;
    const auto kernel = kernel_of_symbol.find(file.at<uint32_t>(at));
    if (kernel == kernel_of_symbol.end()) return;
    const auto value = file.at<uint32_t>(at + 4);
    if (attribute == kAttrRegisterCount) kernels[kernel->second].registers = static_cast<int>(value);
    if (attribute == kAttrFrameSize) kernels[kernel->second].stack_bytes = value;
  });
  return kernels;
}

}  // namespace nodewright
