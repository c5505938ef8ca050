// An AdmissionReview as a user's pod can shape it: what the pod webhook answers must apply to that very pod.
#include "controller/pod_webhook.h"
#include "kube/admission_review.h"
#include "tests/unit/reconcilers/world.h"

using namespace holdfast;                        // NOLINT(google-build-using-namespace)
using namespace holdfast::reconcilers::testing;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FakeView& view = *[] {
    auto* made = new FakeView;
    made->nodes = {Share(ReadyNode())};
    made->AddWeb({{api::kProtect, "true"}});
    made->checkpoints = {Share(InPhase(api::Phase::kReady))};
    return made;
  }();
  static FakeClock clock(At(5));
  static const controller::EndedPods ended(clock);
  auto request = kube::ReadAdmissionReview({reinterpret_cast<const char*>(data), size});
  if (!request.ok()) return 0;
  const controller::PodWebhook webhook(view, ended, {"example/holdfast:1", "holdfast-wait", Duration(0)}, clock);
  const kube::AdmissionResponse response = webhook.Handle(*request);
  if (!response.allowed) __builtin_trap();
  (void)kube::WriteAdmissionReview(request->uid, response);
  if (response.patch.is_null()) return 0;
  try {
    (void)request->object.patch(response.patch);
  } catch (const std::exception& e) {
    fprintf(stderr, "the patch does not apply: %s\n%s\n", e.what(), DumpJson(response.patch).c_str());
    __builtin_trap();
  }
  return 0;
}
