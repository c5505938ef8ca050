#include "agent/jupyter.h"

#include <gtest/gtest.h>

#include "base/time_format.h"

namespace holdfast::agent {
namespace {

TEST(Jupyter, TheServersOwnFileSaysHowToAskIt) {
  const auto server = JupyterServerFrom(Json::parse(
      R"({"base_url": "/nb", "hostname": "0.0.0.0", "password": false, "pid": 7, "port": 8888, "secure": false, "sock": "", "token": "abc"})"));
  ASSERT_TRUE(server);
  EXPECT_EQ(server->port, 8888);
  EXPECT_EQ(server->base_url, "/nb/");
  EXPECT_EQ(server->token, "abc");
}

TEST(Jupyter, AFileThatATenantMadeUpIsNotFollowed) {
  for (const char* hostile :
       {"[]", "{}", R"({"port": 0})", R"({"port": 70000})", R"({"port": "8888"})", R"({"port": 8888, "secure": true})",
        R"({"port": 8888, "sock": "/run/x"})", R"({"port": 8888, "base_url": "http://elsewhere/"})",
        R"({"port": 8888, "base_url": "/a b"})", R"({"port": 8888, "token": "a\r\nHost: elsewhere"})"}) {
    EXPECT_FALSE(JupyterServerFrom(Json::parse(hostile))) << hostile;
  }
  EXPECT_FALSE(JupyterServerFrom({{"port", 8888}, {"token", std::string(5000, 'a')}}));
}

TEST(Jupyter, ItsRuntimeFolderIsFoundAsJupyterFindsIt) {
  const auto env = [](std::initializer_list<std::string> entries) {
    std::string text;
    for (const std::string& entry : entries) text += entry + '\0';
    return text;
  };
  EXPECT_EQ(JupyterRuntimeFolder(env({"PATH=/bin", "HOME=/home/jovyan"})), "/home/jovyan/.local/share/jupyter/runtime");
  EXPECT_EQ(JupyterRuntimeFolder(env({"HOME=/home/jovyan", "XDG_DATA_HOME=/data"})), "/data/jupyter/runtime");
  EXPECT_EQ(JupyterRuntimeFolder(env({"XDG_DATA_HOME=/data", "JUPYTER_DATA_DIR=/j"})), "/j/runtime");
  EXPECT_EQ(JupyterRuntimeFolder(env({"JUPYTER_RUNTIME_DIR=/run/j", "JUPYTER_DATA_DIR=/j"})), "/run/j");
  for (const std::string& none :
       {std::string(), std::string("HOME"), std::string("HOME=relative"), std::string("HOME=/") + std::string(5000, 'x')})
    EXPECT_EQ(JupyterRuntimeFolder(none), "");
}

Json Kernel(const char* state, const char* at) {
  return {{"id", "1"}, {"name", "python3"}, {"execution_state", state}, {"last_activity", at}};
}

TEST(Jupyter, KernelsAndTerminalsTellWhetherItIsUsed) {
  const char *early = "2026-06-01T10:00:00.123456Z", *late = "2026-06-01T11:00:00.000000Z";
  auto use = JupyterUseFrom(Json::array({Kernel("idle", early)}), Json::array({{{"name", "1"}, {"last_activity", late}}}));
  ASSERT_TRUE(use.ok());
  EXPECT_EQ(use->busy, "");
  EXPECT_EQ(use->last_activity, ParseTime(late));
  use = JupyterUseFrom(Json::array({Kernel("dead", late), Kernel("busy", early)}), Json());
  EXPECT_EQ(use->busy, "kernel python3 is busy");
  for (const char* state : {"starting", "restarting", "unknown", ""})
    EXPECT_NE(JupyterUseFrom(Json::array({Kernel(state, late)}), Json())->busy, "") << state;
  use = JupyterUseFrom(Json::array(), Json());
  EXPECT_TRUE(use->busy.empty());
  EXPECT_FALSE(use->last_activity);
}

TEST(Jupyter, WhatIsNoAnswerOfAJupyterServerIsNotIdleness) {
  EXPECT_FALSE(JupyterUseFrom(Json(), Json()).ok());
  EXPECT_FALSE(JupyterUseFrom(Json::object(), Json()).ok());
  EXPECT_FALSE(JupyterUseFrom(Json::array(), Json::object()).ok());
  EXPECT_FALSE(JupyterUseFrom(Json::array({Kernel("idle", "yesterday")}), Json()).ok());
  EXPECT_FALSE(JupyterUseFrom(Json::array({"idle"}), Json()).ok());
}

}  // namespace
}  // namespace holdfast::agent
