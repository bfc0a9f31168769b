// The page carries the plan as to_json prints it, whatever its names hold, and asks for nothing from elsewhere.
#include <nlohmann/json.hpp>

#include "graph/dump/graph_dump.h"
#include "graph/dump/plan_diff.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

using Json = nlohmann::json;

class DumpHtmlTest : public SketchTest {
 protected:
  static size_t count(const std::string& text, std::string_view word) {
    size_t found = 0;
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++found;
    return found;
  }

  // The text of the element that holds the plan.
  static std::string data_text(const std::string& page) {
    const std::string begin = "<script type=\"application/json\" id=\"plan-data\">";
    const size_t from = page.find(begin) + begin.size();
    return page.substr(from, page.find("</script>", from) - from);
  }

  Plan two_layers(const std::string& suffix) {
    GraphBuilder g(device(), "two.b1" + suffix, {{"bucket", "1"}});
    const auto x = buffer(g, "x" + suffix, {.live_in = true}), y = buffer(g, "y", {.live_out = true});
    for (const std::string layer : {"l0", "l1"}) {
      const auto scope = g.scope(layer);
      g.launch("there" + suffix, waiting, {.left = x, .right = x, .gain = {}, .y = y, .scale = 0.1f});
      g.launch("back", waiting, {.left = y, .right = y, .gain = {}, .y = x, .scale = 2});
    }
    return std::move(g).finish(EdgePolicy::full);
  }
};

TEST_F(DumpHtmlTest, ThePageCarriesThePlanAsJsonPrintsIt) {
  const Plan plan = two_layers("");
  const Json data = Json::parse(data_text(to_html(plan)));
  EXPECT_EQ(data["plan"], Json::parse(to_json(plan)));
  EXPECT_EQ(data["plan"]["folds"]["runs"], Json::parse(R"([{"first": 0, "count": 2, "times": 2}])"));
  EXPECT_TRUE(data["plan"]["timings"].is_null());
  EXPECT_TRUE(data["before"].is_null());
  EXPECT_NE(data["plan"]["device"].get<std::string>().find(device().name()), std::string::npos);
}

TEST_F(DumpHtmlTest, ThePageCarriesTheTimingsItIsGiven) {
  const Plan plan = two_layers("");
  const PlanTimings timings{.plan = plan.name,
                            .nodes = {{.node = 1, .time_us = 2, .span_us = 3, .overlap_us = 1, .end_us = 3}},
                            .step_us = 4,
                            .plain_step_us = 3,
                            .peak_bytes_per_s = 1e12,
                            .samples = 5};
  const Json data = Json::parse(data_text(to_html(plan, &timings, {{"model", "demo"}, {"commit", "abc"}})));
  EXPECT_EQ(data["plan"]["timings"], Json::parse(to_json(timings, plan)));
  EXPECT_EQ(data["plan"]["about"], Json::parse(R"({"model": "demo", "commit": "abc"})"));
  EXPECT_EQ(data["plan"]["timings"]["critical_path"], Json::parse("[1]"));
  PlanTimings of_another = timings;
  of_another.plan = "other.b1";
  EXPECT_THROW(to_html(plan, &of_another), Error);
}

TEST_F(DumpHtmlTest, PlansInsideANodeCarryTheirOwnFolds) {
  const Plan plan = nested_plan();
  const Json data = Json::parse(data_text(to_html(plan)));
  EXPECT_EQ(data["plan"], Json::parse(to_json(plan)));
  const Json expected = Json::parse(R"({"runs": [], "bodies": {"1": [
      {"runs": [{"first": 0, "count": 2, "times": 2}], "bodies": {}},
      {"runs": [], "bodies": {}}]}})");
  EXPECT_EQ(data["plan"]["folds"], expected);
}

TEST_F(DumpHtmlTest, AComparisonCarriesBothPlansAndWhatDiffers) {
  Plan later = two_layers("");
  later.nodes[2].shape.grid[0] = 7;
  const std::string before = to_json(two_layers("")), after = to_json(later);
  const Json data = Json::parse(data_text(to_html({before, "a.json"}, {after, "b.json"})));
  EXPECT_EQ(data["before"], Json::parse(before));
  EXPECT_EQ(data["plan"], Json::parse(after));
  EXPECT_EQ(data["diff"], Json::parse(to_json(diff_plans({before, "a.json"}, {after, "b.json"}))));
  EXPECT_EQ(data["diff"]["nodes"].size(), 1u);
  EXPECT_THROW(to_html({before, "a.json"}, {"{}", "b.json"}), Error);
}

TEST_F(DumpHtmlTest, NamesCannotLeaveTheirPlace) {
  const std::string page = to_html(two_layers(""));
  for (const std::string name :
       {"</script><script>alert(1)</script>", "<!--<script>", "\"'\\ \n\t", "]]>&lt;&amp;", "{{data}}", "{{page.js}}",
        "\xe2\x80\xa8\xe2\x80\xa9 \xf0\x9f\x99\x82 \xc3\xa9", "</ScRiPt >", "</title><h1>"}) {
    const Plan plan = two_layers(name);
    const std::string hostile = to_html(plan);
    EXPECT_EQ(Json::parse(data_text(hostile))["plan"], Json::parse(to_json(plan))) << name;
    EXPECT_NE(to_json(plan).find(Json(plan.nodes[0].name).dump()), std::string::npos) << name;
    for (const std::string_view word : {"<script", "</script", "<!--", "<h1", "</title"})
      EXPECT_EQ(count(hostile, word), count(page, word)) << word << " in the page of " << name;
  }
}

TEST_F(DumpHtmlTest, BytesThatAreNoUtf8AreReplaced) {
  const Plan plan = two_layers("\xff\xc3");
  const Json data = Json::parse(data_text(to_html(plan)));
  EXPECT_EQ(data["plan"]["nodes"][0]["name"], "l0.there\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_F(DumpHtmlTest, ThePageNamesNoAddressOnANetwork) {
  const std::string page = to_html(two_layers(""));
  EXPECT_EQ(count(page, "http"), 2u);  // the name of SVG's elements, and an attribute's: neither is fetched
  EXPECT_EQ(count(page, "\"http://www.w3.org/2000/svg\""), 1u);
  EXPECT_EQ(count(page, "http-equiv=\"Content-Security-Policy\""), 1u);
  for (const std::string_view word : {"src=", "url(", "@import", "fetch(", "import("}) EXPECT_EQ(count(page, word), 0u);
}

TEST_F(DumpHtmlTest, ADeviceIsNotNeeded) {
  Plan plan = two_layers("");
  plan.device = nullptr;
  EXPECT_TRUE(Json::parse(data_text(to_html(plan)))["plan"]["device"].is_null());
}

}  // namespace
}  // namespace nodewright
