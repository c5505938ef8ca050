// Server-side apply as one field manager: what is applied is what this manager wants, and nothing else. Fields that it applied before and
// leaves out now are removed, unless somebody else owns them too. Applying the same again changes nothing, not even the resourceVersion.
// Thread-safe, as the Client is.
#pragma once

#include <string>

#include "kube/client.h"

namespace holdfast::kube {

// kInvalidArgument unless it has 1 to 128 printable characters.
Status ValidateFieldManager(const std::string& name);

class Applier {
 public:
  // One name for a controller, for as long as it exists: fields of another name stay owned by that one for ever.
  Applier(Client& client, std::string field_manager) : client_(client), field_manager_(std::move(field_manager)) {}

  // `intent` has apiVersion, kind, metadata.name and only the fields that are ours; create-or-update. Controllers force: a field that is
  // ours is taken back from whoever else wrote it. With `force` off that is kConflict, and the message names the other manager.
  // metadata.uid in `intent` makes it kConflict when the object is another one of that name.
  Result<Json> Apply(const Resource& resource, const std::string& ns, const Json& intent, CallOptions options = {}, bool force = true);
  // The same for the status, which the API server keeps apart: `intent` has a status and no spec.
  Result<Json> ApplyStatus(const Resource& resource, const std::string& ns, const Json& intent, CallOptions options = {},
                           bool force = true);

 private:
  Client& client_;
  const std::string field_manager_;
};

}  // namespace holdfast::kube
