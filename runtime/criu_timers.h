// What CRIU 4.2 writes of timers and does not set again, mended in its images, so that every CRIU sets it:
//  - a periodic timerfd that expired while it was frozen: its time left is 0, which stops it for good (criu issue 3162). It expires at
//  once.
//  - an absolute timerfd that fires once and has: CRIU adds the time of the restore to 0, and it would fire again.
//  - alarm() and setitimer() without an interval: passed over (criu issue 2559). They get an interval of 30 years, which CRIU needs to see.
#pragma once

#include <string>

#include "base/status.h"

namespace holdfast::runtime {

// Only files that need it are written. kDataLoss: an image is damaged, or of another CRIU.
Status MendTimers(const std::string& images);

}  // namespace holdfast::runtime
