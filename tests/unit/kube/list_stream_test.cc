// The pager: client-go tools/pager.
#include "kube/list_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/pump.h"
#include "tests/unit/kube/fake_transport.h"

namespace holdfast::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const Resource kItems{"test", "v1", "items", "Item", true};

// Serves `total` items in pages, and can forget a list after some pages or refuse some of them.
class PagedServer {
 public:
  int total = 0;
  int expires_at_page = -1;
  int fail_pages = 0;  // so many requests for later pages fail first
  Result<HttpResponse> failure = Failure(503, "ServiceUnavailable");
  std::vector<std::string> paths;

  Result<HttpResponse> operator()(const HttpRequest& request) {
    paths.push_back(request.path);
    const int limit = Number(request.path, "limit="), from = Number(request.path, "continue=");
    if (from > 0 && fail_pages-- > 0) return failure;
    if (from > 0 && limit > 0 && from / limit + 1 == expires_at_page) return Failure(410, "Expired");
    const int end = limit == 0 ? total : std::min(total, from + limit);
    Json list = {{"kind", "ItemList"}, {"metadata", {{"resourceVersion", std::to_string(7 + from)}}}, {"items", Json::array()}};
    for (int i = from; i < end; ++i) list["items"].push_back({{"metadata", {{"name", std::to_string(i)}}}});
    if (end < total) list["metadata"]["continue"] = std::to_string(end);
    return JsonAnswer(200, list);
  }

 private:
  static int Number(const std::string& path, const std::string& key) {
    const size_t at = path.find(key);
    return at == std::string::npos ? 0 : std::stoi(path.substr(at + key.size()));
  }
};

class ListStreamTest : public ::testing::Test {
 protected:
  ListEnd List(int page_size = 10, const std::string& version = "") {
    transport_->SetAnswer([this](const HttpRequest& request) { return server_(request); });
    ListSpec spec{.resource = kItems, .version = version, .page_size = page_size};
    ListCalls calls{.on_item =
                        [this](const Json& item) {
                          names_.push_back(GetString(item, {"metadata", "name"}));
                        },
                    .on_restart =
                        [this] {
                          names_.clear();
                          ++restarts_;
                        }};
    return StreamList(client_, spec, calls, stop_.get_token());
  }
  bool IsWhole(int count) const {
    if (names_.size() != static_cast<size_t>(count)) return false;
    for (int i = 0; i < count; ++i) {
      if (names_[i] != std::to_string(i)) return false;
    }
    return true;
  }

  PagedServer server_;
  std::shared_ptr<FakeTransport> transport_ = std::make_shared<FakeTransport>();
  FakeClock clock_;
  Client client_{transport_, clock_};
  std::stop_source stop_;
  std::vector<std::string> names_;
  int restarts_ = 0;
};

TEST_F(ListStreamTest, ReadsEmptyOneAndManyPages) {
  for (int total : {0, 1, 9, 10, 11, 52}) {
    names_.clear();
    server_.total = total;
    ListEnd end = List();
    EXPECT_TRUE(end.status.ok()) << end.status.ToString();
    EXPECT_EQ(end.version, "7") << "that of the first page";
    EXPECT_TRUE(IsWhole(total)) << total;
  }
}

TEST_F(ListStreamTest, ReadsItemsFromPiecesOfAnySize) {
  server_.total = 25;
  for (size_t bytes : {1, 2, 3, 17, 64}) {
    names_.clear();
    transport_->SetPieces(bytes);
    EXPECT_TRUE(List().status.ok());
    EXPECT_TRUE(IsWhole(25)) << bytes;
  }
}

TEST_F(ListStreamTest, NamesTheVersionOnlyOnTheFirstPage) {
  server_.total = 15;
  ASSERT_TRUE(List(10, "5").status.ok());
  EXPECT_THAT(server_.paths, ElementsAre("/apis/test/v1/items?limit=10&resourceVersion=5", "/apis/test/v1/items?limit=10&continue=10"));
}

TEST_F(ListStreamTest, ListsAllAtOnceAtTheVersionAskedForWhenALaterPageExpired) {
  server_.total = 25;
  server_.expires_at_page = 2;
  ListEnd end = List(10, "5");
  EXPECT_TRUE(end.status.ok()) << end.status.ToString();
  EXPECT_TRUE(IsWhole(25));
  EXPECT_EQ(restarts_, 1);
  EXPECT_THAT(server_.paths, ElementsAre("/apis/test/v1/items?limit=10&resourceVersion=5", "/apis/test/v1/items?limit=10&continue=10",
                                         "/apis/test/v1/items?resourceVersion=5"));
}

TEST_F(ListStreamTest, LeavesAnExpiredFirstPageToTheCaller) {
  transport_->SetAnswer([](const HttpRequest&) { return Failure(410, "Expired"); });
  ListEnd end = StreamList(client_, {.resource = kItems, .version = "5"}, {.on_item = [](const Json&) {}, .on_restart = [] {}}, {});
  EXPECT_TRUE(end.refusal.expired());
  EXPECT_EQ(transport_->sent().size(), 1u);
}

TEST_F(ListStreamTest, AsksForALaterPageAgainInsteadOfStartingOver) {
  server_.total = 25;
  server_.fail_pages = 2;
  const Pump time(clock_, std::chrono::seconds(1));
  ListEnd end = List();
  EXPECT_TRUE(end.status.ok()) << end.status.ToString();
  EXPECT_TRUE(IsWhole(25));
  EXPECT_EQ(restarts_, 0);
  EXPECT_EQ(server_.paths.size(), 3u + 2u);

  names_.clear();
  server_.fail_pages = 1000;
  EXPECT_EQ(List().status.code(), Code::kUnavailable);
  server_.failure = Failure(403, "Forbidden");
  server_.paths.clear();
  EXPECT_EQ(List().status.code(), Code::kPermissionDenied);
  EXPECT_EQ(server_.paths.size(), 2u) << "no right is not given by asking again";
}

TEST_F(ListStreamTest, RefusesAnswersThatAreNoList) {
  for (const char* body : {"", "null", "{}", "[]", R"({"items":[{}]})", R"({"metadata":{"resourceVersion":"5"}})",
                           R"({"metadata":{"resourceVersion":"5"},"items":[{"a":]})", R"({"metadata":{"resourceVersion":"5"},"items":[)",
                           R"({"kind":"Table","metadata":{"resourceVersion":"5"},"rows":[]})",
                           R"({"kind":"Table","metadata":{"resourceVersion":"5"},"items":[]})"}) {
    transport_->SetAnswer([=](const HttpRequest&) { return HttpResponse{.status = 200, .headers = {}, .body = body}; });
    ListEnd end = StreamList(client_, {.resource = kItems}, {.on_item = [](const Json&) {}, .on_restart = [] {}}, {});
    EXPECT_EQ(end.status.code(), Code::kUnavailable) << body;
  }
  transport_->SetAnswer([=](const HttpRequest&) {
    return HttpResponse{.status = 200, .headers = {}, .body = R"({"metadata":{"resourceVersion":"5"},"items":null})"};
  });
  EXPECT_TRUE(StreamList(client_, {.resource = kItems}, {.on_item = [](const Json&) {}, .on_restart = [] {}}, {}).status.ok());
}

TEST_F(ListStreamTest, EndsWhenTheSamePageComesForever) {
  transport_->SetAnswer([](const HttpRequest&) {
    return JsonAnswer(200, {{"metadata", {{"resourceVersion", "5"}, {"continue", "again"}}}, {"items", Json::array()}});
  });
  EXPECT_EQ(StreamList(client_, {.resource = kItems}, {.on_item = [](const Json&) {}, .on_restart = [] {}}, {}).status.code(),
            Code::kUnavailable);
  EXPECT_EQ(transport_->sent().size(), 2u);
}

TEST_F(ListStreamTest, GivesUpAnAnswerThatTricklesInForTooLong) {
  server_.total = 3;
  transport_->SetPieces(1);
  ListCalls calls{.on_item = [this](const Json&) { clock_.Advance(std::chrono::minutes(3)); }, .on_restart = [] {}};
  transport_->SetAnswer([this](const HttpRequest& request) { return server_(request); });
  EXPECT_EQ(StreamList(client_, {.resource = kItems}, calls, {}).status.code(), Code::kUnavailable);
}

TEST_F(ListStreamTest, StopsAtOnce) {
  server_.total = 25;
  ListCalls calls{.on_item =
                      [this](const Json& item) {
                        names_.push_back(GetString(item, {"metadata", "name"}));
                        stop_.request_stop();
                      },
                  .on_restart = [] {}};
  transport_->SetPieces(1);
  transport_->SetAnswer([this](const HttpRequest& request) { return server_(request); });
  EXPECT_EQ(StreamList(client_, {.resource = kItems, .page_size = 10}, calls, stop_.get_token()).status.code(), Code::kCancelled);
  EXPECT_EQ(names_.size(), 1u);
}

TEST_F(ListStreamTest, AsksForMetadataAloneWithAWayOut) {
  server_.total = 1;
  transport_->SetAnswer([this](const HttpRequest& request) { return server_(request); });
  ListCalls calls{.on_item = [](const Json&) {}, .on_restart = [] {}};
  ASSERT_TRUE(StreamList(client_, {.resource = kItems, .metadata_only = true}, calls, {}).status.ok());
  ASSERT_TRUE(StreamList(client_, {.resource = kItems}, calls, {}).status.ok());
  EXPECT_EQ(transport_->sent()[0].headers["accept"], "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json");
  EXPECT_EQ(transport_->sent()[1].headers["accept"], "application/json");
  EXPECT_THAT(AcceptHeader(true, false), HasSubstr("as=PartialObjectMetadata;"));
}

}  // namespace
}  // namespace holdfast::kube
