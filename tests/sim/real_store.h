// The product's own store: RemoteStore and its retries at the clients, a network without sockets, the server's routes, its authorizer with
// the API server behind it, LocalStore with its collection and its scrub, and a disk in memory that loses what was not synced.
#pragma once

#include "storage/http_caller.h"
#include "tests/sim/store.h"
#include "tests/sim/wire.h"
#include "tests/unit/storage/sim_fs.h"

namespace holdfast::sim {

class RealStore final : public Store {
 public:
  static constexpr int kKindsOfFaults = 8;

  // `folder`: for its fence. While this lives, what is drawn for keys is the seed's.
  RealStore(Turns& turns, ApiServer& server, const Weather& weather, std::string folder, uint64_t seed,
            std::function<void(const std::string&)> tell, Break broken);
  ~RealStore() override;

  std::unique_ptr<AgentsStore> ForAgent(const std::string& node) override;
  std::unique_ptr<ControllersStore> ForController() override;
  std::string FileOf(const std::string& manifest, const std::string& path) override;
  void Start() override;
  void Look() override;
  std::string NotWell() const override;
  void Disturb(int kind, Random& random) override;
  void Calm() override;
  void Examine(const std::vector<Needed>& needed, const std::set<std::string>& known, const Break& broken) override;
  void Stop() override;

 private:
  struct Life;    // one of its process
  struct Client;  // what agents and controllers call it by
  class OfAgent;
  class OfController;
  struct Reader;  // of what its disk has now
  struct Pending {
    storage::SimFs::Loss loss;
    unsigned seed = 0;
    Duration away{0};
  };

  void Die(const Pending& how);
  void DieSoon(uint64_t operations, const Pending& how);
  void FillUp(Random& random);
  void LeaveSessions(const std::string& node);
  Result<storage::HttpAnswer> Exchange(const Client& client, const storage::HttpCall& call, const storage::CallLimits& limits);
  std::optional<std::string> Serve(const std::string& request);
  void Heard(const Client& client, const storage::HttpCall& call, const storage::HttpAnswer& answer);
  void After(Duration duration, std::function<void()> then);

  Turns& turns_;
  ApiServer& server_;
  const Weather& weather_;
  const std::string folder_;
  const std::function<void(const std::string&)> tell_;
  const Break broken_;
  Random keys_;
  std::shared_ptr<storage::SimFs> disk_;
  std::shared_ptr<Life> life_;  // null: its process is not there
  std::optional<Pending> pending_;
  std::unique_ptr<Reader> reader_;
  MonoTime starts_at_;
  std::string why_not_;
  Duration slow_{0};
  MonoTime hangs_until_;
  bool crowded_ = false, stopped_ = false;
};

}  // namespace holdfast::sim
