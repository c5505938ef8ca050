#include "api/stores.h"

#include <gtest/gtest.h>

#include <map>

#include "api/checkpoint.h"

namespace holdfast::api {
namespace {

std::vector<std::string> Names(int count) {
  std::vector<std::string> names = {kDefaultStore};
  for (int i = 1; i < count; ++i) names.push_back("holdfast-store-" + std::to_string(i));
  return names;
}
std::string Workload(int i) { return "Deployment/web-" + std::to_string(i); }
constexpr int kWorkloads = 3000;

TEST(Stores, AreParsedByNameOrAreTheDefaultOne) {
  const auto stores = ParseStores({"https://holdfast-store.sys.svc:8443", "holdfast-store-1=https://holdfast-store-1.sys.svc:8443"});
  ASSERT_TRUE(stores.ok()) << stores.status().ToString();
  EXPECT_EQ(*stores, (std::vector<StoreAddress>{{"default", "https://holdfast-store.sys.svc:8443"},
                                                {"holdfast-store-1", "https://holdfast-store-1.sys.svc:8443"}}));
  EXPECT_TRUE(ParseStores({})->empty());
  EXPECT_EQ((*ParseStores({"default=http://[::1]:80"}))[0], (StoreAddress{"default", "http://[::1]:80"}));
}

TEST(Stores, ThatCannotBeUsedAreRefusedByName) {
  const std::vector<std::vector<std::string>> bad = {
      {""},
      {"https://"},
      {"a="},
      {"=https://a:1"},
      {"A=https://a:1"},
      {"-a=https://a:1"},
      {"a_b=https://a:1"},
      {std::string(64, 'a') + "=https://a:1"},
      {"a=ftp://a:1"},
      {"a=https://a:1/path"},
      {"https://a:1?x=y"},
      {"https://a:1\n"},
      {"a=https://user@a:1"},
      {"store=https://a:1"},
      {"https://" + std::string(600, 'a')},
      {"a=https://a:1", "a=https://b:1"},
      {"https://a:1", "https://b:1"},
      {"https://a:1", "default=https://b:1"},
      {"a=https://a:1", "b=https://a:1"},
  };
  for (const auto& flags : bad) {
    const auto stores = ParseStores(flags);
    EXPECT_EQ(stores.status().code(), Code::kInvalidArgument) << flags.back();
    EXPECT_TRUE(stores.status().message().starts_with("--store-url=")) << stores.status().message();
  }
  std::vector<std::string> many;
  for (size_t i = 0; i <= kMaxStores; ++i) many.push_back("s" + std::to_string(i) + "=https://h" + std::to_string(i) + ":1");
  EXPECT_EQ(ParseStores(many).status().code(), Code::kInvalidArgument);
  many.pop_back();
  EXPECT_EQ(ParseStores(many)->size(), kMaxStores);
}

TEST(Stores, WhatOlderCheckpointsSayIsTheDefaultOne) {
  Checkpoint c;
  EXPECT_EQ(c.store(), "default");
  for (const auto& [said, store] : std::map<std::string, std::string>{{"default", "default"}, {"store", "default"}, {"other", "other"}}) {
    c.status.manifest_store = said;
    EXPECT_EQ(c.store(), store);
  }
}

TEST(Placement, IsTheSameInAnyOrderAndForEver) {
  const std::vector<std::string> backwards = {"holdfast-store-2", "holdfast-store-1", "default"};
  for (int i = 0; i < 100; ++i) EXPECT_EQ(StoresFor(Names(3), "ns", Workload(i)), StoresFor(backwards, "ns", Workload(i)));
  EXPECT_EQ(StoresFor({"only"}, "ns", "Job/x"), std::vector<std::string>{"only"});
  EXPECT_TRUE(StoresFor({}, "ns", "Job/x").empty());
  // Written down: another order would leave the parents of all checkpoints behind in other stores.
  EXPECT_EQ(StoresFor(Names(4), "default", "Deployment/web"),
            (std::vector<std::string>{"holdfast-store-1", "holdfast-store-3", "default", "holdfast-store-2"}));
}

TEST(Placement, IsBalancedAlsoInTheSecondChoice) {
  for (int count : {2, 3, 8}) {
    std::map<std::string, int> first, second;
    for (int i = 0; i < kWorkloads; ++i) {
      const auto order = StoresFor(Names(count), "team-" + std::to_string(i % 7), Workload(i));
      ++first[order[0]];
      // Of those whose first choice is down the others share the load.
      if (order[0] == kDefaultStore) ++second[order[1]];
    }
    for (const std::string& name : Names(count)) {
      EXPECT_NEAR(first[name], kWorkloads / count, 0.2 * kWorkloads / count) << name << " of " << count;
      const double share = static_cast<double>(first[kDefaultStore]) / (count - 1);
      if (name == kDefaultStore) continue;
      EXPECT_NEAR(second[name], share, 0.35 * share) << name << " of " << count;
    }
  }
}

TEST(Placement, AFurtherStoreTakesItsShareAndNothingElseMoves) {
  int moved = 0;
  for (int i = 0; i < kWorkloads; ++i) {
    const std::string before = StoresFor(Names(3), "ns", Workload(i))[0], after = StoresFor(Names(4), "ns", Workload(i))[0];
    if (before == after) continue;
    ++moved;
    EXPECT_EQ(after, "holdfast-store-3");
  }
  EXPECT_NEAR(moved, kWorkloads / 4, 0.15 * kWorkloads / 4);
}

TEST(Placement, AStoreThatGoesLeavesTheOrderOfTheOthers) {
  for (int i = 0; i < 200; ++i) {
    auto order = StoresFor(Names(4), "ns", Workload(i));
    std::erase(order, "holdfast-store-2");
    EXPECT_EQ(order, StoresFor({"default", "holdfast-store-1", "holdfast-store-3"}, "ns", Workload(i)));
  }
}

}  // namespace
}  // namespace holdfast::api
