#include "engine/schedule/turn_lines.h"

#include <algorithm>

namespace nodewright {

void TurnLines::wait(const Item& item) {
  const auto [client, is_new_client] = clients_.try_emplace(item.client);
  if (is_new_client) client->second.turn = ++last_turn_;
  const auto [call, is_new_call] = client->second.calls.try_emplace(item.call);
  if (is_new_call) call->second.turn = ++last_turn_;
  call->second.waiting.insert(item.number);
}

void TurnLines::begin(const Item& item) {
  if (!waits(item)) return;
  Client& client = clients_.at(item.client);
  client.turn = ++last_turn_;
  client.calls.at(item.call).turn = ++last_turn_;
  leave(item);
}

void TurnLines::leave(const Item& item) {
  if (!waits(item)) return;
  const auto client = clients_.find(item.client);
  const auto call = client->second.calls.find(item.call);
  call->second.waiting.erase(item.number);
  if (call->second.waiting.empty()) client->second.calls.erase(call);
  if (client->second.calls.empty()) clients_.erase(client);
}

bool TurnLines::waits(const Item& item) const {
  const auto client = clients_.find(item.client);
  if (client == clients_.end()) return false;
  const auto call = client->second.calls.find(item.call);
  return call != client->second.calls.end() && call->second.waiting.contains(item.number);
}

std::optional<int64_t> TurnLines::next() const {
  const auto turn_of = [](const auto& one) { return one.second.turn; };
  const auto client = std::ranges::min_element(clients_, {}, turn_of);
  if (client == clients_.end()) return std::nullopt;
  const auto call = std::ranges::min_element(client->second.calls, {}, turn_of);
  return *call->second.waiting.begin();
}

std::vector<int64_t> TurnLines::firsts() const {
  std::vector<int64_t> firsts;
  for (const auto& [client, calls] : clients_)
    for (const auto& [call, items] : calls.calls) firsts.push_back(*items.waiting.begin());
  std::ranges::sort(firsts);
  return firsts;
}

}  // namespace nodewright
