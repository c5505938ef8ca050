#include "tests/sim/api_server.h"

#include <algorithm>

#include "base/time_format.h"

namespace holdfast::sim {
namespace {

using kube::HttpRequest;
using kube::HttpResponse;

constexpr size_t kChangesKept = 2000, kEventsKept = 100'000;

HttpResponse Answer(int status, const Json& body) {
  return {.status = status, .headers = {{"content-type", "application/json"}}, .body = DumpJson(body)};
}

HttpResponse Refuse(int code, const std::string& reason, const std::string& message) {
  return Answer(code, {{"kind", "Status"},
                       {"apiVersion", "v1"},
                       {"metadata", Json::object()},
                       {"status", "Failure"},
                       {"code", code},
                       {"reason", reason},
                       {"message", message}});
}

std::string Decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool HasStatus(const std::string& collection) { return collection != "leases" && collection != "secrets" && collection != "configmaps"; }

const Json& Meta(const Json& object) { return GetObject(object, {"metadata"}); }

int Rank(const std::string& phase) {
  static const std::map<std::string, int> kRanks = {{"", 0},        {"Pending", 0}, {"Assigned", 1}, {"Freezing", 2}, {"Dumping", 2},
                                                    {"Storing", 2}, {"Ready", 3},   {"Failed", 3},   {"Deleting", 4}};
  return kRanks.at(phase);
}

// What the rules for status in crds/checkpoint.yaml forbid, but those of groups.
std::string Forbidden(const std::string& collection, const Json& before, const Json& now) {
  if (collection != "holdfast.dev/checkpoints") return "";
  auto was = [&](JsonPath path) { return GetString(before, path); };
  auto is = [&](JsonPath path) { return GetString(now, path); };
  if (Rank(is({"status", "phase"})) < Rank(was({"status", "phase"}))) return "phase cannot go back";
  if (was({"status", "phase"}) == "Failed" && is({"status", "phase"}) == "Ready") return "a Failed checkpoint stays Failed";
  if (GetInt(now, {"status", "term"}) < GetInt(before, {"status", "term"})) return "a controller of a later term has written this status";
  const std::string claimed = was({"status", "claim", "podUID"}), claims = is({"status", "claim", "podUID"});
  if (!claimed.empty() && !claims.empty() && claimed != claims) return "the checkpoint is claimed by another pod";
  for (const char* fixed : {"nodeName", "podUID"}) {
    const std::string old = was({"status", fixed});
    if (!old.empty() && old != is({"status", fixed})) return std::string(fixed) + " cannot be changed once it is set";
  }
  const std::string manifest = was({"status", "manifest", "id"});
  if (!manifest.empty() && !is({"status", "manifest", "id"}).empty() && manifest != is({"status", "manifest", "id"}))
    return "manifest cannot be replaced by another one";
  return "";
}

}  // namespace

// "path=value" or "path!=value", several with commas; a field that is not there is empty.
bool Selected(const Json& object, const std::string& selector) {
  for (size_t at = 0; at < selector.size();) {
    const size_t end = std::min(selector.find(',', at), selector.size()), equals = selector.find('=', at);
    if (equals >= end) return true;
    const bool other = equals > at && selector[equals - 1] == '!';
    const Json* value = &object;
    for (size_t from = at, until = equals - (other ? 1 : 0); value != nullptr && from < until;) {
      const size_t dot = std::min(selector.find('.', from), until);
      value = Find(*value, {std::string_view(selector).substr(from, dot - from)});
      from = dot + 1;
    }
    const std::string text = value != nullptr && value->is_string() ? value->get<std::string>() : "";
    if ((text == selector.substr(equals + 1, end - equals - 1)) == other) return false;
    at = end + 1;
  }
  return true;
}

std::optional<ApiServer::Target> ApiServer::Parse(const std::string& path) {
  Target target;
  const size_t mark = path.find('?');
  std::vector<std::string> parts;
  for (size_t at = 1; at <= std::min(mark, path.size());) {
    const size_t end = std::min({path.find('/', at), mark, path.size()});
    parts.push_back(Decoded(std::string_view(path).substr(at, end - at)));
    at = end + 1;
  }
  for (size_t at = mark; at != std::string::npos && at < path.size();) {
    const size_t end = std::min(path.find('&', at + 1), path.size());
    const std::string pair = path.substr(at + 1, end - at - 1);
    const size_t equals = std::min(pair.find('='), pair.size());
    target.query[pair.substr(0, equals)] = Decoded(pair.substr(std::min(equals + 1, pair.size())));
    at = end < path.size() ? end : std::string::npos;
  }
  size_t at = 0;
  if (parts.size() >= 3 && parts[0] == "api") {
    target.version = parts[1];
    at = 2;
  } else if (parts.size() >= 4 && parts[0] == "apis") {
    target.group = parts[1];
    target.version = parts[2];
    at = 3;
  } else {
    return std::nullopt;
  }
  if (parts[at] == "namespaces" && parts.size() > at + 2) {
    target.ns = parts[at + 1];
    at += 2;
  }
  target.plural = parts[at++];
  if (at < parts.size()) target.name = parts[at++];
  if (at < parts.size()) target.subresource = parts[at++];
  target.collection = target.group.empty() ? target.plural : target.group + "/" + target.plural;
  return target;
}

ApiServer::Object ApiServer::Find(const std::string& collection, const std::string& key) const {
  const auto found = collections_.find(collection);
  if (found == collections_.end()) return nullptr;
  const auto object = found->second.objects.find(key);
  return object == found->second.objects.end() ? nullptr : object->second;
}

std::vector<ApiServer::Object> ApiServer::All(const std::string& collection) const {
  std::vector<Object> all;
  const auto found = collections_.find(collection);
  if (found == collections_.end()) return all;
  for (const auto& [key, object] : found->second.objects) all.push_back(object);
  return all;
}

std::string ApiServer::Uid() { return "uid-" + std::to_string(++uids_); }

void ApiServer::Commit(const std::string& collection, const std::string& key, const char* type, Json now, const Object& before) {
  now["metadata"]["resourceVersion"] = std::to_string(++version_);
  Collection& c = collections_[collection];
  auto object = std::make_shared<const Json>(std::move(now));
  if (std::string_view(type) == "DELETED") {
    c.objects.erase(key);
  } else {
    c.objects[key] = object;
  }
  c.changes.push_back({turns_.Mono(), version_, type, object, before});
  if (c.changes.size() > kChangesKept) {
    c.compacted = c.changes.front().version;
    c.changes.pop_front();
    ++c.first;
  }
  if (on_change) on_change(collection, c.changes.back());
}

void ApiServer::Compact() {
  for (auto& [name, c] : collections_) {
    c.first += static_cast<int64_t>(c.changes.size());
    c.changes.clear();
    c.compacted = version_;
  }
}

void ApiServer::Remove(const std::string& collection, const std::string& key) {
  const Object before = Find(collection, key);
  if (before) Commit(collection, key, "DELETED", *before, before);
}

void ApiServer::Put(const std::string& collection, Json object) {
  Json& meta = object["metadata"];
  if (!meta.contains("uid")) meta["uid"] = Uid();
  meta["creationTimestamp"] = FormatTime(turns_.Wall());
  if (!meta.contains("generation")) meta["generation"] = 1;
  const std::string ns = GetString(object, {"metadata", "namespace"}), name = GetString(object, {"metadata", "name"});
  Commit(collection, ns.empty() ? name : ns + "/" + name, "ADDED", std::move(object), nullptr);
}

void ApiServer::Update(const std::string& collection, const std::string& key, const std::function<void(Json&)>& change) {
  const Object before = Find(collection, key);
  if (!before) return;
  Json now = *before;
  change(now);
  if (now == *before) return;
  if (GetObject(now, {"spec"}) != GetObject(*before, {"spec"})) now["metadata"]["generation"] = GetInt(now, {"metadata", "generation"}) + 1;
  Commit(collection, key, "MODIFIED", std::move(now), before);
}

HttpResponse ApiServer::Create(const Target& target, Json object, const std::string& user) {
  Json& meta = object["metadata"];
  if (!target.ns.empty()) meta["namespace"] = target.ns;
  std::string name = GetString(object, {"metadata", "name"});
  if (name.empty()) {
    name = GetString(object, {"metadata", "generateName"}) + std::to_string(++names_);
    meta["name"] = name;
  }
  const std::string key = target.ns.empty() ? name : target.ns + "/" + name;
  if (target.plural == "events") {
    if (!events_.insert(key).second) return Refuse(409, "AlreadyExists", "events \"" + name + "\" already exists");
    if (events_.size() > kEventsKept) events_.clear();
    if (on_event) on_event(object);
    return Answer(201, object);
  }
  if (target.collection == "pods" && mutate_pod) {
    kube::AdmissionRequest request;
    request.operation = "CREATE";
    request.ns = target.ns;
    request.name = GetString(object, {"metadata", "name"});
    request.username = user;
    request.resource = {"", "v1", "pods", "Pod", true};
    request.object = object;
    // Once more after it has changed something, as with reinvocationPolicy and other mutating webhooks.
    for (int times = turns_.random().Chance(0.3) ? 2 : 1; times > 0; --times) {
      const std::optional<kube::AdmissionResponse> response = mutate_pod(request);
      if (!response) break;
      if (!response->allowed) return Refuse(response->code, response->reason, response->message);
      if (!response->patch.is_null()) request.object = request.object.patch(response->patch);
    }
    object = request.object;
  }
  if (Find(target.collection, key)) return Refuse(409, "AlreadyExists", target.plural + " \"" + name + "\" already exists");
  if (HasStatus(target.collection)) object.erase("status");
  if (target.collection == "pods") object["status"] = {{"phase", "Pending"}};
  if (!target.dry_run()) Put(target.collection, object);
  return Answer(201, target.dry_run() ? object : *Find(target.collection, key));
}

HttpResponse ApiServer::Write(const Target& target, const HttpRequest& request, const Json& body) {
  const Object before = Find(target.collection, target.Key());
  if (!before) return Refuse(404, "NotFound", target.plural + " \"" + target.name + "\" not found");
  const std::string uid = GetString(body, {"metadata", "uid"}), version = GetString(body, {"metadata", "resourceVersion"});
  if (!uid.empty() && uid != GetString(*before, {"metadata", "uid"}))
    return Refuse(409, "Conflict", "the object of that name is another one");
  if (!version.empty() && version != GetString(*before, {"metadata", "resourceVersion"}))
    return Refuse(409, "Conflict", "the object has been modified");
  Json wanted = *before;
  const auto type = request.headers.find("content-type");
  if (request.method == "PUT") {
    wanted = body;
  } else if (type != request.headers.end() && type->second.starts_with("application/json-patch")) {
    try {
      wanted = wanted.patch(body);
    } catch (const std::exception& error) {
      return Refuse(422, "Invalid", error.what());
    }
  } else {
    wanted.merge_patch(body);  // of server-side apply: lists are replaced
  }
  Json now = *before;
  if (target.subresource == "status") {
    now["status"] = GetObject(wanted, {"status"});
  } else {
    const Json status = GetObject(*before, {"status"});
    now = std::move(wanted);
    if (HasStatus(target.collection)) {
      now.erase("status");
      if (!status.empty()) now["status"] = status;
    }
    for (const char* fixed : {"uid", "creationTimestamp", "deletionTimestamp", "generation", "name", "namespace", "resourceVersion"}) {
      now["metadata"].erase(fixed);
      if (Meta(*before).contains(fixed)) now["metadata"][fixed] = Meta(*before)[fixed];
    }
    if (GetObject(now, {"spec"}) != GetObject(*before, {"spec"}))
      now["metadata"]["generation"] = GetInt(*before, {"metadata", "generation"}) + 1;
  }
  if (now == *before) return Answer(200, *before);
  if (const std::string why = Forbidden(target.collection, *before, now); !why.empty()) return Refuse(422, "Invalid", why);
  if (target.dry_run()) return Answer(200, now);
  Commit(target.collection, target.Key(), "MODIFIED", std::move(now), before);
  const Object written = Find(target.collection, target.Key());
  // Its last finalizer was taken off; of a pod that has ended, too.
  if (!GetString(*written, {"metadata", "deletionTimestamp"}).empty() && GetArray(*written, {"metadata", "finalizers"}).empty() &&
      (target.collection != "pods" || GetInt(*written, {"metadata", "deletionGracePeriodSeconds"}, 30) == 0))
    Remove(target.collection, target.Key());
  return Answer(200, *written);
}

HttpResponse ApiServer::Delete(const Target& target, const Json& options) {
  const Object before = Find(target.collection, target.Key());
  if (!before) return Refuse(404, "NotFound", target.plural + " \"" + target.name + "\" not found");
  const std::string uid = GetString(options, {"preconditions", "uid"}), version = GetString(options, {"preconditions", "resourceVersion"});
  if (!uid.empty() && uid != GetString(*before, {"metadata", "uid"})) return Refuse(409, "Conflict", "the uid is another one");
  if (!version.empty() && version != GetString(*before, {"metadata", "resourceVersion"})) return Refuse(409, "Conflict", "it was modified");
  if (target.dry_run()) return Answer(200, *before);
  const bool bound = target.collection == "pods" && !GetString(*before, {"spec", "nodeName"}).empty();
  const Json* asked = holdfast::Find(options, {"gracePeriodSeconds"});
  const int64_t grace = !bound             ? 0
                        : asked != nullptr ? asked->get<int64_t>()
                                           : GetInt(*before, {"spec", "terminationGracePeriodSeconds"}, 30);
  if (grace == 0 && GetArray(*before, {"metadata", "finalizers"}).empty()) {
    Remove(target.collection, target.Key());
    return Answer(200, {{"kind", "Status"}, {"status", "Success"}});
  }
  // A second deletion may only shorten the grace of the first.
  const bool shortens = target.collection == "pods" && grace == 0 && GetInt(*before, {"metadata", "deletionGracePeriodSeconds"}) > 0;
  if (GetString(*before, {"metadata", "deletionTimestamp"}).empty() || shortens) {
    Json now = *before;
    now["metadata"]["deletionTimestamp"] = FormatTime(turns_.Wall() + std::chrono::seconds(grace));
    now["metadata"]["deletionGracePeriodSeconds"] = grace;
    Commit(target.collection, target.Key(), "MODIFIED", std::move(now), before);
  }
  return Answer(200, *Find(target.collection, target.Key()));
}

// The name of the first PodDisruptionBudget that has nothing to give; empty: none.
std::string ApiServer::Budget(const Json& pod) const {
  for (const Object& budget : All("policy/poddisruptionbudgets")) {
    if (GetString(*budget, {"metadata", "namespace"}) != GetString(pod, {"metadata", "namespace"})) continue;
    bool matches = true;
    for (const auto& [key, value] : GetObject(*budget, {"spec", "selector", "matchLabels"}).items())
      matches = matches && GetString(pod, {"metadata", "labels", key}) == value.get<std::string>();
    if (matches && GetInt(*budget, {"status", "disruptionsAllowed"}) <= 0) return GetString(*budget, {"metadata", "name"});
  }
  return "";
}

HttpResponse ApiServer::Evict(const Target& target, const Json& body, const std::string& user) {
  const Json options = GetObject(body, {"deleteOptions"});
  const bool dry_run = target.dry_run() || !GetArray(options, {"dryRun"}).empty();
  if (validate_eviction) {
    kube::AdmissionRequest request;
    request.operation = "CREATE";
    request.ns = target.ns;
    request.name = target.name;
    request.subresource = "eviction";
    request.username = user;
    request.resource = {"", "v1", "pods", "Pod", true};
    request.dry_run = dry_run;
    request.object = body;
    const std::optional<kube::AdmissionResponse> response = validate_eviction(request);
    if (response && !response->allowed) return Refuse(response->code, response->reason, response->message);
  }
  const Object pod = Find("pods", target.Key());
  if (!pod) return Refuse(404, "NotFound", "pods \"" + target.name + "\" not found");
  const std::string uid = GetString(options, {"preconditions", "uid"});
  if (!uid.empty() && uid != GetString(*pod, {"metadata", "uid"})) return Refuse(409, "Conflict", "the uid is another one");
  if (const std::string budget = Budget(*pod); !budget.empty())
    return Refuse(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget " + budget);
  if (dry_run) return Answer(201, {{"kind", "Status"}, {"status", "Success"}});
  Target plain = target;
  plain.subresource.clear();
  HttpResponse deleted = Delete(plain, options);
  if (deleted.status == 200) deleted.status = 201;
  return deleted;
}

HttpResponse ApiServer::List(const Target& target) {
  Json items = Json::array();
  const auto selector = target.query.find("fieldSelector");
  for (const Object& object : All(target.collection)) {
    if (!target.ns.empty() && GetString(*object, {"metadata", "namespace"}) != target.ns) continue;
    if (selector != target.query.end() && !Selected(*object, selector->second)) continue;
    items.push_back(*object);
  }
  return Answer(
      200,
      {{"kind", "List"}, {"apiVersion", "v1"}, {"metadata", {{"resourceVersion", std::to_string(version_)}}}, {"items", std::move(items)}});
}

HttpResponse ApiServer::Handle(const HttpRequest& request, const std::string& user) {
  const std::optional<Target> target = Parse(request.path);
  if (!target) return Refuse(404, "NotFound", "no such path: " + request.path);
  Json body = Json::object();
  if (!request.body.empty()) {
    Result<Json> read = ParseJson(request.body);
    if (!read.ok()) return Refuse(400, "BadRequest", read.status().message());
    body = std::move(*read);
  }
  if (request.method == "GET") {
    if (target->name.empty()) return List(*target);
    const Object found = Find(target->collection, target->Key());
    return found ? Answer(200, *found) : Refuse(404, "NotFound", target->plural + " \"" + target->name + "\" not found");
  }
  if (request.method == "POST" && target->subresource == "eviction") return Evict(*target, body, user);
  if (request.method == "POST") return Create(*target, std::move(body), user);
  if (request.method == "DELETE") return Delete(*target, body);
  return Write(*target, request, body);
}

}  // namespace holdfast::sim
