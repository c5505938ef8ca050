#include "controller/metrics.h"
#include "controller/stores.h"

#include <gtest/gtest.h>
#include <httplib.h>

namespace holdfast::controller {
namespace {

using std::chrono::seconds;

// A server on loopback that answers as it is told to, on one port whether it is up or not.
class OneStore {
 public:
  OneStore() { Up(); }
  ~OneStore() { Down(); }
  void Up() {
    server_ = std::make_unique<httplib::Server>();
    server_->Delete("/v1/manifests/(.+)", [this](const httplib::Request& request, httplib::Response& response) {
      asked_ = request.path + " " + request.get_header_value("Holdfast-Term");
      response.status = status_;
    });
    server_->Get("/v1/space", [this](const httplib::Request&, httplib::Response& response) {
      response.status = status_;
      response.set_content(space_, "application/json");
    });
    server_->Get("/v1/manifests/(.+)/info", [this](const httplib::Request&, httplib::Response& response) {
      response.status = status_;
      response.set_content(info_, "application/json");
    });
    server_->Get("/v1/damaged", [this](const httplib::Request&, httplib::Response& response) {
      response.status = status_;
      response.set_content(damaged_, "application/json");
    });
    if (port_ == 0) {
      port_ = server_->bind_to_any_port("127.0.0.1");
    } else {
      ASSERT_TRUE(server_->bind_to_port("127.0.0.1", port_));
    }
    thread_ = std::thread([this] { server_->listen_after_bind(); });
    while (!server_->is_running()) std::this_thread::yield();
  }
  void Down() {
    if (!server_) return;
    server_->stop();
    thread_.join();
    server_.reset();
  }
  std::unique_ptr<storage::RemoteStore> Client(Clock& clock) const {
    storage::RemoteStoreOptions options;
    options.http.url = "http://127.0.0.1:" + std::to_string(port_);
    return std::make_unique<storage::RemoteStore>(options, clock);
  }
  int status_ = 200;
  std::string info_ =
      R"({"ns": "default", "checkpoint": "c", "created": "then", "digest": "blake3:1", "newBytes": 5, "info": {"pod": "web-0"}})";
  std::string damaged_ = R"({"checkpoints": [{"id": "uid-1", "ns": "default", "why": "a bit"}], "count": 1})";
  std::string asked_, space_ = R"({"liveBytes": 7, "packBytes": 9, "roomBytes": 1})";

 private:
  std::unique_ptr<httplib::Server> server_;
  std::thread thread_;
  int port_ = 0;
};

// A probe takes its time when nobody answers: it goes by while it looks, no further than to what it waits for.
void Probe(StoreClient& store, FakeClock& clock) {
  std::atomic<bool> done = false;
  std::jthread probe([&] {
    store.Probe({});
    done = true;
  });
  while (!done) {
    const MonoTime now = clock.Mono(), next = clock.next();
    if (next != MonoTime::max() && next > now) clock.Advance(next - now);
    std::this_thread::yield();
  }
}

TEST(StoreClient, IsDownAfterHalfAMinuteOfSilence) {
  FakeClock clock;
  OneStore server;
  StoreClient store(server.Client(clock), clock);
  Probe(store, clock);
  server.Down();
  clock.Advance(seconds(25));
  Probe(store, clock);
  EXPECT_FALSE(store.down());
  clock.Advance(seconds(6));
  EXPECT_TRUE(store.down());
  server.Up();
  Probe(store, clock);
  EXPECT_FALSE(store.down());
}

TEST(StoreClient, IsNotDownBeforeItsFirstAnswer) {
  FakeClock clock;
  OneStore server;
  StoreClient store(server.Client(clock), clock);
  server.Down();
  Probe(store, clock);
  clock.Advance(seconds(120));
  EXPECT_FALSE(store.down());
}

TEST(StoreClient, DeletesInATerm) {
  FakeClock clock;
  OneStore server;
  StoreClient store(server.Client(clock), clock);
  EXPECT_TRUE(store.Delete("uid-1", 7, {}).ok());
  EXPECT_EQ(server.asked_, "/v1/manifests/uid-1 7");
  EXPECT_TRUE(store.Delete("uid-1", 0, {}).ok());
  EXPECT_EQ(server.asked_, "/v1/manifests/uid-1 ") << "without an election there is none";
  server.status_ = 412;
  EXPECT_EQ(store.Delete("uid-1", 6, {}).code(), Code::kFailedPrecondition);
}

TEST(StoreClient, TellsHowFullTheStoreIs) {
  FakeClock clock;
  OneStore server;
  StoreClient store(server.Client(clock), clock);
  const auto use = store.Use({});
  ASSERT_TRUE(use.ok()) << use.status().ToString();
  EXPECT_EQ(use->live, 7);
  EXPECT_EQ(use->packs, 9);
  EXPECT_EQ(use->room, 1);
  for (const char* odd : {"{}", "<html>", R"({"liveBytes": -7, "packBytes": 9, "roomBytes": 1})"}) {
    server.space_ = odd;
    EXPECT_FALSE(store.Use({}).ok()) << odd;
  }
}

TEST(StoreClient, ReadsWhatAManifestSays) {
  FakeClock clock;
  OneStore server;
  StoreClient store(server.Client(clock), clock);
  const auto content = store.Read("uid-1", {});
  ASSERT_TRUE(content.ok()) << content.status().ToString();
  EXPECT_EQ(content->checkpoint, "c");
  EXPECT_EQ(content->stored_bytes, 5);
  EXPECT_EQ(GetString(content->info, {"pod"}), "web-0");
  for (const char* odd : {"{}", "<html>", "[]"}) {
    server.info_ = odd;
    EXPECT_FALSE(store.Read("uid-1", {}).ok()) << odd;
  }
  EXPECT_EQ(store.Read("../uid-1", {}).status().code(), Code::kInvalidArgument);
}

TEST(StoreClient, TellsWhatIsDamaged) {
  FakeClock clock;
  OneStore server;
  StoreClient store(server.Client(clock), clock);
  const auto damaged = store.Damaged({});
  ASSERT_TRUE(damaged.ok()) << damaged.status().ToString();
  EXPECT_EQ(*damaged, (reconcilers::checkpoint::Damages{{"uid-1", "a bit"}}));
  for (const char* odd : {"{}", "<html>", R"({"checkpoints": []})"}) {
    server.damaged_ = odd;
    EXPECT_FALSE(store.Damaged({}).ok()) << odd;
  }
}

TEST(StoreClient, TakesNoStrangersWordForADeletion) {
  FakeClock clock;
  OneStore server;
  StoreClient store(server.Client(clock), clock);
  server.status_ = 404;
  const Status deleted = store.Delete("uid-1", 7, {});
  EXPECT_EQ(deleted.code(), Code::kUnavailable);
  EXPECT_NE(deleted.message().find("--store-url"), std::string::npos) << deleted.message();
  EXPECT_EQ(store.Delete("../uid-1", 7, {}).code(), Code::kInvalidArgument);
}

Stores::Clients Two(const OneStore& a, const OneStore& b, Clock& clock) {
  Stores::Clients clients;
  clients["default"] = std::make_unique<StoreClient>(a.Client(clock), clock);
  clients["holdfast-store-1"] = std::make_unique<StoreClient>(b.Client(clock), clock);
  return clients;
}

TEST(Metrics, TellOfEachStore) {
  Metrics metrics({"default", "holdfast-store-1"});
  auto stored = [](const char* store, int64_t bytes) {
    api::Checkpoint c;
    c.status.phase = api::Phase::kReady;
    c.status.manifest_store = store;
    c.status.stored_bytes = bytes;
    return std::make_shared<const api::Checkpoint>(c);
  };
  metrics.StoreDown("default", false);
  metrics.StoreDown("holdfast-store-1", true);
  reconcilers::restorepolicy::Plan plan;
  plan.unmet.push_back({reconcilers::restorepolicy::Drop::kVolume, "", "", "holdfast-store-1", 7});
  metrics.Planned(plan);
  const std::string text =
      metrics.Text({stored("default", 1), stored("", 2), stored("holdfast-store-1", 4), stored("gone-1", 8), stored("gone-2", 16)});
  for (const char* line : {
           R"(holdfast_checkpoints_stored_bytes{store="default"} 3)",
           R"(holdfast_checkpoints_stored_bytes{store="holdfast-store-1"} 4)",
           R"(holdfast_checkpoints_stored_bytes{store=""} 24)",
           R"(holdfast_store_down{store="default"} 0)",
           R"(holdfast_store_down{store="holdfast-store-1"} 1)",
           R"(holdfast_retention_over_bytes{limit="VolumeFull",store="holdfast-store-1"} 7)",
           R"(holdfast_retention_over_bytes{limit="VolumeFull",store="default"} 0)",
           R"(holdfast_retention_over_bytes{limit="Quota"} 0)",
       })
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

TEST(Stores, NoneSaysSo) {
  Stores none({});
  EXPECT_EQ(none.Read("uid-1", {}).status().code(), Code::kUnavailable);
  EXPECT_EQ(none.Delete("", "uid-1", 7, {}).code(), Code::kUnavailable);
  EXPECT_TRUE(none.Damaged({}).empty());
  EXPECT_TRUE(none.Use({}).empty());
  EXPECT_FALSE(none.AllDown());
}

TEST(Stores, WhatIsInOneIsDeletedThereAndWhatMayBeAnywhereEverywhere) {
  FakeClock clock;
  OneStore a, b;
  Stores stores(Two(a, b, clock));
  EXPECT_TRUE(stores.Delete("holdfast-store-1", "uid-1", 7, {}).ok());
  EXPECT_EQ(a.asked_, "");
  EXPECT_EQ(b.asked_, "/v1/manifests/uid-1 7");
  EXPECT_TRUE(stores.Delete("", "uid-2", 7, {}).ok());
  EXPECT_EQ(a.asked_, "/v1/manifests/uid-2 7");
  EXPECT_EQ(b.asked_, "/v1/manifests/uid-2 7");
  EXPECT_EQ(stores.Delete("holdfast-store-2", "uid-3", 7, {}).code(), Code::kNotFound);
  b.status_ = 412;
  const Status refused = stores.Delete("", "uid-4", 6, {});
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_NE(refused.message().find("holdfast-store-1"), std::string::npos) << refused.message();
}

TEST(Stores, AManifestIsReadFromTheOneThatHasIt) {
  FakeClock clock;
  OneStore a, b;
  Stores stores(Two(a, b, clock));
  a.status_ = 404;
  const auto content = stores.Read("uid-1", {});
  ASSERT_TRUE(content.ok()) << content.status().ToString();
  EXPECT_EQ(content->store, "holdfast-store-1");
  b.status_ = 404;
  EXPECT_EQ(stores.Read("uid-1", {}).status().code(), Code::kNotFound) << "each of them said so";
  b.info_ = "{}";
  b.status_ = 200;
  EXPECT_EQ(stores.Read("uid-1", {}).status().code(), Code::kUnavailable) << "one of them may have it";
}

TEST(Stores, OneThatIsDownHoldsUpNobodyAndIsNoAnswer) {
  FakeClock clock;
  OneStore a, b;
  Stores::Clients clients = Two(a, b, clock);
  StoreClient& first = *clients["default"];
  StoreClient& other = *clients["holdfast-store-1"];
  Stores stores(std::move(clients));
  Probe(first, clock);
  Probe(other, clock);
  b.Down();
  clock.Advance(seconds(31));
  Probe(first, clock);
  EXPECT_EQ(stores.Down(), (std::map<std::string, bool>{{"default", false}, {"holdfast-store-1", true}}));
  EXPECT_FALSE(stores.AllDown());
  const MonoTime began = clock.Mono();  // which moves only for who waits
  EXPECT_TRUE(stores.Damaged({}).at("default").ok());
  EXPECT_FALSE(stores.Damaged({}).at("holdfast-store-1").ok());
  EXPECT_EQ(stores.Use({}).at("default")->live, 7);
  EXPECT_FALSE(stores.Use({}).at("holdfast-store-1").ok());
  a.status_ = 404;
  EXPECT_EQ(stores.Read("uid-1", {}).status().code(), Code::kUnavailable);
  a.status_ = 200;
  EXPECT_EQ(stores.Delete("", "uid-1", 7, {}).code(), Code::kUnavailable) << "it may hold something";
  EXPECT_TRUE(stores.Delete("default", "uid-1", 7, {}).ok());
  EXPECT_EQ(clock.Mono(), began);
  a.Down();
  clock.Advance(seconds(31));
  EXPECT_TRUE(stores.AllDown());
}

}  // namespace
}  // namespace holdfast::controller
