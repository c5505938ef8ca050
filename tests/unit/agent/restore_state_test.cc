// What is told to each container of a pod that is restored.
#include <gtest/gtest.h>

#include "agent/restore_state.h"

namespace holdfast::agent {
namespace {

TEST(DecideCreate, ANativeSidecarIsRestoredWhenTheCheckpointHasIt) {
  kube::Pod pod;
  pod.containers.emplace_back().name = "main";
  pod.init_containers.emplace_back().name = "log-shipper";
  pod.init_containers.back().restart_always = true;
  RestoreState state;
  state.phase = RestoreState::Phase::kReady;
  state.containers = {{"log-shipper", {}}, {"main", {}}};
  runtime::CreateQuestion question;
  question.container = "log-shipper";
  question.container_id = "c1";
  const runtime::CreateAnswer answer = *DecideCreate(state, pod, question, false, Layout()).answer;
  EXPECT_EQ(answer.action, "restore");
  EXPECT_TRUE(answer.first && answer.more);
}

// Holes 1 and 17: what starts beside containers that are still to be restored is told of the volumes, which are filled before it runs.
TEST(DecideCreate, WhatStartsBesideARestoreFindsTheVolumesFilled) {
  kube::Pod pod;
  pod.containers.emplace_back().name = "main";
  for (const char* name : {"setup", "left-out"}) pod.init_containers.emplace_back().name = name;
  pod.init_containers.back().restart_always = true;
  pod.volumes.emplace_back().name = "data";
  pod.volumes.back().type = "emptyDir";
  RestoreState state;
  state.pod_uid = "u1";
  state.volumes = {"data"};
  state.phase = RestoreState::Phase::kReady;
  const Layout layout;
  for (const char* name : {"left-out", "debugger"}) {
    runtime::CreateQuestion question;
    question.container = name;
    question.container_id = "c1";
    state.containers = {{"main", {}}};
    runtime::CreateAnswer answer = *DecideCreate(state, pod, question, false, layout).answer;
    EXPECT_EQ(answer.action, "cold");
    EXPECT_TRUE(answer.first && answer.more) << name;
    EXPECT_EQ(answer.dir, layout.RestoreFolder("u1")) << name;
    ASSERT_EQ(answer.volumes.size(), 1U) << name;
    EXPECT_EQ(answer.volumes[0].path, layout.EmptyDir("u1", "data"));
    EXPECT_EQ(runtime::CreateAnswer::FromJson(answer.ToJson())->dir, answer.dir);
    state.containers["main"].state = ContainerRestore::kRestored;  // nothing is to be filled any more
    answer = *DecideCreate(state, pod, question, false, layout).answer;
    EXPECT_EQ(answer.dir, "") << name;
    EXPECT_TRUE(runtime::CreateAnswer::FromJson(answer.ToJson()).ok());
  }
  runtime::CreateQuestion setup;
  setup.container = "setup";
  state.containers = {{"main", {}}};
  const runtime::CreateAnswer skipped = *DecideCreate(state, pod, setup, false, layout).answer;
  EXPECT_EQ(skipped.action, "skip");
  EXPECT_EQ(skipped.dir, "") << "nothing of the pod runs in it: a try that fails may still fill them anew";
}

// istio-init, or the one with which JupyterHub keeps a notebook from the cloud's metadata: the new sandbox has a network of its own.
TEST(DecideCreate, AnInitContainerThatMaySetUpTheNetworkRunsAgain) {
  kube::Pod pod;
  pod.containers.emplace_back().name = "main";
  pod.init_containers.emplace_back().name = "setup";
  RestoreState state;
  state.phase = RestoreState::Phase::kReady;
  state.containers = {{"main", {}}};
  runtime::CreateQuestion question;
  question.container = "setup";
  Layout layout;
  for (const char* security : {"", R"({"capabilities":{"add":["NET_RAW"]}})", R"({"capabilities":{"add":["ALL"],"drop":["NET_ADMIN"]}})"}) {
    pod.init_containers[0].security = security;
    EXPECT_EQ(DecideCreate(state, pod, question, false, layout).answer->action, "skip") << security;
  }
  for (const char* security :
       {R"({"privileged":true})", R"({"capabilities":{"add":["NET_ADMIN"]}})", R"({"capabilities":{"add":["cap_net_admin"]}})"}) {
    pod.init_containers[0].security = security;
    const runtime::CreateAnswer answer = *DecideCreate(state, pod, question, false, layout).answer;
    EXPECT_EQ(answer.action, "cold") << security;
    EXPECT_TRUE(answer.first && answer.more) << "it finds the volumes filled";
    EXPECT_EQ(answer.dir, layout.RestoreFolder(state.pod_uid));
  }
}

TEST(DecideCreate, EachContainerIsToldWhetherOthersAreStillToCome) {
  kube::Pod pod;
  for (const char* name : {"one", "two", "three"}) pod.containers.emplace_back().name = name;
  RestoreState state;
  state.phase = RestoreState::Phase::kReady;
  state.containers = {{"one", {}}, {"two", {}}, {"three", {}}};
  Layout layout;
  auto create = [&](const std::string& name) {
    runtime::CreateQuestion question;
    question.container = name;
    question.container_id = name + "-id";
    runtime::CreateAnswer answer = *DecideCreate(state, pod, question, false, layout).answer;
    state.containers[name].state = ContainerRestore::kRestored;
    return answer;
  };
  runtime::CreateAnswer one = create("one");
  EXPECT_TRUE(one.first && one.more);
  state.containers["two"].state = ContainerRestore::kCold;
  runtime::CreateAnswer three = create("three");
  EXPECT_FALSE(three.first || three.more);
}

}  // namespace
}  // namespace holdfast::agent
