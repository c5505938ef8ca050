#include "storage/server/token_review.h"

namespace holdfast::storage {
namespace {

const kube::Resource kTokenReviews{
    .group = "authentication.k8s.io", .version = "v1", .plural = "tokenreviews", .kind = "TokenReview", .namespaced = false};

class TokenReviewAuthenticator final : public Authenticator {
 public:
  TokenReviewAuthenticator(std::shared_ptr<kube::Client> client, std::string audience)
      : client_(std::move(client)), audience_(std::move(audience)) {}

  Result<Caller> Authenticate(const std::string& token, std::stop_token stop) override {
    Json review = {{"apiVersion", kTokenReviews.ApiVersion()}, {"kind", kTokenReviews.kind}, {"spec", {{"token", token}}}};
    if (!audience_.empty()) review["spec"]["audiences"] = Json::array({audience_});
    kube::CallOptions options;
    options.timeout = std::chrono::seconds(5);
    options.stop = stop;
    Result<Json> answer = client_->Create(kTokenReviews, "", review, options);
    // Whatever went wrong with the question says nothing about the caller's token. The message is the API server's: it has no token in it.
    if (!answer.ok()) return Status(Code::kUnavailable, "the API server does not review tokens: " + answer.status().ToString());
    const std::string user = GetString(*answer, {"status", "user", "username"});
    if (!GetBool(*answer, {"status", "authenticated"}) || user.empty() || !AudienceFits(*answer)) {
      return Status(Code::kUnauthenticated, "the bearer token is not valid: send this pod's service-account token");
    }
    // Of a token that the kubelet got for a pod (Kubernetes 1.30 and later): where that pod runs.
    const Json& nodes = GetArray(*answer, {"status", "user", "extra", "authentication.kubernetes.io/node-name"});
    const bool one = nodes.is_array() && nodes.size() == 1 && nodes[0].is_string();
    return Caller{.user = user, .node = one ? nodes[0].get<std::string>() : ""};
  }

 private:
  bool AudienceFits(const Json& review) const {
    if (audience_.empty()) return true;
    for (const Json& audience : GetArray(review, {"status", "audiences"})) {
      if (audience == audience_) return true;
    }
    return false;  // also when the API server knows nothing of audiences
  }

  const std::shared_ptr<kube::Client> client_;
  const std::string audience_;
};

}  // namespace

std::unique_ptr<Authenticator> MakeTokenReviewAuthenticator(std::shared_ptr<kube::Client> client, const std::string& audience) {
  return std::make_unique<TokenReviewAuthenticator>(std::move(client), audience);
}

}  // namespace holdfast::storage
