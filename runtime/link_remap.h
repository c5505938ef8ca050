// Open files whose name was removed while another name still leads to them. CRIU gives them a name for the time of the dump,
// link_remap.<id> beside the old one, and removes it when the processes are to run on: as for runc they always are. A restore looks for
// that name, so it is made once more while the files are copied.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/beneath.h"

namespace holdfast::runtime {

struct LinkRemap {
  std::string opened;  // the path by which it was opened, as its container sees it
  std::string link;    // the path that CRIU looks for
};

// From remap-fpath.img and files.img of a dump. Empty when there is none. kDataLoss: damaged, or of another CRIU.
Result<std::vector<LinkRemap>> LinkRemapsOf(const std::string& images);

// The names of one dump, for as long as the object lives. The processes are frozen; what else runs in the pod may swap a folder for a link:
// no name is made outside of `root`.
class LinkRemaps {
 public:
  LinkRemaps() = default;
  LinkRemaps(const LinkRemaps&) = delete;
  LinkRemaps& operator=(const LinkRemaps&) = delete;
  ~LinkRemaps() { Remove(); }
  // `root`: /proc/PID/root of one of `pids`. kNotFound names a file that none of them holds.
  Status Make(const std::string& images, const std::string& root, const std::vector<int>& pids);
  void Remove();

 private:
  struct Name {
    Fd folder;
    std::string name;
  };
  std::vector<Name> made_;
};

// Removes what a CRIU that was killed left: names like link_remap.<id> of files that one of `pids` has open without their own name. With
// one of them in its way no later dump would succeed. `root` as above. Returns how many there were.
int RemoveLeftLinks(const std::string& root, const std::vector<int>& pids);

}  // namespace holdfast::runtime
