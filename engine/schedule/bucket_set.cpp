#include "engine/schedule/bucket_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/error.h"

namespace nodewright {

BucketSet::BucketSet(std::vector<int> sizes) : sizes_(std::move(sizes)) {
  std::sort(sizes_.begin(), sizes_.end());
  sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
  if (sizes_.empty() || sizes_.front() < 1)
    throw Error({.doing = "choose buckets",
                 .object = fmt::format("{} sizes", sizes_.size()),
                 .detail = sizes_.empty() ? "there is none" : fmt::format("the smallest is {}", sizes_.front()),
                 .advice = "pass at least one size, each at least 1",
                 .fault = Fault::usage});
}

BucketSet BucketSet::up_to(int most_rows) {
  std::vector<int> sizes{most_rows};
  const auto step = [](int size) {
    if (size < 8) return size;
    return size < 256 ? 8 : static_cast<int>(std::bit_floor(static_cast<unsigned>(size))) / 16;
  };
  for (int size = 1; size < most_rows; size += step(size)) sizes.push_back(size);
  return BucketSet(std::move(sizes));
}

BucketSet BucketSet::every(int most_rows) {
  std::vector<int> sizes{most_rows};
  for (int size = 1; size < most_rows; ++size) sizes.push_back(size);
  return BucketSet(std::move(sizes));
}

BucketSet BucketSet::extended_to(int most_rows) const {
  std::vector<int> sizes = sizes_;
  if (most_rows > largest()) sizes.push_back(most_rows);
  for (int size = 8; size < most_rows; size *= 2)
    for (const int next : {size, size + size / 2})
      if (next > largest() && next < most_rows) sizes.push_back(next);
  return BucketSet(std::move(sizes));
}

BucketChoice BucketSet::choose(int rows) const {
  if (rows < 1) return {BucketChoice::Fit::none, 0, fmt::format("{} rows are no step", rows)};
  const auto found = std::lower_bound(sizes_.begin(), sizes_.end(), rows);
  if (found == sizes_.end())
    return {BucketChoice::Fit::none, 0,
            fmt::format("{} rows, and the largest of {} buckets has {}", rows, sizes_.size(), largest())};
  if (*found == rows) return {BucketChoice::Fit::exact, rows, fmt::format("{} rows fit bucket {}", rows, rows)};
  return {BucketChoice::Fit::padded, *found,
          fmt::format("{} of {} rows of bucket {} are padding", *found - rows, *found, *found)};
}

}  // namespace nodewright
