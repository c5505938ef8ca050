#include "tests/unit/controller/fake_api.h"

#include <algorithm>

namespace holdfast::controller::testing {

namespace {

// Of server-side apply as much as is needed: fields come together, and lists of webhooks by their names.
Json Applied(Json object, Json intent) {
  Json webhooks = GetArray(intent, {"webhooks"});
  intent.erase("webhooks");
  object.merge_patch(intent);
  for (const Json& ours : webhooks) {
    for (Json& webhook : object["webhooks"]) {
      if (GetString(webhook, {"name"}) == GetString(ours, {"name"})) webhook.merge_patch(ours);
    }
  }
  return object;
}

}  // namespace

kube::HttpResponse FakeApi::Answer(int status, const Json& body) const {
  kube::HttpResponse response;
  response.status = status;
  response.body = DumpJson(body);
  return response;
}

void FakeApi::Put(const std::string& path, Json object) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  objects[path] = std::move(object);
}

size_t FakeApi::Count(const std::string& method) const {
  std::lock_guard lock(mutex_);
  return std::count_if(calls.begin(), calls.end(), [&](const std::string& call) { return call.starts_with(method + " "); });
}

Result<kube::HttpResponse> FakeApi::Send(const kube::HttpRequest& request, std::stop_token) {
  if (before) before(request);
  std::lock_guard lock(mutex_);
  const std::string path = request.path.substr(0, request.path.find('?'));
  calls.push_back(request.method + " " + path);
  Json body = request.body.empty() ? Json() : Json::parse(request.body);
  auto found = objects.find(path);
  const Json missing = {{"kind", "Status"}, {"code", 404}, {"reason", "NotFound"}, {"message", path + " not found"}};
  const Json conflict = {{"kind", "Status"}, {"code", 409}, {"reason", "Conflict"}, {"message", "changed"}};
  if (request.method == "POST") {
    const std::string own = path + "/" + GetString(body, {"metadata", "name"});
    if (objects.contains(own)) return Answer(409, {{"kind", "Status"}, {"code", 409}, {"reason", "AlreadyExists"}, {"message", own}});
    Put(own, body);
    return Answer(201, objects[own]);
  }
  const auto type = request.headers.find("content-type");
  if (request.method == "PATCH" && type != request.headers.end() && type->second == "application/apply-patch+yaml") {
    Put(path, Applied(found == objects.end() ? Json::object() : found->second, body));
    return Answer(200, objects[path]);
  }
  if (found == objects.end()) return Answer(404, missing);
  if (request.method == "PUT") {
    if (GetString(body, {"metadata", "resourceVersion"}) != GetString(found->second, {"metadata", "resourceVersion"}))
      return Answer(409, conflict);
    Put(path, body);
  } else if (request.method == "PATCH") {
    Json changed = found->second;
    if (body.is_array()) {
      changed = changed.patch(body);
    } else {
      changed.merge_patch(body);
    }
    Put(path, changed);
  }
  return Answer(200, objects[path]);
}

}  // namespace holdfast::controller::testing
