// Processes of a group find each other, agree or say why not, and notice at once when one is gone.
#include "engine/ranks/rank_link.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "tests/engine/ranks/linked_ranks.h"

namespace nodewright {
namespace {

using namespace test;
using Clock = std::chrono::steady_clock;

RankSocket connected(uint16_t port) {
  return RankSocket(connect_to_rank("127.0.0.1", port, Clock::now() + kTestPatience).descriptor);
}
void say(const RankSocket& socket, std::string_view text) { EXPECT_TRUE(socket.send(std::as_bytes(std::span(text)))); }
void say(const RankSocket& socket, const RankHello& hello) {
  EXPECT_TRUE(socket.send(std::as_bytes(std::span(&hello, 1))));
}
// Rank 0's answer to a hello.
Frame answer_of(const RankSocket& socket) {
  RankAnswer head;
  Frame frame;
  EXPECT_TRUE(socket.receive(std::as_writable_bytes(std::span(&head, 1)), Clock::now() + kTestPatience));
  EXPECT_TRUE(socket.receive(frame, Clock::now() + kTestPatience));
  return frame;
}

// The reason of a loss, and when it came.
struct Loss {
  explicit Loss(RankLink& link) {
    link.when_lost([this](const std::string& reason) { told.set_value(reason); });
  }
  std::string reason() {
    std::future<std::string> coming = told.get_future();
    return coming.wait_for(kTestPatience) == std::future_status::ready ? coming.get() : "nothing was told in time";
  }
  std::promise<std::string> told;
};

TEST(RankLink, RanksAgreeAndShareNumbersAndBytes) {
  const auto links = linked_ranks(3);
  const std::vector<RankTerm> terms{{"model", "a"}, {"rows", "1,2"}};
  const std::vector<std::byte> shared{std::byte{1}, std::byte{2}, std::byte{3}};
  const std::vector<std::string> errors = on_all_ranks(3, [&](size_t rank) {
    links[rank]->agree(terms);
    EXPECT_EQ(links[rank]->least(rank == 2 ? 7 : 9), 7);
    EXPECT_EQ(links[rank]->from_first(rank == 0 ? shared : std::vector<std::byte>()), shared);
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(RankLink, TermsThatDifferAreToldOnAllSidesWithBothValues) {
  const auto links = linked_ranks(3);
  const std::vector<std::string> errors = on_all_ranks(3, [&](size_t rank) {
    const std::vector<RankTerm> terms{{"model", "a"}, {"numerics", rank == 2 ? "invariant" : "fast"}};
    links[rank]->agree(terms);
  });
  for (const std::string& error : errors)
    expect_words(error, {"numerics: rank 2 at 127.0.0.1:", "has invariant, and rank 0 has fast"});
}

TEST(RankLink, RankZeroNamesThoseThatHaveNotCome) {
  BegunMeeting meeting(4, std::chrono::milliseconds(300));
  EXPECT_EQ(meeting.link(), nullptr);
  expect_words(meeting.error(), {"127.0.0.1:0", "of 4 ranks 1, 2, 3 have not come within 0.3 s"});
}

TEST(RankLink, WhoeverFindsNobodySaysSo) {
  uint16_t port = 0;
  {
    const RankSocket free(listen_for_ranks("127.0.0.1", 0));
    port = listening_port(free.descriptor());
  }
  expect_error(
      [&] {
        const RankLink link(
            {.rank = 1, .ranks = 2, .host = "127.0.0.1", .port = port, .patience = std::chrono::milliseconds(300)});
      },
      {"join as rank 1 of 2", std::to_string(port), "not there within 0.3 s", "Connection refused"});
  expect_error([&] { listen_for_ranks("192.0.2.1", 0); }, {"wait for the other ranks at", "192.0.2.1:0"});
}

// Rank 0 waits for the right one, which comes then.
void expect_that_rank_one_still_comes(BegunMeeting& meeting) {
  const RankLink right(meeting.of(1));
  const auto zero = meeting.link();
  ASSERT_NE(zero, nullptr) << meeting.error();
  EXPECT_EQ(zero->lost(), "");
}

TEST(RankLink, AnotherNumberOfRanksEndsTheOtherAndNotRankZero) {
  BegunMeeting meeting(2);
  RankMeeting other = meeting.of(1);
  other.ranks = 4;
  expect_error([&] { const RankLink link(other); },
               {"join as rank 1 of 4", "it is one of 4 ranks, and rank 0 one of 2"});
  expect_words(meeting.dropped(1).at(0), {"127.0.0.1:", "it is one of 4 ranks, and rank 0 one of 2"});
  expect_that_rank_one_still_comes(meeting);
}

TEST(RankLink, AnotherVersionEndsTheOtherAndNotRankZero) {
  BegunMeeting meeting(2);
  const RankSocket other = connected(meeting.port()), older = connected(meeting.port());
  say(other, RankHello{.version = 9, .rank = 1, .ranks = 2});
  say(older, std::string_view("ndwranks\1\0\0\0", 12));  // whose hello is shorter
  for (const RankSocket* socket : {&other, &older}) {
    const Frame answer = answer_of(*socket);
    EXPECT_EQ(answer.kind, FrameKind::refused);
    expect_words(FrameReader(answer).take_text(), {socket == &other ? "version 9" : "version 1", "rank 0 version 2"});
  }
  expect_words(meeting.dropped(2).at(0), {"version"});
  expect_that_rank_one_still_comes(meeting);
}

TEST(RankLink, AnotherSecretEndsTheOtherAndNotRankZero) {
  BegunMeeting meeting(2, kTestPatience, "of the group");
  RankMeeting other = meeting.of(1);
  for (const char* const secret : {"of another group", ""}) {
    other.secret = secret;
    expect_error([&] { const RankLink link(other); }, {"join as rank 1 of 2", "secret of rank 0 is another"});
  }
  expect_words(meeting.dropped(2).at(1), {"127.0.0.1:", "its secret may be another"});
  expect_that_rank_one_still_comes(meeting);
}

// It repeats what rank 0 has sent, and what an honest rank said on another connection.
TEST(RankLink, AProofOfAnotherConnectionIsNone) {
  BegunMeeting meeting(2, kTestPatience, "of the group");
  for (const bool echoes : {true, false}) {
    const RankSocket stranger = connected(meeting.port());
    const RankHello hello{.rank = 1, .ranks = 2};
    say(stranger, hello);
    const Frame frame = answer_of(stranger);
    EXPECT_EQ(frame.kind, FrameKind::proof);
    FrameReader reader(frame);
    RankProofTerms terms{1, 2, 0, hello.nonce, reader.take<RankNonce>()};
    const Digest of_host = reader.take<Digest>();
    terms.of_host = RankNonce{};
    const Digest proof = echoes ? of_host : proof_of_rank("of the group", terms);
    EXPECT_TRUE(stranger.send(proof));
    Frame answer;
    EXPECT_TRUE(stranger.receive(answer, Clock::now() + kTestPatience));
    EXPECT_EQ(answer.kind, FrameKind::refused);
  }
  expect_words(meeting.dropped(2).at(1), {"its secret is another than that of rank 0"});
  expect_that_rank_one_still_comes(meeting);
}

// RFC 4231, test cases 2 and 6.
TEST(RankLink, ProofsAreHmacOfSha256) {
  EXPECT_EQ(to_hex(keyed_hash("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(to_hex(keyed_hash(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(RankLink, ARankThatSaysNothingOfItsTermsIsNamed) {
  BegunMeeting meeting(2);
  const RankLink silent(meeting.of(1));
  const auto zero = meeting.link();
  ASSERT_NE(zero, nullptr) << meeting.error();
  const std::vector<RankTerm> terms{{"model", "a"}};
  expect_error([&] { zero->agree(terms, std::chrono::milliseconds(100)); },
               {"rank 1 at 127.0.0.1:", "has not said its terms in time"});
}

// Its connections stay, as those of a stopped process do; nobody reads them, nor sends a sign of life.
TEST(RankLink, ARankThatHangsIsNamedWhateverWaitsForIt) {
  BegunMeeting meeting(2, kTestPatience, "", std::chrono::milliseconds(300));
  const MetRanks hung = meet(meeting.of(1));
  const auto zero = meeting.link();
  ASSERT_NE(zero, nullptr) << meeting.error();
  Loss loss(*zero);
  expect_error([&] { zero->least(5); }, {"rank 1 at 127.0.0.1:", "no sign of life for 0.3 s"});
  expect_words(loss.reason(), {"rank 1 at 127.0.0.1:", "hangs"});
}

// They are more than rank 0 holds at a time.
TEST(RankLink, ManySilentConnectionsKeepNobodyOut) {
  BegunMeeting meeting(2);
  std::vector<RankSocket> silent(80);
  for (RankSocket& one : silent) one = connected(meeting.port());
  expect_that_rank_one_still_comes(meeting);
  EXPECT_LE(meeting.dropped(1).size(), 16u) << "lines";
}

// One that speaks HTTP, one that says nothing, one that leaves at once, one with half a hello, one of no such rank.
TEST(RankLink, StrangersAtThePortDisturbNobody) {
  BegunMeeting meeting(2);
  const RankSocket http = connected(meeting.port()), silent = connected(meeting.port()),
                   half = connected(meeting.port()), nobody = connected(meeting.port());
  connected(meeting.port()).close();
  say(http, "GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n");
  say(half, "ndwranks");
  say(nobody, RankHello{.rank = 7, .ranks = 2});
  EXPECT_EQ(answer_of(nobody).kind, FrameKind::refused);
  const RankLink first(meeting.of(1));
  const auto zero = meeting.link();
  ASSERT_NE(zero, nullptr) << meeting.error();
  EXPECT_EQ(zero->lost(), "");
}

TEST(RankLink, ASecondProcessOfARankIsRefusedAndTheFirstStays) {
  BegunMeeting meeting(3);
  const RankLink first(meeting.of(1));
  expect_error([&] { const RankLink again(meeting.of(1)); }, {"join as rank 1 of 3", "another process", "is rank 1"});
  const RankLink last(meeting.of(2));
  const auto zero = meeting.link();
  ASSERT_NE(zero, nullptr) << meeting.error();
  EXPECT_EQ(zero->lost(), "");
}

TEST(RankLink, AProcessThatCameAndWentMayComeAgain) {
  BegunMeeting meeting(3);
  { const RankLink gone(meeting.of(1)); }
  const RankLink again(meeting.of(1)), last(meeting.of(2));
  const auto zero = meeting.link();
  ASSERT_NE(zero, nullptr) << meeting.error();
  EXPECT_EQ(zero->lost(), "");
}

TEST(RankLink, RankZeroHearsAtOnceThatOneIsGoneAndWhy) {
  for (const bool says_why : {false, true}) {
    auto links = linked_ranks(3);
    Loss loss(*links[0]);
    if (says_why) links[2]->leave("its device has failed");
    links[2].reset();
    expect_words(loss.reason(), {"rank 2 at 127.0.0.1:", says_why ? "its device has failed" : "it has left"});
    expect_error([&] { links[0]->check(); }, {"rank 2 at 127.0.0.1:"});
    EXPECT_EQ(links[1]->lost(), "");
    std::string late;
    links[0]->when_lost([&](const std::string& reason) { late = reason; });
    expect_words(late, {"rank 2 at 127.0.0.1:"});
  }
}

TEST(RankLink, TheOthersHearAtOnceThatRankZeroIsGoneAndWhy) {
  for (const bool says_why : {false, true}) {
    auto links = linked_ranks(2);
    Loss loss(*links[1]);
    FrameWriter step(FrameKind::counts);
    step.add(int32_t{5});
    links[0]->tell(step);
    if (says_why) links[0]->leave("its device has failed");
    links[0].reset();
    expect_words(loss.reason(), {"rank 0 at 127.0.0.1:"});
    EXPECT_EQ(links[1]->next().kind, FrameKind::counts);  // what it said before
    expect_error([&] { links[1]->next(); },
                 {"rank 0 at 127.0.0.1:", says_why ? "its device has failed" : "it has left"});
  }
}

TEST(RankLink, AgreementEndsWhereARankIsGone) {
  auto links = linked_ranks(3);
  links[2]->leave("its memory is too small");
  links[2].reset();
  const std::vector<RankTerm> terms{{"model", "a"}};
  const std::vector<std::string> errors = on_all_ranks(2, [&](size_t rank) {
    try {
      links[rank]->agree(terms);
    } catch (const Error& error) {
      if (rank == 0) links[0]->leave(error.what());
      throw;
    }
  });
  for (const std::string& error : errors) expect_words(error, {"rank 2 at 127.0.0.1:", "its memory is too small"});
}

TEST(RankLink, AnEndInOrderIsNoLoss) {
  auto links = linked_ranks(3);
  for (const auto& link : links)
    link->when_lost([](const std::string& reason) { ADD_FAILURE() << "lost: " << reason; });
  const std::vector<std::string> errors = on_all_ranks(3, [&](size_t rank) {
    if (rank == 0)
      links[0]->end();
    else
      EXPECT_EQ(links[rank]->next().kind, FrameKind::end);
    links[rank].reset();
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

}  // namespace
}  // namespace nodewright
