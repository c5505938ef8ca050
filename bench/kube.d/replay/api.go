package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// An api answers lists, watches and discovery as kube-apiserver 1.37 does, as far as operators' caches ask.
type api struct {
	stores []*store
}

const bookmarkEvery = time.Minute

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodGet {
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "the replay server only answers GET")
		return
	}
	for _, s := range a.stores {
		if r.URL.Path == s.basePath()+"/"+s.plural {
			s.serve(w, r)
			return
		}
	}
	if answer := a.discovery(r.URL.Path); answer != nil {
		json.NewEncoder(w).Encode(answer)
		return
	}
	fail(w, http.StatusNotFound, "NotFound", "no "+r.URL.Path+" in the corpus")
}

func status(code int, reason, message string, details map[string]any) map[string]any {
	return map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"code": code, "reason": reason, "message": message, "details": details}
}

func fail(w http.ResponseWriter, code int, reason, message string) {
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(status(code, reason, message, nil))
}

func (s *store) serve(w http.ResponseWriter, r *http.Request) {
	query, accept := r.URL.Query(), r.Header.Get("Accept")
	metadata := strings.Contains(accept, "as=PartialObjectMetadata")
	if accept != "" && !strings.Contains(accept, "json") && !strings.Contains(accept, "*/*") {
		fail(w, http.StatusNotAcceptable, "NotAcceptable", "only JSON is served here")
		return
	}
	watch := query.Get("watch") == "true" || query.Get("watch") == "1"
	s.count(func(c *counts) {
		c.Protocols[r.Proto]++
		if metadata {
			c.Metadata++
		}
		if watch {
			c.Watches++
			if len(c.WatchQueries) < 4 {
				c.WatchQueries = append(c.WatchQueries, r.URL.RawQuery)
			}
		} else {
			c.Pages++
		}
	})
	var from uint64
	if text := query.Get("resourceVersion"); text != "" {
		var err error
		if from, err = strconv.ParseUint(text, 10, 64); err != nil {
			fail(w, http.StatusBadRequest, "BadRequest", "invalid resource version "+strconv.Quote(text))
			return
		}
	}
	if watch {
		s.serveWatch(w, r, query, from, metadata)
	} else {
		s.serveList(w, query, from, metadata)
	}
}

func (s *store) serveList(w http.ResponseWriter, query url.Values, from uint64, metadata bool) {
	now := s.snapshot()
	if from > now.latest {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusGatewayTimeout)
		json.NewEncoder(w).Encode(status(http.StatusGatewayTimeout, "Timeout", "Too large resource version",
			map[string]any{"retryAfterSeconds": 1, "causes": []map[string]string{{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}}}))
		return
	}
	// The version of the first page is that of all: it travels in the token.
	first, version := 0, now.latest
	if token := query.Get("continue"); token != "" {
		text, _ := base64.RawURLEncoding.DecodeString(token)
		if n, _ := fmt.Sscanf(string(text), "%d:%d", &first, &version); n != 2 || version < s.oldest() {
			fail(w, http.StatusGone, "Expired", "The provided continue parameter is too old")
			return
		}
	} else {
		s.count(func(c *counts) { c.Lists++ })
	}
	last := len(now.versions)
	// The watch cache, which answers at resourceVersion=0, knows no pages.
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && query.Get("resourceVersion") != "0" && first+limit < last {
		last = first + limit
	}
	item, apiVersion, name := &s.listed, s.apiVersion(), s.kind.kind+"List"
	if metadata {
		item, apiVersion, name = &s.metadata, "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	out := bufio.NewWriterSize(w, 64<<10)
	fmt.Fprintf(out, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"`, name, apiVersion, version)
	if rest := len(now.versions) - last; rest > 0 {
		token := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d:%d", last, version))
		fmt.Fprintf(out, `,"continue":%q,"remainingItemCount":%d`, token, rest)
	}
	out.WriteString(`},"items":[`)
	var object []byte
	for i := first; i < last; i++ {
		if i > first {
			out.WriteByte(',')
		}
		object = item.render(object[:0], i, now.versions[i], now.sent[i])
		out.Write(object)
	}
	out.WriteString("]}\n")
	if out.Flush() == nil && last == len(now.versions) {
		s.count(func(c *counts) { c.Snapshots++ })
	}
}

func (s *store) oldest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compacted
}
