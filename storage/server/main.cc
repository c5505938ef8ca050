// holdfast-store: keeps checkpoints on one volume and serves them to agents.
#include <CLI/CLI.hpp>

#include "base/log.h"
#include "base/stop_signals.h"
#include "base/time_format.h"
#include "kube/admission.h"
#include "storage/server/commands.h"
#include "storage/server/local_socket.h"
#include "storage/server/server.h"
#include "storage/server/token_review.h"

namespace holdfast::storage {
namespace {

struct Flags {
  std::string data, listen = "0.0.0.0:8443", cert, key, auth = "token-review", authorize = "node", audience, log_level = "info",
                    metrics_listen, kubeconfig, id, ns, file;
  std::vector<std::string> allow, kek_files;
  bool force = false, repair = false;
  uint64_t max_bytes = 0, reserve_bytes = 256 << 20, scrub_bytes_per_second = 16 << 20;
  std::string scrub_every = "168h", tighten_after = "1h";
};

struct Access {
  std::unique_ptr<Authenticator> authenticator;
  std::unique_ptr<Authorizer> authorizer;
};

Result<Access> MakeAccess(const Flags& flags) {
  Access access;
  if (flags.auth == "none") return access;
  HF_ASSIGN_OR_RETURN(kube::ClientConfig config, kube::LoadConfig(flags.kubeconfig));
  auto client = std::make_shared<kube::Client>(std::shared_ptr<kube::Transport>(kube::MakeCurlTransport(std::move(config))));
  access.authenticator = std::make_unique<CachedAuthenticator>(MakeTokenReviewAuthenticator(client, flags.audience),
                                                               std::chrono::seconds(60), std::chrono::seconds(10), Clock::Real());
  if (flags.authorize == "node") access.authorizer = std::make_unique<KubeAuthorizer>(client, Clock::Real());
  return access;
}

void AddPages(kube::AdmissionServer& pages, LocalStore& store, StoreServer& server) {
  pages.Serve("/metrics", [&]() -> std::pair<int, std::string> {
    Result<StoreUsage> usage = store.Usage();
    if (!usage.ok()) return {500, usage.status().ToString() + "\n"};
    return {200, server.metrics().Render(*usage)};
  });
  pages.Serve("/healthz", [] { return std::make_pair(200, std::string("ok\n")); });
  // A full store still serves those who restore: fullness shows in /metrics and in what agents are told, not here.
  pages.Serve("/readyz", [&] {
    return server.serving() ? std::make_pair(200, std::string("ok\n")) : std::make_pair(503, std::string("not serving yet\n"));
  });
}

Status Serve(const Flags& flags, const StopSignals& stop) {
  AllowList allowed;
  for (const std::string& flag : flags.allow) HF_RETURN_IF_ERROR(allowed.Add(flag));
  HF_ASSIGN_OR_RETURN(auto address, ParseAddress(flags.listen));
  const std::optional<Duration> scrub_every = ParseDuration(flags.scrub_every);
  if (!scrub_every) return Status(Code::kInvalidArgument, "--scrub-every is a duration such as 168h, or 0s for never");
  const std::optional<Duration> tighten_after = ParseDuration(flags.tighten_after);
  if (!tighten_after) return Status(Code::kInvalidArgument, "--tighten-after is a duration such as 1h, or 0s for never");
  HF_ASSIGN_OR_RETURN(Access access, MakeAccess(flags));
  HF_ASSIGN_OR_RETURN(std::vector<Kek> keks, LoadKeks(flags.kek_files));
  HF_ASSIGN_OR_RETURN(
      std::unique_ptr<LocalStore> store,
      LocalStore::Open({.dir = flags.data, .max_bytes = flags.max_bytes, .reserve_bytes = flags.reserve_bytes, .keks = std::move(keks)}));
  // After a rotation: restarted with the new KEK first, the store needs the old one no more.
  HF_ASSIGN_OR_RETURN(size_t rewrapped, store->Rewrap());
  if (rewrapped > 0) LogInfo("keys wrapped anew", {{"namespaces", rewrapped}});
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Fence> fence, Fence::Open(flags.data + "/TERM"));
  StoreServer server(*store, *fence, std::move(access.authenticator), std::move(access.authorizer), std::move(allowed),
                     {.address = address.first,
                      .port = address.second,
                      .tls_cert_file = flags.cert,
                      .tls_key_file = flags.key,
                      .tighten_after = *tighten_after == Duration(0) ? Duration::max() : *tighten_after,
                      .scrub = {.bytes_per_second = flags.scrub_bytes_per_second, .every = *scrub_every, .stop = {}}});
  kube::AdmissionServer pages;
  AddPages(pages, *store, server);
  if (!flags.metrics_listen.empty()) {
    HF_ASSIGN_OR_RETURN(auto where, ParseAddress(flags.metrics_listen));
    HF_RETURN_IF_ERROR(pages.StartPlain(where.first, where.second));
  }
  LocalSocket transfers(*store);
  if (Status there = transfers.Start(SocketPath(flags.data)); !there.ok())
    LogWarning("export and import work only while the store is stopped", {{"error", there.ToString()}});
  Status started = server.Start(stop.token());
  if (started.ok()) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any stopped;
    stopped.wait(lock, stop.token(), [] { return false; });
  }
  pages.Stop();
  transfers.Stop();
  server.Stop();
  store->Close();
  return started.code() == Code::kCancelled ? Status::Ok() : started;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Keeps checkpoints on one volume and serves them to Holdfast's agents.", "holdfast-store");
  app.set_version_flag("--version", HOLDFAST_VERSION);
  app.require_subcommand(0, 1);
  app.fallthrough();
  app.add_option("--data", flags.data, "Folder of the store, on its own volume")->required();
  app.add_option("--log-level", flags.log_level, "debug, info, warning or error");
  app.add_option("--listen", flags.listen, "Address of the HTTPS server");
  app.add_option("--tls-cert-file", flags.cert, "Certificate chain, PEM; waited for, and read again when it changes");
  app.add_option("--tls-key-file", flags.key, "Its key, PEM");
  app.add_option("--auth", flags.auth, "token-review, or none (only for a loopback --listen)")
      ->check(CLI::IsMember({"token-review", "none"}));
  app.add_option("--authorize", flags.authorize,
                 "node: a node writes the checkpoints that were assigned to it, and reads those and what its pods have claimed; none: all")
      ->check(CLI::IsMember({"node", "none"}));
  app.add_option("--token-audience", flags.audience, "Audience that tokens must have; empty: the API server's");
  app.add_option("--allow", flags.allow, "USER=read-write (an agent's service account) or USER=delete (the controller's); repeated");
  app.add_option("--kubeconfig", flags.kubeconfig, "How to reach the API server outside of a pod");
  app.add_option("--kek-file", flags.kek_files,
                 "Key that wraps the namespaces' keys: 32 bytes or 64 hexadecimal digits; repeated: the first wraps, all unwrap")
      ->allow_extra_args(false);
  app.add_option("--max-bytes", flags.max_bytes, "Most bytes of packs, such as 50Gi; 0: what the volume has")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--reserve-bytes", flags.reserve_bytes, "New checkpoints are refused when less is free")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--scrub-every", flags.scrub_every, "How often all that is stored is read and hashed, to find damage; 0s: never");
  app.add_option("--scrub-bytes-per-second", flags.scrub_bytes_per_second,
                 "Read for that at most, unless it would not be done in time; 0: as fast as it goes")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--tighten-after", flags.tighten_after,
                 "What has been stored for so long is compressed once more, with zstd, in the background; 0s: never");
  app.add_option("--metrics-listen", flags.metrics_listen, "Address of /metrics, /healthz and /readyz, plain HTTP");
  app.add_subcommand("serve", "Serve (the default)");
  CLI::App* stat = app.add_subcommand("stat", "List the checkpoints and what they take");
  CLI::App* fsck = app.add_subcommand("fsck", "Hash everything and name the checkpoints that are hurt");
  CLI::App* checkpoints = app.add_subcommand(
      "checkpoints", "Print a Checkpoint object for each checkpoint, for \"kubectl create -f -\" after they were lost with etcd");
  checkpoints->add_option("--namespace", flags.ns, "Only of this one");
  CLI::App* take_out =
      app.add_subcommand("export", "Write a checkpoint as one stream, not encrypted, for another store; also beside a server");
  take_out->add_option("--checkpoint", flags.id, "NAMESPACE/NAME, or an id as stat has it")->required();
  take_out->add_option("--output", flags.file, "A file; else stdout");
  CLI::App* bring_in = app.add_subcommand("import", "Take a checkpoint that \"export\" wrote; also beside a server");
  bring_in->add_option("--input", flags.file, "A file; else stdin");
  bring_in->add_option("--namespace", flags.ns, "Into this one; else its own");
  CLI::App* remove = app.add_subcommand("delete", "Delete a checkpoint; no server may run on the volume");
  remove->add_option("id", flags.id, "The checkpoint's uid")->required();
  fsck->add_flag("--repair", flags.repair, "Make damaged index files from their packs first; no server may run on the volume");
  CLI::App* collect =
      app.add_subcommand("gc", "Give the space of deleted checkpoints back; no server may run on the volume (it does so by itself)");
  CLI::App* rewrap = app.add_subcommand("rewrap", "Wrap all keys by the first --kek-file; no server may run on the volume");
  CLI::App* shred = app.add_subcommand("shred", "Destroy the keys of a namespace; no server may run on the volume");
  shred->add_option("namespace", flags.ns, "The namespace")->required();
  shred->add_flag("--force", flags.force, "Also while it has checkpoints: they are lost");
  CLI11_PARSE(app, argc, argv);

  LogLevel level;
  if (!ParseLogLevel(flags.log_level, &level)) {
    fprintf(stderr, "holdfast-store: --log-level is debug, info, warning or error\n");
    return 2;
  }
  SetLogLevel(level);
  if (!app.get_subcommands().empty() && app.get_subcommands()[0]->get_name() != "serve") {
    Result<std::vector<Kek>> keks = LoadKeks(flags.kek_files);
    if (!keks.ok()) {
      fprintf(stderr, "holdfast-store: %s\n", keks.status().ToString().c_str());
      return 2;
    }
    const VolumeOptions volume{.dir = flags.data, .keks = *keks};
    if (*stat) return PrintStat(volume);
    if (*fsck) return PrintFsck(volume, flags.repair);
    if (*checkpoints) return PrintCheckpoints(volume, flags.ns);
    if (*take_out) return ExportCheckpoint(volume, flags.id, flags.file);
    if (*bring_in) return ImportCheckpoint(volume, flags.ns, flags.file);
    if (*remove) return DeleteOffline(volume, flags.id);
    if (*collect) return CollectOffline(volume);
    if (*rewrap) return RewrapOffline(volume);
    if (*shred) return ShredOffline(volume, flags.ns, flags.force);
  }

  Status served = Serve(flags, StopSignals());
  if (served.ok()) return 0;
  LogError("cannot serve", {{"error", served.ToString()}});
  return 1;
}

}  // namespace
}  // namespace holdfast::storage

int main(int argc, char** argv) { return holdfast::storage::Main(argc, argv); }
