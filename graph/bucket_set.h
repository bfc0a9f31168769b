// The batch sizes that graphs are built for, and which of them a step of so many rows runs in.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace nodewright {

struct BucketChoice {
  enum class Fit { exact, padded, none };
  Fit fit = Fit::none;
  int bucket = 0;      // rows of the graph to launch; 0 for none
  std::string reason;  // "8 rows fit bucket 8", "3 of 8 rows of bucket 8 are padding", why there is none
};

class BucketSet {
 public:
  // Sorted, each once. Throws Error for an empty list or a size below 1.
  explicit BucketSet(std::vector<int> sizes);
  // 1, 2, 4, 8, then every 8 up to 256 and every 16 from there, and `most_rows` itself: 51 sizes up to 512.
  static BucketSet up_to(int most_rows);

  // The smallest bucket that holds `rows`; none for more rows than the largest, or for fewer than 1.
  BucketChoice choose(int rows) const;
  std::span<const int> sizes() const { return sizes_; }
  int largest() const { return sizes_.back(); }

 private:
  std::vector<int> sizes_;
};

}  // namespace nodewright
