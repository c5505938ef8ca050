// The store over TLS on loopback, by its own client and by hostile ones.
#include <curl/curl.h>

#include "tests/unit/storage/server_fixture.h"

namespace holdfast::storage {
namespace {

// The HTTP status of a request made by hand.
long Ask(const TestServer& server, const std::string& method, const std::string& path, const std::string& token,
         const std::string& body = "", const std::vector<std::string>& extra = {}, const std::string& type = "application/octet-stream") {
  CURL* curl = curl_easy_init();
  curl_slist* headers = curl_slist_append(nullptr, ("Content-Type: " + type).c_str());
  if (!token.empty()) headers = curl_slist_append(headers, ("Authorization: Bearer " + token).c_str());
  for (const std::string& header : extra) headers = curl_slist_append(headers, header.c_str());
  curl_easy_setopt(curl, CURLOPT_URL, ("https://127.0.0.1:" + std::to_string(server.server->port()) + path).c_str());
  curl_easy_setopt(curl, CURLOPT_CAINFO, (server.dir / "tls.crt").c_str());
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, 20L);
  if (method == "POST") {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  }
  curl_easy_setopt(
      curl, CURLOPT_WRITEFUNCTION, +[](char*, size_t size, size_t count, void*) { return size * count; });
  long status = 0;
  EXPECT_EQ(curl_easy_perform(curl), CURLE_OK) << path;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_slist_free_all(headers);
  curl_easy_cleanup(curl);
  return status;
}

TEST(StoreServer, CarriesACheckpointThereAndBack) {
  TempDir dir;
  TestServer server(dir);
  WriteText(dir / "in/main/images/pages-1.img", RandomText(25 * kMaxSegmentBytes + 17, 1));
  WriteText(dir / "in/main/images/packs", std::string(3 << 20, 'p'));
  WriteText(dir / "in/main/images/empty", "");
  for (int i = 0; i < 400; ++i) WriteText(dir / ("in/many/" + std::to_string(i)), "number " + std::to_string(i));
  RemoteStore remote(server.Options("agent"));
  EXPECT_EQ(remote.StateOf("uid-1").value_or(SessionState::kOpen), SessionState::kUnknown);
  Result<CommitResult> kept = Keep(remote, "uid-1", dir / "in");
  ASSERT_OK(kept);
  EXPECT_EQ(remote.StateOf("uid-1").value_or(SessionState::kUnknown), SessionState::kCommitted);
  ASSERT_OK(Fetch(remote, "uid-1", dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");
  // Commit again answers the same.
  auto session = Take(remote.OpenSession("uid-1", "default"));
  EXPECT_EQ(session->Commit(*remote.GetManifest("uid-1"))->digest, kept->digest);
  EXPECT_EQ(session->Abort().code(), Code::kFailedPrecondition);
  RemoteStore controller(server.Options("controller"));
  ASSERT_OK(controller.Delete("uid-1"));
  ASSERT_OK(controller.Delete("uid-1"));
  EXPECT_EQ(CodeOf(remote.GetManifest("uid-1")), Code::kNotFound);
  StoreUsage usage = *server.store->Usage();
  EXPECT_EQ(usage.objects, 0U);
  EXPECT_THAT(server.server->metrics().Render(usage),
              ::testing::HasSubstr("holdfast_store_requests_total{operation=\"commit\",code=\"Ok\"}"));
}

// A network may deliver a request twice, the second time when its checkpoint is long over.
TEST(StoreServer, ARequestThatArrivesTwiceChangesNothing) {
  TempDir dir;
  TestServer server(dir);
  WriteText(dir / "in/main/images/pages-1.img", RandomText(3 * kMaxSegmentBytes, 1));
  RemoteStore remote(server.Options("agent")), controller(server.Options("controller"));
  const std::string open = "/v1/sessions/uid-1?ns=default", commit = "/v1/sessions/uid-1/commit", abort = "/v1/sessions/uid-1/abort";
  ASSERT_OK(Keep(remote, "uid-1", dir / "in"));
  const std::string manifest = remote.GetManifest("uid-1")->Serialize();
  const uint64_t objects = server.store->Usage()->objects;
  EXPECT_EQ(Ask(server, "POST", open, "agent-token"), 200);
  EXPECT_EQ(Ask(server, "POST", commit, "agent-token", manifest), 200);
  EXPECT_NE(Ask(server, "POST", abort, "agent-token"), 200);
  EXPECT_EQ(remote.StateOf("uid-1").value_or(SessionState::kUnknown), SessionState::kCommitted);
  EXPECT_EQ(server.store->Usage()->objects, objects);
  ASSERT_OK(Fetch(remote, "uid-1", dir / "out", {}));
  ASSERT_OK(controller.Delete("uid-1"));
  EXPECT_NE(Ask(server, "POST", commit, "agent-token", manifest), 200);  // it would bring back what is deleted
  EXPECT_EQ(CodeOf(remote.GetManifest("uid-1")), Code::kNotFound);
}

TEST(StoreServer, ACommitThatArrivesAfterItsAbortStaysOut) {
  TempDir dir;
  TestServer server(dir);
  WriteText(dir / "in/main/images/pages-1.img", RandomText(3 * kMaxSegmentBytes, 1));
  RemoteStore remote(server.Options("agent"));
  auto session = Take(remote.OpenSession("uid-1", "default"));
  auto files = Ingest(dir / "in", *session, {});
  ASSERT_OK(files);
  const std::string manifest = ManifestOf("uid-1", "default", std::move(*files)).Serialize();
  ASSERT_OK(remote.Abort("uid-1", "default"));
  // The pod runs again. What was on its way: the commit itself, the opening before it, the abort once more.
  EXPECT_NE(Ask(server, "POST", "/v1/sessions/uid-1/commit", "agent-token", manifest), 200);
  EXPECT_NE(Ask(server, "POST", "/v1/sessions/uid-1?ns=default", "agent-token"), 200);
  EXPECT_NE(Ask(server, "POST", "/v1/sessions/uid-1/commit", "agent-token", manifest), 200);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-1/abort?ns=default", "agent-token"), 200);
  EXPECT_EQ(remote.StateOf("uid-1").value_or(SessionState::kUnknown), SessionState::kAborted);
  EXPECT_EQ(CodeOf(remote.GetManifest("uid-1")), Code::kNotFound);
}

TEST(StoreServer, RefusesStrangersAndWrongRoles) {
  TempDir dir;
  TestServer server(dir);
  const std::string session = "/v1/sessions/uid-1", manifest = "/v1/manifests/uid-1";
  struct Route {
    const char* method;
    std::string path;
    bool agent, controller;
  };
  for (const Route& route : std::vector<Route>{{"POST", session + "?ns=default", true, false},
                                               {"GET", session, true, true},
                                               {"POST", session + "/missing", true, false},
                                               {"POST", session + "/segments", true, false},
                                               {"POST", session + "/commit", true, false},
                                               {"GET", manifest, true, true},
                                               {"POST", manifest + "/segments", true, false},
                                               {"DELETE", manifest, false, true},
                                               {"POST", session + "/abort", true, false}}) {
    EXPECT_EQ(Ask(server, route.method, route.path, ""), 401) << route.path;
    EXPECT_EQ(Ask(server, route.method, route.path, "made up"), 401) << route.path;
    EXPECT_EQ(Ask(server, route.method, route.path, "stranger-token"), 403) << route.path;
    EXPECT_EQ(Ask(server, route.method, route.path, "agent-token") == 403, !route.agent) << route.path;
    EXPECT_EQ(Ask(server, route.method, route.path, "controller-token") == 403, !route.controller) << route.path;
  }
  RemoteStore controller(server.Options("controller"));
  EXPECT_EQ(CodeOf(controller.OpenSession("uid-2", "default")), Code::kPermissionDenied);
  WriteText(dir / "bad.token", "nonsense");
  RemoteStoreOptions options = server.Options("agent");
  options.http.token_file = dir / "bad.token";
  RemoteStore stranger(options);
  EXPECT_EQ(CodeOf(stranger.StateOf("uid-1")), Code::kUnauthenticated);
}

TEST(StoreServer, DeletesNothingForALeaderWhoseTermIsOver) {
  TempDir dir;
  TestServer server(dir);
  const std::string manifest = "/v1/manifests/uid-1";
  auto remove = [&](const std::string& term) {
    return Ask(server, "DELETE", manifest, "controller-token", "", {"Holdfast-Term: " + term});
  };
  EXPECT_EQ(remove("7"), 200);
  EXPECT_EQ(remove("6"), 412);
  EXPECT_EQ(remove("7"), 200);
  EXPECT_EQ(remove("eight"), 400);
  EXPECT_EQ(Ask(server, "DELETE", manifest, "controller-token"), 200) << "without an election there is no term";
}

TEST(StoreServer, GivesTheKeyOnlyToThoseWhoWrite) {
  TempDir dir;
  TestServer server(dir);
  WriteText(dir / "in/a", "hello");
  RemoteStore agent(server.Options("agent")), controller(server.Options("controller"));
  ASSERT_OK(Keep(agent, "uid-1", dir / "in"));
  ASSERT_OK(controller.GetManifest("uid-1"));
  EXPECT_OK(agent.HashKeyOf("uid-1"));
  EXPECT_EQ(CodeOf(controller.HashKeyOf("uid-1")), Code::kPermissionDenied);
}

TEST(StoreServer, SurvivesHostileBodies) {
  TempDir dir;
  TestServer server(dir);
  ASSERT_EQ(Ask(server, "POST", "/v1/sessions/uid-1?ns=default", "agent-token"), 200);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-2?ns=../../etc", "agent-token"), 400);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-2", "agent-token"), 400);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/..?ns=default", "agent-token"), 400);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/a%2fb?ns=default", "agent-token"), 404);
  EXPECT_EQ(Ask(server, "GET", "/v1/../../etc/passwd", "agent-token"), 404);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-1/missing", "agent-token", "33 bytes are no whole number of ids"), 400);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-1/missing", "agent-token", std::string(1 << 20, 'x')), 400);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-1/segments", "agent-token", RandomText(5000, 1)), 400);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-1/segments", "agent-token", RandomText(12 << 20, 1)), 400);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-1/commit", "agent-token", "{}"), 501);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-1/commit", "agent-token", std::string(100'000, '[')), 400);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-3/commit", "agent-token", ManifestOf("uid-3", "default", {}).Serialize()), 404);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-1/commit", "agent-token", "x", {"Content-Encoding: gzip"}), 415);
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-1/commit", "agent-token", "x", {}, "multipart/form-data; boundary=x"), 415);
  EXPECT_EQ(Ask(server, "POST", "/v1/manifests/uid-1/segments", "agent-token", std::string(32, 'x')), 404);
  EXPECT_EQ(Ask(server, "GET", "/v1/sessions/uid-1", "agent-token"), 200);
}

TEST(StoreServer, RefusesAPoisonedSegment) {
  TempDir dir;
  TestServer server(dir);
  RemoteStore remote(server.Options("agent"));
  auto session = Take(remote.OpenSession("uid-1", "default"));
  const SegmentId good = HashSegment(session->hash_key(), AsBytes("good"));
  EXPECT_EQ(session->Put(good, Codec::kRaw, 4, AsBytes("evil")).code(), Code::kDataLoss);
  EXPECT_EQ(session->Missing(std::vector{good}).value_or({}), std::vector<bool>{true});
}

TEST(StoreServer, TellsTheReaderOfDamage) {
  TempDir dir;
  TestServer server(dir);
  WriteText(dir / "in/a", RandomText(100'000, 1));
  RemoteStore remote(server.Options("agent"));
  ASSERT_OK(Keep(remote, "uid-1", dir / "in"));
  const std::string pack = dir / "store/packs/" + PacksIn(dir / "store").at(0);
  std::string bytes = ReadText(pack);
  bytes[50'000] ^= 1;
  WriteText(pack, bytes);
  EXPECT_EQ(Fetch(remote, "uid-1", dir / "out", {}).code(), Code::kDataLoss);
  bytes.resize(50'000);
  WriteText(pack, bytes);
  EXPECT_EQ(Fetch(remote, "uid-1", dir / "out", {}).code(), Code::kDataLoss);
}

TEST(StoreServer, TakesANewCertificateWhileItRuns) {
  TempDir dir;
  TestServer server(dir);
  RemoteStore before(server.Options("agent"));
  ASSERT_OK(before.StateOf("uid-1"));
  MakeCertificate(dir, "renewed");
  RemoteStoreOptions options = server.Options("agent");
  options.http.ca_file = dir / "renewed.crt";
  ASSERT_EQ(rename((dir / "renewed.key").c_str(), (dir / "tls.key").c_str()), 0);
  WriteText(dir / "tls.crt", ReadText(dir / "renewed.crt"));
  RemoteStore after(options);
  EXPECT_OK(after.StateOf("uid-1"));   // repeated until the server has seen the files
  EXPECT_OK(before.StateOf("uid-1"));  // on its old connection
}

// Says yes to node1 for uid-1, and that uid-gone is nobody's.
class OneNode final : public Authorizer {
 public:
  Status Check(const std::string& node, Use, const std::string&, const std::string& checkpoint, std::stop_token) override {
    if (checkpoint == "uid-gone") return Status(Code::kNotFound, "there is no such Checkpoint");
    return node == "node1" && checkpoint == "uid-1" ? Status::Ok() : Status(Code::kPermissionDenied, "not yours");
  }
};

TEST(StoreServer, ANodeTouchesOnlyItsOwnCheckpoints) {
  TempDir dir;
  TestServer server(dir, std::make_unique<OneNode>());
  WriteText(dir / "in/main/images/pages-1.img", RandomText(3 * kMaxSegmentBytes, 1));
  RemoteStore remote(server.Options("agent"));
  ASSERT_OK(Keep(remote, "uid-1", dir / "in"));
  ASSERT_OK(Fetch(remote, "uid-1", dir / "out", {}));
  ASSERT_OK(Keep(*server.store, "uid-2", dir / "in"));  // another node's
  auto open = Take(server.store->OpenSession("uid-3", "default"));
  struct Request {
    const char* method;
    std::string path;
  };
  const std::string two = "/v1/sessions/uid-2", three = "/v1/sessions/uid-3";
  for (const Request& r : std::vector<Request>{{"POST", two + "?ns=default"},
                                               {"GET", two},
                                               {"GET", "/v1/manifests/uid-2"},
                                               {"POST", "/v1/manifests/uid-2/segments"},
                                               {"POST", three + "?ns=default"},
                                               {"POST", three + "/missing"},
                                               {"POST", three + "/segments"},
                                               {"POST", three + "/commit"},
                                               {"POST", three + "/abort"},
                                               {"POST", "/v1/sessions/uid-4?ns=default"},
                                               {"POST", "/v1/sessions/uid-gone?ns=default"},
                                               {"POST", "/v1/sessions/uid-4/abort?ns=default"}}) {
    EXPECT_EQ(Ask(server, r.method, r.path, "agent-token"), 403) << r.method << " " << r.path;
  }
  EXPECT_EQ(server.store->StateOf("uid-3").value_or(SessionState::kUnknown), SessionState::kOpen);
  // The controller is on no node's side.
  EXPECT_EQ(Ask(server, "GET", two, "controller-token"), 200);
  EXPECT_EQ(Ask(server, "DELETE", "/v1/manifests/uid-2", "controller-token"), 200);
}

TEST(StoreServer, EndingWhatIsNobodysLeavesNoTrace) {
  TempDir dir;
  TestServer server(dir, std::make_unique<OneNode>());
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-gone/abort?ns=default", "agent-token"), 200);
  EXPECT_EQ(server.store->StateOf("uid-gone").value_or(SessionState::kOpen), SessionState::kUnknown);
  auto open = Take(server.store->OpenSession("uid-gone", "default"));
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-gone/abort", "agent-token"), 200);
  EXPECT_EQ(server.store->StateOf("uid-gone").value_or(SessionState::kOpen), SessionState::kAborted);
}

TEST(StoreServer, ATokenThatNamesNoNodeGetsNothing) {
  TempDir dir;
  TestServer server(dir, std::make_unique<OneNode>(), "");
  EXPECT_EQ(Ask(server, "POST", "/v1/sessions/uid-1?ns=default", "agent-token"), 403);
}

TEST(StoreServer, WaitsForItsCertificate) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  AllowList allowed;
  ASSERT_OK(allowed.Add("agent=read-write"));
  auto fence = Fence::Open(dir / "TERM");
  StoreServer server(*store, **fence, std::make_unique<TokenNames>("node1"), nullptr, std::move(allowed),
                     {.address = "127.0.0.1", .tls_cert_file = dir / "tls.crt", .tls_key_file = dir / "tls.key"});
  std::stop_source stop;
  Status started;
  {
    std::jthread starter([&] { started = server.Start(stop.get_token()); });
    stop.request_stop();
  }
  EXPECT_EQ(started.code(), Code::kCancelled);
  MakeCertificate(dir, "tls");
  EXPECT_OK(server.Start({}));
}

TEST(StoreServer, RefusesToServeStrangers) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto fence = Fence::Open(dir / "TERM");
  EXPECT_EQ(
      StoreServer(*store, **fence, nullptr, nullptr, {}, {.address = "0.0.0.0", .tls_cert_file = "", .tls_key_file = ""}).Start({}).code(),
      Code::kInvalidArgument);
  EXPECT_EQ(StoreServer(*store, **fence, std::make_unique<TokenNames>("node1"), nullptr, {},
                        {.address = "127.0.0.1", .tls_cert_file = "", .tls_key_file = ""})
                .Start({})
                .code(),
            Code::kInvalidArgument);
  EXPECT_OK(
      StoreServer(*store, **fence, nullptr, nullptr, {}, {.address = "127.0.0.1", .tls_cert_file = "", .tls_key_file = ""}).Start({}));
}

TEST(RemoteStore, DoesNotTalkToAServerItDoesNotKnow) {
  TempDir dir;
  TestServer server(dir);
  MakeCertificate(dir, "other");
  RemoteStoreOptions options = server.Options("agent", std::chrono::milliseconds(300));
  options.http.ca_file = dir / "other.crt";
  RemoteStore remote(options);
  EXPECT_EQ(CodeOf(remote.StateOf("uid-1")), Code::kUnavailable);
}

TEST(RemoteStore, GivesUpAtTheDeadlineOrWhenStopped) {
  TempDir dir;
  TestServer server(dir);
  RemoteStoreOptions options = server.Options("agent");
  server.server->Stop();
  RemoteStore remote(options);
  const MonoTime begin = Clock::Real().Mono();
  auto hurried = remote.Within(begin + std::chrono::milliseconds(400), {});
  EXPECT_EQ(CodeOf(hurried->StateOf("uid-1")), Code::kUnavailable);
  std::stop_source stop;
  auto stopped = remote.Within(begin + std::chrono::minutes(1), stop.get_token());
  std::jthread stopper([&] { stop.request_stop(); });
  EXPECT_EQ(CodeOf(stopped->StateOf("uid-1")), Code::kCancelled);
  EXPECT_LT(Clock::Real().Mono() - begin, std::chrono::seconds(15));
}

TEST(RemoteStore, ReadsItsTokenAgain) {
  TempDir dir;
  TestServer server(dir);
  RemoteStoreOptions options = server.Options("agent");
  FakeClock clock;
  RemoteStore remote(options, clock);
  ASSERT_OK(remote.StateOf("uid-1"));
  WriteText(options.http.token_file, "revoked");
  clock.Advance(std::chrono::seconds(2));
  EXPECT_EQ(CodeOf(remote.StateOf("uid-1")), Code::kUnauthenticated);
  WriteText(options.http.token_file, "agent-token");
  clock.Advance(std::chrono::seconds(2));
  EXPECT_OK(remote.StateOf("uid-1"));
}

}  // namespace
}  // namespace holdfast::storage
