package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// control is how the benchmark steers the server, by plain HTTP:
//
//	GET  /stats?kind=pods                            what was asked for so far
//	POST /stream?kind=pods&rate=1000&seconds=10      that many events a second; answers when they are over
//	POST /expire?kind=pods&every=10                  every tenth object changes and all watches end with 410
func (a *api) control() http.Handler {
	mux := http.NewServeMux()
	handle := func(path string, do func(s *store, number func(string, int) int)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			query := r.URL.Query()
			number := func(name string, otherwise int) int {
				if n, err := strconv.Atoi(query.Get(name)); err == nil && n > 0 {
					return n
				}
				return otherwise
			}
			for _, s := range a.stores {
				if s.plural == query.Get("kind") {
					do(s, number)
					s.mu.Lock()
					defer s.mu.Unlock()
					json.NewEncoder(w).Encode(s.counts)
					return
				}
			}
			http.Error(w, "no such kind", http.StatusNotFound)
		})
	}
	handle("GET /stats", func(*store, func(string, int) int) {})
	handle("POST /stream", func(s *store, number func(string, int) int) { s.stream(number("rate", 1000), number("seconds", 10)) })
	handle("POST /expire", func(s *store, number func(string, int) int) { s.expire(number("every", 10)) })
	return mux
}

// stream touches one object after the other, at even distances; a late one is followed at once by the next.
func (s *store) stream(rate, seconds int) {
	const stride = 7919 // a prime: neighbours in time are not neighbours in a list
	start, gap := time.Now(), time.Second/time.Duration(rate)
	for i := range rate * seconds {
		time.Sleep(time.Until(start.Add(time.Duration(i) * gap)))
		s.touch(i*stride%len(s.versions), time.Now().UnixNano())
	}
}
