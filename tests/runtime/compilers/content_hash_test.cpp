#include "runtime/compilers/content_hash.h"

#include <gtest/gtest.h>

namespace nodewright {
namespace {

std::string hash_text(const std::string& text) { return to_hex(hash_of(std::as_bytes(std::span(text)))); }

// The examples of FIPS 180-4 and the empty message.
TEST(ContentHash, GivesThePublishedDigests) {
  EXPECT_EQ(hash_text(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_text("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_text(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(ContentHash, DoesNotDependOnHowBytesAreCut) {
  const std::string text(200, 'x');
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    ContentHash hash;
    hash.add(std::as_bytes(std::span(text).first(cut)));
    hash.add(std::as_bytes(std::span(text).subspan(cut)));
    ASSERT_EQ(to_hex(hash.finish()), hash_text(text)) << cut;
  }
}

TEST(ContentHash, TellsFieldsApart) {
  ContentHash one, other;
  one.add_field("ab"), one.add_field("c");
  other.add_field("a"), other.add_field("bc");
  EXPECT_NE(one.finish(), other.finish());
}

}  // namespace
}  // namespace nodewright
