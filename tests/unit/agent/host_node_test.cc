#include "agent/host_node.h"

#include <gmock/gmock.h>

namespace holdfast::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Hole 9: which image a new container is made of, from what containerd's own client says.
TEST(HostNode, FindsTheDigestsOfAnImage) {
  const std::string listed =
      "REF TYPE DIGEST SIZE PLATFORMS LABELS \n"
      "docker.io/library/counter:1 application/vnd.oci.image.index.v1+json sha256:aaa 1.2 MiB linux/amd64 io.cri-containerd.image=managed "
      "\n"
      "docker.io/library/counter@sha256:aaa application/vnd.oci.image.index.v1+json sha256:aaa 1.2 MiB linux/amd64 - \n"
      "docker.io/library/other:1 application/vnd.oci.image.manifest.v1+json sha256:bbb 1.2 MiB linux/amd64 - \n"
      "sha256:ccc application/vnd.oci.image.index.v1+json sha256:aaa 1.2 MiB linux/amd64 - \n"
      "sha256:ddd application/vnd.oci.image.manifest.v1+json sha256:eee 1.2 MiB linux/amd64 - \n";
  EXPECT_THAT(DigestsIn(listed, "docker.io/library/counter:1"), ElementsAre("sha256:aaa", "sha256:ccc"));
  EXPECT_THAT(DigestsIn(listed, "sha256:ccc"), ElementsAre("sha256:aaa", "sha256:ccc"));
  EXPECT_THAT(DigestsIn(listed, "docker.io/library/other:1"), IsEmpty())
      << "the kubelet may have told either of them, and one is not known";
  EXPECT_THAT(DigestsIn(listed, "docker.io/library/none:1"), IsEmpty());
  EXPECT_THAT(DigestsIn("", "docker.io/library/counter:1"), IsEmpty());
}

}  // namespace
}  // namespace holdfast::agent
