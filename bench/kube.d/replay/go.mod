module holdfast.dev/bench/replay

go 1.26
