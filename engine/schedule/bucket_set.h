// The batch sizes that graphs are built for, and the one that a step of n rows runs in.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace nodewright {

// What choose() says of a step.
struct BucketChoice {
  // exact: as many rows as the bucket; padded: fewer; none: no bucket holds them.
  enum class Fit { exact, padded, none };
  Fit fit = Fit::none;  // how the step's rows fit
  int bucket = 0;       // rows of the graph to launch; 0 for none
  std::string reason;   // "8 rows fit bucket 8", "3 of 8 rows of bucket 8 are padding", why there is none
};

// Sizes in ascending order. Never empty. Const functions may be called from several threads.
class BucketSet {
 public:
  // Sorted, each once. Throws Error for an empty list or a size below 1.
  explicit BucketSet(std::vector<int> sizes);
  // The usual list: 1, 2, 4, 8, then every 8 up to 256, then sixteen sizes to each power of two, and `most_rows`
  // itself. 51 sizes up to 512, 99 up to 4096; past 8 rows at most 7 of a step are padding, past 256 at most a 16th of
  // its rows.
  static BucketSet up_to(int most_rows);
  // 1, 2, 3, ... `most_rows`: no padding.
  static BucketSet every(int most_rows);
  // These sizes and, past the largest, some up to `most_rows`, itself included, each at most half again as large as the
  // one before: for steps that take their time by the row, where a padded third costs less than a graph.
  BucketSet extended_to(int most_rows) const;

  // The smallest bucket that holds `rows`; none for more rows than the largest, or for fewer than 1.
  BucketChoice choose(int rows) const;
  std::span<const int> sizes() const { return sizes_; }  // in ascending order
  int largest() const { return sizes_.back(); }          // rows of the last

 private:
  std::vector<int> sizes_;
};

}  // namespace nodewright
