#include "bench/kube.d/holdfast/modes.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <latch>

#include "api/checkpoint.h"
#include "base/file.h"
#include "kube/admission.h"
#include "kube/controller.h"
#include "kube/informer.h"
#include "kube/lease.h"
#include "kube/objects.h"

namespace holdfast::bench {
namespace {

constexpr char kSent[] = "bench.holdfast.dev/sent";
constexpr Duration kSyncLimit = std::chrono::minutes(5);

// A pod of which only the metadata is kept, and asked for where the informer can.
struct PodMetadata {
  static const kube::Resource kResource;
  [[maybe_unused]] static constexpr bool kMetadataOnly = true;
  static PodMetadata FromJson(const Json& object) { return {kube::ObjectMeta::FromJson(object)}; }
  kube::ObjectMeta meta;
};
const kube::Resource PodMetadata::kResource = kube::Pod::kResource;

void Print(const Json& line) {
  printf("%s\n", line.dump().c_str());
  fflush(stdout);
}

void EndOfInput() {
  char rest[64];
  while (read(STDIN_FILENO, rest, sizeof rest) > 0) {
  }
}

double SecondsSince(MonoTime start, MonoTime end = Clock::Real().Mono()) { return std::chrono::duration<double>(end - start).count(); }

// Keeps a cache of all T; nothing reads it.
template <class T>
Status Watch(const Context& context) {
  kube::Informer<T> cache(context.client);
  cache.Start();
  if (!cache.WaitForSync(kSyncLimit, {})) return {Code::kDeadlineExceeded, "the cache did not sync"};
  Print({{"objects", cache.size()}, {"synced_s", SecondsSince(context.start)}});
  EndOfInput();
  return Status::Ok();
}

}  // namespace

Status Empty(const Context&) {
  Print(Json::object());
  EndOfInput();
  return Status::Ok();
}

Status Metadata(const Context& context) { return Watch<PodMetadata>(context); }
Status Full(const Context& context) { return Watch<api::Checkpoint>(context); }

Status Reconcile(const Context& context) {
  kube::Informer<api::Checkpoint> cache(context.client);
  std::latch drained(1);
  // Of the one worker.
  MonoTime first, last;
  size_t done = 0;
  std::vector<int64_t> latencies_us;
  kube::Controller controller({.name = "bench", .workers = 1},
                              [&](const std::string& key, const std::stop_token&) -> Result<kube::ReconcileResult> {
                                const WallTime now = Clock::Real().Wall();
                                if (done == 0) first = Clock::Real().Mono();
                                const auto [ns, name] = kube::ObjectKey::Parse(key);
                                const auto checkpoint = cache.Get(ns, name);
                                if (!checkpoint) return kube::ReconcileResult{};
                                if (int64_t sent = atoll(std::string(checkpoint->meta.Annotation(kSent)).c_str()); sent > 0) {
                                  latencies_us.push_back((now.time_since_epoch().count() - sent) / 1000);
                                }
                                if (++done == context.options.objects) {
                                  last = Clock::Real().Mono();
                                  drained.count_down();
                                }
                                return kube::ReconcileResult{};
                              });
  cache.AddHandler([&](const auto& old, const auto& now) { controller.Enqueue((now ? now : old)->meta.Key()); });
  cache.Start();
  if (!cache.WaitForSync(kSyncLimit, {})) return {Code::kDeadlineExceeded, "the cache did not sync"};
  (void)controller.Start();
  drained.wait();
  Print(
      {{"objects", context.options.objects}, {"seconds", SecondsSince(first, last)}, {"cold_start_s", SecondsSince(context.start, last)}});
  EndOfInput();
  cache.Stop();
  controller.Stop();
  if (context.options.mode == "events") Print({{"latencies_us", latencies_us}});
  return Status::Ok();
}

Status Failover(const Context& context) {
  const Options& options = context.options;
  kube::LeaderElector elector(
      context.client, {.ns = "default", .name = options.lease, .identity = options.identity},
      [&](int64_t) {
        Print({{"leading", options.identity}, {"at", std::chrono::duration<double>(Clock::Real().Wall().time_since_epoch()).count()}});
      },
      [] {});
  (void)elector.Start();
  EndOfInput();
  return Status::Ok();
}

Status Admission(const Context& context) {
  HF_ASSIGN_OR_RETURN(std::string certificate, ReadFile(context.options.certs + "/tls.crt"));
  HF_ASSIGN_OR_RETURN(std::string key, ReadFile(context.options.certs + "/tls.key"));
  kube::AdmissionServer server;
  server.Handle("/admit", [](const kube::AdmissionRequest&) { return kube::AdmissionResponse{}; });
  HF_RETURN_IF_ERROR(server.SetCertificate(certificate, key));
  HF_RETURN_IF_ERROR(server.Start("127.0.0.1", context.options.port));
  Print({{"path", "/admit"}});
  EndOfInput();
  return Status::Ok();
}

}  // namespace holdfast::bench
