// What a real cluster did (recorded/drains.jsonl, written by record.py), what the simulated one does in the same lines, and what differs.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/api_server.h"

namespace holdfast::sim {

using Lines = std::vector<Json>;

// Empty: it cannot be read.
Lines ReadRecording(const std::string& file);

// normalise.py, for what the simulated API server has: pods are named by Deployment and order of appearance, Checkpoints by their pod.
class Normaliser {
 public:
  // `apps`: what the recording calls the pods with that label "app".
  explicit Normaliser(std::map<std::string, std::string> apps) : apps_(std::move(apps)) {}
  // Null: nothing that is compared, or nothing that has changed.
  Json Line(const std::string& collection, const ApiServer::Change& change);
  Json EventLine(const Json& event) const;
  std::string PodName(const Json& pod);

 private:
  std::string Next(const std::string& base) { return base + "-" + std::to_string(++counts_[base]); }
  std::string Known(const std::string& key) const;
  std::string CheckpointName(const Json& checkpoint);
  Json Pod(const Json& pod);
  Json Checkpoint(const Json& checkpoint);

  const std::map<std::string, std::string> apps_;
  std::map<std::string, int> counts_;
  std::map<std::string, std::string> names_;  // by uid and by name
  std::map<int64_t, std::string> terms_;
  std::map<std::string, Json> last_;
};

// A difference that is not looked at, and why. docs/simulation.md has the same table.
struct Simpler {
  const char* what;
  const char* why;
};
extern const std::vector<Simpler> kSimpler;

// Per object, the distinct values of what matters, in their order; of Holdfast's events, what they say of whom.
std::map<std::string, std::vector<std::string>> Chains(const Lines& lines);
// Readable, one text per object that differs; empty: none does.
std::vector<std::string> Differences(const Lines& recorded, const Lines& simulated);
// The orders between objects that do not hold there, by name and object.
std::vector<std::string> BrokenOrders(const Lines& lines);

}  // namespace holdfast::sim
