// After client-go's leaderelection.go. Two places are stricter: a candidate that finds the lease deleted waits until the holder that it saw
// last can no longer think that it leads, and a process that finds its own identity in the lease when it starts counts a transition, so
// that the fence of its former life is older.
#include "kube/lease.h"

#include <atomic>
#include <random>

#include "base/log.h"
#include "base/random_seed.h"
#include "base/thread.h"
#include "base/time_format.h"
#include "kube/metrics.h"
#include "kube/objects.h"

namespace holdfast::kube {
namespace {

using std::chrono::seconds;

constexpr Duration kReleaseTimeout = seconds(2);
constexpr Duration kShortestCall = std::chrono::milliseconds(1);
// How often a candidate looks: often enough that it knows of the last renewal soon after it was made, since the lease runs from when it
// was seen. Each look is drawn from the upper half of this, so that candidates do not march in step.
constexpr Duration kLookEvery = std::chrono::milliseconds(700);
// A candidate comes so much after the moment when the lease runs out, at most.
constexpr Duration kExpiryJitter = std::chrono::milliseconds(100);
constexpr double kRenewJitter = 1.2;  // client-go's: what renew_deadline must leave room for

// As lease.h says. A lease without a creation time (only fakes have none) counts from 0.
int64_t TermOf(const Json& lease) {
  const auto created = ParseTime(GetString(lease, {"metadata", "creationTimestamp"}));
  const int64_t born = created ? std::chrono::duration_cast<seconds>(created->time_since_epoch()).count() : 0;
  return (born << 20) + GetInt(lease, {"spec", "leaseTransitions"});
}

}  // namespace

Status Validate(const LeaseOptions& options) {
  const std::string lease = "lease " + options.ns + "/" + options.name + ": ";
  if (options.ns.empty() || options.name.empty()) return {Code::kInvalidArgument, "a lease needs a namespace and a name"};
  if (options.identity.empty())
    return {Code::kInvalidArgument, lease + "the identity is empty: give each replica its own, as its pod's name"};
  if (options.lease_duration < seconds(1) || options.lease_duration % seconds(1) != Duration(0))
    return {Code::kInvalidArgument, lease + "lease_duration must be whole seconds, at least one"};
  if (options.lease_duration <= options.renew_deadline)
    return {Code::kInvalidArgument, lease + "lease_duration must be longer than renew_deadline, or two could lead at a time"};
  if (options.renew_every <= Duration(0)) return {Code::kInvalidArgument, lease + "renew_every must be positive"};
  if (std::chrono::duration<double>(options.renew_deadline) <= kRenewJitter * std::chrono::duration<double>(options.renew_every))
    return {Code::kInvalidArgument, lease + "renew_deadline must be longer than 1.2 × renew_every, or nothing is tried twice"};
  return Status::Ok();
}

struct LeaderElector::Impl {
  Client& client;
  const LeaseOptions options;
  const std::function<void(int64_t)> on_start;
  const std::function<void()> on_stop;
  Clock& clock = client.clock();
  std::mt19937_64 random{options.seed != 0 ? options.seed : RandomSeed()};

  // What we saw last, and when it last changed, by our own clock.
  Json observed{};
  MonoTime observed_at{};
  bool held = false;  // `observed` is what we wrote as leader
  int64_t transitions = 0;

  std::atomic<bool> leading{false};
  std::atomic<bool> guarded{false};  // from before on_start until on_stop has returned
  std::atomic<int64_t> last_transitions{-1};
  std::atomic<int64_t> leads_until{0};  // MonoTime ticks
  Thread thread{};

  void Run(const std::stop_token& stop);
  void Lead(const std::stop_token& stop);
  bool AcquireOrRenew(const std::stop_token& stop, MonoTime deadline);
  bool Write(const Json& lease, bool create, MonoTime start, const CallOptions& call);
  void Release();
  Duration UntilNextLook();
  void Lost();
  Json Record(Json lease, const std::string& holder, Duration duration, int64_t transition) const;

  void Observe(Json lease, MonoTime when) {
    if (GetObject(lease, {"spec"}) != GetObject(observed, {"spec"})) observed_at = when;
    observed = std::move(lease);
  }
  std::string Holder() const { return GetString(observed, {"spec", "holderIdentity"}); }
  // How long what we saw is good for: as its holder says, within reason.
  Duration HeldFor() const {
    int64_t whole = std::clamp<int64_t>(GetInt(observed, {"spec", "leaseDurationSeconds"}), 0, 3600);
    return whole > 0 ? Duration(seconds(whole)) : options.lease_duration;
  }
  bool HolderMayLead(MonoTime now) const { return !Holder().empty() && observed_at + HeldFor() > now; }
  // Two calls that hang must leave time for a third. (The transport gives up a dead HTTP/2 connection sooner still.)
  CallOptions Call(const std::stop_token& stop, MonoTime deadline) const {
    CallOptions call;
    call.timeout = std::clamp<Duration>(deadline - clock.Mono(), kShortestCall, options.renew_deadline / 3);
    call.stop = stop;
    return call;
  }
};

Json LeaderElector::Impl::Record(Json lease, const std::string& holder, Duration duration, int64_t transition) const {
  Json& spec = lease["spec"];
  const std::string now = FormatMicroTime(clock.Wall());
  spec["holderIdentity"] = holder;
  spec["leaseDurationSeconds"] = std::chrono::duration_cast<seconds>(duration).count();
  spec["renewTime"] = now;
  if (!held || !spec.contains("acquireTime")) spec["acquireTime"] = now;
  spec["leaseTransitions"] = transition;
  return lease;
}

bool LeaderElector::Impl::Write(const Json& lease, bool create, MonoTime start, const CallOptions& call) {
  Result<Json> written =
      create ? client.Create(kLeases, options.ns, lease, call) : client.Update(kLeases, options.ns, options.name, lease, call);
  if (!written.ok()) {
    if (written.status().code() != Code::kConflict && written.status().code() != Code::kAlreadyExists && !call.stop.stop_requested()) {
      LogWarning("cannot write the lease", {{"lease", options.ns + "/" + options.name}, {"error", written.status().ToString()}});
    }
    return false;
  }
  transitions = GetInt(*written, {"spec", "leaseTransitions"});
  observed = std::move(*written);
  observed_at = start;  // others saw our write later than this
  held = true;
  return true;
}

// One try. False also when somebody else holds the lease; `held` says whether we may go on thinking that it is ours.
bool LeaderElector::Impl::AcquireOrRenew(const std::stop_token& stop, MonoTime deadline) {
  MonoTime start = clock.Mono();
  if (held && HolderMayLead(start) &&
      Write(Record(observed, options.identity, options.lease_duration, transitions), false, start, Call(stop, deadline))) {
    return true;
  }
  if (deadline - clock.Mono() < kShortestCall) return false;
  if (held && options.metrics != nullptr) options.metrics->LeaseSlowPath(options.name);
  CallOptions call = Call(stop, deadline);
  Result<Json> got = client.Get(kLeases, options.ns, options.name, call);
  start = clock.Mono();
  if (!got.ok() && got.status().code() != Code::kNotFound) {
    if (!stop.stop_requested()) {
      LogWarning("cannot read the lease", {{"lease", options.ns + "/" + options.name}, {"error", got.status().ToString()}});
    }
    return false;
  }
  if (got.ok()) {
    Observe(std::move(*got), start);
    if (Holder() != options.identity) held = false;
    if (!held && HolderMayLead(start) && Holder() != options.identity) return false;
    int64_t seen = GetInt(observed, {"spec", "leaseTransitions"});
    return Write(Record(observed, options.identity, options.lease_duration, held ? seen : seen + 1), false, start, Call(stop, deadline));
  }
  if (!held && Holder() != options.identity && HolderMayLead(start)) return false;  // deleted under a holder that does not know yet
  Json lease = {
      {"apiVersion", kLeases.ApiVersion()}, {"kind", kLeases.kind}, {"metadata", {{"name", options.name}, {"namespace", options.ns}}}};
  int64_t next = observed.is_null() ? 0 : held ? transitions : GetInt(observed, {"spec", "leaseTransitions"}) + 1;
  return Write(Record(std::move(lease), options.identity, options.lease_duration, next), true, start, Call(stop, deadline));
}

// Soon enough to see each renewal, and when the lease runs out if that comes first.
Duration LeaderElector::Impl::UntilNextLook() {
  std::uniform_real_distribution<double> part(0.0, 1.0);
  auto upTo = [&](Duration most) { return Duration(static_cast<int64_t>(static_cast<double>(most.count()) * part(random))); };
  const Duration every = std::min(kLookEvery, options.renew_every);
  const Duration look = every / 2 + upTo(every / 2);
  const MonoTime now = clock.Mono();
  if (Holder() == options.identity || !HolderMayLead(now)) return look;
  return std::min(look, observed_at + HeldFor() - now + upTo(kExpiryJitter));
}

void LeaderElector::Impl::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    if (AcquireOrRenew(stop, clock.Mono() + options.renew_deadline)) {
      Lead(stop);
      continue;
    }
    clock.Sleep(UntilNextLook(), stop);
  }
}

// From the acquisition until leadership is lost or given back.
void LeaderElector::Impl::Lead(const std::stop_token& stop) {
  // Counted from when the last write that the server took was sent: candidates count from when they saw it, which was later. What was tried
  // in vain before it, or since, changes nothing.
  MonoTime until = observed_at + options.renew_deadline;
  MonoTime next = observed_at + options.renew_every;
  leads_until = until.time_since_epoch().count();
  last_transitions = transitions;
  guarded = true;
  leading = true;
  LogInfo("leading", {{"lease", options.ns + "/" + options.name}, {"identity", options.identity}, {"transitions", transitions}});
  if (options.metrics != nullptr) options.metrics->Leading(options.name, true);
  if (on_start) on_start(TermOf(observed));
  while (!stop.stop_requested()) {
    clock.Sleep(std::max<Duration>(std::min(next, until) - clock.Mono(), Duration(0)), stop);
    const MonoTime start = clock.Mono();
    if (stop.stop_requested() || until - start < kShortestCall) break;
    next = start + options.renew_every;  // at once after a try that took longer
    if (AcquireOrRenew(stop, until)) {
      until = observed_at + options.renew_deadline;
      leads_until = until.time_since_epoch().count();
    } else if (!held) {
      break;  // somebody else is in the lease
    }
  }
  Lost();
  if (stop.stop_requested() && held && options.release_on_stop) Release();
  held = false;
}

void LeaderElector::Impl::Lost() {
  leading = false;
  if (options.metrics != nullptr) options.metrics->Leading(options.name, false);
  LogInfo("no longer leading", {{"lease", options.ns + "/" + options.name}, {"identity", options.identity}, {"holder", Holder()}});
  if (on_stop) on_stop();
  guarded = false;
}

// Lets others take over at once. Only after on_stop: nothing that the lease guards may still run.
void LeaderElector::Impl::Release() {
  MonoTime deadline = clock.Mono() + kReleaseTimeout;
  while (clock.Mono() < deadline) {
    if (Holder() != options.identity) return;
    Result<Json> written =
        client.Update(kLeases, options.ns, options.name, Record(observed, "", seconds(1), transitions), Call({}, deadline));
    if (written.ok()) return;
    if (written.status().code() != Code::kConflict) {
      LogWarning("cannot release the lease; it expires by itself",
                 {{"lease", options.ns + "/" + options.name}, {"error", written.status().ToString()}});
      return;
    }
    Result<Json> got = client.Get(kLeases, options.ns, options.name, Call({}, deadline));
    if (!got.ok()) return;
    observed = std::move(*got);
  }
}

LeaderElector::LeaderElector(Client& client, LeaseOptions options, std::function<void(int64_t)> on_start, std::function<void()> on_stop)
    : impl_(new Impl{.client = client, .options = std::move(options), .on_start = std::move(on_start), .on_stop = std::move(on_stop)}) {}

LeaderElector::~LeaderElector() { Stop(); }

Status LeaderElector::Start() {
  HF_RETURN_IF_ERROR(Validate(impl_->options));
  if (impl_->options.metrics != nullptr) impl_->options.metrics->Leading(impl_->options.name, false);
  impl_->thread = Thread([impl = impl_.get()](const std::stop_token& stop) { impl->Run(stop); });
  return Status::Ok();
}

void LeaderElector::Stop() {
  if (!impl_->thread.joinable()) return;
  impl_->thread.request_stop();
  impl_->thread.join();
}

bool LeaderElector::leading() const { return impl_->leading && impl_->clock.Mono().time_since_epoch().count() < impl_->leads_until; }

int64_t LeaderElector::transitions() const { return impl_->last_transitions; }

Status LeaderElector::Check(Duration tolerance) const {
  const LeaseOptions& options = impl_->options;
  if (!impl_->guarded) return Status::Ok();
  const MonoTime until{Duration(impl_->leads_until)};
  const MonoTime ran_out = until - options.renew_deadline + options.lease_duration;
  if (impl_->clock.Mono() <= ran_out + tolerance) return Status::Ok();
  return {Code::kFailedPrecondition, "lease " + options.ns + "/" + options.name +
                                         " ran out and could not be renewed, but what it guards has not stopped: end this process"};
}

}  // namespace holdfast::kube
