package main

import (
	"context"
	"os"
	"strconv"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const sentAnnotation = "bench.holdfast.dev/sent"

// reader is a reconciler that only reads its object. Its fields belong to the one worker.
type reader struct {
	client      client.Client
	first, last time.Time
	done        int64
	drained     chan struct{}
	latencies   []int64
}

func (r *reader) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	now := time.Now()
	if r.done == 0 {
		r.first = now
	}
	var checkpoint Checkpoint
	if err := r.client.Get(ctx, request.NamespacedName, &checkpoint); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if sent, _ := strconv.ParseInt(checkpoint.Annotations[sentAnnotation], 10, 64); sent > 0 {
		r.latencies = append(r.latencies, (now.UnixNano()-sent)/1000)
	}
	if r.done++; r.done == *objects {
		r.last = time.Now()
		close(r.drained)
	}
	return ctrl.Result{}, nil
}

func reconcileMode(ctx context.Context, manager ctrl.Manager, start time.Time, ended <-chan struct{}) {
	r := &reader{client: manager.GetClient(), drained: make(chan struct{})}
	priorities := !*fifo
	var options controller.Options
	options.MaxConcurrentReconciles = 1
	options.UsePriorityQueue = &priorities
	must(ctrl.NewControllerManagedBy(manager).For(&Checkpoint{}, builder.WithPredicates()).WithOptions(options).Complete(reconcile.Reconciler(r)))
	go func() { must(manager.Start(ctx)) }()
	<-r.drained
	print(map[string]any{"objects": *objects, "seconds": r.last.Sub(r.first).Seconds(), "cold_start_s": r.last.Sub(start).Seconds()})
	<-ended
	if *mode == "events" {
		print(map[string]any{"latencies_us": r.latencies})
	}
	os.Exit(0)
}
