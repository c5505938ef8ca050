#include "activator/answers.h"

#include "base/json.h"

namespace holdfast::activator {
namespace {

constexpr int kRetrySeconds = 5;

// Everything in it is constant; what changes comes as JSON, and is set as text.
constexpr char kPage[] = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Waking up</title>
<style>
body{font:16px/1.5 system-ui,sans-serif;margin:0;min-height:100vh;display:grid;place-items:center;background:#f6f7f9;color:#1c2733}
main{max-width:34rem;padding:2rem;margin:1rem;background:#fff;border-radius:.7rem;box-shadow:0 1px 4px #0002}
h1{font-size:1.3rem;margin:0 0 .5rem}dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:1rem 0 0}
dt{color:#5b6b7c}dd{margin:0;overflow-wrap:anywhere}
progress{width:100%;height:.5rem}
@media(prefers-color-scheme:dark){body{background:#11161c;color:#dde5ee}main{background:#1b232c}dt{color:#93a4b5}}
</style></head><body><main>
<h1>Waking up <span id="workload"></span></h1>
<p>It slept, with its memory kept. This page loads by itself when it is back.</p>
<progress aria-label="waking up"></progress>
<dl><dt>Phase</dt><dd id="phase"></dd><dt>Asleep since</dt><dd id="since"></dd><dt>Now</dt><dd id="message" role="status"></dd></dl>
<noscript><p>Load this page again in a few seconds.</p></noscript>
</main><script type="application/json" id="first">)";
constexpr char kPageEnd[] = R"(</script><script>
const put = (id, text) => { document.getElementById(id).textContent = text; };
function show(s) {
  put("workload", s.workload); put("phase", s.phase); put("message", s.message);
  put("since", s.asleepSince ? new Date(s.asleepSince).toLocaleString() : "just now");
}
let misses = 0;
async function look() {
  try {
    const answer = await fetch("/.holdfast/status", {cache: "no-store", redirect: "manual"});
    const s = answer.ok && answer.headers.get("Holdfast-State") ? await answer.json() : null;
    // Somebody else answers: the workload itself, or who leads this path elsewhere.
    if (!s || s.ready) { setTimeout(() => location.reload(), s ? 200 : Math.min(500 * 2 ** misses++, 5000)); return; }
    show(s);
  } catch (e) { put("message", "no answer; trying again"); }
  setTimeout(look, 1000);
}
show(JSON.parse(document.getElementById("first").textContent));
setTimeout(look, 1000);
</script></body></html>
)";

std::string Answer(const std::string& status, const std::string& type, const std::string& body, const std::string& headers = "") {
  return "HTTP/1.1 " + status + "\r\nContent-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nCache-Control: no-store\r\nConnection: close\r\n" + headers + "\r\n" + body;
}

std::string StateHeader(const api::SuspendedWorkload& sleeper) {
  return "Holdfast-State: " + std::string(api::SuspendPhaseName(sleeper.status.phase)) + "\r\n";
}

std::string RetryHeader() { return "Retry-After: " + std::to_string(kRetrySeconds) + "\r\n"; }

std::string StatusText(const api::SuspendedWorkload& sleeper, bool ready) {
  return DumpJson({{"workload", sleeper.spec.target_kind + " " + sleeper.spec.target_name},
                   {"namespace", sleeper.meta.ns},
                   {"phase", api::SuspendPhaseName(sleeper.status.phase)},
                   {"asleepSince", sleeper.status.suspended_at},
                   {"message", Why(sleeper)},
                   {"ready", ready}});
}

// JSON that may stand in a script element.
std::string InScript(const std::string& json) {
  std::string out;
  for (const char c : json) {
    if (c == '<' || c == '>' || c == '&') {
      out += c == '<' ? "\\u003c" : c == '>' ? "\\u003e" : "\\u0026";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string UnavailableAnswer(const std::string& why) {
  return Answer("503 Service Unavailable", "text/plain; charset=utf-8", why + "\n", RetryHeader());
}

std::string PageAnswer(const api::SuspendedWorkload& sleeper) {
  return Answer(
      "503 Service Unavailable", "text/html; charset=utf-8", kPage + InScript(StatusText(sleeper, false)) + kPageEnd,
      RetryHeader() + StateHeader(sleeper) +
          "Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'\r\n"
          "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n");
}

std::string StatusAnswer(const api::SuspendedWorkload& sleeper, bool reachable) {
  return Answer("200 OK", "application/json", StatusText(sleeper, reachable && Answers(sleeper)) + "\n", StateHeader(sleeper));
}

std::string IgnoredAnswer() { return Answer("200 OK", "text/plain; charset=utf-8", "asleep\n", "Holdfast-State: Suspended\r\n"); }

std::string TooSlowAnswer() { return Answer("408 Request Timeout", "text/plain; charset=utf-8", "the request did not come to its end\n"); }

}  // namespace holdfast::activator
