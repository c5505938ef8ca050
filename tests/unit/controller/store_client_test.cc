#include "controller/store_client.h"

#include <gtest/gtest.h>

namespace holdfast::controller {
namespace {

using std::chrono::seconds;

class OneStore final : public kube::Transport {
 public:
  explicit OneStore(const bool* up) : up_(up) {}
  Result<kube::HttpResponse> Send(const kube::HttpRequest&, std::stop_token) override {
    if (!*up_) return Status(Code::kUnavailable, "no answer");
    kube::HttpResponse response;
    response.status = 200;
    return response;
  }
  Result<kube::HttpResponse> Stream(const kube::HttpRequest&, const std::function<bool(std::string_view)>&, std::stop_token) override {
    return Status(Code::kUnsupported, "not used");
  }

 private:
  const bool* up_;
};

TEST(StoreClient, IsDownAfterHalfAMinuteOfSilence) {
  bool up = true;
  FakeClock clock;
  StoreClient store(std::make_unique<OneStore>(&up), clock);
  store.Probe({});
  up = false;
  clock.Advance(seconds(29));
  store.Probe({});
  EXPECT_FALSE(store.down());
  clock.Advance(seconds(2));
  EXPECT_TRUE(store.down());
  up = true;
  store.Probe({});
  EXPECT_FALSE(store.down());
}

TEST(StoreClient, IsNotDownBeforeItsFirstAnswer) {
  bool up = false;
  FakeClock clock;
  StoreClient store(std::make_unique<OneStore>(&up), clock);
  store.Probe({});
  clock.Advance(seconds(120));
  EXPECT_FALSE(store.down());
}

}  // namespace
}  // namespace holdfast::controller
