#include "agent/host_node.h"

#include <gmock/gmock.h>

namespace holdfast::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Hole 9: which image a new container is made of, from what containerd's own client says (as 2.1.9 prints it, of an image that was
// imported).
TEST(HostNode, FindsTheDigestsOfAnImage) {
  const std::string listed =
      "REF                        TYPE                                       DIGEST     SIZE    PLATFORMS   LABELS                         "
      " \n"
      "ghcr.io/example/counter:1  application/vnd.oci.image.manifest.v1+json sha256:aaa 1.1 MiB linux/amd64 "
      "io.cri-containerd.image=managed \n"
      "sha256:ccc                 application/vnd.oci.image.manifest.v1+json sha256:aaa 1.1 MiB linux/amd64 "
      "io.cri-containerd.image=managed \n"
      "ghcr.io/example/other:1    application/vnd.oci.image.manifest.v1+json sha256:bbb 1.1 MiB linux/amd64 -                              "
      " \n"
      "sha256:ddd                 application/vnd.oci.image.manifest.v1+json sha256:eee 1.1 MiB linux/amd64 "
      "io.cri-containerd.image=managed \n";
  EXPECT_THAT(DigestsIn(listed, "ghcr.io/example/counter:1"), ElementsAre("sha256:aaa", "sha256:ccc"));
  EXPECT_THAT(DigestsIn(listed, "sha256:ccc"), ElementsAre("sha256:aaa", "sha256:ccc"));
  EXPECT_THAT(DigestsIn(listed, "ghcr.io/example/other:1"), IsEmpty()) << "the kubelet may have told the one that is not known";
  EXPECT_THAT(DigestsIn(listed, "ghcr.io/example/none:1"), IsEmpty());
  EXPECT_THAT(DigestsIn("", "ghcr.io/example/counter:1"), IsEmpty());
}

}  // namespace
}  // namespace holdfast::agent
