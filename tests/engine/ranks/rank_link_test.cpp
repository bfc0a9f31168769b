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

constexpr std::chrono::seconds kSoon{1};  // by when the others must know that one is gone

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
    return coming.wait_for(kSoon) == std::future_status::ready ? coming.get() : "nothing was told in time";
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
  const RankLink second(meeting.of(2));
  EXPECT_EQ(meeting.link(), nullptr);
  expect_words(meeting.error(), {"127.0.0.1:0", "of 4 ranks 1, 3 have not come within 0.3 s"});
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

TEST(RankLink, AnotherNumberOfRanksIsToldOnBothSides) {
  BegunMeeting meeting(2);
  RankMeeting other = meeting.of(1);
  other.ranks = 4;
  expect_error([&] { const RankLink link(other); },
               {"join as rank 1 of 4", "it is one of 4 ranks, and rank 0 one of 2"});
  EXPECT_EQ(meeting.link(), nullptr);
  expect_words(meeting.error(), {"rank 1 at 127.0.0.1:", "it is one of 4 ranks, and rank 0 one of 2"});
}

TEST(RankLink, AnotherVersionIsToldOnBothSides) {
  BegunMeeting meeting(2);
  const RankSocket other = connected(meeting.port());
  say(other, RankHello{.version = 9, .rank = 1, .ranks = 2});
  const Frame answer = answer_of(other);
  EXPECT_EQ(answer.kind, FrameKind::refused);
  expect_words(FrameReader(answer).take_text(), {"version 9", "rank 0 version 1"});
  EXPECT_EQ(meeting.link(), nullptr);
  expect_words(meeting.error(), {"version 9"});
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
