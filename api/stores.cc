#include "api/stores.h"

#include <algorithm>

#include "base/hash.h"

namespace holdfast::api {
namespace {

constexpr size_t kMaxUrl = 512, kMaxLabel = 63;

bool IsLabel(std::string_view text) {
  auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !text.empty() && text.size() <= kMaxLabel && plain(text.front()) && plain(text.back()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return plain(c) || c == '-'; });
}

std::string_view AfterScheme(std::string_view url) {
  for (std::string_view scheme : {"https://", "http://"}) {
    if (url.starts_with(scheme)) return url.substr(scheme.size());
  }
  return {};
}

bool IsServer(std::string_view url) {
  const std::string_view server = AfterScheme(url);
  auto fits = [](unsigned char c) { return isalnum(c) != 0 || c == '.' || c == '-' || c == ':' || c == '[' || c == ']'; };
  return !server.empty() && url.size() <= kMaxUrl && std::all_of(server.begin(), server.end(), fits);
}

// FNV-1a alone hardly moves its upper bits for names that differ in their last character; this is MurmurHash3's finalizer.
uint64_t Mixed(uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdULL;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return hash ^ (hash >> 33);
}

}  // namespace

Result<std::vector<StoreAddress>> ParseStores(const std::vector<std::string>& flags) {
  if (flags.size() > kMaxStores)
    return Status(Code::kInvalidArgument,
                  "--store-url is given " + std::to_string(flags.size()) + " times, and " + std::to_string(kMaxStores) + " is the most");
  std::vector<StoreAddress> stores;
  for (const std::string& flag : flags) {
    auto refuse = [&](const std::string& why) {
      return Status(Code::kInvalidArgument, "--store-url=" + flag.substr(0, kMaxUrl) + ": " + why);
    };
    const size_t end = AfterScheme(flag).empty() ? flag.find('=') : std::string::npos;
    StoreAddress store{kDefaultStore, flag};
    if (end != std::string::npos) store = {flag.substr(0, end), flag.substr(end + 1)};
    if (!IsLabel(store.name)) return refuse("a store's name has up to 63 lower case letters, digits and \"-\"");
    if (store.name == kAdoptedStore) return refuse("this name stands for the store \"default\" in older Checkpoints");
    if (!IsServer(store.url)) return refuse("neither https://host:port nor NAME=https://host:port");
    for (const StoreAddress& other : stores) {
      if (other.name == store.name) return refuse("there is another store of the name " + store.name);
      if (other.url == store.url) return refuse("the store " + other.name + " has this address");
    }
    stores.push_back(std::move(store));
  }
  return stores;
}

std::vector<std::string> StoresFor(std::vector<std::string> stores, std::string_view ns, std::string_view workload) {
  const std::string of = "/" + std::string(ns) + "/" + std::string(workload);
  auto weight = [&of](const std::string& store) { return std::pair(Mixed(Fnv1a(store + of)), store); };
  std::sort(stores.begin(), stores.end(), [&](const std::string& a, const std::string& b) { return weight(a) > weight(b); });
  return stores;
}

}  // namespace holdfast::api
