// What the checkpoint stores (api/stores.h) hold, as far as the controller cares. Thread-safe.
#pragma once

#include <map>
#include <stop_token>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace holdfast::reconcilers::checkpoint {

// A manifest without its files.
struct Content {
  std::string store;  // that has it
  std::string ns, checkpoint, digest, created;
  int64_t stored_bytes = 0;  // for it alone
  Json info;                 // the agent's (agent/executor_store.cc)
};

// Why they cannot be read whole, by the manifest's id, of all that a store knows of.
using Damages = std::map<std::string, std::string>;

class Contents {
 public:
  virtual ~Contents() = default;
  // Whichever store has it. kNotFound: none has anything of that id. kDataLoss: it cannot be read.
  virtual Result<Content> Read(const std::string& manifest_id, std::stop_token stop) = 0;
  // Removes what the store of that name holds of a checkpoint; without a name, what any of them holds. OK when there is nothing. `term` of
  // leadership: kFailedPrecondition when the store was told something by a later leader. kNotFound: there is no such store.
  virtual Status Delete(const std::string& store, const std::string& manifest_id, int64_t term, std::stop_token stop) = 0;
  // What each store says, by its name; empty where none is configured.
  virtual std::map<std::string, Result<Damages>> Damaged(std::stop_token stop) = 0;
};

}  // namespace holdfast::reconcilers::checkpoint
