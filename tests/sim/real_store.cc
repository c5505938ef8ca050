#include "tests/sim/real_store.h"

#include <filesystem>

#include "api/stores.h"
#include "base/file.h"
#include "controller/stores.h"
#include "storage/aead.h"
#include "storage/local_store.h"
#include "storage/remote.h"
#include "storage/server/upkeep.h"
#include "storage/wire.h"
#include "tests/sim/kubernetes.h"
#include "tests/unit/storage/memory_http.h"

namespace holdfast::sim {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using storage::SimFs;

namespace {

constexpr uint64_t kVolume = 64 << 20, kReserve = 64 << 10;
constexpr char kAgents[] = "system:serviceaccount:holdfast-system:holdfast-agent",
               kControllers[] = "system:serviceaccount:holdfast-system:holdfast-controller",
               kStores[] = "system:serviceaccount:holdfast-system:holdfast-store";
constexpr Duration kPatience = seconds(5);  // agent/agent.cc

storage::LocalStoreOptions OptionsOn(SimFs& disk) {
  return {.dir = "/store",
          .reserve_bytes = kReserve,
          .keks = {storage::MakeKek(storage::Secret{1, 2, 3})},
          .packs = {.pack_bytes = 64 << 10, .buffer_bytes = 4 << 10},
          .fs = &disk};
}

// A token is the name of the node that an agent runs on, or else the controller's.
class Tokens final : public storage::Authenticator {
 public:
  Result<storage::Caller> Authenticate(const std::string& token, std::stop_token) override {
    if (token == kControllers) return storage::Caller{.user = token, .node = ""};
    return storage::Caller{.user = kAgents, .node = token};
  }
};

storage::AllowList Allowed() {
  storage::AllowList allowed;
  for (const std::string& flag : {std::string(kAgents) + "=read-write", std::string(kControllers) + "=delete"})
    if (!allowed.Add(flag).ok()) Die("the store's callers have no names");
  return allowed;
}

std::string RequestText(const std::string& token, const storage::HttpCall& call) {
  std::string body;
  for (const auto& part : call.body) body.append(reinterpret_cast<const char*>(part.data()), part.size());
  std::string text = call.method + " " + call.path + " HTTP/1.1\r\nHost: store\r\nContent-Type: application/octet-stream\r\n";
  if (!call.anonymous) text += "Authorization: Bearer " + token + "\r\n";
  for (const auto& [name, value] : call.headers) text += name + ": " + value + "\r\n";
  if (call.method == "POST") text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return text + "\r\n" + body;
}

storage::HttpAnswer ParseAnswer(const std::string& text) {
  constexpr std::string_view kKey = "\r\nHoldfast-Hash-Key: ";
  const size_t end = std::min(text.find("\r\n\r\n"), text.size() - 4), key = text.find(kKey);
  storage::HttpAnswer answer{.status = storage::StatusOf(text), .body = text.substr(end + 4), .hash_key = ""};
  if (key < end) answer.hash_key = text.substr(key + kKey.size(), text.find("\r\n", key + 2) - key - kKey.size());
  return answer;
}

Status NoAnswer(const char* why) { return {Code::kUnavailable, std::string("the store: ") + why}; }

// Time that only moves when it is told to.
class OwnClock final : public Clock {
 public:
  MonoTime Mono() const override { return MonoTime(passed); }
  WallTime Wall() const override { return WallTime(passed); }
  bool WaitUntil(std::unique_lock<std::mutex>&, std::condition_variable_any&, MonoTime deadline, std::stop_token,
                 const std::function<bool()>& ready) override {
    passed = std::max(passed, deadline.time_since_epoch());
    return ready();
  }
  Duration passed{0};
};

}  // namespace

struct RealStore::Life {
  Life(RealStore& owner, std::unique_ptr<storage::LocalStore> opened, std::unique_ptr<Fence> terms)
      : disk(owner.disk_),
        store(std::move(opened)),
        fence(std::move(terms)),
        wire(std::make_shared<Wire>(owner.turns_, owner.server_, owner.weather_, kStores)),
        authorizer(std::make_shared<kube::Client>(wire, owner.turns_), owner.turns_),
        routes(*store, *fence, &tokens, &authorizer, allowed, owner.turns_),
        server(routes) {
    storage::UpkeepOptions options;
    options.collect_bytes_per_second = 4 << 10;  // so that others come in between
    options.tighten_after = minutes(10);
    options.scrub = {.bytes_per_second = 16 << 10, .every = minutes(10)};
    upkeep.emplace(*store, options, owner.turns_);
  }
  const std::shared_ptr<SimFs> disk;
  const std::unique_ptr<storage::LocalStore> store;
  const std::unique_ptr<Fence> fence;
  const std::shared_ptr<Wire> wire;
  Tokens tokens;
  storage::KubeAuthorizer authorizer;
  const storage::AllowList allowed = Allowed();
  storage::Routes routes;
  storage::MemoryServer server;
  std::optional<storage::Upkeep> upkeep;
  int asking = 0;
};

struct RealStore::Client {
  std::string token;
  bool dead = false;
};

struct RealStore::Reader {
  std::shared_ptr<SimFs> of;
  uint64_t steps = 0;
  OwnClock clock;
  std::unique_ptr<SimFs> copy;
  std::unique_ptr<storage::LocalStore> store;
};

class RealStore::OfAgent final : public AgentsStore {
 public:
  OfAgent(std::shared_ptr<Client> client, storage::RemoteStoreOptions options, Turns& turns, const Break& broken)
      : client_(std::move(client)), remote_(std::move(options), turns), broken_(broken) {}
  storage::Store& store() override { return remote_; }
  agent::Stores::Within Within() override {
    return [this](const std::string&, MonoTime deadline, std::stop_token stop) -> std::unique_ptr<storage::Store> {
      return remote_.Within(deadline, std::move(stop));
    };
  }
  Result<std::vector<storage::FileEntry>> Ingest(const std::string& dir, storage::Session& session,
                                                 const storage::IngestOptions& options) override {
    return storage::Ingest(dir, session, OneThread(options));
  }
  Status Fetch(storage::Store& store, const std::string& manifest, const std::string& dir, const storage::IngestOptions& options) override {
    Status fetched = storage::Fetch(store, manifest, dir, OneThread(options));
    if (fetched.code() == Code::kDataLoss) broken_("Verifies", fetched.message());
    return fetched;
  }
  void Kill() override { client_->dead = true; }

 private:
  static storage::IngestOptions OneThread(storage::IngestOptions options) {
    options.threads = 1;
    return options;
  }
  const std::shared_ptr<Client> client_;
  storage::RemoteStore remote_;
  const Break& broken_;
};

class RealStore::OfController final : public ControllersStore {
 public:
  OfController(std::shared_ptr<Client> client, const storage::RemoteStoreOptions& options, Turns& turns)
      : client_(std::move(client)), stores_(Clients(options, turns)) {
    stores_.Start();
  }
  ~OfController() override { stores_.Stop(); }
  reconcilers::checkpoint::Contents& contents() override { return stores_; }
  reconcilers::restorepolicy::VolumeMeter& meter() override { return stores_; }
  bool down() const override { return stores_.AllDown(); }
  void Kill() override { client_->dead = true; }

 private:
  static controller::Stores::Clients Clients(const storage::RemoteStoreOptions& options, Turns& turns) {
    controller::Stores::Clients clients;
    clients[api::kDefaultStore] = std::make_unique<controller::StoreClient>(std::make_unique<storage::RemoteStore>(options, turns), turns);
    return clients;
  }
  const std::shared_ptr<Client> client_;
  controller::Stores stores_;
};

RealStore::RealStore(Turns& turns, ApiServer& server, const Weather& weather, std::string folder, uint64_t seed,
                     std::function<void(const std::string&)> tell, Break broken)
    : turns_(turns),
      server_(server),
      weather_(weather),
      folder_(std::move(folder)),
      tell_(std::move(tell)),
      broken_(std::move(broken)),
      keys_(seed),
      disk_(std::make_shared<SimFs>(kVolume)) {
  storage::UseRandom([this](std::span<uint8_t> bytes) {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(keys_.Next());
  });
}

RealStore::~RealStore() { storage::UseRandom(nullptr); }

std::unique_ptr<AgentsStore> RealStore::ForAgent(const std::string& node) {
  auto client = std::make_shared<Client>(Client{.token = node});
  storage::RemoteStoreOptions options{.http = {.url = "sim"}, .patience = kPatience};
  options.http.exchange = [this, client](const auto& call, const auto& limits) { return Exchange(*client, call, limits); };
  return std::make_unique<OfAgent>(client, std::move(options), turns_, broken_);
}

std::unique_ptr<ControllersStore> RealStore::ForController() {
  auto client = std::make_shared<Client>(Client{.token = kControllers});
  storage::RemoteStoreOptions options{.http = {.url = "sim"}};
  options.http.exchange = [this, client](const auto& call, const auto& limits) { return Exchange(*client, call, limits); };
  return std::make_unique<OfController>(client, options, turns_);
}

// --- the network --------------------------------------------------------------------------------------------------------------------

Result<storage::HttpAnswer> RealStore::Exchange(const Client& client, const storage::HttpCall& call, const storage::CallLimits& limits) {
  auto way = [&] {  // there, or back
    const Duration takes = turns_.random().Between(std::chrono::microseconds(100), milliseconds(2)) + slow_;
    (void)turns_.Await([&] { return client.dead; }, std::min(turns_.Mono() + takes, limits.deadline), limits.stop);
    return !client.dead && turns_.Mono() < limits.deadline && !limits.stop.stop_requested();
  };
  auto hang = [&] {  // a peer that says nothing: nobody is told
    (void)turns_.Await([&] { return client.dead; }, limits.deadline, limits.stop);
    return NoAnswer("no answer in time");
  };
  if (client.dead) return NoAnswer("its caller has died");
  const std::string request = RequestText(client.token, call);
  if (!way() || turns_.random().Chance(weather_.lost_requests)) return NoAnswer("no answer in time");
  if (turns_.Mono() < hangs_until_ && turns_.random().Chance(0.5)) return hang();
  if (!reachable() || life_ == nullptr) return NoAnswer("connection refused");
  const std::optional<std::string> text = Serve(request);
  if (!text) return NoAnswer("the connection was reset");
  if (turns_.Mono() < hangs_until_) return hang();
  if (!way() || !reachable() || turns_.random().Chance(weather_.lost_answers)) return NoAnswer("no answer in time");
  storage::HttpAnswer answer = ParseAnswer(*text);
  Heard(client, call, answer);
  return answer;
}

// Nothing: its process died over it.
std::optional<std::string> RealStore::Serve(const std::string& request) {
  const std::shared_ptr<Life> life = life_;
  ++life->asking;
  std::string answer = life->server.Ask(request);
  --life->asking;
  Look();
  return life == life_ ? std::optional(std::move(answer)) : std::nullopt;
}

// Hole 16: what other nodes left there keeps no node from storing.
void RealStore::Heard(const Client& client, const storage::HttpCall& call, const storage::HttpAnswer& answer) {
  if (answer.status < 400 || call.method != "POST" || !call.path.starts_with("/v1/sessions/")) return;
  const std::string said = storage::DecodeError(answer.status, answer.body).message();
  if (said.find("open sessions") != std::string::npos && !said.starts_with("node " + client.token) && !std::exchange(crowded_, true))
    broken_("OthersLeaveRoom", client.token + " may not store: " + said);
}

// --- its process --------------------------------------------------------------------------------------------------------------------

void RealStore::After(Duration duration, std::function<void()> then) {
  (void)turns_.Start([this, duration, then = std::move(then)] {
    (void)turns_.Await([this] { return stopped_; }, turns_.Mono() + duration);
    if (!stopped_) then();
  });
}

void RealStore::Start() {
  const std::string terms = folder_ + "/TERM";
  std::filesystem::create_directories(folder_);
  Result<std::unique_ptr<storage::LocalStore>> opened = storage::LocalStore::Open(OptionsOn(*disk_), turns_);
  Result<std::unique_ptr<Fence>> fence = Fence::Open(terms);
  if (disk_->crashed()) return Look();
  if (opened.ok() && fence.ok()) {
    life_ = std::make_shared<Life>(*this, std::move(*opened), std::move(*fence));
    why_not_.clear();
    return;
  }
  why_not_ = (opened.ok() ? fence.status() : opened.status()).ToString();
  tell_("the store does not start: " + why_not_);
  starts_at_ = turns_.Mono() + seconds(5);
}

void RealStore::Look() {
  if (disk_->crashed()) Die(*std::exchange(pending_, std::nullopt));
  if (life_ != nullptr || stopped_ || turns_.Mono() < starts_at_) return;
  tell_("the store's process starts");
  Start();
}

std::string RealStore::NotWell() const {
  return life_ != nullptr ? "" : "the store is not there" + (why_not_.empty() ? "" : ": " + why_not_);
}

void RealStore::Die(const Pending& how) {
  pending_.reset();
  tell_(how.loss == SimFs::Loss::kKill ? "the store's process dies" : "the store's node loses power");
  disk_->FailAt(1, SimFs::Fault::kCrash);  // for who still writes there
  disk_ = std::shared_ptr<SimFs>(disk_->AfterCrash(how.loss, how.seed));
  starts_at_ = turns_.Mono() + how.away;
  if (life_ == nullptr) return;
  life_->wire->Kill();
  (void)turns_.Start([this, life = std::exchange(life_, nullptr)] {
    life->store->Close();
    (void)turns_.Await([&] { return life->asking == 0; });
    life->upkeep.reset();
  });
}

void RealStore::DieSoon(uint64_t operations, const Pending& how) {
  if (pending_) return;
  pending_ = how;
  disk_->FailAt(operations, SimFs::Fault::kCrash);
}

// --- faults -------------------------------------------------------------------------------------------------------------------------

void RealStore::Disturb(int kind, Random& random) {
  Pending how{
      .loss = SimFs::Loss::kKill, .seed = static_cast<unsigned>(random.Next()), .away = random.Between(milliseconds(500), seconds(30))};
  const uint64_t operations = 1 + random.Below(80);
  if (kind == 2 || kind == 3) how.loss = random.Chance(0.5) ? SimFs::Loss::kAllUnsynced : SimFs::Loss::kSomeUnsynced;
  if (life_ == nullptr) return;
  switch (kind) {
    case 0:
    case 2:
      return Die(how);
    case 1:
    case 3:
      tell_("the store will stop " + std::to_string(operations) + " operations of its disk from now");
      return DieSoon(operations, how);
    case 4:
      return FillUp(random);
    case 5:
      slow_ = random.Between(milliseconds(50), seconds(random.Chance(0.3) ? 8 : 1));
      tell_("the way to the store takes " + std::to_string(slow_ / milliseconds(1)) + " ms");
      return After(random.Between(seconds(1), minutes(2)), [this] { slow_ = Duration(0); });
    case 6:
      tell_("the store's answers do not come");
      hangs_until_ = turns_.Mono() + random.Between(seconds(1), seconds(random.Chance(0.2) ? 120 : 20));
      return;
    default:
      return LeaveSessions("gone-" + std::to_string(random.Below(3)));
  }
}

void RealStore::FillUp(Random& random) {
  tell_("the store's volume is full");
  disk_->Resize(disk_->used() + random.Below(2 * kReserve));
  After(random.Between(seconds(1), random.Chance(0.2) ? minutes(5) : seconds(20)), [this] {
    tell_("the store's volume has room again");
    disk_->Resize(kVolume);
  });
}

// Of a node that is no more.
void RealStore::LeaveSessions(const std::string& node) {
  tell_("node " + node + ", which is gone, has left sessions");
  for (int i = 0; i < 260; ++i) {
    if (!life_->store->OpenSession(node + "-" + std::to_string(i), kUserNamespace, node).ok()) break;
  }
  Look();
}

void RealStore::Calm() {
  pending_.reset();
  disk_->FailAt(0, SimFs::Fault::kNone);
}

// --- what lies there ----------------------------------------------------------------------------------------------------------------

std::string RealStore::FileOf(const std::string& manifest, const std::string& path) {
  if (reader_ == nullptr || reader_->of != disk_ || reader_->steps != disk_->steps()) {
    reader_ = std::make_unique<Reader>();
    reader_->of = disk_;
    reader_->steps = disk_->steps();
    reader_->copy = disk_->Copy();
    Result<std::unique_ptr<storage::LocalStore>> opened = storage::LocalStore::Open(OptionsOn(*reader_->copy), reader_->clock);
    if (opened.ok()) reader_->store = std::move(*opened);
  }
  if (reader_->store == nullptr) return "";
  Result<storage::Manifest> found = reader_->store->GetManifest(manifest);
  if (!found.ok()) return "";
  std::string content;
  for (const storage::FileEntry& file : found->files) {
    if (file.path != path) continue;
    for (const storage::SegmentRef& segment : file.segments) content += reader_->store->GetSegment(manifest, segment).value_or("");
  }
  return content;
}

void RealStore::Examine(const std::vector<Needed>& needed, const std::set<std::string>& known, const Break& broken) {
  if (life_ == nullptr) return broken("Verifies", "the store is not there: " + why_not_);
  const std::unique_ptr<SimFs> copy = disk_->Copy();
  copy->Resize(kVolume);
  OwnClock clock;
  const storage::LocalStoreOptions options = OptionsOn(*copy);
  Result<storage::FsckReport> fsck = storage::Fsck({.dir = options.dir, .keks = options.keks, .fs = copy.get()}, 1);
  if (!fsck.ok()) return broken("Verifies", "fsck: " + fsck.status().ToString());
  for (const storage::HurtCheckpoint& hurt : fsck->hurt) broken("Verifies", "fsck: " + hurt.name + " is hurt: " + hurt.why);
  Result<std::unique_ptr<storage::LocalStore>> opened = storage::LocalStore::Open(options, clock);
  if (!opened.ok()) return broken("Verifies", "the store does not start: " + opened.status().ToString());
  storage::LocalStore& store = **opened;
  for (const Needed& one : needed) {
    Result<storage::StoredManifest> manifest = store.GetManifestText(one.manifest);
    if (!manifest.ok() || manifest->digest != one.digest)
      broken("Verifies", one.name + " is Ready: " + (manifest.ok() ? "its manifest is another" : manifest.status().ToString()));
    const Status read = storage::Fetch(store, one.manifest, folder_ + "/read/" + one.manifest, {.threads = 1});
    if (!read.ok()) broken("Verifies", one.name + " is Ready, and cannot be read: " + read.ToString());
  }
  std::filesystem::remove_all(folder_ + "/read");
  for (const std::string& id : store.CommittedIn(kUserNamespace)) {
    if (!known.contains(id)) broken("NothingLeft", "the manifest " + id + " is of no Checkpoint");
  }
  // Nobody comes back to a session after so long.
  clock.passed += std::chrono::hours(25);
  store.ExpireSessions();
  const Result<storage::CollectReport> collected = store.Collect({});
  const Result<storage::StoreUsage> usage = store.Usage();
  if (!collected.ok() || !usage.ok()) return broken("NothingLeft", "the store collects nothing: " + collected.status().ToString());
  if (usage->open_sessions > 0) broken("NothingLeft", std::to_string(usage->open_sessions) + " sessions are still open a day later");
  if (usage->manifests == 0 && usage->packs > 0) broken("NothingLeft", std::to_string(usage->packs) + " packs are nobody's");
  (*opened)->Close();
}

void RealStore::Stop() {
  stopped_ = true;
  if (life_ == nullptr) return;
  const std::shared_ptr<Life> life = std::exchange(life_, nullptr);
  (void)turns_.Await([&] { return life->asking == 0; });
  life->upkeep.reset();
  life->store->Close();
}

}  // namespace holdfast::sim
