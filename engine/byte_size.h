// Sizes of memory and files as people write them. kB, MB, GB, TB are powers of 1000, as drivers and makers count; KiB,
// MiB, GiB, TiB, which are read and never written, powers of 1024.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace nodewright {

// "8GB", "7.5 GiB", "8000000000", "8G" as 8GB. Nothing where it is no size, or more than 2^63 bytes.
std::optional<uint64_t> parse_byte_size(std::string_view text);

// "2.47 GB", "16.4 MB", "988 B": three digits.
std::string byte_size_text(double bytes);
inline std::string byte_size_text(uint64_t bytes) { return byte_size_text(static_cast<double>(bytes)); }

}  // namespace nodewright
