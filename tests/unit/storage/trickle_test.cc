// Hole 4: any pod of the cluster held every thread of the store with connections that trickle, and drains lost their state.
#include <thread>

#include "tests/unit/kube/raw_client.h"
#include "tests/unit/storage/server_fixture.h"

namespace holdfast::storage {
namespace {

// Several nodes at once store and fetch a checkpoint each.
void ExpectDrains(const TestServer& server, const TempDir& dir) {
  WriteText(dir / "in/main/images/pages-1.img", RandomText(3 * kMaxSegmentBytes + 17, 1));
  const RemoteStoreOptions options = server.Options("agent", std::chrono::minutes(2));
  std::vector<std::jthread> drains;
  for (int i = 0; i < 10; ++i) {
    drains.emplace_back([&, id = "uid-" + std::to_string(i), out = dir / ("out-" + std::to_string(i))] {
      RemoteStore remote(options);
      EXPECT_OK(Keep(remote, id, dir / "in"));
      EXPECT_OK(Fetch(remote, id, out, {}));
    });
  }
  drains.clear();
  for (int i = 0; i < 10; ++i) ExpectSameTree(dir / "in", dir / ("out-" + std::to_string(i)));
}

TEST(Trickle, TenDrainsBesideAThousandPeersLoseNothing) {
  TempDir dir;
  TestServer server(dir);
  kube::TricklingPeers peers(server.server->port(), 1000);
  EXPECT_TRUE(peers.Connected());
  ExpectDrains(server, dir);
}

TEST(Trickle, PeersThatTakeAllPlacesGiveWay) {
  TempDir dir;
  TestServer server(dir, nullptr, "node1", kube::HttpServerOptions{.threads = 8, .max_connections = 100});
  kube::TricklingPeers peers(server.server->port(), 300);
  ExpectDrains(server, dir);
}

// Whole heads with tokens of nobody, and bodies that never come.
TEST(Trickle, BodiesOfStrangersAreNotWaitedFor) {
  TempDir dir;
  TestServer server(dir);
  kube::TricklingPeers nobody(server.server->port(), 0);  // room for descriptors
  std::vector<std::unique_ptr<kube::RawClient>> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(std::make_unique<kube::RawClient>(server.server->port()));
    ASSERT_TRUE(strangers.back()->Handshake());
    ASSERT_TRUE(
        strangers.back()->Write("POST /v1/sessions/uid-1/segments HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer forged\r\n"
                                "Content-Length: 1000000\r\n\r\n"));
  }
  ExpectDrains(server, dir);
}

}  // namespace
}  // namespace holdfast::storage
