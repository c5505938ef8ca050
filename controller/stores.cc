#include "controller/stores.h"

#include <algorithm>

namespace holdfast::controller {

using reconcilers::checkpoint::Content;
using reconcilers::checkpoint::Damages;
using reconcilers::restorepolicy::VolumeUse;

namespace {

Status NoStore() { return {Code::kUnavailable, "no store is configured: set --store-url"}; }
Status IsDown() { return {Code::kUnavailable, "it has not answered for half a minute"}; }

}  // namespace

// "None has it" is said only when each of them said so, and nothing final while one of them may still have it.
Result<Content> Stores::Read(const std::string& manifest_id, std::stop_token stop) {
  if (clients_.empty()) return NoStore();
  Status worst(Code::kNotFound, "no store has a manifest " + manifest_id.substr(0, 253));
  for (const auto& [name, client] : clients_) {
    Result<Content> content = client->down() ? Result<Content>(IsDown()) : client->Read(manifest_id, stop);
    if (content.ok()) {
      content->store = name;
      return content;
    }
    const Status why = content.status().With("store " + name);
    if (why.code() == Code::kDataLoss) return why;  // it has it
    if (why.code() == Code::kNotFound) continue;
    if (why.code() == Code::kUnavailable || worst.code() == Code::kNotFound) worst = why;
  }
  return worst;
}

Status Stores::Delete(const std::string& store, const std::string& manifest_id, int64_t term, std::stop_token stop) {
  if (clients_.empty()) return NoStore();
  if (!store.empty() && !clients_.contains(store)) return {Code::kNotFound, "there is no store " + store};
  Status first;
  for (const auto& [name, client] : clients_) {
    if (!store.empty() && name != store) continue;
    const Status deleted = client->down() ? IsDown() : client->Delete(manifest_id, term, stop);
    if (first.ok() && !deleted.ok()) first = deleted.With("store " + name);
  }
  return first;
}

std::map<std::string, Result<Damages>> Stores::Damaged(std::stop_token stop) {
  std::map<std::string, Result<Damages>> all;
  for (const auto& [name, client] : clients_) all.emplace(name, client->down() ? Result<Damages>(IsDown()) : client->Damaged(stop));
  return all;
}

std::map<std::string, Result<VolumeUse>> Stores::Use(std::stop_token stop) {
  std::map<std::string, Result<VolumeUse>> all;
  for (const auto& [name, client] : clients_) all.emplace(name, client->down() ? Result<VolumeUse>(IsDown()) : client->Use(stop));
  return all;
}

void Stores::Start() {
  for (const auto& [name, client] : clients_) client->Start();
}

void Stores::Stop() {
  for (const auto& [name, client] : clients_) client->Stop();
}

std::map<std::string, bool> Stores::Down() const {
  std::map<std::string, bool> down;
  for (const auto& [name, client] : clients_) down[name] = client->down();
  return down;
}

bool Stores::AllDown() const {
  return !clients_.empty() && std::all_of(clients_.begin(), clients_.end(), [](const auto& entry) { return entry.second->down(); });
}

}  // namespace holdfast::controller
