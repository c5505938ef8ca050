// The store over TLS on loopback, by its own client and by hostile ones.
#include <curl/curl.h>

#include "storage/codec.h"
#include "storage/http_caller.h"
#include "storage/wire.h"
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
  // The next one builds on it.
  auto next = Take(remote.OpenSession("uid-2", "default"));
  IngestOptions options;
  options.store = &remote;
  options.parent = "uid-1";
  uint64_t sent = 0;
  options.progress = [&](const Progress& progress) { sent = progress.sent; };
  WriteText(dir / "in/new", RandomText(1000, 2));
  auto files = Ingest(dir / "in", *next, options);
  ASSERT_OK(files);
  EXPECT_EQ(sent, 1000U);
  ASSERT_OK(next->Hold("uid-1"));
  EXPECT_EQ(next->Hold("uid-3").code(), Code::kNotFound);
  ASSERT_OK(next->Commit(ManifestOf("uid-2", "default", *files)));
  ASSERT_OK(Fetch(remote, "uid-2", dir / "out-2", {}));
  ExpectSameTree(dir / "in", dir / "out-2");
  RemoteStore controller(server.Options("controller"));
  ASSERT_OK(controller.Delete("uid-2"));
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

TEST(StoreServer, SecuresWhatIsPunchedBehindTheReader) {
  TempDir dir;
  TestServer server(dir);
  WriteText(dir / "in/main/images/pages-1.img", RandomText(20 << 20, 1));
  WriteText(dir / "again/main/images/pages-1.img", RandomText(20 << 20, 1));
  RemoteStore remote(server.Options("agent"));
  auto session = Take(remote.OpenSession("uid-1", "default"));
  IngestOptions options;
  options.sent_log = dir / "uid-1.sent";
  options.punch_every_bytes = 4 << 20;
  for (int tries = 0; tries < 2; ++tries) {
    auto files = Ingest(dir / "in", *session, options);
    ASSERT_OK(files);
    struct stat info = {};
    ASSERT_EQ(stat((dir / "in/main/images/pages-1.img").c_str(), &info), 0);
    EXPECT_EQ(info.st_size, 20 << 20);
    EXPECT_EQ(info.st_blocks, 0);
    if (tries == 1) ASSERT_OK(session->Commit(ManifestOf("uid-1", "default", *files)));
  }
  ASSERT_OK(Fetch(remote, "uid-1", dir / "out", {}));
  ExpectSameTree(dir / "again", dir / "out");
}

TEST(StoreServer, AReaderThatDoesNotKnowZstdIsNotGivenIt) {
  TempDir dir;
  TestServer server(dir);
  std::string text = RandomText(200'000, 1);
  for (char& c : text) c &= 15;
  WriteText(dir / "in/main/images/pages-1.img", text);
  ASSERT_OK(Keep(*server.store, "uid-1", dir / "in"));
  EXPECT_EQ(Take(server.store->Collect({.tighten_after = Duration(0), .stop = {}})).tightened, 1U);
  const SegmentRef segment = Take(server.store->GetManifest("uid-1")).files[0].segments[0];
  HttpCaller http(server.Options("agent").http, Clock::Real());
  const std::string ids = EncodeIds(std::vector{segment.id});
  auto codec_of = [&](const std::string& path) {
    const HttpAnswer answer = Take(http.Call({.method = "POST", .path = path, .body = {AsBytes(ids)}, .max_answer_bytes = kMaxFramesBytes},
                                             {.deadline = Clock::Real().Mono() + std::chrono::seconds(20), .stop = {}}));
    std::vector<Codec> codecs;
    FrameParser parser([&](const PutItem& item) {
      codecs.push_back(item.codec);
      EXPECT_EQ(Take(Decode(item.codec, item.size, item.bytes)), text.substr(0, segment.size));
      return Status::Ok();
    });
    EXPECT_OK(parser.Feed(answer.body));
    return codecs;
  };
  EXPECT_THAT(codec_of("/v1/manifests/uid-1/segments"), ::testing::ElementsAre(Codec::kRaw)) << "an agent of the release before";
  EXPECT_THAT(codec_of("/v1/manifests/uid-1/segments?codec=2"), ::testing::ElementsAre(Codec::kZstd));
  RemoteStore remote(server.Options("agent"));
  ASSERT_OK(Fetch(remote, "uid-1", dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");
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
                                               {"POST", session + "/secure", true, false},
                                               {"POST", session + "/segments", true, false},
                                               {"POST", session + "/hold?manifest=uid-9", true, false},
                                               {"POST", session + "/commit", true, false},
                                               {"GET", manifest, true, true},
                                               {"GET", manifest + "/info", true, true},
                                               {"GET", "/v1/space", true, true},
                                               {"GET", "/v1/damaged", false, true},
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

TEST(StoreServer, SaysHowFullItIs) {
  TempDir dir;
  TestServer server(dir);
  RemoteStore agent(server.Options("agent")), controller(server.Options("controller"));
  const StoreSpace before = *controller.Space();
  EXPECT_EQ(before.live_bytes, 0U);
  EXPECT_GT(before.room_bytes, 0U);
  WriteText(dir / "in/a", RandomText(3 * kMaxSegmentBytes, 1));
  ASSERT_OK(Keep(agent, "uid-1", dir / "in"));
  const StoreSpace after = *agent.Space();
  EXPECT_GE(after.live_bytes, 3 * kMaxSegmentBytes);
  EXPECT_GE(after.pack_bytes, after.live_bytes);
  ASSERT_OK(controller.Delete("uid-1"));
  EXPECT_EQ(controller.Space()->live_bytes, 0U) << "at once, also before it is collected";
}

TEST(StoreServer, SaysWhatAManifestIsOfWithoutItsFiles) {
  TempDir dir;
  TestServer server(dir);
  WriteText(dir / "in/a", RandomText(1000, 1));
  RemoteStore agent(server.Options("agent")), controller(server.Options("controller"));
  Result<CommitResult> kept = Keep(agent, "uid-1", dir / "in");
  ASSERT_OK(kept);
  const ManifestInfo info = Take(controller.InfoOf("uid-1"));
  EXPECT_EQ(info.ns, "default");
  EXPECT_EQ(info.checkpoint, "drain-uid-1");
  EXPECT_EQ(info.digest, kept->digest);
  EXPECT_EQ(info.new_bytes, kept->new_bytes);
  EXPECT_EQ(GetString(info.info, {"pod"}), "web-0");
  EXPECT_EQ(CodeOf(controller.InfoOf("uid-2")), Code::kNotFound);
  EXPECT_EQ(CodeOf(controller.InfoOf("../uid-1")), Code::kInvalidArgument);
}

TEST(StoreServer, TellsTheControllerWhatIsDamaged) {
  TempDir dir;
  TestServer server(dir);
  RemoteStore agent(server.Options("agent")), controller(server.Options("controller"));
  WriteText(dir / "in/a", RandomText(3 * kMaxSegmentBytes, 1));
  ASSERT_OK(Keep(agent, "uid-1", dir / "in"));
  WriteText(dir / "in/a", RandomText(3 * kMaxSegmentBytes, 2));
  ASSERT_OK(Keep(agent, "uid-2", dir / "in"));
  EXPECT_TRUE(Take(controller.Damaged()).empty());
  EXPECT_EQ(CodeOf(agent.Damaged()), Code::kPermissionDenied) << "an agent has no business with other nodes' checkpoints";
  const Manifest manifest = *controller.GetManifest("uid-2");
  ASSERT_TRUE(DamageRecord(dir / "store", manifest.files[0].leaves.at(0).id));
  ASSERT_OK(server.store->Scrub({.bytes_per_second = 0, .every = Duration(0), .stop = {}}));
  const std::vector<DamagedCheckpoint> damaged = Take(controller.Damaged());
  ASSERT_EQ(damaged.size(), 1U);
  EXPECT_EQ(damaged[0].id, "uid-2");
  EXPECT_THAT(damaged[0].why, ::testing::HasSubstr("cannot be read"));
  const std::string page = server.server->metrics().Render(*server.store->Usage());
  EXPECT_THAT(page, ::testing::HasSubstr("holdfast_store_scrub_damaged_checkpoints 1\n"));
  EXPECT_THAT(page, ::testing::HasSubstr("holdfast_store_scrub_damaged_segments 1\n"));
  EXPECT_THAT(page, ::testing::HasSubstr("holdfast_store_scrub_passes_total 1\n"));
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
                                               {"GET", "/v1/manifests/uid-2/info"},
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
