#include "storage/remote.h"

#include <cstring>
#include <map>

#include "storage/codec.h"
#include "storage/hash.h"
#include "storage/wire.h"

namespace holdfast::storage {
namespace {

constexpr size_t kKeysKept = 64;

Result<HashKey> ParseKey(std::string_view hex) {
  HashKey key;
  if (!FromHex(hex, key)) return Status(Code::kInternal, "the store gave no hash key");
  return key;
}

Result<Json> ParseAnswer(const Result<HttpAnswer>& answer) {
  if (!answer.ok()) return answer.status();
  return ParseJson(answer->body);
}

}  // namespace

struct RemoteStore::Shared {
  Shared(RemoteStoreOptions given, Clock& time) : options(std::move(given)), clock(time), http(options.http, time) {}
  const RemoteStoreOptions options;
  Clock& clock;
  HttpCaller http;
  std::mutex mutex;
  std::map<std::string, HashKey> keys;  // by manifest

  void Remember(const std::string& manifest, const HashKey& key) {
    std::lock_guard lock(mutex);
    if (keys.size() >= kKeysKept) keys.erase(keys.begin());
    keys[manifest] = key;
  }
};

class RemoteSession final : public Session {
 public:
  RemoteSession(RemoteStore store, std::string id, const HashKey& key) : store_(std::move(store)), id_(std::move(id)), key_(key) {}

  Result<std::vector<bool>> Missing(std::span<const SegmentId> ids) override { return Ask("/missing", ids); }
  Result<std::vector<bool>> Secure(std::span<const SegmentId> ids) override { return Ask("/secure", ids); }

  Status Put(const SegmentId& id, Codec codec, uint32_t size, std::span<const std::byte> bytes) override {
    const PutItem item{.id = id, .codec = codec, .size = size, .bytes = bytes};
    return PutMany(std::span(&item, 1));
  }

  Status PutMany(std::span<const PutItem> items) override {
    for (size_t at = 0; at < items.size();) {
      std::vector<std::string> heads;
      size_t end = at, bytes = 0;
      while (end < items.size() && end - at < kBatchSegments && (end == at || bytes + items[end].bytes.size() <= kBatchBytes)) {
        heads.push_back(EncodeFrameHeader(items[end]));
        bytes += items[end].bytes.size();
        ++end;
      }
      HttpCall call{.method = "POST", .path = Path("/segments"), .body = {}};
      for (size_t i = at; i < end; ++i) {
        call.body.push_back(AsBytes(heads[i - at]));
        call.body.push_back(items[i].bytes);
      }
      HF_ASSIGN_OR_RETURN(HttpAnswer answer, store_.Call(call));
      at = end;
    }
    return Status::Ok();
  }

  Status Hold(const std::string& manifest) override {
    HF_RETURN_IF_ERROR(CheckId(manifest, "checkpoint uid"));
    return store_.Call({.method = "POST", .path = Path("/hold") + "?manifest=" + manifest, .body = {}}).status();
  }

  Result<CommitResult> Commit(const Manifest& manifest) override {
    const std::string text = manifest.Serialize();
    HF_ASSIGN_OR_RETURN(Json json, ParseAnswer(store_.Call({.method = "POST", .path = Path("/commit"), .body = {AsBytes(text)}})));
    CommitResult result{.id = GetString(json, {"id"}),
                        .digest = GetString(json, {"digest"}),
                        .new_bytes = static_cast<uint64_t>(GetInt(json, {"newBytes"}))};
    if (result.id != id_ || result.digest != Digest(text))
      return Status(Code::kDataLoss, "the store committed another manifest than it was given");
    return result;
  }

  Status Abort() override { return store_.Call({.method = "POST", .path = Path("/abort"), .body = {}}).status(); }

  const HashKey& hash_key() const override { return key_; }

 private:
  std::string Path(const char* what) const { return "/v1/sessions/" + id_ + what; }
  Result<std::vector<bool>> Ask(const char* what, std::span<const SegmentId> ids) {
    std::vector<bool> missing;
    for (size_t at = 0; at < ids.size(); at += kBatchSegments) {
      const std::string body = EncodeIds(ids.subspan(at, std::min(kBatchSegments, ids.size() - at)));
      HF_ASSIGN_OR_RETURN(HttpAnswer answer, store_.Call({.method = "POST", .path = Path(what), .body = {AsBytes(body)}}));
      if (answer.body.size() * 32 != body.size()) return Status(Code::kInternal, "the store answered for another number of segments");
      for (char c : answer.body) missing.push_back(c != 0);
    }
    return missing;
  }

  RemoteStore store_;
  const std::string id_;
  const HashKey key_;
};

RemoteStore::RemoteStore(RemoteStoreOptions options, Clock& clock) : shared_(std::make_shared<Shared>(std::move(options), clock)) {}

RemoteStore::RemoteStore(std::shared_ptr<Shared> shared, MonoTime deadline, std::stop_token stop)
    : shared_(std::move(shared)), deadline_(deadline), stop_(std::move(stop)) {}

std::unique_ptr<RemoteStore> RemoteStore::Within(MonoTime deadline, std::stop_token stop) const {
  return std::unique_ptr<RemoteStore>(new RemoteStore(shared_, std::min(deadline, deadline_), std::move(stop)));
}

Result<HttpAnswer> RemoteStore::Call(const HttpCall& call) const {
  return shared_->http.Call(call, {.deadline = std::min(deadline_, shared_->clock.Mono() + shared_->options.patience), .stop = stop_});
}

Result<std::unique_ptr<Session>> RemoteStore::OpenSession(const std::string& id, const std::string& ns) {
  HF_RETURN_IF_ERROR(CheckId(id, "checkpoint uid"));
  HF_RETURN_IF_ERROR(CheckId(ns, "namespace"));
  HF_ASSIGN_OR_RETURN(HttpAnswer answer, Call({.method = "POST", .path = "/v1/sessions/" + id + "?ns=" + ns, .body = {}}));
  HF_ASSIGN_OR_RETURN(HashKey key, ParseKey(answer.hash_key));
  return std::unique_ptr<Session>(std::make_unique<RemoteSession>(*this, id, key));
}

Result<SessionState> RemoteStore::StateOf(const std::string& id) {
  HF_RETURN_IF_ERROR(CheckId(id, "checkpoint uid"));
  HF_ASSIGN_OR_RETURN(Json json, ParseAnswer(Call({.method = "GET", .path = "/v1/sessions/" + id, .body = {}})));
  const std::string state = GetString(json, {"state"});
  // An answer that is not understood must not read as "there is no such session".
  if (SessionStateName(ParseSessionState(state)) != state)
    return Status(Code::kInternal, "the store answered with the state \"" + state + "\"");
  return ParseSessionState(state);
}

Result<Manifest> RemoteStore::GetManifest(const std::string& id) {
  HF_RETURN_IF_ERROR(CheckId(id, "checkpoint uid"));
  HF_ASSIGN_OR_RETURN(HttpAnswer answer,
                      Call({.method = "GET", .path = "/v1/manifests/" + id, .body = {}, .max_answer_bytes = kMaxManifestBytes}));
  HF_ASSIGN_OR_RETURN(Manifest manifest, Manifest::Parse(answer.body));
  if (manifest.checkpoint_uid != id) return Status(Code::kDataLoss, "the store gave the manifest of another checkpoint");
  if (Result<HashKey> key = ParseKey(answer.hash_key); key.ok()) shared_->Remember(id, *key);
  return manifest;
}

Result<std::array<uint8_t, 32>> RemoteStore::HashKeyOf(const std::string& manifest) {
  for (int tries = 0; tries < 2; ++tries) {
    {
      std::lock_guard lock(shared_->mutex);
      auto known = shared_->keys.find(manifest);
      if (known != shared_->keys.end()) return known->second;
    }
    Result<Manifest> read = GetManifest(manifest);
    if (!read.ok()) return read.status();
  }
  return Status(Code::kPermissionDenied, "the store gives the hash key to read-write accounts only");
}

Result<std::string> RemoteStore::GetSegment(const std::string& manifest, const SegmentRef& segment) {
  std::string content;
  HF_RETURN_IF_ERROR(GetSegments(manifest, std::span(&segment, 1), [&](size_t, std::span<const std::byte> bytes) {
    content.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Status::Ok();
  }));
  return content;
}

Status RemoteStore::GetSegments(const std::string& manifest, std::span<const SegmentRef> segments, const SegmentSink& sink) {
  HF_RETURN_IF_ERROR(CheckId(manifest, "checkpoint uid"));
  HF_ASSIGN_OR_RETURN(HashKey key, HashKeyOf(manifest));
  for (size_t at = 0; at < segments.size();) {
    // A batch: the answer fits the server's bound whatever the segments were compressed to.
    std::vector<SegmentId> ids;
    size_t end = at, bytes = 0;
    for (; end < segments.size() && ids.size() < kBatchSegments && (ids.empty() || bytes + segments[end].size <= kBatchBytes); ++end) {
      if (segments[end].size > kMaxSegmentBytes) return Status(Code::kInvalidArgument, "a segment is larger than one may be");
      if (segments[end].zero) continue;
      ids.push_back(segments[end].id);
      bytes += segments[end].size;
    }
    HttpAnswer answer;
    if (!ids.empty()) {
      const std::string body = EncodeIds(ids);
      HF_ASSIGN_OR_RETURN(answer, Call({.method = "POST",
                                        .path = "/v1/manifests/" + manifest + "/segments?" + kCodecParameter + "=2",
                                        .body = {AsBytes(body)},
                                        .max_answer_bytes = kMaxFramesBytes}));
    }
    auto zeros = [&] {
      for (; at < end && segments[at].zero; ++at) HF_RETURN_IF_ERROR(sink(at, std::vector<std::byte>(segments[at].size)));
      return Status::Ok();
    };
    FrameParser parser([&](const PutItem& item) -> Status {
      HF_RETURN_IF_ERROR(zeros());
      if (at == end || item.id != segments[at].id || item.size != segments[at].size)
        return Status(Code::kDataLoss, "the store gave other segments than it was asked for");
      std::string unpacked;
      std::span<const std::byte> content = item.bytes;
      if (item.codec != Codec::kRaw) {
        HF_ASSIGN_OR_RETURN(unpacked, Decode(item.codec, item.size, item.bytes));
        content = AsBytes(unpacked);
      }
      if (HashSegment(key, content) != item.id)
        return Status(Code::kDataLoss, "the segment " + item.id.Hex() + " of " + manifest + " is damaged in the store");
      return sink(at++, content);
    });
    HF_RETURN_IF_ERROR(parser.Feed(answer.body));
    HF_RETURN_IF_ERROR(parser.Finish());
    HF_RETURN_IF_ERROR(zeros());
    if (at != end) return Status(Code::kDataLoss, "the store gave fewer segments than it was asked for");
  }
  return Status::Ok();
}

Status RemoteStore::Abort(const std::string& id, const std::string& ns) {
  HF_RETURN_IF_ERROR(CheckId(id, "checkpoint uid"));
  HF_RETURN_IF_ERROR(CheckId(ns, "namespace"));
  return Call({.method = "POST", .path = "/v1/sessions/" + id + "/abort?ns=" + ns, .body = {}}).status();
}

Status RemoteStore::Delete(const std::string& manifest) { return Delete(manifest, 0); }

Status RemoteStore::Delete(const std::string& manifest, int64_t term) {
  HF_RETURN_IF_ERROR(CheckId(manifest, "checkpoint uid"));
  HttpCall call{.method = "DELETE", .path = "/v1/manifests/" + manifest, .body = {}};
  if (term != 0) call.headers = {{kTermHeader, std::to_string(term)}};
  return Call(call).status();
}

Result<ManifestInfo> RemoteStore::InfoOf(const std::string& manifest) {
  HF_RETURN_IF_ERROR(CheckId(manifest, "checkpoint uid"));
  HF_ASSIGN_OR_RETURN(HttpAnswer answer, Call({.method = "GET", .path = "/v1/manifests/" + manifest + "/info", .body = {}}));
  HF_ASSIGN_OR_RETURN(Json json, ParseJson(answer.body));
  ManifestInfo info{.ns = GetString(json, {"ns"}),
                    .checkpoint = GetString(json, {"checkpoint"}),
                    .created = GetString(json, {"created"}),
                    .digest = GetString(json, {"digest"}),
                    .new_bytes = static_cast<uint64_t>(std::max<int64_t>(GetInt(json, {"newBytes"}), 0)),
                    .info = GetObject(json, {"info"})};
  if (info.ns.empty() || info.digest.empty())
    return Status(Code::kUnavailable, "what answers for the store does not say whose " + manifest + " is");
  return info;
}

Result<StoreSpace> RemoteStore::Space() {
  HF_ASSIGN_OR_RETURN(HttpAnswer answer, Call({.method = "GET", .path = "/v1/space", .body = {}}));
  HF_ASSIGN_OR_RETURN(Json json, ParseJson(answer.body));
  const int64_t live = GetInt(json, {"liveBytes"}, -1), packs = GetInt(json, {"packBytes"}, -1), room = GetInt(json, {"roomBytes"}, -1);
  if (live < 0 || packs < 0 || room < 0) return Status(Code::kUnavailable, "what answers for the store does not say how full it is");
  return StoreSpace{static_cast<uint64_t>(live), static_cast<uint64_t>(packs), static_cast<uint64_t>(room)};
}

Result<std::vector<DamagedCheckpoint>> RemoteStore::Damaged() {
  HF_ASSIGN_OR_RETURN(HttpAnswer answer, Call({.method = "GET", .path = "/v1/damaged", .body = {}, .max_answer_bytes = kMaxDamagedBytes}));
  HF_ASSIGN_OR_RETURN(Json json, ParseJson(answer.body));
  // An answer that is not understood must not read as "nothing is damaged".
  if (GetInt(json, {"count"}, -1) < 0) return Status(Code::kUnavailable, "what answers for the store does not say what is damaged");
  std::vector<DamagedCheckpoint> damaged;
  for (const Json& entry : GetArray(json, {"checkpoints"})) {
    if (damaged.size() == kMaxDamagedTold) break;
    damaged.push_back({.id = GetString(entry, {"id"}), .why = GetString(entry, {"why"}).substr(0, kMaxWhyBytes)});
  }
  return damaged;
}

Status RemoteStore::Ping() {
  Status answer = Call({.method = "GET", .path = "/healthz", .body = {}, .anonymous = true}).status();
  const bool silent = answer.code() == Code::kUnavailable || answer.code() == Code::kCancelled;
  return silent ? answer : Status::Ok();
}

}  // namespace holdfast::storage
