#include "storage/server/routes.h"

#include <charconv>

#include "base/log.h"
#include "storage/codec.h"
#include "storage/wire.h"

namespace holdfast::storage {
namespace {

constexpr char kBinary[] = "application/octet-stream", kJson[] = "application/json";
constexpr char kId[] = "([A-Za-z0-9._-]{1,200})";
constexpr auto kLargeWait = std::chrono::seconds(5);
constexpr auto kBodyTime = std::chrono::seconds(60);

// Reads all of a body, giving at most `limit` bytes of it to `take`; what comes after an error is read and dropped, so that the client gets
// to see the error, and a peer that trickles is cut off.
Status ReadBody(const httplib::ContentReader& body, size_t limit, Clock& clock, const std::function<Status(std::string_view)>& take) {
  Status status;
  size_t seen = 0;
  const MonoTime deadline = clock.Mono() + kBodyTime;
  const bool whole = body([&](const char* data, size_t size) {
    seen += size;
    if (seen > limit) {
      status = Status(Code::kInvalidArgument, "the body is longer than " + std::to_string(limit) + " bytes");
      return false;
    }
    if (clock.Mono() > deadline) {
      status = Status(Code::kDeadlineExceeded, "the body took longer than a minute");
      return false;
    }
    if (status.ok()) status = take(std::string_view(data, size));
    return true;
  });
  if (!whole && status.ok()) return Status(Code::kInvalidArgument, "the body could not be read to its end");
  return status;
}

Result<std::string> ReadText(const httplib::ContentReader& body, size_t limit, Clock& clock) {
  std::string text;
  HF_RETURN_IF_ERROR(ReadBody(body, limit, clock, [&](std::string_view bytes) {
    text.append(bytes);
    return Status::Ok();
  }));
  return text;
}

// A place among the requests that hold megabytes.
class Place {
 public:
  explicit Place(std::counting_semaphore<64>& places) : places_(places), has_(places.try_acquire_for(kLargeWait)) {}
  ~Place() {
    if (has_) places_.release();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  bool has() const { return has_; }

 private:
  std::counting_semaphore<64>& places_;
  const bool has_;
};

Status TooBusy() { return Status(Code::kUnavailable, "too many large requests at once: try again"); }

}  // namespace

void Routes::AddTo(httplib::Server& server) {
  const std::string session = std::string("/v1/sessions/") + kId, manifest = std::string("/v1/manifests/") + kId;
  auto post = [&](const std::string& path, const char* operation, Use use, Work work) {
    const Route route{operation, Access::kReadWrite, use};
    server.Post(path,
                [this, route, work = std::move(work)](const Request& request, Response& response, const httplib::ContentReader& body) {
                  Serve(route, work, request, response, &body);
                });
  };
  post(session, "open", Use::kWrite,
       [this](const std::string& id, const Request& q, Response& a, const httplib::ContentReader*) { return Open(id, q, a); });
  post(session + "/missing", "missing", Use::kWrite,
       [this](const std::string& id, const Request&, Response& a, const httplib::ContentReader* b) {
         return Ask(id, &Session::Missing, a, *b);
       });
  post(session + "/secure", "secure", Use::kWrite,
       [this](const std::string& id, const Request&, Response& a, const httplib::ContentReader* b) {
         return Ask(id, &Session::Secure, a, *b);
       });
  post(session + "/segments", "put", Use::kWrite,
       [this](const std::string& id, const Request&, Response& a, const httplib::ContentReader* b) { return Put(id, a, *b); });
  post(session + "/hold", "hold", Use::kWrite,
       [this](const std::string& id, const Request& q, Response& a, const httplib::ContentReader*) { return Hold(id, q, a); });
  post(session + "/commit", "commit", Use::kWrite,
       [this](const std::string& id, const Request&, Response& a, const httplib::ContentReader* b) { return Commit(id, a, *b); });
  post(session + "/abort", "abort", Use::kEnd,
       [this](const std::string& id, const Request& q, Response&, const httplib::ContentReader*) { return AbortSession(id, q); });
  post(
      manifest + "/segments", "get", Use::kRead,
      [this](const std::string& id, const Request& q, Response& a, const httplib::ContentReader* b) { return ReadSegments(id, q, a, *b); });
  server.Get(session, [this](const Request& request, Response& response) {
    Serve(
        {"state", Access::kEither, Use::kEnd},
        [this](const std::string& id, const Request&, Response& a, const httplib::ContentReader*) { return State(id, a); }, request,
        response, nullptr);
  });
  server.Get(manifest + "/info", [this](const Request& request, Response& response) {
    Serve(
        {"info", Access::kEither, Use::kRead},
        [this](const std::string& id, const Request&, Response& a, const httplib::ContentReader*) { return Info(id, a); }, request,
        response, nullptr);
  });
  server.Get("/v1/(space)", [this](const Request& request, Response& response) {
    Serve(
        {"space", Access::kEither, std::nullopt},
        [this](const std::string&, const Request&, Response& a, const httplib::ContentReader*) { return Space(a); }, request, response,
        nullptr);
  });
  server.Get("/v1/(damaged)", [this](const Request& request, Response& response) {
    Serve(
        {"damaged", Access::kDelete, std::nullopt},
        [this](const std::string&, const Request&, Response& a, const httplib::ContentReader*) { return Damaged(a); }, request, response,
        nullptr);
  });
  server.Get(manifest, [this](const Request& request, Response& response) {
    Serve(
        {"manifest", Access::kEither, Use::kRead},
        [this](const std::string& id, const Request& q, Response& a, const httplib::ContentReader*) { return ReadManifest(id, q, a); },
        request, response, nullptr);
  });
  server.Delete(manifest, [this](const Request& request, Response& response) {
    Serve(
        {"delete", Access::kDelete, std::nullopt},
        [this](const std::string& id, const Request& q, Response&, const httplib::ContentReader*) { return Delete(id, q); }, request,
        response, nullptr);
  });
  server.set_pre_routing_handler([](const Request& request, Response& response) {
    // Neither packed bodies nor forms: httplib would unpack or parse them before anybody was asked for a token.
    const std::string type = request.get_header_value("Content-Type");
    const bool strange =
        !request.get_header_value("Content-Encoding").empty() || (!type.empty() && type != kBinary) || !request.ranges.empty();
    if (!strange) return httplib::Server::HandlerResponse::Unhandled;
    response.status = 415;
    response.set_header("Connection", "close");
    return httplib::Server::HandlerResponse::Handled;
  });
  server.set_exception_handler([](const Request& request, Response& response, std::exception_ptr error) {
    std::string what = "unknown";
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      what = e.what();
    } catch (...) {
    }
    LogError("a request failed", {{"path", request.path}, {"error", what}});
    response.status = 500;
  });
}

void Routes::Serve(const Route& route, const Work& work, const Request& request, Response& response, const httplib::ContentReader* body) {
  const MonoTime begin = clock_.Mono();
  Status status;
  bool entered = false;
  {
    std::lock_guard lock(mutex_);
    entered = !draining_;
    running_ += entered ? 1 : 0;
  }
  status = entered ? Admit(route, request) : Status(Code::kUnavailable, "the store is stopping: try again");
  // The body of one that is refused is not read here: no thread waits for what strangers send. The shell drops it.
  if (status.ok()) status = work(request.matches[1], request, response, body);
  if (status.ok() && response.status == -1) response.status = 200;
  if (!status.ok()) {
    response.status = HttpStatusOf(status.code());
    response.set_content(DumpJson({{"code", CodeName(status.code())}, {"message", status.message()}}), kJson);
    refusals_.Refused(route.operation, request.matches[1], request.remote_addr, status);
  }
  metrics_.Request(route.operation, status.code(), std::chrono::duration<double>(clock_.Mono() - begin).count());
  std::lock_guard lock(mutex_);
  running_ -= entered ? 1 : 0;
  idle_.notify_all();
}

bool Routes::Drain(Duration patience) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  const bool done = clock_.WaitUntil(lock, idle_, clock_.Mono() + patience, {}, [this] { return running_ == 0; });
  stop_.request_stop();
  return done;
}

Result<Caller> Routes::Authenticate(const Request& request) {
  const std::string header = request.get_header_value("Authorization");
  constexpr std::string_view kBearer = "Bearer ";
  if (!header.starts_with(kBearer)) return Status(Code::kUnauthenticated, "send a service-account token: Authorization: Bearer …");
  return authenticator_->Authenticate(header.substr(kBearer.size()), stop_.get_token());
}

Status Routes::Authorize(const Caller& caller, Access access) const {
  const bool write = allowed_.Allows(caller.user, Role::kReadWrite), remove = allowed_.Allows(caller.user, Role::kDelete);
  if (access == Access::kReadWrite ? write : access == Access::kDelete ? remove : write || remove) return Status::Ok();
  return Status(Code::kPermissionDenied, caller.user + " may not do this (holdfast-store --allow " + caller.user + "=" +
                                             (access == Access::kDelete ? "delete" : "read-write") + " would let it)");
}

Status Routes::AuthorizeNode(const Caller& caller, Use use, const std::string& ns, const std::string& id) {
  if (authorizer_ == nullptr || allowed_.Allows(caller.user, Role::kDelete)) return Status::Ok();
  if (caller.node.empty()) {
    return Status(Code::kPermissionDenied,
                  "the token of " + caller.user + " does not say on which node its pod runs (Kubernetes 1.30 and later do)");
  }
  return authorizer_->Check(caller.node, use, ns, id, stop_.get_token());
}

Status Routes::Admit(const Route& route, const Request& request) {
  if (authenticator_ == nullptr) return Status::Ok();
  HF_ASSIGN_OR_RETURN(Caller caller, Authenticate(request));
  HF_RETURN_IF_ERROR(Authorize(caller, route.access));
  if (!route.use) return Status::Ok();
  const std::string id = request.matches[1], asked = request.get_param_value("ns");
  Result<std::string> ns = store_.NamespaceOf(id);
  if (!ns.ok() && asked.empty()) return Status::Ok();  // not here: so the answer will say
  Status mine = AuthorizeNode(caller, *route.use, ns.ok() ? *ns : asked, id);
  // Without a Checkpoint nobody can write to it any more: ending it needs no permission, and leaves no trace where there was none.
  const bool over = mine.code() == Code::kNotFound && *route.use == Use::kEnd;
  if (mine.code() == Code::kNotFound && !over) return Status(Code::kPermissionDenied, mine.message());
  return over ? Status::Ok() : mine;
}

bool Routes::NeverWillBe(const Request& request, const std::string& ns, const std::string& id) {
  if (authenticator_ == nullptr || authorizer_ == nullptr) return false;
  Result<SessionState> state = store_.StateOf(id);
  if (!state.ok() || *state != SessionState::kUnknown) return false;
  Result<Caller> caller = Authenticate(request);
  return caller.ok() && AuthorizeNode(*caller, Use::kEnd, ns, id).code() == Code::kNotFound;
}

bool Routes::MayReadKeys(const Request& request) {
  if (authenticator_ == nullptr) return true;
  Result<Caller> caller = Authenticate(request);
  return caller.ok() && allowed_.Allows(caller->user, Role::kReadWrite);
}

Status Routes::Open(const std::string& id, const Request& request, Response& response) {
  std::string node;
  if (authenticator_ != nullptr) {
    HF_ASSIGN_OR_RETURN(const Caller caller, Authenticate(request));
    node = caller.node;
  }
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, store_.OpenSession(id, request.get_param_value("ns"), node));
  response.set_header("Holdfast-Hash-Key", ToHex(session->hash_key()));
  return Status::Ok();
}

Status Routes::State(const std::string& id, Response& response) {
  HF_ASSIGN_OR_RETURN(SessionState state, store_.StateOf(id));
  response.set_content(DumpJson({{"state", SessionStateName(state)}}), kJson);
  return Status::Ok();
}

Status Routes::Info(const std::string& id, Response& response) {
  Place place(large_);
  if (!place.has()) return TooBusy();
  HF_ASSIGN_OR_RETURN(StoredManifest stored, store_.GetManifestText(id));
  HF_ASSIGN_OR_RETURN(Manifest manifest, Manifest::Parse(stored.text));
  response.set_content(DumpJson({{"ns", manifest.ns},
                                 {"checkpoint", manifest.checkpoint},
                                 {"created", manifest.created},
                                 {"digest", stored.digest},
                                 {"newBytes", stored.new_bytes},
                                 {"info", manifest.info}}),
                       kJson);
  return Status::Ok();
}

Status Routes::Space(Response& response) {
  HF_ASSIGN_OR_RETURN(StoreUsage usage, store_.Usage());
  response.set_content(DumpJson({{"liveBytes", usage.object_bytes},
                                 {"packBytes", usage.pack_bytes},
                                 {"roomBytes", usage.room_bytes},
                                 {"damagedCheckpoints", usage.scrub.hurt_checkpoints}}),
                       kJson);
  return Status::Ok();
}

Status Routes::Damaged(Response& response) {
  Json list = Json::array();
  const std::vector<HurtCheckpoint> hurt = store_.Hurt();
  for (const HurtCheckpoint& one : hurt) {
    if (list.size() == kMaxDamagedTold) break;
    list.push_back({{"id", one.id}, {"ns", one.ns}, {"checkpoint", one.name}, {"why", one.why.substr(0, kMaxWhyBytes)}});
  }
  response.set_content(DumpJson({{"checkpoints", list}, {"count", hurt.size()}}), kJson);
  return Status::Ok();
}

Status Routes::Delete(const std::string& id, const Request& request) {
  const std::string text = request.get_header_value(kTermHeader);
  int64_t term = 0;
  if (!text.empty()) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), term);
    if (error != std::errc() || end != text.data() + text.size() || term < 0) {
      return {Code::kInvalidArgument, "Holdfast-Term is not a number"};
    }
  }
  HF_RETURN_IF_ERROR(fence_.Admit(term));
  return store_.Delete(id);
}

Status Routes::Ask(const std::string& id, Question question, Response& response, const httplib::ContentReader& body) {
  HF_ASSIGN_OR_RETURN(std::string text, ReadText(body, kBatchSegments * 32, clock_));
  HF_ASSIGN_OR_RETURN(std::vector<SegmentId> ids, DecodeIds(text));
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, store_.FindSession(id));
  HF_ASSIGN_OR_RETURN(std::vector<bool> missing, ((*session).*question)(ids));
  std::string answer;
  for (bool one : missing) answer.push_back(one ? '\1' : '\0');
  response.set_content(answer, kBinary);
  return Status::Ok();
}

Status Routes::Put(const std::string& id, Response& response, const httplib::ContentReader& body) {
  Result<std::unique_ptr<Session>> session = store_.FindSession(id);
  FrameParser parser([&](const PutItem& item) { return (*session)->Put(item.id, item.codec, item.size, item.bytes); });
  uint64_t received = 0;
  HF_RETURN_IF_ERROR(ReadBody(body, kMaxFramesBytes, clock_, [&](std::string_view bytes) {
    HF_RETURN_IF_ERROR(session.status());
    received += bytes.size();
    return parser.Feed(bytes);
  }));
  HF_RETURN_IF_ERROR(session.status());
  HF_RETURN_IF_ERROR(parser.Finish());
  HF_RETURN_IF_ERROR(store_.Flush(id));
  metrics_.Bytes(received, 0);
  response.status = 204;
  return Status::Ok();
}

Status Routes::Hold(const std::string& id, const Request& request, Response& response) {
  Place place(large_);
  if (!place.has()) return TooBusy();
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, store_.FindSession(id));
  HF_RETURN_IF_ERROR(session->Hold(request.get_param_value("manifest")));
  response.status = 204;
  return Status::Ok();
}

Status Routes::Commit(const std::string& id, Response& response, const httplib::ContentReader& body) {
  Place place(large_);
  if (!place.has()) return TooBusy();
  HF_ASSIGN_OR_RETURN(std::string text, ReadText(body, kMaxManifestBytes, clock_));
  HF_ASSIGN_OR_RETURN(Manifest manifest, Manifest::Parse(text));
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, store_.FindSession(id));
  HF_ASSIGN_OR_RETURN(CommitResult result, session->Commit(manifest));
  response.set_content(DumpJson({{"id", result.id}, {"digest", result.digest}, {"newBytes", result.new_bytes}}), kJson);
  return Status::Ok();
}

Status Routes::AbortSession(const std::string& id, const Request& request) {
  const std::string ns = request.get_param_value("ns");
  // No Checkpoint, so nobody can open it any more, and a tombstone would be kept for nothing.
  if (!ns.empty() && NeverWillBe(request, ns, id)) return Status::Ok();
  if (!ns.empty()) return store_.Abort(id, ns);
  // Said again by a client that did not hear the answer.
  HF_ASSIGN_OR_RETURN(SessionState state, store_.StateOf(id));
  if (state == SessionState::kAborted) return Status::Ok();
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, store_.FindSession(id));
  return session->Abort();
}

Status Routes::ReadManifest(const std::string& id, const Request& request, Response& response) {
  Place place(large_);
  if (!place.has()) return TooBusy();
  HF_ASSIGN_OR_RETURN(StoredManifest manifest, store_.GetManifestText(id));
  if (MayReadKeys(request)) {
    HF_ASSIGN_OR_RETURN(HashKey key, store_.HashKeyOf(id));
    response.set_header("Holdfast-Hash-Key", ToHex(key));
  }
  response.set_content(manifest.text, kBinary);
  return Status::Ok();
}

Status Routes::ReadSegments(const std::string& id, const Request& request, Response& response, const httplib::ContentReader& body) {
  const bool knows_zstd = request.get_param_value(kCodecParameter) == "2";
  HF_ASSIGN_OR_RETURN(std::string text, ReadText(body, kBatchSegments * 32, clock_));
  HF_ASSIGN_OR_RETURN(std::vector<SegmentId> ids, DecodeIds(text));
  // Held until the answer is written.
  auto place = std::make_shared<Place>(large_);
  if (!place->has()) return TooBusy();
  auto answer = std::make_shared<std::string>();
  answer->reserve(std::min(kMaxFramesBytes, ids.size() * (kMaxSegmentBytes + kFrameHeaderBytes)));
  for (const SegmentId& segment : ids) {
    HF_ASSIGN_OR_RETURN(StoredSegment stored, store_.GetStored(id, segment));
    if (stored.codec == Codec::kZstd && !knows_zstd) {
      HF_ASSIGN_OR_RETURN(stored.bytes, Decode(stored.codec, stored.size, AsBytes(stored.bytes)));
      stored.codec = Codec::kRaw;
    }
    if (answer->size() + stored.bytes.size() + kFrameHeaderBytes > kMaxFramesBytes) {
      return Status(Code::kInvalidArgument,
                    "these segments have more than " + std::to_string(kMaxFramesBytes) + " bytes: ask for fewer at once");
    }
    answer->append(EncodeFrameHeader({.id = segment, .codec = stored.codec, .size = stored.size, .bytes = AsBytes(stored.bytes)}));
    answer->append(stored.bytes);
  }
  metrics_.Bytes(0, answer->size());
  if (answer->empty()) return Status::Ok();
  response.set_content_provider(answer->size(), kBinary, [answer, place](size_t offset, size_t length, httplib::DataSink& sink) {
    return sink.write(answer->data() + offset, length);
  });
  return Status::Ok();
}

}  // namespace holdfast::storage
