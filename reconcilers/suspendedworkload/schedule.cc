#include "reconcilers/suspendedworkload/schedule.h"

namespace holdfast::reconcilers::suspendedworkload {

Schedule ScheduleOf(const api::SuspendedWorkload& object, WallTime now, const std::string& zones) {
  const auto& spec = object.spec.schedule;
  Schedule schedule;
  auto zone = TimeZone::Load(spec.time_zone, zones);
  if (!zone.ok()) {
    schedule.problem = zone.status().message();
    return schedule;
  }
  for (const bool suspend : {true, false}) {
    const std::string text = suspend ? spec.suspend : spec.resume;
    if (text.empty()) continue;
    auto cron = Cron::Parse(text);
    if (!cron.ok()) return {cron.status().message(), {}, {}};
    const auto last = cron->Last(now, *zone), next = cron->Next(now, *zone);
    if (last && (!schedule.last || *last > schedule.last->at)) schedule.last = Due{*last, suspend};
    if (next && (!schedule.next || *next < schedule.next->at)) schedule.next = Due{*next, suspend};
  }
  if (!schedule.next && !schedule.last) schedule.problem = "it is never due";
  return schedule;
}

}  // namespace holdfast::reconcilers::suspendedworkload
