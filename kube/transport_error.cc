#include "kube/transport_error.h"

#include <openssl/x509_vfy.h>

#include <cstring>

namespace holdfast::kube {
namespace {

// libcurl says that the peer's certificate failed; OpenSSL's number says why.
std::string CertificateAdvice(CURL* easy, std::string_view why) {
  long verified = X509_V_OK;
  curl_easy_getinfo(easy, CURLINFO_SSL_VERIFYRESULT, &verified);
  switch (verified) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "the server's certificate has expired: renew it there, or set the clock here";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "the server's certificate is not valid yet: look at the clocks of both machines";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return "the server's certificate is not signed by the CA that we were given: is it the CA of this server?";
    default:
      break;
  }
  if (why.find("subject name") != std::string_view::npos || why.find("does not match") != std::string_view::npos) {
    return "the server's certificate is for other names than the one in this URL";
  }
  return "the server's certificate cannot be trusted";
}

// An alert is the peer's word about our side of the handshake.
bool RefusedByAlert(std::string_view why) {
  return why.find(" alert ") != std::string_view::npos &&
         (why.find("certificate") != std::string_view::npos || why.find("unknown ca") != std::string_view::npos);
}

bool BrokeBeforeTheAnswer(CURLcode code) {
  switch (code) {
    case CURLE_SEND_FAIL_REWIND:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

std::string SystemError(CURL* easy) {
  long number = 0;
  curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &number);
  char text[128] = "";
  return number == 0 ? "" : std::string(" (") + strerror_r(static_cast<int>(number), text, sizeof text) + ")";
}

}  // namespace

Status TransportError(CURL* easy, CURLcode code, const char* detail, const Order& order) {
  const std::string why = detail[0] != '\0' ? detail : curl_easy_strerror(code);
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return {Code::kInvalidArgument, order.what + ": not a URL that can be asked: " + why};
    case CURLE_COULDNT_RESOLVE_HOST:
      return {Code::kUnavailable, order.what + ": " + why + ": is the server's name right, and does DNS work here?"};
    case CURLE_COULDNT_CONNECT:
      return {Code::kUnavailable, order.what + ": " + why + SystemError(easy) + ": is the server running, and is this its address?"};
    case CURLE_OPERATION_TIMEDOUT:
      return {Code::kUnavailable, order.what + ": " + why + ": is the server's address right, and does a firewall let us through?"};
    case CURLE_PEER_FAILED_VERIFICATION:
      return {Code::kUnavailable, order.what + ": " + CertificateAdvice(easy, why) + " (" + why + ")"};
    case CURLE_SSL_CERTPROBLEM:
      return {Code::kUnavailable, order.what + ": our client certificate cannot be used: " + why};
    default:
      break;
  }
  if (RefusedByAlert(why)) {
    return {Code::kUnavailable,
            order.what + ": the server refuses our client certificate: renew it, or use one of a CA that it trusts (" + why + ")"};
  }
  if (BrokeBeforeTheAnswer(code) && order.request.method != "GET") {
    return {Code::kUnavailable,
            order.what + ": the connection broke before the answer; whether the server acted is not known (" + why + ")"};
  }
  return {Code::kUnavailable, order.what + ": " + why};
}

}  // namespace holdfast::kube
