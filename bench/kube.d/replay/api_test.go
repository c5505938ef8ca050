package main

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What a kube-apiserver 1.37 does, seen live, and a client's cache depends on.

const objects = 25

type object struct {
	Kind       string
	APIVersion string
	Metadata   struct {
		Name, Namespace, ResourceVersion, Continue string
		RemainingItemCount                         int
		Annotations                                map[string]string
	}
	Spec   map[string]any
	Items  []object
	Code   int
	Reason string
}

type event struct {
	Type   string
	Object object
}

func start(t *testing.T) (*store, string) {
	pods := newStore(newKind("", "v1", "pods", "Pod", "pod.json"), objects)
	own := newStore(newKind("holdfast.dev", "v1alpha1", "checkpoints", "Checkpoint", "checkpoint.json"), objects)
	server := httptest.NewServer(&api{stores: []*store{pods, own}})
	t.Cleanup(server.Close)
	return pods, server.URL
}

func ask(t *testing.T, url, accept string) *http.Response {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); response.Body.Close() })
	return response
}

func get(t *testing.T, url, accept string, code int) object {
	t.Helper()
	response := ask(t, url, accept)
	var got object
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != code {
		t.Fatalf("GET %s: %d %+v, not %d", url, response.StatusCode, got, code)
	}
	return got
}

// watch returns a function that gives the next event.
func watch(t *testing.T, url string) func() event {
	lines := bufio.NewScanner(ask(t, url, "application/json").Body)
	lines.Buffer(nil, 1<<20)
	return func() event {
		t.Helper()
		var next event
		if !lines.Scan() {
			t.Fatalf("the watch has ended: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &next); err != nil {
			t.Fatal(err)
		}
		return next
	}
}

func TestPagesAreOfOneVersion(t *testing.T) {
	pods, url := start(t)
	first := get(t, url+"/api/v1/pods?limit=10", "application/json", 200)
	if len(first.Items) != 10 || first.Metadata.RemainingItemCount != objects-10 || first.Metadata.Continue == "" {
		t.Fatalf("first page: %d items, %+v", len(first.Items), first.Metadata)
	}
	pods.touch(24, 1)
	last := get(t, url+"/api/v1/pods?limit=100&continue="+first.Metadata.Continue, "application/json", 200)
	if len(last.Items) != objects-10 || last.Metadata.Continue != "" || last.Metadata.ResourceVersion != first.Metadata.ResourceVersion {
		t.Fatalf("last page: %d items, %+v", len(last.Items), last.Metadata)
	}
	pods.expire(10)
	if gone := get(t, url+"/api/v1/pods?limit=100&continue="+first.Metadata.Continue, "application/json", 410); gone.Reason != "Expired" {
		t.Fatalf("%+v", gone)
	}
}

func TestTheWatchCacheKnowsNoPages(t *testing.T) {
	_, url := start(t)
	if list := get(t, url+"/api/v1/pods?limit=10&resourceVersion=0", "application/json", 200); len(list.Items) != objects || list.Kind != "PodList" {
		t.Fatalf("%d items of %s", len(list.Items), list.Kind)
	}
}

func TestAListFromTheFutureTimesOut(t *testing.T) {
	_, url := start(t)
	if timeout := get(t, url+"/api/v1/pods?resourceVersion=999999", "application/json", 504); timeout.Reason != "Timeout" {
		t.Fatalf("%+v", timeout)
	}
}

func TestMetadataByAccept(t *testing.T) {
	_, url := start(t)
	accept := "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	list := get(t, url+"/apis/holdfast.dev/v1alpha1/checkpoints", accept, 200)
	if list.Kind != "PartialObjectMetadataList" || list.Items[0].Kind != "PartialObjectMetadata" || list.Items[0].Spec != nil {
		t.Fatalf("%s of %+v", list.Kind, list.Items[0])
	}
	get(t, url+"/api/v1/pods", "application/cbor", 406)
}

func TestEachObjectIsAnother(t *testing.T) {
	_, url := start(t)
	seen := map[string]bool{}
	for _, item := range get(t, url+"/api/v1/pods", "application/json", 200).Items {
		seen[item.Metadata.Namespace+"/"+item.Metadata.Name+"/"+item.Metadata.ResourceVersion] = true
	}
	if len(seen) != objects {
		t.Fatalf("%d different ones of %d", len(seen), objects)
	}
}

func TestStreamedListEndsWithABookmarkAndGoesOn(t *testing.T) {
	pods, url := start(t)
	query := "/api/v1/pods?watch=true&sendInitialEvents=true&allowWatchBookmarks=true"
	get(t, url+query, "application/json", 422)
	next := watch(t, url+query+"&resourceVersionMatch=NotOlderThan")
	for range objects {
		if e := next(); e.Type != "ADDED" || e.Object.Kind != "Pod" {
			t.Fatalf("%+v", e)
		}
	}
	end := next()
	if end.Type != "BOOKMARK" || end.Object.Metadata.Annotations["k8s.io/initial-events-end"] != "true" {
		t.Fatalf("%+v", end)
	}
	before := time.Now().UnixNano()
	pods.touch(3, 1)
	e := next()
	sent, _ := strconv.ParseInt(e.Object.Metadata.Annotations["bench.holdfast.dev/sent"], 10, 64)
	if e.Type != "MODIFIED" || !strings.HasPrefix(e.Object.Metadata.Name, "web-00000-") || sent < before || sent > time.Now().UnixNano() {
		t.Fatalf("%+v", e)
	}
}

func TestAWatchGoesOnWhereTheListWas(t *testing.T) {
	pods, url := start(t)
	version := get(t, url+"/api/v1/pods", "application/json", 200).Metadata.ResourceVersion
	pods.touch(1, 1)
	pods.touch(2, 1)
	next := watch(t, url+"/api/v1/pods?watch=1&resourceVersion="+version)
	if first, second := next(), next(); first.Object.Metadata.ResourceVersion >= second.Object.Metadata.ResourceVersion {
		t.Fatalf("%+v before %+v", first, second)
	}
}

func TestExpiredWatchesEndWith410InTheStream(t *testing.T) {
	pods, url := start(t)
	version := get(t, url+"/api/v1/pods", "application/json", 200).Metadata.ResourceVersion
	running := watch(t, url+"/api/v1/pods?watch=1&resourceVersion="+version)
	pods.touch(0, 1)
	running()
	pods.expire(10)
	for _, next := range []func() event{running, watch(t, url+"/api/v1/pods?watch=1&resourceVersion="+version)} {
		if e := next(); e.Type != "ERROR" || e.Object.Code != 410 || e.Object.Reason != "Expired" {
			t.Fatalf("%+v", e)
		}
	}
}
