// Whose pages may call a server, by which names it is asked, and which bodies are JSON.
#include "serve/http/browser_rules.h"

#include <gtest/gtest.h>

namespace nodewright {
namespace {

HttpRequest asked(HttpHeaders headers, const std::string& method = "POST") {
  HttpRequest head;
  head.method = method;
  head.path = "/v1/completions";
  head.headers = std::move(headers);
  return head;
}

bool is_refused(const BrowserRules& rules, HttpHeaders headers, bool is_page = false,
                const std::string& method = "POST") {
  return !why_foreign(rules, asked(std::move(headers), method), is_page).empty();
}

TEST(BrowserRules, AddressesAndNamesThatNoStrangerCanHaveAreHosts) {
  for (const char* host :
       {"localhost", "localhost:8000", "127.0.0.1:8000", "10.1.2.3", "[::1]:8000", "[fe80::1%eth0]:80", "LOCALHOST:80",
        "page.localhost:8000", "nodewright:8000", "", "127.0.0.1."})
    EXPECT_FALSE(is_refused({}, {{"Host", host}})) << host;
}

TEST(BrowserRules, APublicNameHasToBeAllowed) {
  for (const char* host : {"evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example",
                           "evil.example.", "1.2.3.4.5", "a.example"})
    EXPECT_TRUE(is_refused({.hosts = {"b.example", ".c.example"}, .origin = {}}, {{"Host", host}})) << host;
  const BrowserRules rules{.hosts = {"b.example", ".c.example"}, .origin = {}};
  for (const char* host : {"b.example:8000", "B.Example", "a.c.example", "a.b.c.example:1"})
    EXPECT_FALSE(is_refused(rules, {{"Host", host}})) << host;
  EXPECT_TRUE(is_refused(rules, {{"Host", "c.example"}}));
  EXPECT_TRUE(is_refused(rules, {{"Host", "a.b.example"}}));
  EXPECT_FALSE(is_refused({.hosts = {"*"}, .origin = {}}, {{"Host", "evil.example"}}));
  EXPECT_NE(why_foreign({}, asked({{"Host", "api.example:80"}}), false).find("--allowed-host api.example"),
            std::string::npos);
}

TEST(BrowserRules, APageOfAnotherOriginHasToBeAllowed) {
  const BrowserRules rules{.hosts = {}, .origin = "http://app.test"};
  const std::pair<std::string, std::string> host = {"Host", "localhost:8000"};
  for (const char* origin : {"http://evil.example", "null", "http://localhost:3000", "https://app.test",
                             "http://app.test:81", "file://", "http://app.test.evil.example"})
    EXPECT_TRUE(is_refused(rules, {host, {"Origin", origin}})) << origin;
  for (const char* origin : {"http://app.test", "http://localhost:8000", "https://localhost:8000"})
    EXPECT_FALSE(is_refused(rules, {host, {"Origin", origin}})) << origin;
  EXPECT_FALSE(is_refused({.hosts = {}, .origin = "*"}, {host, {"Origin", "http://evil.example"}}));
  EXPECT_FALSE(is_refused({}, {host, {"Origin", "https://chat.test:8443"}, {"Sec-Fetch-Site", "same-origin"}}))
      << "behind a proxy that leaves the port out";
  EXPECT_TRUE(
      is_refused({}, {{"Host", "evil.example"}, {"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "same-origin"}}))
      << "rebound";
}

TEST(BrowserRules, WhatAnotherSiteAsksForIsRefusedUnlessItIsALinkToAPage) {
  const std::pair<std::string, std::string> host = {"Host", "localhost:8000"}, cross = {"Sec-Fetch-Site", "cross-site"};
  EXPECT_TRUE(is_refused({}, {host, cross}));
  EXPECT_TRUE(is_refused({}, {host, cross}, false, "GET"));
  const HttpHeaders link = {host, cross, {"Sec-Fetch-Mode", "navigate"}, {"Sec-Fetch-Dest", "document"}};
  EXPECT_FALSE(is_refused({}, link, true, "GET"));
  EXPECT_TRUE(is_refused({}, link, true, "POST"));
  EXPECT_TRUE(is_refused({}, link, false, "GET"));
  EXPECT_TRUE(is_refused({}, {host, cross, {"Sec-Fetch-Mode", "navigate"}, {"Sec-Fetch-Dest", "iframe"}}, true, "GET"));
  for (const char* site : {"same-origin", "none", "same-site"})
    EXPECT_FALSE(is_refused({}, {host, {"Sec-Fetch-Site", site}}));
  const HttpHeaders allowed = {host, cross, {"Origin", "http://app.test"}};
  EXPECT_FALSE(is_refused({.hosts = {}, .origin = "http://app.test"}, allowed));
}

TEST(BrowserRules, JsonIsATypeOfItsOwn) {
  for (const char* type : {"application/json", "Application/JSON; charset=utf-8", "application/json ;x=y",
                           "application/vnd.api+json", "application/problem+JSON"})
    EXPECT_TRUE(is_json_type(type)) << type;
  for (const char* type : {"", "text/plain", "text/plain;application/json", "application/x-www-form-urlencoded",
                           "multipart/form-data", "application/jsonp", "+json", "text/plain+jso"})
    EXPECT_FALSE(is_json_type(type)) << type;
}

}  // namespace
}  // namespace nodewright
