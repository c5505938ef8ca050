#!/bin/bash
# build.sh counter|witness OUT: one static program without CMake, as images need it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# The linker warns that getaddrinfo in a static program needs the same C library at run time, for exotic name services; files and DNS are
# built in.
"${CXX:-g++}" -std=c++20 -O2 -Wall -Wextra -static -pthread -I"$here" -o "$2" "$here/$1"/*.cc 2> >(grep -v 'getaddrinfo' >&2)
strip "$2"
