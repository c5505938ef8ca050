#include "controller/store_client.h"

#include <gtest/gtest.h>
#include <httplib.h>

namespace holdfast::controller {
namespace {

using std::chrono::milliseconds;
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
  std::string asked_;

 private:
  std::unique_ptr<httplib::Server> server_;
  std::thread thread_;
  int port_ = 0;
};

// A probe takes its time when nobody answers: it goes by while it looks.
void Probe(StoreClient& store, FakeClock& clock) {
  std::atomic<bool> done = false;
  std::jthread probe([&] {
    store.Probe({});
    done = true;
  });
  while (!done) {
    if (clock.waiters() > 0) clock.Advance(milliseconds(100));
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

TEST(StoreClient, TakesNoStrangersWordForADeletion) {
  FakeClock clock;
  OneStore server;
  StoreClient store(server.Client(clock), clock);
  server.status_ = 404;
  const Status deleted = store.Delete("uid-1", 7, {});
  EXPECT_EQ(deleted.code(), Code::kUnavailable);
  EXPECT_NE(deleted.message().find("--store-url"), std::string::npos) << deleted.message();
  EXPECT_EQ(store.Delete("../uid-1", 7, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(StoreClient(nullptr, clock).Delete("uid-1", 7, {}).code(), Code::kUnavailable);
}

}  // namespace
}  // namespace holdfast::controller
