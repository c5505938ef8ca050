// The checkpoint stores (api/stores.h), as the controller asks them: each by its own client, all as one for the reconcilers. A store that
// is down is not asked: it costs nobody's time but its own probe's. Thread-safe.
#pragma once

#include "api/stores.h"
#include "controller/store_client.h"

namespace holdfast::controller {

class Stores final : public reconcilers::checkpoint::Contents, public reconcilers::restorepolicy::VolumeMeter {
 public:
  using Clients = std::map<std::string, std::unique_ptr<StoreClient>>;  // by name
  // None: there is no store, and what is asked says so.
  explicit Stores(Clients clients) : clients_(std::move(clients)) {}
  Result<reconcilers::checkpoint::Content> Read(const std::string& manifest_id, std::stop_token stop) override;
  Status Delete(const std::string& store, const std::string& manifest_id, int64_t term, std::stop_token stop) override;
  std::map<std::string, Result<reconcilers::checkpoint::Damages>> Damaged(std::stop_token stop) override;
  std::map<std::string, Result<reconcilers::restorepolicy::VolumeUse>> Use(std::stop_token stop) override;
  void Start();  // watching whether they answer
  void Stop();
  std::map<std::string, bool> Down() const;
  bool AllDown() const;  // so nothing new can be stored

 private:
  const Clients clients_;
};

}  // namespace holdfast::controller
