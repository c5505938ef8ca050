// The controller-runtime side of bench/kube. ../README.md says what each mode does and prints.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

var (
	mode     = flag.String("mode", "", "empty, metadata, full, reconcile, events, failover or admission")
	tuned    = flag.Bool("tuned", false, "managedFields stripped, objects read from the cache without a copy")
	fifo     = flag.Bool("fifo", false, "the queue without priorities")
	objects  = flag.Int64("objects", 10000, "reconcile: how many to wait for")
	identity = flag.String("identity", "", "failover: who we are")
	lease    = flag.String("lease", "", "failover: its name in the namespace default")
	port     = flag.Int("port", 0, "admission: where to listen")
	certs    = flag.String("certs", "", "admission: folder with tls.crt and tls.key")
)

func main() {
	flag.Parse()
	start := time.Now()
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	log.SetOutput(os.Stderr)
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	ctx := context.Background()
	manager := newManager()
	switch *mode {
	case "empty":
		print(map[string]any{})
	case "metadata":
		pods := &metav1.PartialObjectMetadata{}
		pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		watch(ctx, manager, pods, start)
	case "full":
		watch(ctx, manager, &Checkpoint{}, start)
	case "reconcile", "events":
		reconcileMode(ctx, manager, start, ended)
	case "failover":
		must(manager.Add(leader{}))
		go func() { must(manager.Start(ctx)) }()
	case "admission":
		allow := admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") })
		manager.GetWebhookServer().Register("/admit", &webhook.Admission{Handler: allow})
		go func() { must(manager.Start(ctx)) }()
		print(map[string]any{"path": "/admit"})
	default:
		log.Fatalf("no mode %q", *mode)
	}
	<-ended
}

func newManager() ctrl.Manager {
	scheme := runtime.NewScheme()
	must(corev1.AddToScheme(scheme))
	must(AddToScheme(scheme))
	second := time.Second
	lease15, renew10, retry2 := 15*second, 10*second, 2*second
	options := ctrl.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		WebhookServer:  webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certs}),
		LeaderElection: *mode == "failover", LeaderElectionID: *lease, LeaderElectionNamespace: "default",
		LeaseDuration: &lease15, RenewDeadline: &renew10, RetryPeriod: &retry2,
	}
	if *tuned {
		yes := true
		options.Cache = cache.Options{DefaultTransform: cache.TransformStripManagedFields(), DefaultUnsafeDisableDeepCopy: &yes}
	}
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), options)
	must(err)
	return manager
}

// watch fills a cache of `kind` and keeps it current; nothing reads it.
func watch(ctx context.Context, manager ctrl.Manager, kind client.Object, start time.Time) {
	informer, err := manager.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	must(err)
	var known atomic.Int64
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { known.Add(1) }, DeleteFunc: func(any) { known.Add(-1) },
	})
	must(err)
	go func() { must(manager.Start(ctx)) }()
	if !manager.GetCache().WaitForCacheSync(ctx) {
		log.Fatal("the cache did not sync")
	}
	synced := time.Since(start)
	for known.Load() < *objects {
		time.Sleep(time.Millisecond)
	}
	print(map[string]any{"objects": known.Load(), "synced_s": synced.Seconds()})
}

type leader struct{}

func (leader) NeedLeaderElection() bool { return true }
func (leader) Start(ctx context.Context) error {
	print(map[string]any{"leading": *identity, "at": float64(time.Now().UnixNano()) / 1e9})
	<-ctx.Done()
	return nil
}

func print(value any) { must(json.NewEncoder(os.Stdout).Encode(value)) }

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
