// Asks the API server whose a token is (authentication.k8s.io/v1 TokenReview).
#pragma once

#include "kube/client.h"
#include "storage/server/auth.h"

namespace holdfast::storage {

// `audience`: tokens must be meant for it; empty: for the API server itself, as a pod's default token is.
std::unique_ptr<Authenticator> MakeTokenReviewAuthenticator(std::shared_ptr<kube::Client> client, const std::string& audience);

}  // namespace holdfast::storage
