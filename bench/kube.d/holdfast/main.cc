// Holdfast's side of bench/kube.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "base/log.h"
#include "bench/kube.d/holdfast/modes.h"
#include "kube/config.h"

namespace holdfast::bench {
namespace {

Status Run(const Options& options) {
  static const std::map<std::string, Status (*)(const Context&)> kModes = {
      {"empty", Empty},      {"metadata", Metadata}, {"full", Full},          {"reconcile", Reconcile},
      {"events", Reconcile}, {"failover", Failover}, {"admission", Admission}};
  const MonoTime start = Clock::Real().Mono();
  auto mode = kModes.find(options.mode);
  if (mode == kModes.end()) return {Code::kInvalidArgument, "no mode \"" + options.mode + "\""};
  HF_ASSIGN_OR_RETURN(kube::ClientConfig config, kube::LoadConfig());
  kube::Client client(kube::MakeCurlTransport(std::move(config)));
  return mode->second({client, options, start});
}

}  // namespace
}  // namespace holdfast::bench

int main(int argc, char** argv) {
  holdfast::bench::Options options;
  CLI::App app("Holdfast's side of bench/kube");
  app.add_option("--mode", options.mode)->required();
  app.add_option("--objects", options.objects);
  app.add_option("--identity", options.identity);
  app.add_option("--lease", options.lease);
  app.add_option("--port", options.port);
  app.add_option("--certs", options.certs);
  CLI11_PARSE(app, argc, argv);
  holdfast::SetLogLevel(holdfast::LogLevel::kError);
  holdfast::Status status = holdfast::bench::Run(options);
  if (status.ok()) return 0;
  fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
