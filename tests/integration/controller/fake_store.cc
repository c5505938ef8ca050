#include "tests/integration/controller/fake_store.h"

namespace holdfast::testing {

FakeStore::FakeStore() {
  server_.Get("/v1/manifests/(.+)/info", [this](const httplib::Request& request, httplib::Response& response) {
    std::lock_guard lock(mutex_);
    const auto found = manifests_.find(request.matches[1]);
    response.status = !up_ ? 503 : found == manifests_.end() ? 404 : 200;
    response.set_content(response.status == 503   ? R"({"code":"Unavailable","message":"the store starts"})"
                         : response.status == 404 ? R"({"code":"NotFound","message":"no such manifest"})"
                                                  : DumpJson(found->second),
                         "application/json");
  });
  server_.Get("/v1/damaged", [this](const httplib::Request&, httplib::Response& response) {
    std::lock_guard lock(mutex_);
    Json list = Json::array();
    for (const std::string& id : damaged_) list.push_back({{"id", id}, {"why", "segment 7 cannot be read"}});
    response.set_content(DumpJson({{"checkpoints", list}, {"count", list.size()}}), "application/json");
  });
  server_.Delete("/v1/manifests/(.+)", [this](const httplib::Request& request, httplib::Response&) {
    std::lock_guard lock(mutex_);
    if (deleted_.insert(request.matches[1]).second) live_ = std::max<int64_t>(live_ - kBytes, 0);
  });
  server_.Get("/v1/space", [this](const httplib::Request&, httplib::Response& response) {
    std::lock_guard lock(mutex_);
    response.set_content(DumpJson({{"liveBytes", live_}, {"packBytes", live_}, {"roomBytes", 100 * kBytes - live_}}), "application/json");
  });
  port_ = server_.bind_to_any_port("127.0.0.1");
  thread_ = std::thread([this] { server_.listen_after_bind(); });
}

FakeStore::~FakeStore() {
  while (!server_.is_running()) std::this_thread::yield();  // until then stop() would be ignored
  server_.stop();
  thread_.join();
}

bool FakeStore::Deleted(const std::string& id) const {
  std::lock_guard lock(mutex_);
  return deleted_.contains(id);
}

std::set<std::string> FakeStore::Deleted() const {
  std::lock_guard lock(mutex_);
  return deleted_;
}

void FakeStore::Hold(int64_t checkpoints) {
  std::lock_guard lock(mutex_);
  live_ = checkpoints * kBytes;
}

void FakeStore::Has(const std::string& id, const std::string& ns, const std::string& name) {
  std::lock_guard lock(mutex_);
  manifests_[id] = {{"ns", ns},
                    {"checkpoint", name},
                    {"created", "2026-01-02T03:04:05Z"},
                    {"digest", "blake3:1"},
                    {"newBytes", 4096},
                    {"info",
                     {{"pod", "web-a"},
                      {"podUID", "uid-of-then"},
                      {"node", "node-a"},
                      {"startedAt", "2026-01-02T03:04:00Z"},
                      {"owner", {{"kind", "Deployment"}, {"name", "web"}, {"uid", "owner-of-then"}, {"templateHash", "h"}}},
                      {"platform", {{"arch", "amd64"}}},
                      {"result", {{"memory_bytes", 1 << 20}, {"files_bytes", 4096}}},
                      {"containers", {{{"name", "main"}, {"image", "example/counter"}, {"restorable", true}}}}}}};
}

void FakeStore::Up(bool up) {
  std::lock_guard lock(mutex_);
  up_ = up;
}

void FakeStore::Damaged(const std::string& id, bool damaged) {
  std::lock_guard lock(mutex_);
  if (damaged) {
    damaged_.insert(id);
  } else {
    damaged_.erase(id);
  }
}

}  // namespace holdfast::testing
