package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A watcher is one watch request while it runs.
type watcher struct {
	*store
	item     *template
	metadata bool
	out      *bufio.Writer
	flusher  http.Flusher
	buffer   []byte
}

func (s *store) serveWatch(w http.ResponseWriter, r *http.Request, query url.Values, from uint64, metadata bool) {
	streamed := query.Get("sendInitialEvents") == "true"
	if streamed && query.Get("resourceVersionMatch") != "NotOlderThan" {
		fail(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
		return
	}
	watch := watcher{store: s, item: &s.full, metadata: metadata, out: bufio.NewWriterSize(w, 64<<10), flusher: w.(http.Flusher)}
	if metadata {
		watch.item = &s.metadata
	}
	w.WriteHeader(http.StatusOK)
	watch.flusher.Flush()
	epoch := watch.epochNow()
	if !streamed && from > 0 && from < s.oldest() {
		watch.gone(from)
		return
	}
	bookmarks := query.Get("allowWatchBookmarks") == "true"
	if streamed || from == 0 {
		from = watch.initial(streamed && bookmarks)
	}
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	if seconds <= 0 {
		seconds = 1800
	}
	watch.follow(r, from, epoch, time.Duration(seconds)*time.Second, bookmarks)
}

func (w *watcher) epochNow() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store.epoch
}

func (w *watcher) event(kind string, index int, version uint64, sent int64) {
	w.buffer = fmt.Appendf(w.buffer[:0], `{"type":%q,"object":`, kind)
	w.buffer = w.item.render(w.buffer, index, version, sent)
	w.buffer = append(w.buffer, '}', '\n')
	w.out.Write(w.buffer)
}

func (w *watcher) bookmark(version uint64, initialEnd bool) {
	kind, apiVersion, annotations := w.kind.kind, w.apiVersion(), ""
	if w.metadata {
		kind, apiVersion = "PartialObjectMetadata", "meta.k8s.io/v1"
	}
	if initialEnd {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	fmt.Fprintf(w.out, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"%s}}}`+"\n",
		kind, apiVersion, version, annotations)
	w.flush()
}

func (w *watcher) flush() {
	w.out.Flush()
	w.flusher.Flush()
}

func (w *watcher) gone(version uint64) {
	w.count(func(c *counts) { c.Expired++ })
	object := status(http.StatusGone, "Expired", fmt.Sprintf("too old resource version: %d", version), nil)
	json.NewEncoder(w.out).Encode(map[string]any{"type": "ERROR", "object": object})
	w.flush()
}

// initial sends every object as ADDED; returns the version of that state.
func (w *watcher) initial(end bool) uint64 {
	now := w.snapshot()
	for i, version := range now.versions {
		w.event("ADDED", i, version, now.sent[i])
	}
	w.flush()
	if end {
		w.bookmark(now.latest, true)
		w.count(func(c *counts) { c.Snapshots++ })
	}
	return now.latest
}

func (w *watcher) follow(r *http.Request, from uint64, epoch int, limit time.Duration, bookmarks bool) {
	end := time.NewTimer(limit)
	defer end.Stop()
	tick := time.NewTicker(bookmarkEvery)
	defer tick.Stop()
	for {
		changes, latest, now, changed := w.after(from)
		if now != epoch {
			w.gone(from)
			return
		}
		for _, c := range changes {
			from = c.version
			// The clock is read at the last moment: what is measured is the client, not this server's queue.
			w.event("MODIFIED", c.index, c.version, time.Now().UnixNano())
			w.flush()
		}
		if len(changes) > 0 {
			w.count(func(c *counts) { c.Events += len(changes) })
			continue
		}
		select {
		case <-changed:
		case <-tick.C:
			if bookmarks {
				w.bookmark(latest, false)
			}
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}
