// The measurements of `nodewright bench graph` as tables for people and as JSON for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/graph/graph_bench.h"
#include "bench/graph/library_bench.h"
#include "bench/graph/model_graph_bench.h"

namespace nodewright::cli {

// A case with the device memory of its graph; 0: not seen.
struct GraphBenchRow {
  GraphBenchLine line;
  double exec_bytes = 0;
};

// Each table with its heading; medians.
std::string build_table(const std::vector<GraphBenchRow>& rows);
std::string run_table(const std::vector<GraphBenchRow>& rows);
std::string change_table(const std::vector<GraphBenchRow>& rows);
std::string foreign_table(const std::vector<GraphBenchRow>& rows);  // empty when there is no chain
std::string describe(const FirstBuild& first);
std::string describe(const ModelGraphResult& result, const std::string& model);
std::string bucket_heading();
std::string describe(const BucketLine& line);
std::string describe_totals(const BucketsResult& result);
std::string library_table(const std::vector<LibraryBenchLine>& lines, const LibraryBenchOptions& options);

// Spreads in microseconds, those not measured left out.
nlohmann::ordered_json json_of(const GraphBenchRow& row);
nlohmann::ordered_json json_of(const FirstBuild& first);
nlohmann::ordered_json json_of(const ModelGraphResult& result);
nlohmann::ordered_json json_of(const BucketsResult& result);
nlohmann::ordered_json json_of(const LibraryBenchLine& line);

}  // namespace nodewright::cli
