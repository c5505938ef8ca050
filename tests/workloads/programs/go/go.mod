module holdfast.dev/tests/workloads

go 1.26
