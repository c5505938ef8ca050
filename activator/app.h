// The holdfast-activator process, less its command line: so tests can run it.
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "activator/connection.h"
#include "kube/http.h"

namespace holdfast::activator {

struct AppOptions {
  std::string identity;    // the pod's name
  std::string api_server;  // its URL, for metrics
  std::string listen = "0.0.0.0";
  int metrics_port = 8080;                        // 0: any
  int32_t first_port = 20000, last_port = 21999;  // what is allotted beyond them is left alone
  Limits limits{};
  Duration drain = std::chrono::seconds(25);  // when told to end: for those that are connected
  Duration linger = std::chrono::seconds(5);  // of it, also when nobody is: for those who are led here yet
};

class App {
 public:
  App(std::shared_ptr<kube::Transport> api_server, AppOptions options);
  ~App();
  Status Run(std::stop_token stop);  // until `stop`, and then for `linger`, until nobody is connected any more, or for `drain`
  bool ready() const;                // as /readyz
  int metrics_port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::activator
