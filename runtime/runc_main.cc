// holdfast-runc: what containerd executes in place of runc for pods of RuntimeClass holdfast. Whatever a checkpoint does not change goes
// to the real runc unchanged.
#include <iostream>

#include "runtime/check.h"
#include "runtime/create.h"
#include "runtime/lifecycle.h"
#include "runtime/measure.h"

int main(int argc, char** argv) {
  using namespace holdfast::runtime;
  const CommandLine line = CommandLine::Parse(std::vector<std::string>(argv + 1, argv + argc));
  if (line.Global("holdfast-version") || (line.Global("holdfast-help"))) {
    std::cout << "holdfast-runc " << HOLDFAST_VERSION
              << "\nusage: as runc, and\n"
                 "  holdfast-runc dump LANDING_DIRECTORY          carry out its request.json\n"
                 "  holdfast-runc thaw [--root ROOT] CONTAINER    let a kept-frozen container run\n"
                 "  holdfast-runc check [--state DIRECTORY]       what this node has for dumps and restores, as JSON\n"
                 "  holdfast-runc measure [--root ROOT] [--tasks DIRECTORY] CONTAINER... [/FOLDER...]\n"
                 "                                                how much a dump would write, as JSON\n";
    return 0;
  }
  const Node node = Node::FromEnvironment();
  if (line.verb == "thaw") return Thaw(node, line);
  if (line.verb == "measure") return Measure(node, line);
  holdfast::Result<std::string> real = Runc::Find();
  if (!real.ok()) return ReportError(line, real.status().message());
  const Runc runc = Runc::ForCaller(*real, line, node);
  if (line.verb == "create") return Create(node, runc, line);
  if (line.verb == "start") return Start(node, runc, line);
  if (line.verb == "kill") return Kill(node, runc, line);
  if (line.verb == "delete") return Delete(node, runc, line);
  if (line.verb == "pause" || line.verb == "resume") return PauseOrResume(node, runc, line);
  if (line.verb == "exec") return Exec(node, runc, line);
  if (line.verb == "checkpoint") return Checkpoint(node, runc, line);
  if (line.verb == "check") return Check(node, runc, *real, line);
  if (line.verb == "dump") return Dump(node, runc, line);
  return ReportError(line, runc.Become(line.argv).message());
}
