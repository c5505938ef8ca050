// Writes on each Checkpoint whether its store can still read it: the condition Damaged, an event when that changes. From then on no pod
// gets it (claim/step.h), and retention does not count it as a good one. And StoreMissing, where there is no such store any more, which
// says nothing about its content: it is neither gone nor damaged, and comes back with its store.
#pragma once

#include "reconcilers/checkpoint/contents.h"
#include "reconcilers/context.h"

namespace holdfast::reconcilers::checkpoint {

// Those of which a condition is not as the stores say; `why` empty: it is to go. Of a store that did not answer nothing is said.
struct Mark {
  CheckpointPtr checkpoint;
  const char* condition = api::kDamaged;  // or api::kStoreMissing
  std::string why;
};
std::vector<Mark> MarksOf(const std::vector<CheckpointPtr>& checkpoints, const std::map<std::string, Result<Damages>>& damaged);

// What a Checkpoint in the store `name` says while there is no such store, and what is to be done.
std::string StoreMissingText(const std::string& name);

class DamageTeller {
 public:
  static constexpr char kKey[] = "all";  // its only key
  DamageTeller(Context context, Contents& store) : context_(std::move(context)), store_(store) {}
  Result<kube::ReconcileResult> Reconcile(const std::string& key, std::stop_token stop);

 private:
  Status Write(const Mark& mark, std::stop_token stop);

  Context context_;
  Contents& store_;
  std::string told_;                         // what the stores' silence was logged as
  std::map<std::string, std::string> seen_;  // by what an event says of whom: the resourceVersion in its name, until its mark is written
};

}  // namespace holdfast::reconcilers::checkpoint
